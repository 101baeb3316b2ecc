"""What the fleet stage decides, and in which order.

A round goes: who is silent or heard again; is the fleet held; who was withdrawn; what the recovery of a cluster makes
superfluous; proposals; new and changed bindings in the order they came; by priority and age, what lost replicas or
waits; and last the plans, each tried on what all of that has left and, when it is committed, followed by the same again.
Every request, every proposal and every plan gets exactly one answer. Everything else is decided only when it changes something:
a binding that waits for unchanged reasons is silent.

A steady binding never moves because capacity changed. What follows the fleet are Duplicated bindings and objects without
replicas: they go to every cluster that is feasible, so they are looked at when the facts of clusters change.

Failover adds: the silent cluster keeps its replicas, marked suspect, and as many are placed elsewhere. When it is heard
again the replicas added for it are let go and its own are kept: they ran all the time or are there already, so keeping them
moves the least. What was scaled meanwhile is divided as usual after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Self
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.reasons import ProposalRefusal, Trigger
from wharfinger.domain.taints import toleration_seconds
from wharfinger.domain.value import Value
from wharfinger.engine.fleet.trigger import placement_changed
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    FailoverHeld,
    FailoverResumed,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, uuid_of
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.stages.fleet import saved
from wharfinger.stages.fleet.clusters import SECOND, ClusterState
from wharfinger.stages.fleet.places import Verdict, feasible, solve
from wharfinger.stages.fleet.plans import answer_plans, expectation
from wharfinger.stages.fleet.relocate import relocation
from wharfinger.stages.fleet.state import BindingState, FleetState, Proposal

ROUND_LIMIT = 500
"""How many bindings nobody asked about are decided in one round; the others follow in the next, which is due at once."""

_PROFILE = "fleet round-limit="


class FleetDecider:
    """`kernel.decider.Decider` for the streams `fleet/<shard>`. `round_limit`: see `ROUND_LIMIT`."""

    def __init__(self, round_limit: int = ROUND_LIMIT) -> None:
        self._round_limit = round_limit

    @classmethod
    def of_profile(cls, text: str) -> Self:
        """As a recorded round names it; the default one where the text is unknown."""
        return cls(_limit_of(text))

    @property
    def profile(self) -> str:
        return f"{_PROFILE}{self._round_limit}"

    def initial(self, stream: str) -> FleetState:
        return FleetState(stream)

    def fold_input(self, state: FleetState, event: Event[Value], at: Micros) -> None:
        state.fold_input(event, at)

    def fold_decision(self, state: FleetState, decision: Decision, at: Micros) -> None:
        state.fold_decision(decision, at)

    def is_news(self, state: FleetState, event: Event[Value]) -> bool:
        return state.is_news(event)

    def decide(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        made = 0
        for draft in chain(self._by_the_rules(state, at), answer_plans(state, at, self._by_the_rules, self.profile)):
            made += 1
            yield draft
        state.come_to_rest(unfinished=made >= self._round_limit)

    def rest(self, state: FleetState, decisions: int, profile: str) -> None:
        state.come_to_rest(unfinished=decisions >= _limit_of(profile))

    def expectation(self, state: FleetState, request: PlanRequested, at: Micros) -> PlanRequested:
        """A plan's request with what would come of it now. Changes nothing."""
        return expectation(state, request, at, self._by_the_rules, self.profile)

    def _by_the_rules(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        yield from watch_leases(state, at)
        yield from hold_or_resume(state)
        yield from release_withdrawn(state)
        yield from settle_recovered(state)
        yield from answer_proposals(state, at)
        yield from answer_requests(state)
        yield from retry(state, self._round_limit)

    def next_due(self, state: FleetState) -> Micros | None:
        if state.stirred and (state.waiting or state.open):
            return state.clock
        return state.leases.next()

    def dump(self, state: FleetState) -> dict[str, bytes]:
        return saved.dump(state)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> FleetState:
        return saved.load(stream, sections)

    def note_changes(self, state: FleetState, everything: bool) -> None:
        state.touched = dict.fromkeys(state.bindings) if everything else {}

    def changes(self, state: FleetState) -> tuple[dict[str, bytes], dict[str, list[int]]]:
        """As `kernel.decider.Incremental`."""
        found = saved.delta(state, state.bindings if state.touched is None else state.touched)
        state.touched = {}
        return found.sections, found.names


def _limit_of(profile: str) -> int:
    limit = profile.removeprefix(_PROFILE)
    return int(limit) if profile.startswith(_PROFILE) and limit.isdecimal() else ROUND_LIMIT


# Silence


def watch_leases(state: FleetState, at: Micros) -> Iterator[Draft]:
    for (name,) in sorted(state.leases.pop(at)):
        cluster = state.clusters.get(name)
        if cluster is None:
            continue
        lease = cluster.lease_us
        over = lease is not None and cluster.heard_at + lease <= at
        if over and cluster.silent_since is None:
            yield Draft(ClusterSilenced(name, cluster.heard_at), name, "silenced")
        elif not over and cluster.silent_since is not None:
            yield Draft(ClusterRecovered(name), name, "recovered", cluster.heard_by)
        else:
            state.watch(cluster)


def hold_or_resume(state: FleetState) -> Iterator[Draft]:
    silent, clusters = len(state.silent), state.leased
    if 2 * silent > clusters and not state.held:
        yield Draft(FailoverHeld(silent, clusters), state.stream, "held")
    elif 2 * silent <= clusters and state.held:
        yield Draft(FailoverResumed(silent, clusters), state.stream, "resumed")


# Withdrawn, recovered


def release_withdrawn(state: FleetState) -> Iterator[Draft]:
    for name in list(state.withdrawn):
        record = state.bindings[name]
        yield Draft(BindingReleased(name, record.spec.uid, _targets(record.before)), name, "released", record.cause)


def settle_recovered(state: FleetState) -> Iterator[Draft]:
    """Bindings some of whose suspect clusters are heard again, clusters and bindings in order of name."""
    for name in sorted(state.suspected):
        cluster = state.clusters.get(name)
        if cluster is not None and cluster.silent_since is not None:
            continue
        for binding in sorted(state.suspected.get(name, ())):  # settled for one cluster, perhaps settled for the next
            record = state.bindings[binding]
            if name in record.suspect and not record.spec.suspended:
                yield _settled(state, record, cluster)


def _settled(state: FleetState, record: BindingState, cluster: ClusterState | None) -> Draft:
    """The extra replicas go, as many as are too many now; those of the recovered cluster stay."""
    suspect = tuple(c for c in record.suspect if c in state.silent)
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    excess = len(held) if record.plan.duplicated else sum(held.values()) - record.spec.replicas
    for name, extra in sorted(record.extra.items()):
        most = held.get(name, 0)
        give = min(extra, most, max(0, excess))
        if record.plan.duplicated:
            give = most  # a copy is whole or not there
        if give:
            excess -= give
            held[name] = most - give
            if not held[name]:
                del held[name]
    verdict = solve(state, record, held, fresh=record.applied_token != record.spec.reschedule)
    cause = cluster.heard_by if cluster is not None else record.cause
    return _schedule(record, "FailoverSchedule", _with_suspects(record, verdict, suspect), suspect, cause)


# Proposals


def answer_proposals(state: FleetState, at: Micros) -> Iterator[Draft]:
    for proposal_id, proposal in list(state.proposals.items()):
        yield _credited(state, answer(state, proposal_id, proposal, at), proposal_id, proposal)


def _credited(state: FleetState, draft: Draft, proposal_id: UUID, proposal: Proposal) -> Draft:
    """What a replay or a plan proposed has that as its cause, so that all that came of it is found by it. The decision then
    names the proposal that it answers."""
    replay = uuid_of(proposal.replay) if isinstance(proposal, RescheduleProposed) and proposal.replay else None
    cause = replay or state.on_behalf.get(proposal_id)
    if cause is None:
        return draft
    data = draft.data
    if isinstance(data, ScheduleDecided | ScheduleRefused):
        data = msgspec.structs.replace(data, answers=str(proposal_id))
    return Draft(data, draft.subject, draft.outcome, cause)


def answer(state: FleetState, proposal_id: UUID, proposal: Proposal, at: Micros) -> Draft:
    """Simulate what is proposed against the present: commit it, or refuse it with the reason."""
    record = state.bindings.get(proposal.binding)
    named = isinstance(proposal, RescheduleProposed) and bool(proposal.targets)
    if record is None or (record.applied is None and not named):
        return _declined(proposal_id, proposal, "UnknownTarget", "no such binding is placed")
    if record.spec.suspended:
        return _declined(proposal_id, proposal, "NothingToDo", "the binding is suspended")
    match proposal:
        case FailoverProposed(cluster=name):
            return _fail_over(state, record, name, proposal_id, proposal)
        case EvictionProposed(cluster=name):
            return _evict(state, record, name, proposal_id, proposal, at)
        case RescheduleProposed() if named:
            return _relocate(state, record, proposal_id, proposal)
        case RescheduleProposed():
            return _reschedule(state, record, proposal_id, proposal)


def _fail_over(
    state: FleetState, record: BindingState, name: str, proposal_id: UUID, proposal: FailoverProposed
) -> Draft:
    cluster = state.clusters.get(name)
    if cluster is None or cluster.facts is None:
        return _declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if state.held:
        return _declined(proposal_id, proposal, "FleetHeld", "over half of the clusters with a lease are silent")
    if cluster.silent_since is None:
        return _declined(proposal_id, proposal, "TargetRecovered", "the cluster is heard of")
    if name in record.suspect or not record.targets.get(name):
        return _declined(proposal_id, proposal, "NothingToDo", "nothing there that is not placed elsewhere already")
    suspect = tuple(sorted((*record.suspect, name)))
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    verdict = solve(state, record, held, without=suspect)
    if verdict.reason:
        return _declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
    if verdict.targets == held:
        return _declined(proposal_id, proposal, "NothingToDo", "every other cluster has its copy")
    return _schedule(
        record, "FailoverSchedule", _with_suspects(record, verdict, suspect), suspect, proposal_id
    )  # fmt: skip


def _evict(
    state: FleetState, record: BindingState, name: str, proposal_id: UUID, proposal: EvictionProposed, at: Micros
) -> Draft:
    """A NoExecute taint whose toleration has ended means that the replicas go, even when there is no other place."""
    cluster = state.clusters.get(name)
    if cluster is None or cluster.facts is None:
        return _declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if name not in record.targets:
        return _declined(proposal_id, proposal, "NothingToDo", "the binding has nothing there")
    if not cluster.tainted:
        return _declined(proposal_id, proposal, "TargetRecovered", "the cluster has no NoExecute taint")
    if not _toleration_ended(record, cluster, at):
        return _declined(proposal_id, proposal, "TolerationNotEnded", "the binding still bears the taint")
    suspect = tuple(c for c in record.suspect if c != name)
    held = {c: n for c, n in record.targets.items() if c != name and c not in suspect}
    verdict = _with_suspects(record, solve(state, record, held, without=(name, *suspect)), suspect)
    if verdict.reason:
        verdict.targets.pop(name, None)
    return _schedule(record, "FailoverSchedule", verdict, suspect, proposal_id)


def _toleration_ended(record: BindingState, cluster: ClusterState, at: Micros) -> bool:
    """Whether one of the cluster's NoExecute taints has been there for longer than the binding bears it."""
    assert cluster.facts is not None
    for taint in cluster.facts.taints:
        if taint.effect != "NoExecute":
            continue
        seconds = toleration_seconds((taint,), record.spec.placement.tolerations)
        since = cluster.tainted_at[f"{taint.key}={taint.value}"]
        if seconds is not None and since + seconds * SECOND <= at:
            return True
    return False


def _relocate(state: FleetState, record: BindingState, proposal_id: UUID, proposal: RescheduleProposed) -> Draft:
    """Exactly the targets that are named, or not at all. A request that is still open is answered by it."""
    found = relocation(state, record, proposal, _counted(record))
    if isinstance(found, tuple):
        return _declined(proposal_id, proposal, *found)
    trigger: Trigger = "FirstSchedule" if record.applied is None else "ReconcileSchedule"
    return _schedule(record, trigger, _with_suspects(record, found, record.suspect), record.suspect, proposal_id)


def _reschedule(state: FleetState, record: BindingState, proposal_id: UUID, proposal: Proposal) -> Draft:
    verdict = _with_suspects(
        record, solve(state, record, _counted(record), fresh=True, without=record.suspect), record.suspect
    )
    if verdict.reason:
        return _declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
    if verdict.targets == record.before:
        return _declined(proposal_id, proposal, "NothingToDo", "a fresh decision is the present one")
    return _schedule(record, "ReconcileSchedule", verdict, record.suspect, proposal_id)


def _declined(proposal_id: UUID, proposal: Proposal, reason: ProposalRefusal, detail: str) -> Draft:
    kind = type(proposal).__name__
    refusal = ProposalRefused(str(proposal_id), kind, proposal.binding, reason, detail)
    return Draft(refusal, proposal.binding, "refused", proposal_id)


# Requests


def answer_requests(state: FleetState) -> Iterator[Draft]:
    for name in (
        sorted(state.asked, key=lambda n: state.bindings[n].arrival) if len(state.asked) > 1 else list(state.asked)
    ):
        record = state.bindings[name]
        fresh = record.applied is not None and record.applied_token != record.spec.reschedule
        yield _schedule(record, trigger_of(record), _present(state, record, fresh=fresh), record.suspect, record.cause)


def trigger_of(record: BindingState) -> Trigger:
    """Why a request needs a decision, asked in Karmada's order."""
    if record.applied is None:
        return "FirstSchedule"
    if placement_changed(record.applied, record.spec.placement, record.affinity):
        return "ReconcileSchedule"
    if record.applied_replicas != record.spec.replicas:
        return "ScaleSchedule"
    return "ReconcileSchedule"


# What lost replicas, waits, or follows the fleet


def retry(state: FleetState, round_limit: int) -> Iterator[Draft]:
    """Highest priority first, then the oldest. What still has no place for the same reason is not decided again."""
    if not state.stirred and not state.open:
        return
    left = round_limit
    for name in _in_turn(state, list(state.open)):
        record = state.bindings[name]
        if record.spec.suspended or not (record.shrunk or state.leaving(record)):
            state.open.pop(name, None)
            continue
        if not left:
            return
        draft = _reopened(state, record)
        if draft is None:
            state.open.pop(name, None)
            continue
        left -= 1
        yield draft
    if not state.stirred:
        return
    names = _following(state) + _ripe(state)
    for name in _in_turn(state, names):
        if not left:
            return
        record = state.bindings[name]
        if record.refused and not _may_fit(state, record):
            continue
        draft = _reopened(state, record)
        if draft is not None:
            left -= 1
            yield draft


def _in_turn(state: FleetState, names: list[str]) -> list[str]:
    return sorted(names, key=lambda n: (-state.bindings[n].spec.priority, state.bindings[n].arrival))


def _following(state: FleetState) -> list[str]:
    """Bindings that go wherever they may, once the facts of some cluster have changed."""
    return list(state.everywhere) if state.everywhere_facts != state.facts else []


def _ripe(state: FleetState) -> list[str]:
    """The waiting bindings for which something has changed that matters to them: groups are asked, not bindings.

    Only a change of facts can change why a binding waits; where just the estimates have changed, those that need more than
    all clusters together offer are passed over.
    """
    ripe: list[str] = []
    for group in state.waiting.values():
        values = state.values_of(group)
        if group.facts != state.facts or (group.values != values and any(values)):
            ripe += group.names
    return ripe


def _may_fit(state: FleetState, record: BindingState) -> bool:
    """A cheap bound, exact where it says no: what is missing against what the feasible clusters offer together."""
    group = state.waiting.get(record.group)
    if group is None or group.facts != state.facts:
        return True
    if record.plan.problem or not record.counted:
        return False  # no capacity will mend it
    column = state.column(record.class_key, record.spec.requirements)
    if record.plan.duplicated or record.plan.static or column.unlimited:
        return column.total > 0
    need = record.spec.replicas - sum(record.targets.values())
    if record.targets or len(record.plan.placement.affinities) > 1:
        return column.total >= need
    positions = feasible(state, record, 0).positions
    values = column.values
    offer = column.total if len(positions) == len(values) else sum([values[i] for i in positions])
    return offer >= need


def _reopened(state: FleetState, record: BindingState) -> Draft | None:
    """A decision nobody asked for: only when it changes the targets, or the reason to wait."""
    verdict = _present(state, record, retry=bool(record.refused) or record.shrunk)
    suspect = tuple(c for c in record.suspect if c in verdict.targets)
    if verdict.targets == record.before and verdict.reason == record.refused and suspect == record.suspect:
        return None
    gone = state.leaving(record) or any(not state.known(c) for c in record.before)
    trigger: Trigger = (
        "FailoverSchedule" if gone else "ScaleSchedule" if record.refused or record.shrunk else "ReconcileSchedule"
    )
    cause = record.cause if record.shrunk else state.stirrer
    return _schedule(record, trigger, verdict, suspect, cause)


# Shared


def _present(state: FleetState, record: BindingState, *, fresh: bool = False, retry: bool = False) -> Verdict:
    """The binding decided against the present, what is counted twice left where it is."""
    suspect = record.suspect
    if not suspect:
        return solve(state, record, record.targets, fresh=fresh, retry=retry)
    held = _counted(record)
    return _with_suspects(record, solve(state, record, held, fresh=fresh, without=suspect, retry=retry), suspect)


def _counted(record: BindingState) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c not in record.suspect}


