"""The decider of a fleet stream: what a round decides, and in which order.

The order within a round:
- silent and returned clusters; whether failover is paused for the whole fleet;
- withdrawn bindings;
- replicas made redundant by a recovered cluster (`failover`);
- proposals, and graceful evictions that have ended (`evictions`);
- new and changed bindings, by priority and arrival;
- then, in the same order, bindings that lost replicas or wait (`queue`);
- improvements, where the policy allows moves (`steadiness`);
- placements of clusters by policies (`selections`);
- last the plans, each tried on the result of all that and, when committed, followed by the same
  steps.

Every request, proposal and plan gets exactly one answer. Anything else is decided only when it
changes something: a binding that waits for unchanged reasons produces no decisions.

A binding does not move because capacity changed, unless its policy says so. Exceptions are
Duplicated bindings and objects without replicas: they go to every feasible cluster, so they are
evaluated when cluster facts change.

Running replicas are only removed because of a user's change (scaled down, withdrawn, a policy that
selects other clusters) or because their cluster refuses or evicts them or is removed. An invalid
policy, filters without a feasible cluster, an incomplete group or a quota cause a refusal and leave
the running replicas where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Self
from uuid import UUID

import msgspec

from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.domain.reasons import Trigger
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.events.codec import decode
from wharfinger.events.decisions import BindingReleased, ScheduleAnswer
from wharfinger.events.envelope import Event, uuid_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.promises import plan_answer_body, room_body
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.room import RoomItem, RoomTaken
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.incarnations import incarnation_text
from wharfinger.kernel.round import Round
from wharfinger.stages.fleet import saved
from wharfinger.stages.fleet.certainty import next_limit
from wharfinger.stages.fleet.drafts import counted, in_order, schedule, solved, with_suspects
from wharfinger.stages.fleet.evictions import end_graces, evict
from wharfinger.stages.fleet.failover import (
    declined,
    fail_over,
    hold_or_resume,
    settle_recovered,
    watch_leases,
)
from wharfinger.stages.fleet.fold import fold_decision, fold_input
from wharfinger.stages.fleet.joint_plans import next_joint
from wharfinger.stages.fleet.plans import answer_plans, expectation, room_of, settle_plan
from wharfinger.stages.fleet.promised import plan_answers_in, promised_in
from wharfinger.stages.fleet.queue import answer_requests, retry
from wharfinger.stages.fleet.rebalancing import objection
from wharfinger.stages.fleet.relocate import relocation
from wharfinger.stages.fleet.request_wait import RequestWait, wait_of
from wharfinger.stages.fleet.selections import decide_placements, next_selection
from wharfinger.stages.fleet.state import BindingState, FleetState, Proposal
from wharfinger.stages.fleet.steadiness import find_better_placements, move, next_look

ROUND_LIMIT = 500
"""How many bindings without a new request are decided again in one round. The others follow in the
next round, which is due at once."""

BINDING_COST = 100
"""The fixed cost of deciding a binding, expressed as the number of clusters whose evaluation costs
as much."""

_PROFILE = re.compile(
    r"fleet round-limit=(\d+)(?: shards=(\d+))?(?: ranges=(\d+))?(?: work=(\d+))?"
    r"(?: patience=(\d+))?"
)


class FleetDecider:
    """Implements `kernel.decider.Decider` for the streams `fleet/<shard>`: yields the decisions of
    a round, and computes when the next round is due. Its settings are part of the recorded profile.

    `round_limit`: see `ROUND_LIMIT`.
    `ranges`: number of fleet streams, each with namespaces of its own.
    `shards`: number of streams in older profiles, where bindings were divided by name and the
    streams shared quotas.
    `work`: maximum number of clusters evaluated for bindings in one round, after which the next
    round is due at once; 0: no bound.
    `patience_s`: how long, in seconds, a request may wait for a capacity count that includes the
    latest decisions, where otherwise a cluster might refuse its replicas (`certainty`); 0: no
    request waits. A profile recorded without `work` or `patience_s` has 0.
    """

    def __init__(
        self,
        round_limit: int = ROUND_LIMIT,
        shards: int = 1,
        work: int = 0,
        ranges: int = 1,
        patience_s: int = 0,
    ) -> None:
        self._round_limit = round_limit
        self.shards = shards
        self.work = work
        self.ranges = ranges
        self.patience_s = patience_s

    @classmethod
    def of_profile(cls, text: str) -> Self:
        """Create a decider with the settings of a recorded profile. A text that is not a fleet
        profile gives the default settings."""
        found = _PROFILE.fullmatch(text)
        if found is None:
            return cls()
        limit, shards, ranges, work, patience = found.groups()
        return cls(
            int(limit), int(shards or 1), int(work or 0), int(ranges or 1), int(patience or 0)
        )

    @cached_property
    def profile(self) -> str:
        shards = f" shards={self.shards}" if self.shards > 1 else ""
        ranges = f" ranges={self.ranges}" if self.ranges > 1 else ""
        work = f" work={self.work}" if self.work else ""
        patience = f" patience={self.patience_s}" if self.patience_s else ""
        return f"fleet round-limit={self._round_limit}{shards}{ranges}{work}{patience}"

    def initial(self, stream: str) -> FleetState:
        return FleetState(stream)

    def fold_input(self, state: FleetState, event: Event[Value], at: Micros) -> None:
        fold_input(state, event, at)

    def fold_decision(self, state: FleetState, decision: Decision, at: Micros) -> None:
        fold_decision(state, decision, at)

    def is_redelivery(self, state: FleetState, event: Event[Value]) -> bool:
        data = event.data
        return isinstance(data, OutcomesDecided | RoomTaken) and data.through <= (
            state.outcomes.get(data.stream, 0)
        )

    @property
    def has_peers(self) -> bool:
        """Return whether several fleet streams share the capacity of clusters. Part of
        `stages.peers.TellsPeers`."""
        return self.ranges > 1

    def peer_events(self, state: FleetState, round_: Round) -> list[Event[Value]]:
        told = [
            room_body(taken, incarnation_text(state.incarnations, taken.through))
            for taken in promised_in(round_)
        ]
        told += [
            plan_answer_body(answer, incarnation_text(state.incarnations, answer.through))
            for answer in plan_answers_in(round_)
        ]
        return [decode(body) for body in told]

    def held_back(self, state: FleetState) -> Sequence[Event[Value]]:
        """As `kernel.decider.HoldsBack`."""
        return state.joint.releasable()

    def outdated(self, state: FleetState) -> int:
        return state.versions.refused

    def decide(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        self._share(state)
        made = 0
        if state.joint.promised is not None:
            for draft in settle_plan(state, self._by_the_rules):
                made += 1
                yield draft
            self._end_round(state, made)
            return
        for draft in self._by_the_rules(
            state, at, self._bindings_max(state), patience_us=self.patience_s * SECOND
        ):
            made += 1
            yield draft
        if not self._is_full(state, made):
            whole = made < self._round_limit
            for draft in answer_plans(
                state, at, self._by_the_rules, self.profile, may_promise=whole
            ):
                made += 1
                yield draft
        self._end_round(state, made)

    def _bindings_max(self, state: FleetState) -> int | None:
        """Return how many bindings may be decided in one round. None: no bound."""
        return max(1, self.work // (BINDING_COST + len(state.clusters))) if self.work else None

    def _is_full(self, state: FleetState, decisions: int) -> bool:
        """Return whether a round with this number of decisions may have stopped at its bound of
        work."""
        most = self._bindings_max(state)
        return most is not None and decisions >= most

    def end_round(self, state: FleetState, decisions: int, profile: str) -> None:
        decider = self if profile == self.profile else self.of_profile(profile)
        decider._share(state)
        decider._end_round(state, decisions)

    def _end_round(self, state: FleetState, decisions: int) -> None:
        state.end_round(
            unfinished=decisions >= self._round_limit or self._is_full(state, decisions)
        )
        find_better_placements(state)

    def _share(self, state: FleetState) -> None:
        """Set on the state which shard this stream is and how many there are. Quota limits depend
        on it."""
        shard = state.stream.removeprefix(FLEET)
        state.quotas.share_with(int(shard) if shard.isdecimal() else 0, self.shards)

    def expectation(self, state: FleetState, request: PlanRequested, at: Micros) -> PlanRequested:
        """Return the plan's request with its expected outcomes on the present state. The simulation
        runs on a copy; nothing is decided on `state`."""
        self._share(state)
        return expectation(state, request, at, self._by_the_rules, self.profile)

    def room_of(
        self, state: FleetState, request: PlanRequested, at: Micros
    ) -> tuple[RoomItem, ...]:
        """Return the room that a part of a plan takes in clusters, for the parts of other
        shards."""
        self._share(state)
        return room_of(state, request, at, self._by_the_rules)

    def _by_the_rules(
        self,
        state: FleetState,
        at: Micros,
        bindings_max: int | None = None,
        *,
        patience_us: Micros = 0,
    ) -> Iterator[Draft]:
        """Yield the decisions of one round: those about clusters and bindings, then those about
        placements that only choose clusters (OCM). The caller must fold each draft into `state`
        before it takes the next one, because the next decision depends on it.

        Placements are decided in every round, also when bindings are left for the next one: which
        placements an input affects is known only in the round that takes it in
        (`Selections.open`).

        `bindings_max`: see `_decide_bindings`. `patience_us`: how long a request may wait for the
        next capacity report, in microseconds; 0: it does not wait. A plan uses 0.
        """
        state.patience_us = patience_us
        yield from self._decide_bindings(state, at, bindings_max)
        yield from decide_placements(state, at)

    def _decide_bindings(
        self, state: FleetState, at: Micros, bindings_max: int | None
    ) -> Iterator[Draft]:
        """Yield the decisions about clusters and bindings, kind by kind: first clusters that became
        silent or returned, and withdrawn bindings; then proposals; then evictions whose grace
        period ended; then requests; then bindings to try again; then moves that improve the targets
        of placed bindings (failback and rebalance).

        `bindings_max`: the largest number of proposals to decide; also the largest number of
        requests, and the largest number of bindings to try again. Example: with 100, one round
        decides at most 100 proposals and 100 requests. If proposals or requests are left over, the
        kinds that come after them wait for the next round. None: proposals and requests have no
        bound, and bindings to try again have the ordinary limit of a round. The simulation of a
        plan uses None, because it must finish in one round.
        """
        yield from watch_leases(state, at)
        yield from hold_or_resume(state)
        yield from release_withdrawn(state)
        yield from settle_recovered(state)
        yield from answer_proposals(state, at, bindings_max)
        if bindings_max is not None and state.proposals.open:
            return
        yield from end_graces(state, at)
        answered = yield from answer_requests(state, bindings_max)
        if bindings_max is not None and answered >= bindings_max and state.waiting.asked:
            return
        yield from retry(
            state,
            self._round_limit if bindings_max is None else min(self._round_limit, bindings_max),
        )
        yield from move(state, at)

    def next_due(self, state: FleetState) -> Micros | None:
        waiting, proposals = state.waiting, state.proposals
        if state.joint.promised is not None:
            return None  # what is due waits until the plan is settled
        shared = any(request.others for request in proposals.plans.values())
        if state.joint.held or (state.unfinished and shared):
            return state.clock
        if self.work and state.unfinished and (waiting.asked or proposals.open or proposals.plans):
            return state.clock
        if waiting.retry_due and (waiting.groups or waiting.open or state.quotas.waiting):
            return state.clock
        leases = state.cluster_index.leases
        dues = (
            self._patience_ends(state),
            leases.next(),
            waiting.pauses.next(),
            waiting.graces.next(),
            next_look(state),
            next_selection(state),
            next_joint(state),
        )
        return min((due for due in dues if due is not None), default=None)

    def _patience_ends(self, state: FleetState) -> Micros | None:
        """Return the next time at which a request that waits for capacity counts must be evaluated
        again. None: no request waits."""
        if not self.patience_s or not state.waiting.asked:
            return None
        patience_us = self.patience_s * SECOND
        bindings = state.bindings
        # Requests that came in one round have the same time.
        times = {bindings[name].asked_at for name in state.waiting.asked}
        return min([next_limit(asked_at, state.clock, patience_us) for asked_at in times])

    def open_requests(self, state: FleetState) -> OpenRequests:
        """As `stages.open_requests.AnswersRequests`."""
        asked = state.waiting.asked
        if not asked:
            return NONE_OPEN
        return OpenRequests(len(asked), min([state.bindings[name].asked_at for name in asked]))

    def wait_of(self, state: FleetState, binding: str, decisions: int) -> RequestWait | None:
        """Why the request of a binding was left open by the last round, which this decider made
        with so many decisions; None: it has no open request. `state`: after that round. For
        explanations, see `request_wait`."""
        record = state.bindings.get(binding)
        if record is None:
            return None
        self._share(state)
        full = self._is_full(state, decisions)
        return wait_of(state, record, self.patience_s * SECOND, full=full)

    @property
    def section_types(self) -> Mapping[str, Any]:
        """Return the types of the snapshot's sections. Part of `kernel.rebase.Timed`."""
        return saved.SECTIONS

    def dump(self, state: FleetState) -> dict[str, bytes]:
        return saved.dump(state)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> FleetState:
        return saved.load(stream, sections)

    def note_changes(self, state: FleetState, everything: bool) -> None:
        state.touched = dict.fromkeys(state.bindings) if everything else {}

    def changes(self, state: FleetState) -> tuple[dict[str, bytes], dict[str, list[int]]]:
        """Return the snapshot sections that changed since the last call, and for each bucket of
        bindings the hashes of the names in it that changed. Part of `kernel.decider.Incremental`.
        """
        found = saved.delta(state, state.bindings if state.touched is None else state.touched)
        state.touched = {}
        return found.sections, found.names


