"""Taint-based eviction: releases replicas whose node no longer exists, or has a NoExecute taint
that they do not (or no longer) tolerate."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.time import SECOND
from wharfinger.engine.nodes.occupancy import Replica, taint_name
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import in_order, released
from wharfinger.stages.cluster.state import ClusterStageState

NODE_GONE, TAINTED = "NodeGone", "NoExecuteTaint"


def release_no_execute(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Drafts the releases of replicas whose node no longer exists, and of replicas that have to
    leave because of a NoExecute taint of their node. Such a replica has to leave at once if it does
    not tolerate the taint, or else when the time of its toleration (`tolerationSeconds`) ends.

    The replicas of one binding with the same reason and cause are released together, at most
    `SHARE_MAX` (10,000) in one decision. Bindings are in order of priority, then arrival. The cause
    is the event that showed the lost or tainted node. A release because the time of a toleration
    ended has no cause.
    """
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


def next_due(state: ClusterStageState) -> Micros | None:
    """Returns the time at which the first limited toleration ends; None if there is none."""
    return min((due for *_, due in tainted_replicas(state)), default=None)


def tainted_replicas(state: ClusterStageState) -> Iterator[tuple[str, int, str, Micros]]:
    """Yields (binding, ordinal, node, time) for each replica that does not tolerate its node's
    NoExecute taints for an unlimited time. The time is when the toleration ends; 0: there is no
    toleration."""
    book = state.book
    for name in sorted(book.taint_since):
        for (binding, ordinal), replica in book.on_node.get(name, {}).items():
            until = _borne_until(state, name, replica)
            if until is not None:
                yield binding, ordinal, name, until


def _borne_until(state: ClusterStageState, name: str, replica: Replica) -> Micros | None:
    """Returns the time in microseconds at which the replica has to leave node `name` because of the
    NoExecute taints of the node. 0: at once, because no toleration matches a taint. None: never.

    `tolerationSeconds` starts when the taint was added, or when the replica was placed if that was
    later. Example: taint at 10:00, replica placed at 10:02, `tolerationSeconds` 300: 10:07. If
    several tolerations match one taint, the shortest time is used. If the node has several taints,
    the earliest time is returned.
    """
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
            ends.append(max(since[taint_name(taint)], replica.at) + min(limits) * SECOND)
    return min(ends, default=None)
