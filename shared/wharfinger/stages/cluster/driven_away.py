"""Replicas whose node drives them away: it has disappeared, or carries a NoExecute taint that they do not (any longer) bear."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.engine.nodes.occupancy import Replica, taint_name
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import in_order, released
from wharfinger.stages.cluster.state import ClusterState

NODE_GONE, TAINTED = "NodeGone", "NoExecuteTaint"

_SECOND = 1_000_000


def release_driven_away(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """One release a binding and reason, all its nodes in it."""
    book = state.book
    going: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name in sorted(book.lost):
        for binding, ordinal in book.on_node[name]:
            why = (NODE_GONE, state.causes.get(name, ""))
            going.setdefault(binding, {}).setdefault(why, []).append(ordinal)
    for binding, ordinal, name, due in tainted_replicas(state):
        if due <= at:
            why = (TAINTED, state.causes.get(name, "") if due == 0 else "")
            going.setdefault(binding, {}).setdefault(why, []).append(ordinal)
    for binding in in_order(state, going):
        for (reason, cause), ordinals in sorted(going[binding].items()):
            yield from released(state, binding, sorted(ordinals), reason, uuid_of(cause))


def next_due(state: ClusterState) -> Micros | None:
    """When the first taint is borne no longer."""
    return min((due for *_, due in tainted_replicas(state)), default=None)


def tainted_replicas(state: ClusterState) -> Iterator[tuple[str, int, str, Micros]]:
    """(binding, ordinal, node, until when the node's NoExecute taints are borne) for each replica that has an end to it."""
    book = state.book
    for name in sorted(book.taint_since):
        for (binding, ordinal), replica in book.on_node.get(name, {}).items():
            until = _borne_until(state, name, replica)
            if until is not None:
                yield binding, ordinal, name, until


def _borne_until(state: ClusterState, name: str, replica: Replica) -> Micros | None:
    """0: not at all. None: for ever. A limited time runs from the taint, or from the placing if that was later."""
    since = state.book.taint_since[name]
    ends: list[Micros] = []
    for taint in state.book.nodes[name].taints:
        if taint.effect != "NoExecute":
            continue
        matching = [t for t in replica.cls.requirements.tolerations if t.tolerates(taint)]
        limits = [t.seconds for t in matching if t.seconds is not None]
        if not matching or any(s <= 0 for s in limits):
            return 0
        if limits:
            ends.append(max(since[taint_name(taint)], replica.at) + min(limits) * _SECOND)
    return min(ends, default=None)