# Withdrawn


def release_withdrawn(state: FleetState) -> Iterator[Draft]:
    for name in list(state.waiting.withdrawn):
        record = state.bindings[name]
        yield Draft(
            BindingReleased(
                name, record.spec.uid, in_order(record.before), record.announced_components
            ),
            name,
            "released",
            record.cause,
        )


# Proposals


def answer_proposals(state: FleetState, at: Micros, limit: int | None = None) -> Iterator[Draft]:
    for proposal_id, proposal in islice(list(state.proposals.open.items()), limit):
        yield _credited(state, answer(state, proposal_id, proposal, at), proposal_id, proposal)


def _credited(state: FleetState, draft: Draft, proposal_id: UUID, proposal: Proposal) -> Draft:
    """Set the cause of the draft (a decision that has no seq yet) that answers a proposal, and
    return the draft.

    - If a replay made the proposal, the cause is the id of the replay.
    - If a plan made the proposal, the cause is the event that committed the plan.
    - For any other proposal, the draft is returned unchanged.

    So everything that followed from a replay or plan can be found by the cause. In the first two
    cases, a schedule decision or its refusal names the proposal in `answers`.
    """
    replay = (
        uuid_of(proposal.replay)
        if isinstance(proposal, RescheduleProposed) and proposal.replay
        else None
    )
    cause = replay or state.proposals.on_behalf.get(proposal_id)
    if cause is None:
        return draft
    data = draft.data
    if isinstance(data, ScheduleAnswer):
        data = msgspec.structs.replace(data, answers=str(proposal_id))
    return Draft(data, draft.subject, draft.outcome, cause)


