"""The rules of a cluster stream, as a `kernel.decider.Decider`: what is taken in (`telling`), and what is decided in which order.

Who is driven away from a node is released (`driven_away`). For each binding that has something open, by priority and then by
arrival, what has to go is released, what is missing is placed, and what fits nowhere has nodes made for it or is refused
(`placing`, `provisioning`, `claims`). Then proposals are answered (`removals`, `commands`, `unseating`), commands that were
decided are carried on with (`carrying_out`), and plans are answered (`plans`).

Nothing is decided about nodes before every bucket of them has been seen: an unknown cluster is not an empty one, and a fleet that
keeps its own schedulers never reports nodes and gets no node decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Self
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.engine.nodes.columns import Ties
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.decisions import (
    ExtenderAsked,
    NodeRemovalDecided,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import DeschedulingProposed, DisruptionProposed, NodeRemovalProposed
from wharfinger.events.provisioning import NodeClaimEnded, NodeClaimRequested
from wharfinger.kernel.decider import Ask, Decision, Draft, Micros
from wharfinger.kernel.step import number
from wharfinger.stages.cluster import carrying_out, claims, driven_away, extending, folding
from wharfinger.stages.cluster.carrying_out import carry_out
from wharfinger.stages.cluster.claims import static_due
from wharfinger.stages.cluster.commands import answer_disruptions
from wharfinger.stages.cluster.driven_away import release_driven_away
from wharfinger.stages.cluster.groups import WAIT_US, waiting_groups
from wharfinger.stages.cluster.moving import forget_motion, motion_due
from wharfinger.stages.cluster.picture import seeing
from wharfinger.stages.cluster.placing import settle
from wharfinger.stages.cluster.plans import TRIAL, answer_plans, expectation
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.cluster.removals import answer_proposals, forget_proposal
from wharfinger.stages.cluster.state import ClusterState, Nomination, dump, empty_state, load
from wharfinger.stages.cluster.staying_away import tidy
from wharfinger.stages.cluster.telling import (
    forget_causes,
    is_about_nodes,
    observe_nodes,
    observe_pods,
    policy_told,
    take_assignments,
    take_load,
    take_objects,
)
from wharfinger.stages.cluster.unseating import answer_descheduling


class ClusterDecider:
    """Decides one cluster stream. Holds settings only; everything else is in the state. `ties`: of a history whose names
    were replaced."""

    def __init__(self, profile: ClusterProfile | None = None, ties: Ties | None = None) -> None:
        self._profile = profile or ClusterProfile()
        self._ties = ties

    @classmethod
    def of_profile(cls, text: str, ties: Ties | None = None) -> Self:
        """As a recorded round names it; the default one where the text is unknown."""
        return cls(ClusterProfile.of(text), ties)

    @property
    def profile(self) -> str:
        return self._profile.text

    def initial(self, stream: str) -> ClusterState:
        return seeing(empty_state(stream, self._profile, self._ties))

    def dump(self, state: ClusterState) -> dict[str, bytes]:
        return dump(state)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> ClusterState:
        return seeing(load(stream, sections, self._profile, self._ties))

    # --- fold

    def fold_input(self, state: ClusterState, event: Event[Value], at: Micros) -> None:
        state.at = at
        match event.data:
            case NodesObserved() as nodes if nodes.cluster == state.cluster:
                observe_nodes(state, nodes, event.id, at)
            case PodsObserved() as pods if pods.cluster == state.cluster:
                observe_pods(state, pods, at)
            case ObjectsObserved() as objects if objects.cluster == state.cluster:
                take_objects(state, objects)
            case NodeLoadObserved() | HotValueObserved() as load if load.cluster == state.cluster:
                take_load(state, load)
            case PolicyApplied() | PolicyRemoved() as told:
                policy_told(state, told)
            case AssignmentsDecided() as decided if decided.cluster == state.cluster:
                take_assignments(state, decided, at)
            case NodeRemovalProposed() as proposed if proposed.stream == state.stream:
                state.proposals.setdefault(str(event.id), proposed)
            case DisruptionProposed() as disruption if disruption.stream == state.stream:
                state.disruptions.setdefault(str(event.id), disruption)
            case DeschedulingProposed() as descheduling if descheduling.stream == state.stream:
                state.descheduling.setdefault(str(event.id), descheduling)
                tidy(state, at)
            case PlanRequested() as request if request.stream == state.stream:
                state.requested.setdefault(event.id, request)
            case ExtenderAnswered() as said if said.stream == state.stream:
                extending.take_answer(state, said.ask, said.answer, said.error)
            case _:
                pass  # ticks bring only the time; anything else is not for this stream

    def fold_decision(self, state: ClusterState, decision: Decision, at: Micros) -> None:
        state.at = at
        book = state.book
        match decision.data:
            case ReplicasPlaced() as placed:
                book.place(placed.binding, placed.placed, placed.requirements, at)
                folding.follow_placed(state, decision, placed, at)
                state.loads.came(placed.binding, placed.placed, at)
                extending.forget(state, placed.binding)
                state.members.follow(placed.binding, book.held.get(placed.binding))
            case ReplicasRefused() as refused:
                book.refuse(refused.binding, refused.assignment, refused.count)
                extending.forget(state, refused.binding)
                state.members.follow(refused.binding, book.held.get(refused.binding))
            case ReplicasReleased() as released:
                book.release(released.binding, released.released, released.unbound)
                folding.follow_released(state, decision, released, at)
                state.loads.left(released.binding, released.released)
                state.members.follow(released.binding, book.held.get(released.binding))
                forget_causes(state)
            case ExtenderAsked() as asked:
                extending.take_question(state, asked, decision.id)
            case ReplicasNominated() as nominated:
                folding.follow_nominated(state, nominated)
            case NodeRemovalDecided() as removed:
                book.close(removed.node)
                folding.follow_removed(state, decision, removed, at)
                forget_proposal(state, removed.proposal)
            case ProposalRefused() as refused_proposal:
                forget_proposal(state, refused_proposal.proposal)
            case NodeClaimRequested():
                folding.follow_claimed(state, decision, at)
            case NodeClaimEnded() as ended:
                folding.follow_claim_ended(state, decision, ended, at)
            case DisruptionDecided() as decided:
                folding.follow_decided(state, decision, decided, at)
            case DisruptionEnded() as over:
                folding.follow_ended(state, decision, over, at)
            case PlanCommitted() if decision.cause is not None:
                _carry_out(state, state.requested.pop(decision.cause).steps, decision.id, at)
            case PlanRefused() if decision.cause is not None:
                del state.requested[decision.cause]
            case _:
                raise AssertionError(f"{state.stream} cannot have decided {decision.type}")

    def is_news(self, state: ClusterState, event: Event[Value]) -> bool:
        match event.data:
            case AssignmentsDecided() as data:
                return data.through > state.seen.get(data.stream, 0)
            case PolicyApplied() | PolicyRemoved() as data:
                return is_about_nodes(state, data)
            case NodeLoadObserved() | HotValueObserved():
                return not state.load.idle
            case _:
                return True

    # --- decide

    def decide(self, state: ClusterState, at: Micros) -> Iterator[Draft]:
        yield from _by_the_rules(state, at)
        if state.requested:
            rules = partial(_by_the_rules, state, at)
            yield from answer_plans(state, partial(self._try, state, at), rules, self.profile)
        self.rest(state, 0, self.profile)

    def expectation(self, state: ClusterState, request: PlanRequested, at: Micros) -> PlanRequested:
        """A plan's request with what would come of it now. Changes nothing."""
        return expectation(state, request, partial(self._try, state, at), self.profile)

    def _try(self, state: ClusterState, at: Micros, steps: Sequence[Step]) -> tuple[ClusterState, Sequence[Draft]]:
        other = self.load(state.stream, self.dump(state))
        _carry_out(other, steps, TRIAL, at)
        drafts: list[Draft] = []
        for draft in _by_the_rules(other, at):
            drafts.append(draft)
            self.fold_decision(other, number(draft, state.stream, len(drafts)), at)
        return other, drafts

    def rest(self, state: ClusterState, decisions: int, profile: str) -> None:
        """What is still open waits: for company, for the rest of its group, or for room that is being made."""
        if state.gathering is not None and state.window.ends(*state.gathering) <= state.at:
            state.gathering = None
        if state.book.known and state.gathering is None and (state.members.stirred or state.groups):
            state.groups = waiting_groups(state)
            state.members.stirred.clear()
        if state.nominated:
            kept = {b: _not_over(rooms, state.at) for b, rooms in state.nominated.items() if b in state.book.unsettled}
            state.nominated = {b: rooms for b, rooms in kept.items() if rooms}
        for binding in [b for b in state.extending if b not in state.book.unsettled]:
            extending.forget(state, binding)
        state.descheduling.clear()  # each is answered in the round it came in
        forget_motion(state)
        state.rested = {binding: until for binding, until in state.rested.items() if until > state.at}

    def asks(self, state: ClusterState) -> Sequence[Ask]:
        return extending.asks(state)

    def next_due(self, state: ClusterState) -> Micros | None:
        if not state.book.known:
            return None
        dues = [driven_away.next_due(state), claims.next_due(state), carrying_out.next_due(state)]
        dues += [motion_due(state), static_due(state, state.at)]
        if state.gathering is not None and state.book.unsettled:
            dues.append(state.window.ends(*state.gathering))  # nothing is placed, nor given up, before
        else:
            dues += [since + WAIT_US for since in state.groups.values()]
            dues += [room.until for rooms in state.nominated.values() for room in rooms]
        return min((due for due in dues if due is not None), default=None)