def _with_suspects(record: BindingState, verdict: Verdict, suspect: tuple[str, ...]) -> Verdict:
    """Silent clusters keep what they hold, unless the binding wants nothing any more."""
    if verdict.targets or record.spec.replicas:
        for name in suspect:
            if name in record.targets:
                verdict.targets[name] = record.targets[name]
    return verdict


def _schedule(
    record: BindingState, trigger: Trigger, verdict: Verdict, suspect: tuple[str, ...], cause: UUID | None
) -> Draft:
    spec = record.spec
    targets = _targets(verdict.targets)
    if verdict.reason:
        return Draft(
            ScheduleRefused(
                spec.name, spec.uid, trigger, spec.replicas, verdict.reason, targets, _targets(record.before),
                verdict.affinity, spec.priority, spec.requirements, verdict.explanation,
            ),
            spec.name, "refused", cause,
        )  # fmt: skip
    if suspect:
        suspect = tuple(c for c in suspect if c in verdict.targets)
    return Draft(
        ScheduleDecided(
            spec.name, spec.uid, trigger, spec.replicas, targets, _targets(record.before), suspect, verdict.affinity,
            spec.priority, spec.requirements, verdict.explanation,
        ),
        spec.name, "scheduled", cause,
    )  # fmt: skip


def _targets(targets: Mapping[str, int]) -> tuple[TargetCluster, ...]:
    if len(targets) == 1:
        ((name, n),) = targets.items()
        return (TargetCluster(name, n),)
    return tuple([TargetCluster(name, targets[name]) for name in sorted(targets)])
