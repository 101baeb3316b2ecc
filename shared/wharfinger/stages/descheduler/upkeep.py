"""The remaining rules that move bindings between clusters, in their order: `rebalancing` records
policies and counts, `unhealthy` workload health; `unschedulable` reads both."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import rebalancing, unhealthy, unschedulable
from wharfinger.stages.descheduler.facts import DeschedulerState, Sighting
from wharfinger.stages.descheduler.health import MoveAttempts
from wharfinger.stages.descheduler.proposal_causes import ProposalCause

OURS: Sequence[str] = ("unhealthy", "unschedulable", "replaced")
"""The kinds of causes that these rules raise."""

BY_REPORTS: Sequence[str] = (*OURS, "node-removal")
"""The kinds of causes that follow from what a cluster reported last."""

PAUSE_MAX: Micros = 3600 * SECOND


def fold_upkeep(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    """Passes an event to the three rules of this module. The caller first updates the state that
    they read: shares, occupancies, bindings, clusters."""
    rebalancing.fold(state, data, sighting)
    unhealthy.fold(state, data, sighting)
    unschedulable.fold(state, data, sighting)


def waits(state: DeschedulerState, cause: ProposalCause, at: Micros) -> bool:
    """Returns whether a due cause (why a proposal is made) must wait and is not proposed now.
    False: it is proposed now, and the attempt is counted. A cause waits in three cases:

    - The known state of the cluster is not current (for example, the cluster is silent).
    - The binding is to leave this cluster, and other clusters already have all replicas of the
      binding; the replicas here wait only for their release.
    - The same cause was proposed before, and the pause after that proposal is not over. The pause
      doubles with each proposal, up to one hour.

    The first and the third case are only for causes of the kinds `unhealthy`, `unschedulable` and
    `replaced`, the first also for `node-removal`; the second only for `unhealthy` and `eviction`.
    """
    if cause.kind in BY_REPORTS and state.held(cause.cluster, at):
        return True
    if cause.kind in ("unhealthy", "eviction") and cause.target in state.upkeep.careful:
        facts = state.bindings.get(cause.target)
        if facts is not None and unhealthy.counted_elsewhere(state, cause.cluster, facts):
            return True
    return cause.kind in OURS and not _insisted(state, cause, at)


def _insisted(state: DeschedulerState, cause: ProposalCause, at: Micros) -> bool:
    """Returns whether the pause since the last proposal of the same cause has passed; if so, counts
    this proposal. The pause doubles with each proposal, up to an hour (exponential back-off)."""
    tried = state.upkeep.tried.get(cause.key)
    if tried is None or tried.origin != cause.origin:
        tried = MoveAttempts(cause.origin, 0, at)
    elif at < tried.last + min(PAUSE_MAX, state.causes.pause << min(tried.times, 32)):
        return False
    state.upkeep.tried[cause.key] = MoveAttempts(cause.origin, tried.times + 1, at)
    return True


def looked_at(state: DeschedulerState, at: Micros, room: int) -> list[Publication]:
    """Runs the periodic rules over all clusters that are due, and returns at most `room`
    proposals."""
    return rebalancing.publish(state, at, room)


def next_look(state: DeschedulerState) -> Micros | None:
    return rebalancing.next_due(state)
