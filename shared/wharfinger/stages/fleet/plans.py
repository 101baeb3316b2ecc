"""A plan, held against the fleet as it is: the steps are taken on a copy of the state, by the stage's own rules.

The copy is asked after everything else of the round has been decided, so what it decides is what the plan does and nothing else.
The same functions describe what a plan looked at when it is made and when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    BindingReleased,
    Outcome,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.plans import PlanRequested, Step, StepData
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.step import ENGINE, number
from wharfinger.stages.fleet.clusters import ClusterState
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.plans import (
    ENGINE_NAME,
    capacity_name,
    facts_name,
    placement_name,
    refusal,
    replaced,
    short_digest,
)

Rules = Callable[[FleetState, Micros], Iterator[Draft]]
"""Everything the stage decides of itself: what comes of a plan comes of these."""

_TRIAL = UUID(int=0)
_TRIAL_SEQ = 2**62
"""What is decided on a copy has no number in the stream; this one is later than every real one."""


def answer_plans(state: FleetState, at: Micros, rules: Rules, profile: str) -> Iterator[Draft]:
    for id, request in list(state.requested.items()):
        no = _why_not(state, request, at, rules, profile)
        if no is not None:
            yield Draft(no, request.plan, "refused", id)
            continue
        yield Draft(PlanCommitted(request.plan, len(request.steps)), request.plan, "committed", id)
        yield from rules(state, at)


def expectation(state: FleetState, request: PlanRequested, at: Micros, rules: Rules, profile: str) -> PlanRequested:
    """The request with what comes of its steps now as what is expected, and with what was looked at."""
    expected = rehearse(state, request.steps, at, rules)
    names = {name for step in request.steps if (name := replaced(step.data)) is not None}
    names.update(placement_name(outcome.subject) for outcome in expected if outcome.subject in state.bindings)
    names.update(name for cluster in state.clusters for name in (facts_name(cluster), capacity_name(cluster)))
    basis = {name: _digest(state, name, profile) for name in (*sorted(names), ENGINE_NAME)}
    return msgspec.structs.replace(request, expected=expected, basis=basis)


def rehearse(state: FleetState, steps: Sequence[Step], at: Micros, rules: Rules) -> tuple[Outcome, ...]:
    """What would come of the steps, by subject. Changes nothing."""
    trial = fork(state)
    trial.carry_out(steps, _TRIAL, at)
    found: dict[tuple[str, str], Outcome] = {}
    for place, draft in enumerate(rules(trial, at)):
        trial.fold_decision(number(draft, state.stream, _TRIAL_SEQ + place), at)
        outcome = outcome_of(draft)
        found[outcome.subject, "" if isinstance(draft.data, ProposalRefused) else "decided"] = outcome
    return tuple([found[key] for key in sorted(found)])


def outcome_of(draft: Draft) -> Outcome:
    match draft.data:
        case ScheduleDecided(targets=targets):
            return Outcome(draft.subject, draft.outcome, _places(targets))
        case ScheduleRefused(targets=targets, reason=reason):
            return Outcome(draft.subject, draft.outcome, _places(targets), reason)
        case ProposalRefused(reason=refused):
            return Outcome(draft.subject, "declined", reason=refused)
        case BindingReleased():
            return Outcome(draft.subject, draft.outcome)
        case _:
            return Outcome(draft.subject, draft.outcome)


def _places(targets: Iterable[TargetCluster]) -> dict[str, int]:
    return {t.cluster: t.replicas for t in targets}


def _why_not(state: FleetState, request: PlanRequested, at: Micros, rules: Rules, profile: str) -> PlanRefused | None:
    foreign = next((data for step in request.steps if not _is_ours(state, data := _data(step))), None)
    if foreign is not None:
        what = "nothing" if isinstance(foreign, Nothing) else type(foreign).__name__
        return PlanRefused(request.plan, "NotPlannable", what)
    found = rehearse(state, request.steps, at, rules)
    now = {name: _digest(state, name, profile) for name in request.basis}
    return refusal(request, now, found, _decided_since(state, request, now))


class Nothing(Value, frozen=True):
    """A step in which no field is set: somebody else's mistake, answered and not died of."""


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


def _decided_since(state: FleetState, request: PlanRequested, now: Mapping[str, str]) -> Iterator[str]:
    """Bindings that were given something since the plan was made in clusters whose room is another now: who took it. A name may
    come twice."""
    planned = {step.data.binding.name for step in request.steps if isinstance(step.data, BindingRequested)}
    for name in sorted(state.clusters):
        capacity = capacity_name(name)
        if capacity in request.basis and now.get(capacity) != request.basis[capacity]:
            for binding in sorted(state.by_cluster.get(name, ())):
                given = state.bindings[binding].assigned_by.get(name, 0)
                if given > request.seq and binding not in planned:
                    yield placement_name(binding)


def _digest(state: FleetState, name: str, profile: str) -> str:
    """Of what `name` stands for, as it is now; of nothing: empty."""
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
    """Without the totals an agent reports: they are capacity, and always in motion."""
    if cluster.facts is None:
        return ""
    facts = msgspec.structs.replace(cluster.facts, summary=None)
    return short_digest((facts, cluster.silent_since is not None))


def _room_digest(cluster: ClusterState) -> str:
    """What is left, not what was counted when: a count that only takes in what was deducted before changes nothing."""
    room = cluster.room
    if room is None:
        return ""
    classes = {} if cluster.capacity is None else cluster.capacity.classes
    left = {name: n - cluster.taken.get(name, 0) for name, n in classes.items()}
    return short_digest((room.left, room.taken_milli, room.devices, left, sorted(cluster.closed)))