def answer(state: FleetState, proposal_id: UUID, proposal: Proposal, at: Micros) -> Draft:
    """Decide one open proposal about a binding on the present state. Return the draft (a decision
    that has no seq yet): a schedule decision, or a refusal with its reason.

    The proposal is refused at once in three cases: the binding is unknown; the binding was never
    placed and the proposal names no targets; the binding is suspended or belongs to another
    scheduler. Every other proposal is decided by its kind: failover, eviction, move to named
    targets, or reschedule.
    """
    record = state.bindings.get(proposal.binding)
    named = isinstance(proposal, RescheduleProposed) and bool(proposal.targets)
    if record is None or (record.applied is None and not named):
        return declined(proposal_id, proposal, "UnknownTarget", "no such binding is placed")
    if record.left_alone:
        whose = (
            "is suspended"
            if record.spec.suspended
            else f"belongs to the scheduler {record.spec.scheduler[:100]}"
        )
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
    state: FleetState,
    record: BindingState,
    proposal_id: UUID,
    proposal: RescheduleProposed,
    at: Micros,
) -> Draft:
    """Move a binding to exactly the targets that the proposal names. Return the draft (a decision
    that has no seq yet) of the move, or of a refusal with its reason. The move is refused, for
    example, if the replicas of the targets do not add up to the replicas of the binding, or if a
    target has too little capacity.

    If a rebalancing policy made the proposal, the move must first pass additional checks (for
    example, the budget of the policy and how much the move improves the objective of the policy).
    If the binding also has an open request, the decision answers this request too.
    """
    if proposal.policy and (no := objection(state, record, proposal, at)) is not None:
        return declined(proposal_id, proposal, *no)
    found = relocation(state, record, proposal, counted(record))
    if isinstance(found, tuple):
        return declined(proposal_id, proposal, *found)
    trigger: Trigger = "FirstSchedule" if record.applied is None else "ReconcileSchedule"
    verdict = with_suspects(record, found, record.suspect)
    if proposal.policy:
        return schedule(
            record, trigger, proposal.reason, verdict, (), proposal_id, move="rebalance"
        )
    return schedule(record, trigger, "proposed", verdict, record.suspect, proposal_id)


def _reschedule(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: Proposal
) -> Draft:
    verdict = with_suspects(
        record,
        solved(state, record, counted(record), fresh=True, without=record.suspect),
        record.suspect,
    )
    if verdict.reason:
        return declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
    if verdict.targets == record.before:
        return declined(proposal_id, proposal, "NothingToDo", "a fresh decision is the present one")
    return schedule(record, "ReconcileSchedule", "proposed", verdict, record.suspect, proposal_id)
