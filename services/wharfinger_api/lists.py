"""Lists of bindings, clusters, nodes and policies: filtered, grouped and paged where they are
kept."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wharfinger.answers import facts
from wharfinger.answers.decisions import Plain
from wharfinger.answers.fleet_view import Changed
from wharfinger.answers.selection import ListSelectionError
from wharfinger.domain.policy import Policy
from wharfinger.runtime.ledger import Ledger
from wharfinger_api.access import Principal
from wharfinger_api.present import Moment
from wharfinger_api.problems import Problem

T = TypeVar("T")

Values = Callable[[T], Iterable[str]]
"""The values of an item by which it is chosen or counted."""

PolicyShown = tuple[Policy, int]


@dataclass(frozen=True, slots=True)
class ListKind(Generic[T]):
    """`key`: by which the list is ordered. `members`: of the JSON of an item. `now`, `then`: all of
    them, in order, of the present and of a past. `one`: that of a key, now. `changed`: the keys of
    what may have changed. `identity`: the members of the JSON that say which one it is, by key."""

    name: str
    key: Callable[[T], str]
    plain: Callable[[T], Plain]
    members: frozenset[str]
    values: Mapping[str, Values[T]]
    now: Callable[[Moment, Principal], Sequence[T]]
    then: Callable[[Ledger, Principal], Any]
    one: Callable[[Moment, Principal, str], T | None]
    changed: Callable[[Changed], Iterable[str]]
    identity: Callable[[str], Plain]


def _seen(
    found: Sequence[facts.BindingShown], principal: Principal
) -> Sequence[facts.BindingShown]:
    """Those in the namespaces of the principal."""
    if principal.everywhere:
        return found
    return [shown for shown in found if principal.sees(shown.binding.name)]


def _used(
    policies: Iterable[Policy], used: Mapping[str, int], principal: Principal
) -> list[PolicyShown]:
    return [
        (policy, used.get(policy.key, 0))
        for policy in policies
        if not policy.namespace or principal.sees(f"{policy.namespace}/{policy.name}")
    ]


def _policies_now(moment: Moment, principal: Principal) -> list[PolicyShown]:
    """With the number of bindings that each places. Of a principal with namespaces: those in them,
    and those of no namespace, without counts of what is elsewhere."""
    view = moment.view
    used = (
        view.bound
        if principal.everywhere
        else Counter(shown.binding.policy for shown in _seen(view.bindings(), principal))
    )
    return _used(view.policies(), used, principal)


async def _bindings_then(ledger: Ledger, principal: Principal) -> Sequence[facts.BindingShown]:
    return _seen(await facts.bindings_now(ledger, None), principal)


async def _clusters_then(ledger: Ledger, principal: Principal) -> Sequence[facts.ClusterShown]:
    return await facts.clusters_now(ledger)


async def _nodes_then(ledger: Ledger, principal: Principal) -> Sequence[facts.NodeShown]:
    return await facts.nodes_now(ledger)


async def policies_then(ledger: Ledger, principal: Principal) -> list[PolicyShown]:
    found, bound = await facts.policies_now(ledger)
    return _used(found, Counter(b.policy for b in bound if principal.sees(b.name)), principal)


BINDINGS: ListKind[facts.BindingShown] = ListKind(
    "bindings",
    lambda shown: shown.binding.name,
    facts.binding_plain,
    facts.BINDING_MEMBERS,
    {
        "namespace": lambda shown: [shown.binding.name.partition("/")[0]],
        "binding": lambda shown: [shown.binding.name],
        "cluster": lambda shown: [target.cluster for target in shown.targets],
        "policy": lambda shown: [shown.binding.policy],
        "outcome": lambda shown: [shown.outcome],
    },
    lambda moment, principal: _seen(moment.view.bindings(), principal),
    _bindings_then,
    lambda moment, principal, key: moment.view.binding(key) if principal.sees(key) else None,
    lambda changed: changed.bindings,
    lambda key: {"name": key},
)
CLUSTERS: ListKind[facts.ClusterShown] = ListKind(
    "clusters",
    lambda shown: shown.cluster.name,
    facts.cluster_plain,
    facts.CLUSTER_MEMBERS,
    {
        "cluster": lambda shown: [shown.cluster.name],
        "provider": lambda shown: [shown.cluster.provider],
        "region": lambda shown: [shown.cluster.region],
    },
    lambda moment, _: moment.view.clusters(),
    _clusters_then,
    lambda moment, _, key: moment.view.cluster(key),
    lambda changed: changed.clusters,
    lambda key: {"name": key},
)
NODES: ListKind[facts.NodeShown] = ListKind(
    "nodes",
    lambda shown: f"{shown.cluster}\0{shown.node.name}",
    facts.node_plain,
    facts.NODE_MEMBERS,
    {"node": lambda shown: [shown.node.name], "cluster": lambda shown: [shown.cluster]},
    lambda moment, _: moment.view.nodes(),
    _nodes_then,
    lambda moment, _, key: moment.view.node(*key.split("\0")),
    lambda changed: map("\0".join, changed.nodes),
    lambda key: dict(zip(("cluster", "name"), key.split("\0"), strict=True)),
)
POLICIES: ListKind[PolicyShown] = ListKind(
    "policies",
    lambda shown: shown[0].key,
    lambda shown: facts.policy_plain(*shown),
    facts.POLICY_MEMBERS,
    {
        "namespace": lambda shown: [shown[0].namespace],
        "policy": lambda shown: [shown[0].key],
        "kind": lambda shown: [shown[0].kind],
    },
    _policies_now,
    policies_then,
    lambda moment, principal, key: next(
        (one for one in _policies_now(moment, principal) if one[0].key == key), None
    ),
    lambda changed: changed.policies,
    lambda key: {"key": key},
)


def selected(select: Callable[[Sequence[T]], Sequence[T]], items: Sequence[T]) -> Sequence[T]:
    """Problem: a state or a label that cannot be."""
    try:
        return select(items)
    except ListSelectionError as error:
        raise Problem("invalid", str(error)) from None


def chosen(
    items: Sequence[T], values: Mapping[str, Values[T]], wanted: Mapping[str, Sequence[str]]
) -> Sequence[T]:
    """Those of which each filter that is given has a value. `wanted`: filter -> any of."""
    asked = [(values[name], set(any_of)) for name, any_of in wanted.items() if any_of]
    if not asked:
        return items
    return [item for item in items if all(not any_of.isdisjoint(of(item)) for of, any_of in asked)]


def grouped(
    items: Sequence[T], values: Mapping[str, Values[T]], by: Sequence[str]
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


def page_of(
    items: Sequence[T], key: Callable[[T], str], limit: int, after: str
) -> tuple[Sequence[T], str]:
    """The items behind the key `after`, at most `limit`, and the key to go on behind; empty: there
    are no more. `items` in order of `key`."""
    begin = bisect_right(items, after, key=key) if after else 0
    shown = items[begin : begin + limit]
    return shown, key(shown[-1]) if begin + limit < len(items) else ""


def checked_fields(fields: Sequence[str], known: frozenset[str]) -> None:
    """Problem: one that no item has."""
    if unknown := [name for name in fields if name not in known]:
        raise Problem(
            "invalid",
            f"fields: expected some of {', '.join(sorted(known))}, got {unknown[0][:40]!r}",
        )


def with_fields(item: Plain, fields: Sequence[str]) -> Plain:
    """Only these members."""
    return {name: item[name] for name in fields if name in item}
