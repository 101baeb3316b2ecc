"""`diff`: two moments beside each other. Ends with 0 where they are the same and with 1 where they
are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.domain.text import some
from wharfinger.events.decisions.wording import targets_text
from wharfinger.history.diff import FieldChange, FleetDifference, changed_fields
from wharfinger.history.diff import diff as difference
from wharfinger.history.plane_at import BindingAt, ClusterAt, NodeAt, PlaneSnapshot, ResourceUse
from wharfinger.history.points import point_of
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import plain
from wharfinger_cli.failures import DIFFERENCE
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_time,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request

T = TypeVar("T")

STYLES = {"added": GOOD, "removed": BAD, "changed": WARN}
SHOWN_MAX = 200


def diff(request: Request, a: str, b: str, stream: str) -> None:
    found = run(_diff(request, a, b, stream))
    names = [
        c.name
        for part in (found.clusters, found.nodes, found.bindings, found.policies)
        for c in part
    ]
    show(request.format, diff_plain(found), names, lambda: diff_page(found))
    if not found.same:
        raise SystemExit(DIFFERENCE)


async def _diff(request: Request, a: str, b: str, stream: str) -> FleetDifference:
    now = wall_clock()
    first, second = point_of(a, now), point_of(b, now)
    async with opened_ledger(reached(request)) as ledger:
        return await difference(ledger, first, second, stream)


# --- for programs


def diff_plain(found: FleetDifference) -> Plain:
    return {
        "a": _picture_plain(found.a),
        "b": _picture_plain(found.b),
        "same": found.same,
        "clusters": [_change_plain(c, _cluster_plain) for c in found.clusters],
        "nodes": [_change_plain(c, _node_plain) for c in found.nodes],
        "bindings": [_change_plain(c, _binding_plain) for c in found.bindings],
        "policies": [_change_plain(c, plain) for c in found.policies],
    }


def _picture_plain(picture: PlaneSnapshot) -> Plain:
    heads = picture.heads.values()
    return {
        "point": picture.point.text,
        "streams": {h.stream: {"round": h.round, "time": as_time(h.at)} for h in heads},
    }


def _change_plain(change: FieldChange[T], of: Callable[[T], Plain]) -> Plain:
    return {
        "name": change.name,
        "change": change.kind,
        "before": None if change.before is None else of(change.before),
        "after": None if change.after is None else of(change.after),
    }


def _cluster_plain(cluster: ClusterAt) -> Plain:
    return {
        "facts": None if cluster.facts is None else plain(cluster.facts),
        "silent_since": None if cluster.silent_since is None else as_time(cluster.silent_since),
        "assigned": cluster.assigned,
        "placed": cluster.placed,
        "nodes": len(cluster.nodes),
        "use": _use_plain(cluster.use),
    }


def _node_plain(node: NodeAt) -> Plain:
    return {
        "facts": plain(node.node),
        "closed": node.closed,
        "replicas": dict(node.replicas),
        "use": _use_plain(node.use),
    }


def _use_plain(use: ResourceUse) -> Plain:
    return {
        "cpu_milli": use.cpu,
        "cpu_milli_max": use.cpu_max,
        "memory_bytes": use.memory,
        "memory_bytes_max": use.memory_max,
        "devices_milli": use.devices,
        "devices_milli_max": use.devices_max,
    }


def _binding_plain(binding: BindingAt) -> Plain:
    return {
        "spec": plain(binding.spec),
        "outcome": binding.outcome,
        "reason": binding.reason,
        "targets": dict(binding.targets),
        "suspect": list(binding.suspect),
        "nodes": dict(binding.nodes),
    }


# --- for people


def diff_page(found: FleetDifference) -> Iterator[RenderableType]:
    yield _headline(found)
    if found.clusters:
        yield ""
        yield _clusters(found)
    if found.nodes:
        yield ""
        yield _node_table(found)
    if found.bindings:
        yield ""
        yield _binding_table(found)
    if found.policies:
        yield ""
        yield _policies(found)


def _headline(found: FleetDifference) -> Text:
    if found.same:
        said = Text("the same", GOOD)
    else:
        numbers = (
            (found.clusters, "cluster", ""),
            (found.nodes, "node", ""),
            (found.bindings, "binding", ""),
            (found.policies, "policy", "policies"),
        )
        said = Text("different", WARN).append(
            ": "
            + ", ".join(count(len(part), noun, plural) for part, noun, plural in numbers if part),
            "default",
        )
    return said.append(f"  {_moment(found.a)} -> {_moment(found.b)}", DARK)


def _moment(picture: PlaneSnapshot) -> str:
    """The point as it was said, and what time that was for those streams."""
    at = max((head.at for head in picture.heads.values()), default=0)
    return picture.point.text if not at else f"{picture.point.text} ({as_clock(at)})"


def _clusters(found: FleetDifference) -> Table:
    table = new_table("cluster", "", "replicas", "on nodes", "cpu", "memory", "devices", "what")
    for change in found.clusters[:SHOWN_MAX]:
        table.add_row(
            change.name,
            _kind(change),
            _step(change, lambda c: c.assigned),
            _step(change, lambda c: c.placed),
            _step(change, lambda c: share(c.use.cpu, c.use.cpu_max)),
            _step(change, lambda c: share(c.use.memory, c.use.memory_max)),
            _step(change, lambda c: share(c.use.devices, c.use.devices_max)),
            _cluster_words(change.before, change.after),
        )
    _more(table, len(found.clusters))
    return table


def _cluster_words(a: ClusterAt | None, b: ClusterAt | None) -> str:
    if a is None or b is None:
        return ""
    words: list[str] = []
    if a.silent_since != b.silent_since:
        words.append(
            "heard again" if b.silent_since is None else f"silent since {as_clock(b.silent_since)}"
        )
    if a.facts is not None and b.facts is not None:
        words += changed_fields(a.facts, b.facts)
    elif a.facts is not b.facts:
        words.append("has left the fleet" if b.facts is None else "has joined the fleet")
    if len(a.nodes) != len(b.nodes):
        words.append(f"{len(a.nodes)} -> {count(len(b.nodes), 'node')}")
    return ", ".join(words)


def _node_table(found: FleetDifference) -> Table:
    table = new_table("node", "", "cpu", "memory", "replicas", "what")
    for change in found.nodes[:SHOWN_MAX]:
        table.add_row(
            change.name,
            _kind(change),
            _step(change, lambda n: share(n.use.cpu, n.use.cpu_max)),
            _step(change, lambda n: share(n.use.memory, n.use.memory_max)),
            _step(change, lambda n: sum(n.replicas.values())),
            _node_words(change.before, change.after),
        )
    _more(table, len(found.nodes))
    return table


def _node_words(a: NodeAt | None, b: NodeAt | None) -> str:
    words: list[str] = []
    if a is not None and b is not None:
        words += changed_fields(a.node, b.node)
        if a.closed != b.closed:
            words.append("closed" if b.closed else "open again")
    moved = moves(a.replicas if a else {}, b.replicas if b else {})
    return ", ".join([*words, *([some(moved)] if moved else [])])


def _binding_table(found: FleetDifference) -> Table:
    table = new_table("binding", "", "replicas", "before", "after", "what")
    for change in found.bindings[:SHOWN_MAX]:
        a, b = change.before, change.after
        table.add_row(
            change.name,
            _kind(change),
            _step(change, lambda b: b.spec.replicas),
            _where(a),
            _where(b),
            Text(_binding_words(a, b), DARK),
        )
    _more(table, len(found.bindings))
    return table


def _where(binding: BindingAt | None) -> str:
    if binding is None:
        return ""
    where = targets_text(binding.target_clusters)
    said = f"{binding.outcome}: {binding.reason}" if binding.reason else binding.outcome
    return (
        where if binding.outcome == "scheduled" else f"{where} ({said})" if where else f"({said})"
    )


def _binding_words(a: BindingAt | None, b: BindingAt | None) -> str:
    words: list[str] = []
    if a is not None and b is not None:
        words += [name for name in changed_fields(a.spec, b.spec) if name != "replicas"]
        if a.suspect != b.suspect:
            words.append(
                f"counted twice: {', '.join(b.suspect)}" if b.suspect else "no longer counted twice"
            )
    moved = moves(a.nodes if a else {}, b.nodes if b else {})
    return ", ".join([*words, *([f"nodes {some(moved)}"] if moved else [])])


def _policies(found: FleetDifference) -> Table:
    table = new_table("policy", "", "what")
    for change in found.policies[:SHOWN_MAX]:
        a, b = change.before, change.after
        both = changed_fields(a, b) if a is not None and b is not None else []
        table.add_row(
            change.name, _kind(change), ", ".join(name for name in both if name != "manifest")
        )
    _more(table, len(found.policies))
    return table


def moves(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """`+2 oslo/oslo-1`, `-1 oslo/oslo-2`: where there are more or less than before."""
    steps = {
        place: after.get(place, 0) - before.get(place, 0) for place in sorted({*before, *after})
    }
    return [f"{step:+d} {place}" for place, step in steps.items() if step]


def share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _step(change: FieldChange[T], of: Callable[[T], int | str]) -> str:
    """`3 -> 5`; `5` where it is the same; `- -> 5` where the thing is new."""
    a, b = ("" if side is None else str(of(side)) for side in (change.before, change.after))
    return a if a == b else f"{a or '-'} -> {b or '-'}"


def _kind(change: FieldChange[T]) -> Text:
    return Text(change.kind, STYLES[change.kind])


def _more(table: Table, number: int) -> None:
    if number > SHOWN_MAX:
        table.caption = f"the first {SHOWN_MAX} of {number:,}; -o json has all"
