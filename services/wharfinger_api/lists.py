"""Lists of bindings, clusters, nodes and policies: filtered, grouped and paged where they are
read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from wharfinger.answers import facts
from wharfinger.answers.decisions import Plain
from wharfinger.answers.selection import ListSelectionError
from wharfinger.domain.policy import Policy
from wharfinger.runtime.ledger import Ledger
from wharfinger_api.access import Principal
from wharfinger_api.problems import Problem

T = TypeVar("T")

Values = Callable[[Plain], Iterable[str]]
"""The values of an item by which it is chosen or counted."""


async def bindings(ledger: Ledger, principal: Principal) -> list[facts.BindingShown]:
    return [b for b in await facts.bindings_now(ledger, None) if principal.sees(b.binding.name)]


async def clusters(ledger: Ledger, principal: Principal) -> list[facts.ClusterShown]:
    return await facts.clusters_now(ledger)


async def nodes(ledger: Ledger, principal: Principal) -> list[facts.NodeShown]:
    return await facts.nodes_now(ledger)


async def policies(ledger: Ledger, principal: Principal) -> list[tuple[Policy, int]]:
    """With the number of bindings that each places. Of a principal with namespaces: those in them,
    and those of no namespace, without counts of what is elsewhere."""
    found, bound = await facts.policies_now(ledger)
    used = Counter(b.policy for b in bound if principal.sees(b.name))
    return [
        (p, used[p.key])
        for p in found
        if not p.namespace or principal.sees(f"{p.namespace}/{p.name}")
    ]


def selected(select: Callable[[Sequence[T]], list[T]], items: Sequence[T]) -> list[T]:
    """Problem: a state or a label that cannot be."""
    try:
        return select(items)
    except ListSelectionError as error:
        raise Problem("invalid", str(error)) from None


def _text(field: str) -> Values:
    return lambda item: [str(item.get(field) or "")]


def _namespace(item: Plain) -> Iterable[str]:
    return [str(item["name"]).partition("/")[0]]


def _targets(item: Plain) -> Iterable[str]:
    targets: Any = item["targets"]
    return [t["cluster"] for t in targets]


BINDING_VALUES: Mapping[str, Values] = {
    "namespace": _namespace,
    "binding": _text("name"),
    "cluster": _targets,
    "policy": _text("policy"),
    "outcome": _text("outcome"),
}
CLUSTER_VALUES: Mapping[str, Values] = {
    "cluster": _text("name"),
    "provider": _text("provider"),
    "region": _text("region"),
}
NODE_VALUES: Mapping[str, Values] = {"node": _text("name"), "cluster": _text("cluster")}
POLICY_VALUES: Mapping[str, Values] = {
    "namespace": _text("namespace"),
    "policy": _text("key"),
    "kind": _text("kind"),
}


def chosen(
    items: Sequence[Plain], values: Mapping[str, Values], wanted: Mapping[str, Sequence[str]]
) -> list[Plain]:
    """Those of which each filter that is given has a value. `wanted`: filter -> any of."""
    asked = [(values[name], set(any_of)) for name, any_of in wanted.items() if any_of]
    return [item for item in items if all(not any_of.isdisjoint(of(item)) for of, any_of in asked)]


def grouped(
    items: Sequence[Plain], values: Mapping[str, Values], by: Sequence[str]
) -> list[dict[str, object]]:
    """How many there are of each combination of values, in order of these."""
    if unknown := [name for name in by if name not in values]:
        raise Problem("invalid", f"group_by: expected {', '.join(values)}, got {unknown[0][:40]!r}")
    counted: Counter[tuple[str, ...]] = Counter()
    for item in items:
        combinations: list[tuple[str, ...]] = [()]
        for name in by:
            found = list(values[name](item)) or [""]
            combinations = [(*c, value) for c in combinations for value in found]
        counted.update(combinations)
    return [
        {**dict(zip(by, combination, strict=True)), "count": count}
        for combination, count in sorted(counted.items())
    ]


def with_fields(items: Sequence[Plain], fields: Sequence[str]) -> list[Plain]:
    """Only these members of each. Problem: one that no item has."""
    if not fields:
        return list(items)
    known = {name for item in items for name in item}
    if items and (unknown := [name for name in fields if name not in known]):
        raise Problem(
            "invalid",
            f"fields: expected some of {', '.join(sorted(known))}, got {unknown[0][:40]!r}",
        )
    return [{name: item[name] for name in fields if name in item} for item in items]
