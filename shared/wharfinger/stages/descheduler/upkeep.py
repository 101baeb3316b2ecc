"""What bindings are let go or moved for between clusters, beside silence and taints: the three rules, in their order.

`rebalancing` writes down policies and counts, `unhealthy` how workloads fare; `unschedulable` reads both.
"""

from __future__ import annotations

from wharfinger.domain.value import Value
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import rebalancing, unhealthy, unschedulable
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import DeschedulerState, Sighting


def fold_upkeep(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    """After what everybody reads was written down: shares, books, bindings, clusters."""
    rebalancing.fold(state, data, sighting)
    unhealthy.fold(state, data, sighting)
    unschedulable.fold(state, data, sighting)


def waits(state: DeschedulerState, cause: Cause, at: Micros) -> bool:
    """Whether a cause that is due is not proposed now: what raised it is too old to go by, or the binding has left already, but for
    a copy that waits for its replacement."""
    if cause.kind in ("unhealthy", "unschedulable") and state.held(cause.cluster, at):
        return True
    if cause.kind not in ("unhealthy", "eviction") or cause.target not in state.upkeep.careful:
        return False
    facts = state.bindings.get(cause.target)
    return facts is not None and unhealthy.counted_elsewhere(state, cause.cluster, facts)


def looked_at(state: DeschedulerState, at: Micros, room: int) -> list[Publication]:
    """What is found by looking at all clusters from time to time, at most `room` of it."""
    return rebalancing.publish(state, at, room)


def next_look(state: DeschedulerState) -> Micros | None:
    return rebalancing.next_due(state)
