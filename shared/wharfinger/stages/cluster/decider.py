"""The rules of a cluster stream, as a `kernel.decider.Decider`: which inputs are folded (`inputs`),
and what is decided in which order.

First, replicas on lost nodes or under NoExecute taints are released (`no_execute`), and those that
a node has become too small for (`shrunk_nodes`). Then for each binding with open work, by priority
and arrival: surplus is released, missing replicas are placed, and what fits nowhere gets new nodes
or is refused (`placing`, `provisioning`, `claims`). Then proposals are answered (`removals`,
`commands`, `descheduling`), decided commands continue (`command_progress`), and plans are answered
(`plans`).

Nothing is decided about nodes before every bucket of them was received, because an unknown cluster
is not an empty one. A cluster that keeps its own scheduler gets no node decisions: it reports no
nodes, or says with them that nothing is placed there (`NodesObserved.places`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.engine.nodes.columns import Ties
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.decisions import decided_by
from wharfinger.events.effects import EffectsObserved
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    NodeRemovalProposed,
)
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.kernel.incarnations import noted
from wharfinger.kernel.step import number
from wharfinger.stages.cluster import (
    claims,
    command_progress,
    decision_folds,
    extenders,
    no_execute,
    other_pods,
)
from wharfinger.stages.cluster.barred_nodes import bar_nodes, bars_end, follow_barred, take_answers
from wharfinger.stages.cluster.claims import static_due
from wharfinger.stages.cluster.command_progress import carry_out
from wharfinger.stages.cluster.commands import answer_disruptions
from wharfinger.stages.cluster.descheduling import answer_descheduling
from wharfinger.stages.cluster.framework_view import seeing
from wharfinger.stages.cluster.groups import WAIT_US, waiting_groups
from wharfinger.stages.cluster.inputs import (
    observe_nodes,
    observe_pods,
    take_assignments,
    take_load,
    take_objects,
    take_policy,
)
from wharfinger.stages.cluster.move_cooldown import tidy
from wharfinger.stages.cluster.no_execute import release_no_execute
from wharfinger.stages.cluster.placing import settle
from wharfinger.stages.cluster.plans import TRIAL, answer_plans, expectation
from wharfinger.stages.cluster.pod_placing import follow_unplaced, given_back_next, settle_pods
from wharfinger.stages.cluster.pod_preemption import (
    follow_preemptions,
    preemptions_due,
    take_refused_evictions,
)
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.cluster.removals import answer_proposals, forget_proposal
from wharfinger.stages.cluster.replica_moves import forget_motion, motion_due
from wharfinger.stages.cluster.shrunk_nodes import release_from_shrunk
from wharfinger.stages.cluster.state import (
    SECTIONS,
    ClusterStageState,
    Nomination,
    dump,
    empty_state,
    left_alone,
    load,
    places_pods,
)
from wharfinger.stages.cluster.unplaced_pods import follow_said, say_unplaced
from wharfinger.stages.extender_calls import ExtenderCall
from wharfinger.stages.plans import plan_folds
from wharfinger.stages.proposal_refusals import refusal_folds


class ClusterDecider:
    """Implements `kernel.decider.Decider` for cluster streams. It holds settings only; everything
    else is in the state. `ties`: recorded tie-break values, for a history whose names were
    redacted."""

    def __init__(self, profile: ClusterProfile | None = None, ties: Ties | None = None) -> None:
        self._profile = profile or ClusterProfile()
        self._ties = ties

    @classmethod
    def of_profile(cls, text: str, ties: Ties | None = None) -> Self:
        """Creates the decider with the profile of a recorded round; with the default profile if the
        text is not a known profile."""
        return cls(ClusterProfile.of(text), ties)

    @cached_property
    def profile(self) -> str:
        return self._profile.text

    def initial(self, stream: str) -> ClusterStageState:
        return seeing(empty_state(stream, self._profile, self._ties))

    @property
    def section_types(self) -> Mapping[str, Any]:
        """Returns the type of each section of a snapshot (see `kernel.rebase.Timed`)."""
        return SECTIONS

    def dump(self, state: ClusterStageState) -> dict[str, bytes]:
        return dump(state)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> ClusterStageState:
        return seeing(load(stream, sections, self._profile, self._ties))

    # --- fold

    def fold_input(self, state: ClusterStageState, event: Event[Value], at: Micros) -> None:
        state.at = at
        if not state.versions.admits(event, at):
            return
        match event.data:
            case NodesObserved() as nodes if nodes.cluster == state.cluster:
                observe_nodes(state, nodes, event.id, at)
            case NodeImagesObserved() as images if images.cluster == state.cluster:
                state.book.observe_images(images, at)
            case PodsObserved() as pods if pods.cluster == state.cluster:
                observe_pods(state, pods, at)
            case WaitingPodsObserved() as waiting if waiting.cluster == state.cluster:
                other_pods.observe(state, waiting, at)
            case ObjectsObserved() as objects if objects.cluster == state.cluster:
                take_objects(state, objects)
            case NodeLoadObserved() | HotValueObserved() as load if load.cluster == state.cluster:
                take_load(state, load)
            case EffectsObserved() as answered if answered.cluster == state.cluster:
                take_answers(state, answered, event.id)
                take_refused_evictions(state, answered, event.id)
            case PolicyApplied() | PolicyRemoved() as told:
                take_policy(state, told)
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
                extenders.take_answer(state, said.ask, said.answer, said.error)
            case _:
                # ticks bring only the time; anything else is not for this stream
                state.incarnations = noted(state.incarnations, state.stream, event.data)

    def fold_decision(self, state: ClusterStageState, decision: Decision, at: Micros) -> None:
        state.at = at
        state.spent += 1
        FOLDS.fold(state, decision, at)

    def is_redelivery(self, state: ClusterStageState, event: Event[Value]) -> bool:
        data = event.data
        return isinstance(data, AssignmentsDecided) and data.through <= state.seen.get(
            data.stream, 0
        )

    def outdated(self, state: ClusterStageState) -> int:
        return state.versions.refused

    # --- decide

    def decide(self, state: ClusterStageState, at: Micros) -> Iterator[Draft]:
        yield from _by_the_rules(state, at)
        if state.requested and not state.exhausted:
            state.work_max = 0  # what a plan was tried with is what happens, in one round
            rules = partial(_by_the_rules, state, at)
            yield from answer_plans(state, partial(self._try, state, at), rules, self.profile)
            state.work_max = self._profile.work
        self.end_round(state, 0, self.profile)

    def expectation(
        self, state: ClusterStageState, request: PlanRequested, at: Micros
    ) -> PlanRequested:
        """Returns the plan request with the outcome that it would have now and the digests of its
        inputs. Tries the plan on a copy, so `state` is unchanged."""
        return expectation(state, request, partial(self._try, state, at), self.profile)

    def _try(
        self, state: ClusterStageState, at: Micros, steps: Sequence[Step]
    ) -> tuple[ClusterStageState, Sequence[Draft]]:
        other = self.load(state.stream, self.dump(state))
        other.work_max = 0
        _carry_out(other, steps, TRIAL, at)
        drafts: list[Draft] = []
        for draft in _by_the_rules(other, at):
            drafts.append(draft)
            self.fold_decision(other, number(draft, state.stream, len(drafts)), at)
        return other, drafts

    def end_round(self, state: ClusterStageState, decisions: int, profile: str) -> None:
        """Updates the state after a round.

        - Sets `unfinished` if the round reached its bound of work (the maximum number of replicas
          in one round) and work is left. The next round is then due at once.
        - Deletes the two batch windows once the times of both are over. In a batch window replicas
          are collected: in one window to be placed together, in the other to get new nodes
          together.
        - Updates which pod groups have missing or surplus replicas.
        - Drops nominations (room reserved on a node for a binding) that have expired or whose
          binding has exactly the wanted replicas.
        - Drops extender calls of bindings without missing or surplus replicas.
        - Drops records of moves whose time limit has passed, or whose replica is no longer on the
          target node, and drops expired cool-downs after moves.
        - Where waiting pods are placed, records since when those of assigned bindings fit nowhere.
        - Sets when nodes are requested next for waiting pods of other schedulers, and drops expired
          reservations for them.
        - Drops what was said of pods that do not wait any more, and the preemptions for them.
        - Drops the records of nodes that became smaller, because the round has examined them.
        - Drops what nodes did not take in this round, and bars that ended long ago.
        - Drops decisions to remove finished pods that do not stand any more.
        - Drops all descheduling proposals if the round is finished, because it has answered them.

        `profile`: the settings of the round; they have its bound of work. `decisions` is not used.
        """
        bound = self._profile.work if profile == self.profile else ClusterProfile.of(profile).work
        state.unfinished = 0 < bound <= state.spent and _has_more(state)
        state.spent = 0
        if not state.gathers(state.at) and not state.gathers_for_nodes(state.at):
            state.gathering = None
        looked = state.book.known and not state.gathers(state.at) and not state.unfinished
        if looked and not state.gathers_for_nodes(state.at):
            other_pods.looked(state, state.at)
        follow_barred(state)
        if places_pods(state):
            follow_unplaced(state)
            follow_preemptions(state)
            follow_said(state)
            # groups are looked at whenever their pods wait
            state.members.stirred.clear()
            state.groups = {}
        elif looked and (state.members.stirred or state.groups):
            state.groups = waiting_groups(state)
            state.members.stirred.clear()
        if state.nominated:
            kept = {
                b: _not_over(rooms, state.at)
                for b, rooms in state.nominated.items()
                if b in state.book.unsettled
            }
            state.nominated = {b: rooms for b, rooms in kept.items() if rooms}
        for binding in [b for b in state.extending if b not in state.book.unsettled]:
            extenders.forget(state, binding)
        if not state.unfinished:
            state.descheduling.clear()  # each is answered in the first round that comes to its end
        forget_motion(state)
        state.rested = {
            binding: until for binding, until in state.rested.items() if until > state.at
        }
        if state.book.known:
            state.shrunk.clear()  # each is examined at the beginning of a round
        state.removals = {uid: until for uid, until in state.removals.items() if until > state.at}

    def asks(self, state: ClusterStageState) -> Sequence[ExtenderCall]:
        return extenders.asks(state)

    def next_due(self, state: ClusterStageState) -> Micros | None:
        if not state.book.known or left_alone(state) is not None:
            return None
        if state.unfinished and not state.gathers(state.at):
            return state.at
        dues = [claims.next_due(state), command_progress.next_due(state)]
        if places_pods(state):
            dues += [given_back_next(state), bars_end(state), preemptions_due(state)]
        else:
            dues.append(no_execute.next_due(state))
        dues += [motion_due(state), static_due(state, state.at), other_pods.due(state)]
        if state.gathering is not None and state.gathers(state.at) and state.book.unsettled:
            # nothing is placed, nor given up, before
            dues.append(state.window.ends(*state.gathering))
        else:
            if state.gathering is not None and state.book.unsettled:
                dues.append(state.buying.ends(*state.gathering))
            dues += [since + WAIT_US for since in state.groups.values()]
            dues += [room.until for rooms in state.nominated.values() for room in rooms]
        return min((due for due in dues if due is not None), default=None)


def _has_more(state: ClusterStageState) -> bool:
    """Returns whether open work remains that a round with a bound of work may not have reached."""
    open_ = state.book.unsettled or state.proposals or state.disruptions or state.descheduling
    return bool(open_ or state.requested or state.running or state.members.stirred)


def _not_over(rooms: tuple[Nomination, ...], at: Micros) -> tuple[Nomination, ...]:
    return tuple([room for room in rooms if room.until > at])


def _by_the_rules(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Makes all decisions of one round except the answers to plans.

    The order is: releases from lost, tainted or shrunk nodes; ends of node claims; releases,
    placements and requests for nodes; cancelled claims and claims of static pools; answers to
    proposals; next steps of disruption commands; placements in the room that became free because a
    command was rolled back. Before all nodes of the cluster are known, only proposals are answered.

    If the round reaches its bound of work (the maximum number of replicas in one round) while it
    places replicas, the remaining steps are made in the next round. After the stage has committed a
    plan, the stage runs this function again. In a cluster that keeps its own scheduler, proposals
    are only answered, by refusals. In a joined cluster that this scheduler places, waiting pods are
    placed instead of replicas (`pod_placing`), its own controllers evict under taints, and of pods
    that fit nowhere it is said why (`unplaced_pods`). Before that nodes are barred that did not
    take pods that were placed there (`barred_nodes`), and pods that are not bound yet are released
    from nodes that refuse them by newer facts (`unbound_pods`).
    """
    state.at = at
    state.tries.clear()
    if left_alone(state) is not None:
        yield from answer_proposals(state)
        yield from answer_disruptions(state, at)
        yield from answer_descheduling(state, at)
        return
    if state.book.known:
        if places_pods(state):
            yield from claims.follow_claims(state, at)
            yield from bar_nodes(state, at)
            yield from settle_pods(state, at)
        else:
            yield from release_no_execute(state, at)
            yield from release_from_shrunk(state)
            yield from claims.follow_claims(state, at)
            yield from settle(state, at)
        if state.exhausted:
            return
        yield from claims.cancel_unneeded(state)
        yield from claims.fill_static_pools(state, at)
    yield from answer_proposals(state)
    yield from answer_disruptions(state, at)
    yield from answer_descheduling(state, at)
    if state.book.known and state.running:
        yield from carry_out(state, at)
        # where a command was rolled back there is room again
        yield from settle_pods(state, at) if places_pods(state) else settle(state, at)
    if state.book.known and places_pods(state):
        yield from say_unplaced(state, at)


def _carry_out(state: ClusterStageState, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
    """Applies the steps of a plan to the state as if each had arrived as an input. `cause`: id of
    the plan's commitment. Raises AssertionError for a step that a cluster stream does not have."""
    for place, taken in enumerate(steps):
        match taken.data:
            case NodesObserved() as nodes:
                observe_nodes(state, nodes, cause, at)
            case NodeRemovalProposed() as proposed:
                id = str(derived_id("step", str(cause), place))
                state.proposals[id], state.on_behalf[id] = proposed, cause
            case _:
                raise AssertionError(f"{type(taken.data).__name__} is no step of a cluster stream")


FOLDS = DecisionFolds(
    decision_folds.FOLDS,
    extenders.FOLDS,
    refusal_folds(forget_proposal),
    plan_folds(lambda state: state.requested, _carry_out),
).covering(decided_by("cluster"))
"""The folds of all kinds of decisions of a cluster stream."""
