"""Folds events and decisions about bindings into the fleet state: requested, withdrawn, decided,
refused by a cluster, or evicted."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.domain.time import SECOND
from wharfinger.events.assignments import Refused
from wharfinger.events.decisions import (
    BindingReleased,
    ScheduleAnswer,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import uuid_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.kernel.incarnations import id_of
from wharfinger.stages.fleet import backoff
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.bindings import NOTHING, differs, metadata_changed
from wharfinger.stages.fleet.state.clusters import ClusterState
from wharfinger.stages.fleet.state.quotas import per_unit

FOLDS = DecisionFolds[FleetState]()
"""The folds of decisions about bindings."""

# Requests


def request(state: FleetState, spec: Binding, cause: UUID) -> None:
    record = state.bindings.get(spec.name)
    if record is None:
        _add(state, spec, cause)
    elif record.spec != spec or record.withdrawn:
        _change(state, record, spec, cause)


def _add(state: FleetState, spec: Binding, cause: UUID) -> None:
    record = state.bindings[spec.name] = BindingState(spec, 0, cause)
    state.binding_index.join(spec)
    if spec.clusters:
        _take_over(state, record)
    _ask(state, record, cause)
    state.read(record)
    state.wait(record)
    state.changed(spec.name)


def _take_over(state: FleetState, record: BindingState) -> None:
    """Adopt the targets that a binding already has when it is first requested, so that its replicas
    stay where possible."""
    held = {target.cluster: max(0, target.replicas) for target in record.spec.clusters}
    record.targets = record.before = held or NOTHING
    state.binding_index.takes_over(record)


def _change(state: FleetState, record: BindingState, spec: Binding, cause: UUID) -> None:
    state.waiting.forget(record)
    record.withdrawn = False
    _change_groups(state, record.spec, spec, cause)
    retold = metadata_changed(record.spec, spec)
    record.spec = spec
    state.read(record)
    if retold or differs(record):
        _ask(state, record, cause)
    state.wait(record)
    if not (record.asked or record.left_alone):
        state.waiting.look_again(record)
        state.retry(cause)
    state.changed(spec.name)


def _ask(state: FleetState, record: BindingState, cause: UUID) -> None:
    state.arrivals += 1
    record.arrival, record.cause, record.asked = state.arrivals, cause, True
    record.asked_at = state.clock


def _change_groups(state: FleetState, before: Binding, now: Binding, cause: UUID) -> None:
    state.binding_index.leave_as(before)
    state.binding_index.join(now)
    if (before.affinity_group, before.anti_affinity_group) != (
        now.affinity_group,
        now.anti_affinity_group,
    ):
        regroup_peers(state, before, cause)
        regroup_peers(state, now, cause)


def regroup_peers(state: FleetState, spec: Binding, cause: UUID) -> None:
    """Evaluate the other members of the binding's workload groups again, because the targets of one
    member changed."""
    if state.waiting.peers_moved(spec):
        state.retry(cause)


def withdraw(state: FleetState, name: str, cause: UUID) -> None:
    record = state.bindings.get(name)
    if record is not None and not record.withdrawn:
        state.waiting.forget(record)
        record.withdrawn, record.cause = True, cause
        state.wait(record)
        state.changed(name)


# What clusters refused


def apply_outcomes(state: FleetState, outcomes: OutcomesDecided, cause: UUID) -> None:
    """Fold the outcomes that a cluster stream decided: which replicas were placed, released or
    refused.

    Only refusals change the state. After a refusal the estimate of the class in this cluster is 0
    until the estimator reports a higher number for it. If the refusal is about the current
    assignment of a binding, the binding also loses the refused replicas as targets. Example: 5
    replicas assigned, 2 refused: the target keeps 3. Placed and released replicas change nothing
    here, because the next capacity report includes them. Items that were folded before are skipped.
    `cause`: id of the event.
    """
    seen = state.outcomes.get(outcomes.stream, 0)
    if outcomes.through <= seen:
        return
    cluster = state.clusters.get(outcomes.cluster)
    for item in outcomes.items:
        if item.seq <= seen:
            continue
        seen = item.seq
        if not isinstance(item, Refused) or item.count <= 0:
            continue
        if cluster is not None:
            _close(state, cluster, item.class_key, item.seq, cause)
        record = state.bindings.get(whole_of(item.binding))
        if record is not None and _is_current(state, record, outcomes.cluster, item.assignment):
            if record.sets and cluster is not None:
                # one component that does not fit takes its whole set back
                _close(state, cluster, record.class_key, item.seq, cause)
            _shrink(state, record, outcomes.cluster, item.count, uuid_of(item.decision) or cause)
    state.outcomes[outcomes.stream] = max(seen, outcomes.through)


def _close(state: FleetState, cluster: ClusterState, class_key: str, seq: int, cause: UUID) -> None:
    cluster.closed[class_key] = seq
    cluster.reopen(class_key)
    state.touch(cluster)
    state.retry(cause)


def _is_current(state: FleetState, record: BindingState, cluster: str, assignment: str) -> bool:
    """Return whether a refusal is of the binding's last assignment to the cluster. A refusal of an
    older assignment is outdated, because the cluster answers the newer one too. Of one assignment
    only the first refusal counts until a decision records it."""
    if record.targets.get(cluster) != record.before.get(cluster):
        return False
    seq = record.assigned_by.get(cluster)
    return seq is not None and assignment == str(id_of(state.stream, seq, state.incarnations))


def _shrink(state: FleetState, record: BindingState, cluster: str, count: int, cause: UUID) -> None:
    held = record.targets.get(cluster, 0)
    if record.sets and cluster in record.targets:
        held = count  # a set is whole or not there
    if count <= 0 or held <= 0:
        return
    if count < held:
        record.targets = {**record.targets, cluster: held - count}
    else:
        state.binding_index.leave(record, cluster)
        record.targets = {c: n for c, n in record.targets.items() if c != cluster} or NOTHING
        regroup_peers(state, record.spec, cause)
    if not record.asked:
        record.cause = cause
    state.waiting.open[record.spec.name] = None
    state.changed(record.spec.name)


# Decisions


@FOLDS.of(BindingReleased)
def release(state: FleetState, data: BindingReleased, decision: Decision, at: Micros) -> None:
    record = state.bindings.pop(data.binding, None)
    state.changed(data.binding)
    if record is not None:
        state.waiting.forget(record)
        state.binding_index.forget(record)
        regroup_peers(state, record.spec, decision.id)


def apply_schedule(state: FleetState, data: ScheduleAnswer, decision: Decision, at: Micros) -> None:
    seq, id = decision.seq, decision.id
    record = state.bindings[data.binding]
    state.changed(data.binding)
    state.waiting.forget(record)
    targets = {t.cluster: t.replicas for t in data.targets}
    held, shrunk = record.targets, record.shrunk
    grown = _grown(record, targets, decided=isinstance(data, ScheduleDecided))
    if grown and state.estimates.deduct(record, seq, grown):
        state.moves.stale = True
    state.binding_index.targets_change(record)
    if isinstance(data, ScheduleDecided):
        _apply_decided(state, record, data, targets, seq)
    else:
        _apply_refused(state, record, data, targets, seq)
    record.failback_since = record.rebalance_since = 0
    record.targets = record.before = targets or NOTHING
    record.applied, record.applied_class = record.spec.placement, record.class_key
    record.applied_replicas, record.applied_token = record.spec.replicas, record.spec.reschedule
    record.affinity = data.affinity
    record.asked, record.asked_at = False, 0
    state.wait(record)
    if targets.keys() != held.keys():
        regroup_peers(state, record.spec, id)
    if record.refused and shrunk:
        # it was not allowed to take back what it lost: that is for the next decision
        group = state.waiting.groups.get(record.group)
        if group is not None:
            group.values = None
        state.waiting.retry_due = True


FOLDS.of(ScheduleDecided)(apply_schedule)
FOLDS.of(ScheduleRefused)(apply_schedule)


def _grown(record: BindingState, targets: Mapping[str, int], *, decided: bool) -> Mapping[str, int]:
    """Return cluster -> how many replicas (or component sets) it gets beyond those that the binding
    held there. The cluster's estimates do not include these yet. If the class of the binding
    changed, all replicas count as new. Replicas that the binding had before its first decision run
    already, and the cluster's count includes them. `targets`: cluster -> replicas after the
    decision. `decided`: the decision is not a refusal."""
    held = record.targets
    # What was taken over runs already, and is counted in its cluster.
    same_class = record.applied_class == record.class_key or record.applied is None
    if record.sets and decided:
        return {c: int(not (same_class and c in held)) for c in targets}
    return {c: n - held.get(c, 0) for c, n in targets.items()} if held and same_class else targets


def _apply_decided(
    state: FleetState,
    record: BindingState,
    data: ScheduleDecided,
    targets: dict[str, int],
    seq: int,
) -> None:
    """Fold the parts of a schedule decision that a refusal does not have:

    - Each target gets the seq of this decision as its last assignment.
    - The suspects (target clusters that are silent or that the binding moves away from) are
      replaced by the suspects that the decision names.
    - The stored reason of an earlier refusal is deleted.
    - A failback or rebalance by a policy is recorded, because the number of these moves is limited.

    `targets`: cluster -> replicas, all targets of the binding. `seq`: the seq of the decision.
    """
    # of few targets, `fromkeys` of a dict would be half as large again; of a list it is not
    record.assigned_by = dict.fromkeys(list(targets), seq) or NOTHING
    if record.suspect or data.suspect:
        record.leaving = {one.cluster: one for one in data.leaving} or NOTHING
        _suspect(state, record, data.suspect, targets)
    record.refused = ""
    if data.move:
        record.moved_at = state.clock
        state.moves.count(state.clock)
        if state.rebalancing:
            window_s = max([policy.window_s for policy in state.rebalancing.values()])
            state.moves.depart(record.before, targets, state.clock, window_s * SECOND)
    record.announced_components = tuple([c.name for c in data.components])
    record.applied_requests = per_unit(record.spec)


def _apply_refused(
    state: FleetState,
    record: BindingState,
    data: ScheduleRefused,
    targets: dict[str, int],
    seq: int,
) -> None:
    """Fold a refused decision into the state of its binding. A refusal may keep, take away or move
    replicas that the binding holds, so it has targets too.

    - A target whose number of replicas changed gets the seq of this decision as its last
      assignment. Every other target keeps the seq of its earlier assignment.
    - The binding stores the reason of the refusal. The time before the next attempt grows with each
      refusal (back-off).
    - A suspect stays a suspect only if two conditions hold: the cluster is still a target, and it
      is still silent or the binding still moves away from it.

    `targets`: cluster -> replicas after the decision. `seq`: the seq of the decision.
    """
    changed = {c: seq for c, n in targets.items() if record.before.get(c) != n}
    assigned_by = {**record.assigned_by, **changed}
    if len(assigned_by) > len(targets):
        assigned_by = {c: by for c, by in assigned_by.items() if c in targets}
    record.assigned_by = assigned_by or NOTHING
    if record.suspect:
        record.leaving = {c: one for c, one in record.leaving.items() if c in targets} or NOTHING
        still = tuple(
            c for c in record.suspect if c in targets and (c in state.silent or c in record.leaving)
        )
        _suspect(state, record, still, targets)
    record.refused = data.reason
    record.attempts, record.pause_until = backoff.refused(
        record.attempts, record.pause_until, state.clock, record.asked
    )
    if any(n > record.before.get(cluster, 0) for cluster, n in targets.items()):
        # what a refusal leaves as it was keeps what it had
        record.applied_requests = per_unit(record.spec)


def _suspect(
    state: FleetState, record: BindingState, suspect: tuple[str, ...], targets: dict[str, int]
) -> None:
    """Set the suspects of a binding: the target clusters that are silent or that the binding moves
    away from.

    If a cluster becomes suspect, store in `record.extra` for each other target by how many replicas
    it grew. These replicas can be released if the suspect cluster recovers. Example: a becomes
    suspect, and b grows from 2 to 6: `extra` has b -> 4. If the binding has no suspects, `extra` is
    cleared. `suspect`: names of the suspect clusters. `targets`: cluster -> replicas after the
    decision.
    """
    extra = dict(record.extra)
    if any(c not in record.suspect for c in suspect):
        for cluster, n in targets.items():
            # a set counts no replicas
            before = record.before.get(cluster, -1 if record.spec.components else 0)
            if n > before and cluster not in suspect:
                extra[cluster] = extra.get(cluster, 0) + n - max(0, before)
    record.extra = (
        {c: min(n, targets[c]) for c, n in sorted(extra.items()) if c in targets} if suspect else {}
    ) or NOTHING
    state.binding_index.suspect(record, suspect)
    record.suspect = suspect


def apply_eviction(
    state: FleetState, record: BindingState, proposal: EvictionProposed, id: UUID
) -> None:
    """Fold a decided eviction: keep the binding from returning to the cluster for some time. The
    time depends on the cause of the eviction:

    - `taint`: as long as the cluster has a NoExecute taint.
    - `unhealthy`: for the toleration time plus the grace period of the binding's application
      policy.
    - `unschedulable`: the cluster gets no replicas of the class at all until the estimator reports
      a higher number for the class, or a number that has fallen and risen again.
    - `replaced`: not at all.

    `id`: the id of the decision.
    """
    name = proposal.cluster
    state.changed(proposal.binding)
    match proposal.cause:
        case "taint":
            evicted = (*record.evicted, name)
            tainted = dict.fromkeys([c for c in evicted if state.has_no_execute_taint(c)])
            record.evicted = tainted or NOTHING
        case "unhealthy":
            _exclude_cluster(state, record, name)
        case "unschedulable":
            cluster = state.clusters.get(name)
            if cluster is not None:
                cluster.disprove(record.class_key)
                state.touch(cluster)
                state.retry(id)
        case "replaced":
            pass


def _exclude_cluster(state: FleetState, record: BindingState, name: str) -> None:
    application = record.spec.placement.application
    if application is not None:
        away_s = application.toleration_s + application.grace_s
        until = state.clock + away_s * SECOND
        record.excluded_until = {**record.excluded_until, name: until}
        state.waiting.await_grace(record)
