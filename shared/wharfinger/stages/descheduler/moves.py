"""Replicas that changed their node, whoever moved them: told to all who remember, so that nobody moves them again at once."""

from __future__ import annotations

from wharfinger.events.assignments import Placed, Released
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState


def before_placed(state: DeschedulerState, name: str, cluster: ClusterFacts, item: Placed, at: Micros) -> None:
    """While the book still knows where each was. A replica that comes to another node than it left has moved; one that is new,
    or returns to its node, has not."""
    watch, held = state.watch(name), cluster.book.held.get(item.binding)
    left = watch.left.get(item.binding, {})
    for share in item.placed:
        for ordinal in share.ordinals:
            before = None if held is None else held.placed.get(ordinal)
            gone = left.pop(ordinal, None)
            source = gone if before is None else before.node
            if source is not None and source != share.node:
                watch.moved[item.binding] = at
                for memory in state.memories(name):
                    memory.moved(item.binding, ordinal, source, share.node, at)
    if item.binding in watch.left and not left:
        del watch.left[item.binding]


def after_released(state: DeschedulerState, name: str, cluster: ClusterFacts, item: Released) -> None:
    if not state.watching:
        return
    watch = state.watch(name)
    if item.binding not in cluster.book.held:  # nothing is left of it that could come back
        watch.left.pop(item.binding, None)
        watch.moved.pop(item.binding, None)
        return
    left = watch.left.setdefault(item.binding, {})
    for share in item.released:
        left.update(dict.fromkeys(share.ordinals, share.node))