def _not_over(rooms: tuple[Nomination, ...], at: Micros) -> tuple[Nomination, ...]:
    return tuple([room for room in rooms if room.until > at])


def _by_the_rules(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """All that is decided but plans; what comes of a plan is decided by the same."""
    state.at = at
    state.tries.clear()
    if state.book.known:
        yield from release_driven_away(state, at)
        yield from claims.follow_claims(state, at)
        yield from settle(state, at)
        yield from claims.cancel_unneeded(state)
        yield from claims.fill_static_pools(state, at)
    yield from answer_proposals(state)
    yield from answer_disruptions(state, at)
    yield from answer_descheduling(state, at)
    if state.book.known and state.running:
        yield from carry_out(state, at)
        yield from settle(state, at)  # where a command was rolled back there is room again


def _carry_out(state: ClusterState, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
    """Take the steps of a plan as if they had come by themselves."""
    for place, taken in enumerate(steps):
        match taken.data:
            case NodesObserved() as nodes:
                observe_nodes(state, nodes, cause, at)
            case NodeRemovalProposed() as proposed:
                id = str(derived_id("step", str(cause), place))
                state.proposals[id], state.on_behalf[id] = proposed, cause
            case _:
                raise AssertionError(f"{type(taken.data).__name__} is no step of a cluster stream")
