"""What the fleet stage decides, and in which order.

A round goes: who is silent or heard again; is the fleet held; who was withdrawn; what the recovery of a cluster makes
superfluous (`failover`); proposals, and copies that were waited for long enough (`evictions`); new and changed
bindings, by priority, then in the order they came; in the same order what lost replicas or waits (`queue`); what has
long had a better place, if its policy lets it move (`steadiness`); and last the plans, each tried on what all of that
has left and, when it is committed, followed by the same again. Every request, every proposal and every plan gets
exactly one answer. Everything else is decided only when it changes something: a binding that waits for unchanged
reasons is silent.

A steady binding never moves because capacity changed, unless its policy says so. What follows the fleet are
Duplicated bindings and objects without replicas: they go to every cluster that is feasible, so they are looked at
when the facts of clusters change.

What runs is only ever taken away for what the user did (scaled it, withdrew it, changed its policy so that other
clusters are its own) or for a cluster that refuses it, expels it or is gone. A policy that nothing can follow, a
filter that nobody passes, a full group, a quota: they refuse, and leave what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Self
from uuid import UUID

import msgspec

from wharfinger.domain.reasons import Trigger
from wharfinger.domain.value import Value
from wharfinger.events.decisions import BindingReleased, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import Event, uuid_of
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.stages.fleet import saved
from wharfinger.stages.fleet.drafts import counted, in_order, schedule, solved, with_suspects
from wharfinger.stages.fleet.evictions import end_graces, evict
from wharfinger.stages.fleet.failover import declined, fail_over, hold_or_resume, settle_recovered, watch_leases
from wharfinger.stages.fleet.plans import answer_plans, expectation
from wharfinger.stages.fleet.queue import answer_requests, retry
from wharfinger.stages.fleet.rebalancing import objection
from wharfinger.stages.fleet.relocate import relocation
from wharfinger.stages.fleet.selections import decide_placements, next_selection
from wharfinger.stages.fleet.state import BindingState, FleetState, Proposal
from wharfinger.stages.fleet.steadiness import look, move, next_look

ROUND_LIMIT = 500
"""How many bindings nobody asked about are decided in one round; the others follow in the next, which is due at once."""

_PROFILE = re.compile(r"fleet round-limit=(\d+)(?: shards=(\d+))?")


class FleetDecider:
    """`kernel.decider.Decider` for the streams `fleet/<shard>`. `round_limit`: see `ROUND_LIMIT`. `shards`: how many
    fleet streams there are, which share quotas."""

    def __init__(self, round_limit: int = ROUND_LIMIT, shards: int = 1) -> None:
        self._round_limit = round_limit
        self.shards = shards

    @classmethod
    def of_profile(cls, text: str) -> Self:
        """As a recorded round names it; the default one where the text is unknown."""
        found = _PROFILE.fullmatch(text)
        return cls() if found is None else cls(int(found[1]), int(found[2] or 1))

    @property
    def profile(self) -> str:
        shards = f" shards={self.shards}" if self.shards > 1 else ""
        return f"fleet round-limit={self._round_limit}{shards}"

    def initial(self, stream: str) -> FleetState:
        return FleetState(stream)

    def fold_input(self, state: FleetState, event: Event[Value], at: Micros) -> None:
        state.fold_input(event, at)

    def fold_decision(self, state: FleetState, decision: Decision, at: Micros) -> None:
        state.fold_decision(decision, at)

    def is_news(self, state: FleetState, event: Event[Value]) -> bool:
        return state.is_news(event)

    def decide(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        self._share(state)
        made = 0
        for draft in chain(self._by_the_rules(state, at), answer_plans(state, at, self._by_the_rules, self.profile)):
            made += 1
            yield draft
        self._come_to_rest(state, made)

    def rest(self, state: FleetState, decisions: int, profile: str) -> None:
        decider = self if profile == self.profile else self.of_profile(profile)
        decider._share(state)
        decider._come_to_rest(state, decisions)

    def _come_to_rest(self, state: FleetState, decisions: int) -> None:
        state.come_to_rest(unfinished=decisions >= self._round_limit)
        look(state)

    def _share(self, state: FleetState) -> None:
        """The settings that bear on a state are those of whoever decides on it."""
        shard = state.stream.removeprefix(FLEET)
        state.quotas.share_with(int(shard) if shard.isdecimal() else 0, self.shards)

    def expectation(self, state: FleetState, request: PlanRequested, at: Micros) -> PlanRequested:
        """A plan's request with what would come of it now. Changes nothing."""
        self._share(state)
        return expectation(state, request, at, self._by_the_rules, self.profile)

    def _by_the_rules(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        yield from watch_leases(state, at)
        yield from hold_or_resume(state)
        yield from release_withdrawn(state)
        yield from settle_recovered(state)
        yield from answer_proposals(state, at)
        yield from end_graces(state, at)
        yield from answer_requests(state)
        yield from retry(state, self._round_limit)
        yield from move(state, at)
        yield from decide_placements(state, at)

    def next_due(self, state: FleetState) -> Micros | None:
        if state.stirred and (state.waiting or state.open or state.quotas.waiting):
            return state.clock
        dues = (state.leases.next(), state.pauses.next(), state.graces.next(), next_look(state), next_selection(state))
        return min((due for due in dues if due is not None), default=None)

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


# Withdrawn


def release_withdrawn(state: FleetState) -> Iterator[Draft]:
    for name in list(state.withdrawn):
        record = state.bindings[name]
        yield Draft(
            BindingReleased(name, record.spec.uid, in_order(record.before), record.told), name, "released", record.cause
        )


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
        return declined(proposal_id, proposal, "UnknownTarget", "no such binding is placed")
    if record.left_alone:
        whose = "is suspended" if record.spec.suspended else f"belongs to the scheduler {record.spec.scheduler[:100]}"
        return declined(proposal_id, proposal, "NothingToDo", f"the binding {whose}")
    match proposal:
        case FailoverProposed():
            return fail_over(state, record, proposal_id, proposal)
        case EvictionProposed():
            return evict(state, record, proposal_id, proposal, at)
        case RescheduleProposed() if named:
            return _relocate(state, record, proposal_id, proposal, at)
        case RescheduleProposed():
            return _reschedule(state, record, proposal_id, proposal)


def _relocate(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: RescheduleProposed, at: Micros
) -> Draft:
    """Exactly the targets that are named, or not at all. A request that is still open is answered by it."""
    if proposal.policy and (no := objection(state, record, proposal, at)) is not None:
        return declined(proposal_id, proposal, *no)
    found = relocation(state, record, proposal, counted(record))
    if isinstance(found, tuple):
        return declined(proposal_id, proposal, *found)
    trigger: Trigger = "FirstSchedule" if record.applied is None else "ReconcileSchedule"
    verdict = with_suspects(record, found, record.suspect)
    if proposal.policy:
        return schedule(record, trigger, proposal.reason, verdict, (), proposal_id, move="rebalance")
    return schedule(record, trigger, "proposed", verdict, record.suspect, proposal_id)


def _reschedule(state: FleetState, record: BindingState, proposal_id: UUID, proposal: Proposal) -> Draft:
    verdict = with_suspects(
        record, solved(state, record, counted(record), fresh=True, without=record.suspect), record.suspect
    )
    if verdict.reason:
        return declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
    if verdict.targets == record.before:
        return declined(proposal_id, proposal, "NothingToDo", "a fresh decision is the present one")
    return schedule(record, "ReconcileSchedule", "proposed", verdict, record.suspect, proposal_id)
