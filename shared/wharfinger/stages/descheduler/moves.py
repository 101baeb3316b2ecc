"""Replicas that changed their node, whoever moved them: told to all who remember, so that nobody moves them again at once."""

from __future__ import annotations

from wharfinger.events.assignments import Placed, Released
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState

MOVING: Micros = 60 * SECOND
"""A replica that was let go longer ago than this, and stands somewhere again, is a new one."""


def before_placed(
    state: DeschedulerState, name: str, cluster: ClusterFacts, item: Placed, cool_down: Micros, at: Micros
) -> None:
    """While the book still knows where each was. A replica that comes to another node than it has just left has moved; one that is
    new, or returns to its node, has not. `cool_down`: see `Watch.has_moved`."""
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


def after_released(state: DeschedulerState, name: str, cluster: ClusterFacts, item: Released, at: Micros) -> None:
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
