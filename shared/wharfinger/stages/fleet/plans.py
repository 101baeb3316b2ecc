"""Answers plans for the fleet by simulation: applies the steps to a copy of the state, and decides
there by the stage's own rules.

This comes after all other decisions of the round, so that what the copy decides is the effect of
the plan only. The same functions describe a plan's inputs when it is made and when it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import PlanAnswer, PlannedOutcome, ScheduleAnswer, as_decision
from wharfinger.events.plans import PlanRequested, Step, StepData
from wharfinger.events.promises import Promises
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.room import RoomItem, RoomTaken
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.incarnations import incarnation_at
from wharfinger.kernel.step import ENGINE, number
from wharfinger.stages.fleet.fold import carry_out, fold_decision
from wharfinger.stages.fleet.fold_clusters import promised
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.joint_plans import answer_joint, end_forgotten, settle
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.clusters import ClusterState
from wharfinger.stages.plans import (
    ENGINE_NAME,
    answer_requests,
    capacity_name,
    facts_name,
    not_plannable,
    placement_name,
    refusal,
    replaced,
    short_digest,
)

Rules = Callable[[FleetState, Micros], Iterator[Draft]]
"""Yields what the stage decides on a state without plans. The outcome of a plan is computed with
it."""

PLANNED = "planned"
"""The stream of which room is deducted that other parts of a plan take."""

_TRIAL = UUID(int=0)
_TRIAL_SEQ = 2**62
"""The first seq of decisions on a copy. They have no number in the stream; this one is larger than
every real one."""


def answer_plans(
    state: FleetState, at: Micros, rules: Rules, profile: str, *, may_promise: bool
) -> Iterator[Draft]:
    """Yields the answers to open plan requests, each followed by what follows from it. A promise is
    the last of a round. `may_promise`: the round has evaluated everything; otherwise plans of
    several shards wait for the next."""

    def why_not(request: PlanRequested) -> PlanAnswer | None:
        return _why_not(state, request, at, rules, profile)

    plans = state.proposals.plans
    for id, request in list(plans.items()):
        if not request.others:
            yield from answer_requests({id: request}, why_not, lambda: rules(state, at))
        elif may_promise:
            yield from answer_joint(
                state, id, request, at, why_not, partial(_effects, state, rules=rules)
            )
            if state.joint.promised is not None:
                return
    yield from end_forgotten(state, at)


def settle_plan(state: FleetState, rules: Rules) -> Iterator[Draft]:
    """Yields what follows for the part that this stream has promised, if that is decided."""
    return settle(state, partial(_effects, state, rules=rules))


def _effects(
    state: FleetState, request: PlanRequested, at: Micros, rules: Rules
) -> Iterator[Draft]:
    """Yield the decisions that follow from a committed part of a plan of several shards, as if it
    were `at`. They are decided on a copy, on which the room is deducted that the parts before this
    one take; the stream itself hears of that room when those shards have committed."""
    trial, seq = fork(state), state.joint.committed_seq
    _deduct(trial, request.taken)
    trial.clock = at
    drafts: list[Draft] = []
    for draft in rules(trial, at):
        seq += 1
        fold_decision(
            trial, number(draft, state.stream, seq, incarnation_at(state.incarnations, seq)), at
        )
        drafts.append(draft)
    yield from drafts


def _deduct(trial: FleetState, taken: Iterable[RoomItem]) -> None:
    """Deduct the room that the parts of other shards take."""
    for item in taken:
        cluster = trial.clusters.get(item.cluster)
        if cluster is not None and cluster.deduct_promised(
            PLANNED, promised(msgspec.structs.replace(item, seq=_TRIAL_SEQ))
        ):
            trial.touch(cluster)


def room_of(
    state: FleetState, request: PlanRequested, at: Micros, rules: Rules
) -> tuple[RoomItem, ...]:
    """Return the room that a part of a plan takes, by cluster and class of replicas."""
    promises, messages = Promises(), list[RoomTaken]()
    for place, draft in enumerate(_tried(state, request, at, rules)):
        messages += promises.add(state.stream, 1, place + 1, draft.data)
    items = [item for message in (*messages, *promises.rest()) for item in message.items]
    return tuple([msgspec.structs.replace(item, seq=0) for item in items])


def expectation(
    state: FleetState, request: PlanRequested, at: Micros, rules: Rules, profile: str
) -> PlanRequested:
    """Return the plan request with two parts filled in. `expected`: the outcomes that a simulation
    of the steps gives. `basis`: input name -> digest of the input, for all inputs on which these
    outcomes depend (here `basis` means the basis of a plan, not the basis of a round).

    `rules`: function that yields the decisions of the fleet stage on a state. `profile`: the
    recorded settings of the stage, which are one of the inputs.
    """
    expected = rehearse(state, request, at, rules)
    names = {name for step in request.steps if (name := replaced(step.data)) is not None}
    names.update(
        placement_name(outcome.subject) for outcome in expected if outcome.subject in state.bindings
    )
    names.update(
        name for cluster in state.clusters for name in (facts_name(cluster), capacity_name(cluster))
    )
    basis = {name: _digest(state, name, profile) for name in (*sorted(names), ENGINE_NAME)}
    return msgspec.structs.replace(request, expected=expected, basis=basis)


def rehearse(
    state: FleetState, request: PlanRequested, at: Micros, rules: Rules
) -> tuple[PlannedOutcome, ...]:
    """Simulate a plan: apply its steps to a copy of the state and decide there. Return the
    outcomes, sorted by subject; the state itself is not changed. For each subject, the last
    decision gives the outcome; the last declined proposal gives a separate outcome. `at`: the time
    of the simulation. `rules`: function that yields the decisions of the fleet stage on the copy.
    """
    found: dict[tuple[str, str], PlannedOutcome] = {}
    for draft in _tried(state, request, at, rules):
        outcome = outcome_of(draft)
        found[outcome.subject, "" if _declines(draft.data) else "decided"] = outcome
    return tuple([found[key] for key in sorted(found)])


def _tried(state: FleetState, request: PlanRequested, at: Micros, rules: Rules) -> Iterator[Draft]:
    """Yield what is decided on a copy of the state on which the plan is carried out."""
    trial = fork(state)
    _deduct(trial, request.taken)
    carry_out(trial, request.steps, _TRIAL, at)
    for place, draft in enumerate(rules(trial, at)):
        fold_decision(trial, number(draft, state.stream, _TRIAL_SEQ + place), at)
        yield draft


def _declines(data: Value) -> bool:
    return as_decision(data).ABOUT == "proposal"


def outcome_of(draft: Draft) -> PlannedOutcome:
    data = draft.data
    if _declines(data):
        return PlannedOutcome(draft.subject, "declined", reason=as_decision(data).refusal())
    places = (
        {t.cluster: t.replicas for t in data.targets} if isinstance(data, ScheduleAnswer) else {}
    )
    return PlannedOutcome(draft.subject, draft.outcome, places, as_decision(data).refusal())


def _why_not(
    state: FleetState, request: PlanRequested, at: Micros, rules: Rules, profile: str
) -> PlanAnswer | None:
    foreign = next(
        (data for step in request.steps if not _is_ours(state, data := _data(step))), None
    )
    if foreign is not None:
        what = "nothing" if isinstance(foreign, Nothing) else type(foreign).__name__
        return not_plannable(request, what)
    found = rehearse(state, request, at, rules)
    now = {name: _digest(state, name, profile) for name in request.basis}
    return refusal(request, now, found, _decided_since(state, request, now))


class Nothing(Value, frozen=True):
    """Represents a step in which no field is set. Such a plan is refused as not plannable."""


def _data(step: Step) -> StepData | Nothing:
    return Nothing() if step.empty else step.data


def _is_ours(state: FleetState, data: StepData | Nothing) -> bool:
    match data:
        case BindingRequested() | BindingWithdrawn() | ClusterObserved() | ClusterForgotten():
            return True
        case FailoverProposed() | EvictionProposed() | RescheduleProposed():
            return data.stream == state.stream
        case _:
            return False


def _decided_since(
    state: FleetState, request: PlanRequested, now: Mapping[str, str]
) -> Iterator[str]:
    """Yield the input names of the bindings that may have taken capacity after the plan was made. A
    binding is yielded if it was assigned replicas after the plan, in a cluster whose capacity is
    not the same as when the plan was made. Bindings that the plan itself requests are left out. A
    name may be yielded twice. `now`: input name -> present digest, to compare with the digests in
    the plan."""
    planned = {
        step.data.binding.name for step in request.steps if isinstance(step.data, BindingRequested)
    }
    for name in sorted(state.clusters):
        capacity = capacity_name(name)
        if capacity in request.basis and now.get(capacity) != request.basis[capacity]:
            for binding in sorted(state.by_cluster.get(name, ())):
                given = state.bindings[binding].assigned_by.get(name, 0)
                if given > request.seq and binding not in planned:
                    yield placement_name(binding)


def _digest(state: FleetState, name: str, profile: str) -> str:
    """Return a digest of the present value of one input of a plan. A plan is carried out only if
    its inputs still have the same digests. `name` names the input: the version of the engine, the
    request or the present targets of a binding, or the facts or the capacity of a cluster.
    `profile`: the recorded settings, which are part of the digest of the engine. The result is
    empty if the binding or cluster does not exist."""
    if name == ENGINE_NAME:
        return short_digest((ENGINE, profile))
    kind, _, rest = name.partition("/")
    if kind == "binding":
        record = state.bindings.get(rest)
        if record is not None:
            return short_digest((record.withdrawn, record.spec))
        record = state.bindings.get(rest.removesuffix(" placement"))
        return "" if record is None else short_digest((record.targets, record.refused))
    subject, _, what = rest.rpartition(" ")
    cluster = state.clusters.get(subject)
    if cluster is None:
        return ""
    return _facts_digest(cluster) if what == "facts" else _room_digest(cluster)


def _facts_digest(cluster: ClusterState) -> str:
    """Return the digest of a cluster's facts and of whether it is silent. The reported totals are
    left out, because they are capacity and change all the time."""
    if cluster.facts is None:
        return ""
    facts = msgspec.structs.replace(cluster.facts, summary=None)
    return short_digest((facts, cluster.silent_since is not None))


def _room_digest(cluster: ClusterState) -> str:
    """Return the digest of a cluster's remaining capacity. It stays the same where a new count only
    includes what the stream had deducted already."""
    room = cluster.room
    if room is None:
        return ""
    classes = {} if cluster.capacity is None else cluster.capacity.classes
    left = {name: n - cluster.taken.get(name, 0) for name, n in classes.items()}
    return short_digest((room.left, room.taken_milli, room.devices, left, sorted(cluster.closed)))
