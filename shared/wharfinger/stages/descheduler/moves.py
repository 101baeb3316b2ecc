"""Records every replica that changed its node, for any reason, so that no rule moves it again at
once."""

from __future__ import annotations

from wharfinger.domain.time import SECOND
from wharfinger.events.assignments import Placed, Released
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState

MOVING: Micros = 60 * SECOND
"""A replica that was released longer ago than this and is placed again counts as new, not as
moved."""


def before_placed(
    state: DeschedulerState,
    name: str,
    cluster: ClusterFacts,
    item: Placed,
    cool_down: Micros,
    at: Micros,
) -> None:
    """Records which replicas move to another node by the decision `item`, which puts replicas on
    nodes. The moves are recorded for consolidation (`state.watch`) and for each descheduling policy
    of the cluster. The caller calls this function before `item` changes the occupancy (which
    replica is on which node).

    A replica moves if its new node differs from its present node. A replica without a node moves if
    it was released from a different node within the last 60 seconds (`MOVING`). A new replica, or a
    replica that returns to its node, does not move. `cool_down`: moves of one binding within this
    time (microseconds) are counted as one move.
    """
    watch, held = state.watch(name), cluster.book.held.get(item.binding)
    left = watch.left.get(item.binding, {})
    for share in item.placed:
        for ordinal in share.ordinals:
            before = None if held is None else held.placed.get(ordinal)
            gone, since = left.pop(ordinal, ("", 0))
            lately = gone if at < since + MOVING else ""
            source = lately if before is None else before.node
            if source and source != share.node:
                watch.has_moved(item.binding, cool_down, at)
                for passes in state.passes_over(name):
                    passes.moved(item.binding, ordinal, source, share.node, at)
    if item.binding in watch.left and not left:
        del watch.left[item.binding]


def after_released(
    state: DeschedulerState, name: str, cluster: ClusterFacts, item: Released, at: Micros
) -> None:
    if not state.watching:
        return
    watch = state.watch(name)
    if item.binding not in cluster.book.held:  # nothing is left of it that could come back
        watch.left.pop(item.binding, None)
        watch.moved.pop(item.binding, None)
        return
    left = watch.left.setdefault(item.binding, {})
    for share in item.released:
        left.update(dict.fromkeys(share.ordinals, (share.node, at)))
