"""What bindings are let go or moved for between clusters, beside silence and taints: the three rules, in their order.

`rebalancing` writes down policies and counts, `unhealthy` how workloads fare; `unschedulable` reads both.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.value import Value
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import rebalancing, unhealthy, unschedulable
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import SECOND, DeschedulerState, Sighting
from wharfinger.stages.descheduler.health import Tried

OURS: Sequence[str] = ("unhealthy", "unschedulable", "replaced")
"""The kinds of causes that these rules raise."""

PAUSE_MAX: Micros = 3600 * SECOND


def fold_upkeep(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    """After what everybody reads was written down: shares, books, bindings, clusters."""
    rebalancing.fold(state, data, sighting)
    unhealthy.fold(state, data, sighting)
    unschedulable.fold(state, data, sighting)


def waits(state: DeschedulerState, cause: Cause, at: Micros) -> bool:
    """Whether a cause that is due is not proposed now: what raised it is too old to go by; the binding has left already, but for a
    copy that waits for its replacement; or the same was proposed before and nothing came of it, so that it is insisted on ever more
    seldom."""
    if cause.kind in OURS and state.held(cause.cluster, at):
        return True
    if cause.kind in ("unhealthy", "eviction") and cause.target in state.upkeep.careful:
        facts = state.bindings.get(cause.target)
        if facts is not None and unhealthy.counted_elsewhere(state, cause.cluster, facts):
            return True
    return cause.kind in OURS and not _insisted(state, cause, at)


def _insisted(state: DeschedulerState, cause: Cause, at: Micros) -> bool:
    """Whether its time has come again: the pause doubles each time that the same is proposed. Notes that it is proposed."""
    tried = state.upkeep.tried.get(cause.key)
    if tried is None or tried.origin != cause.origin:
        tried = Tried(cause.origin, 0, at)
    elif at < tried.last + min(PAUSE_MAX, state.causes.pause << min(tried.times, 32)):
        return False
    state.upkeep.tried[cause.key] = Tried(cause.origin, tried.times + 1, at)
    return True


def looked_at(state: DeschedulerState, at: Micros, room: int) -> list[Publication]:
    """What is found by looking at all clusters from time to time, at most `room` of it."""
    return rebalancing.publish(state, at, room)


def next_look(state: DeschedulerState) -> Micros | None:
    return rebalancing.next_due(state)
