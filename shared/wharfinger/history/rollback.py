"""`rollback`: a binding or a policy as it was, by compensating requests; history itself is never
changed.

A binding gets its old request back (replicas, requirements, placement, priority). If all its
replicas were assigned then, it also returns to the same clusters: the plan has the old request and
a relocation to the old targets. A policy is applied again as it was then, and its bindings are
requested again. Everything is planned first, on the present state. What cannot be restored is
refused, with the reason: a cluster that is gone, or one without room.

A rollback can itself be rolled back. An interrupted rollback can be repeated, and then finishes:
the ids of its requests are derived from the wanted state and the heads of the streams, and what is
already as wanted is not requested again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import digest
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.decisions import ScheduleAnswer
from wharfinger.events.envelope import derived_id, uuid_of
from wharfinger.events.intake import moved_bindings
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.streams import BINDINGS, INTAKE, POLICIES
from wharfinger.history import plan as plans
from wharfinger.history.diff import changed_fields
from wharfinger.history.names import UnknownNameError, full_name
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import Plan, fact_event
from wharfinger.history.plane_at import policies_at
from wharfinger.history.planning import planned
from wharfinger.history.points import HistoryPoint, moment_of, point_of
from wharfinger.history.states import state_at, world_at
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import (
    Ledger,
    LedgerError,
    LedgerRow,
    Submission,
    causality,
    wall_clock,
)
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.world import World

RESTORED = ("replicas", "requirements", "placement", "priority", "suspended", "policy")
"""What of a request goes back. Its name, uid and labels are the workload's own, and a token that
asked for a fresh decision once must not ask again."""


class RollBackError(LedgerError):
    """What was cannot be had again: one line that names what stands in the way."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """`subject`: the binding's name or the policy's key; `to`: the point or decision meant, and
    `at`: when that was.

    `fields`: what of the request or policy goes back; `targets`: where its replicas go back to,
    empty where that is decided again. `plan`: what would happen. `facts`: what the plane has to be
    told in the end. `notes`: lines for people.
    """

    subject: str
    to: str
    at: Micros
    fields: tuple[str, ...]
    targets: Mapping[str, int]
    plan: Plan
    facts: tuple[Accepted, ...]
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.plan.parts or self.facts)


@dataclass(frozen=True, slots=True)
class _Goal:
    """Where a name stood: its stream, its request, and what of its replicas lay where."""

    spec: Binding
    targets: dict[str, int]
    at: Micros
    said: str


async def plan_rollback(ledger: Ledger, what: str, to: str, now: Micros | None = None) -> RollBack:
    """What it takes to have `what` (a binding, or a policy by name or key) as it was at `to` (the
    id of a decision, or a point).

    Writes nothing. UnknownNameError: there is no such binding, policy or decision. RollBackError:
    it cannot be had again.
    """
    at = wall_clock() if now is None else now
    policies = await _policies_called(ledger, what)
    binding = await _binding_called(ledger, what)
    if len(policies) + (binding is not None) > 1:
        found = [*policies, *([binding] if binding else [])]
        raise LedgerError(f"{what}: expected one policy or binding, got {', '.join(found)}")
    if policies:
        return await _policy_back(ledger, policies[0], to, at)
    if binding is None:
        raise UnknownNameError(f"no binding and no policy is named {what}")
    return await _binding_back(ledger, binding, to, at)


async def apply_rollback(
    ledger: Ledger, rollback: RollBack, timeout_s: float, now: Micros | None = None
) -> Applied | PlanRefusal:
    """Applies the whole rollback, or none of it. `now`: when it is asked, None: the time of this
    machine. LedgerError: the streams did not answer in time; repeat the call to see the result."""
    plan = rollback.plan
    if plan.parts:
        await plans.save(ledger, plan)
    answer = await plans.apply(ledger, plan, timeout_s, at=now)
    if isinstance(answer, Applied):
        # Also the facts that an interrupted run did not submit after its commit.
        await ledger.accept([_handing_in(plan.id, fact) for fact in rollback.facts])
    return answer


def _handing_in(plan: UUID, fact: Accepted) -> Submission:
    return Submission(fact_event(plan, fact), fact.topic.name, fact.key, fact.partition_key)


# --- who is meant


async def _policies_called(ledger: Ledger, what: str) -> list[str]:
    """Keys of the policies ever told that have this name or key."""
    keys = [fact.key async for fact in ledger.facts(POLICIES.name)]
    return [key for key in keys if what in (key, key.rpartition("/")[2])]


async def _binding_called(ledger: Ledger, what: str) -> str | None:
    try:
        return await full_name(ledger, what)
    except UnknownNameError:
        return None


# --- a binding


async def _binding_back(ledger: Ledger, name: str, to: str, now: Micros) -> RollBack:
    world = await world_at(ledger)
    present = world.state_of_shard(name)
    goal = await _goal(ledger, present.stream, name, to, now)
    _require_places(present, name, goal)
    record = present.bindings.get(name)
    here = None if record is None or record.withdrawn else record
    spec = goal.spec if here is None else _restored(here.spec, goal.spec)
    targets, notes = _targets_back(here, spec, goal)
    facts = (accepted(BindingRequested(spec)),)
    proposals = (_relocation(present.stream, name, targets, goal),) if targets else ()
    made = planned(world, facts, proposals, _id(world, name, spec, targets), now)
    if made.declined:
        raise RollBackError(f"{name} cannot go back: {made.declined[0]}")
    fields = () if here is None else tuple(changed_fields(here.spec, spec))
    after = _lies(made, name, here)
    if not notes and after != goal.targets:
        notes = (
            (
                f"it would lie on {_said(after)} and not on {_said(goal.targets)}: "
                "its placement chooses for itself"
            ),
        )
    return RollBack(
        name, goal.said, goal.at, fields, targets, made, await _untold(ledger, facts), notes
    )


async def _goal(ledger: Ledger, stream: str, name: str, to: str, now: Micros) -> _Goal:
    """RollBackError: there was no such binding then."""
    row = await _decision(ledger, to)
    if row is not None and row.subject != name:
        raise RollBackError(f"decision {to} is about {row.subject}, not about {name}")
    point = point_of(to, now) if row is None else HistoryPoint(to, row.stream, row.round)
    found = await state_at(ledger, stream, point)
    state: FleetState = found.state
    record = state.bindings.get(name)
    if record is None or record.withdrawn:
        raise RollBackError(f"{name} was not asked for then; `wharfinger delete` withdraws it")
    at = found.head.at if row is None else row.at
    if row is not None and isinstance(data := row.data(), ScheduleAnswer):
        targets = {t.cluster: t.replicas for t in data.targets}
        return _Goal(record.spec, _without(targets, data.suspect), at, f"{row.stream} {row.seq}")
    return _Goal(record.spec, _without(record.targets, record.suspect), at, to)


def _without(targets: Mapping[str, int], suspect: Sequence[str]) -> dict[str, int]:
    """What was counted: the replicas of a silent cluster were placed elsewhere too."""
    return {cluster: n for cluster, n in sorted(targets.items()) if cluster not in suspect}


async def _decision(ledger: Ledger, text: str) -> LedgerRow | None:
    """The decision that is meant; None: a point is."""
    id_ = uuid_of(text) if len(text) == len(str(UUID(int=0))) else None
    if id_ is None:
        return None
    row = await ledger.decision(id_)
    if row is None:
        raise UnknownNameError(f"no decision has the id {id_}")
    return row


def _require_places(present: FleetState, name: str, goal: _Goal) -> None:
    gone: list[str] = []
    for cluster in goal.targets:
        known = present.clusters.get(cluster)
        if known is None or known.facts is None:
            gone.append(f"{cluster} is gone")
        elif known.deleting:
            gone.append(f"{cluster} is leaving")
    if gone:
        raise RollBackError(f"{name} cannot go back to where it was: {', '.join(gone)}")


def _restored(present: Binding, then: Binding) -> Binding:
    return msgspec.structs.replace(present, **{name: getattr(then, name) for name in RESTORED})


def _targets_back(
    here: BindingState | None, spec: Binding, goal: _Goal
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Where it is to be moved to, empty: nowhere in particular; and what has to be said about
    that."""
    if spec.placement.replicas.type == "Duplicated" or (
        not spec.replicas and spec.requirements.empty
    ):
        return {}, ()  # it goes wherever it may, then as now
    if sum(goal.targets.values()) != spec.replicas:
        held = sum(goal.targets.values())
        return {}, (
            f"it held {held} of {spec.replicas} replicas then: where they go is decided again",
        )
    if here is None:
        return {}, (
            (
                "it was withdrawn since: it is asked for again, and asked once more it goes to "
                "where "
                "it was"
            ),
        )
    same = goal.targets == here.targets == here.before
    return ({} if same else goal.targets), ()


def _lies(made: Plan, name: str, here: BindingState | None) -> dict[str, int]:
    """Where the binding would be in the end."""
    present = {} if here is None else dict(here.targets)
    return next((dict(move.after) for move in made.moves if move.binding == name), present)


def _said(targets: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{cluster} {n}" if n else cluster for cluster, n in sorted(targets.items()))
        or "nothing"
    )


def _relocation(
    stream: str, name: str, targets: Mapping[str, int], goal: _Goal
) -> RescheduleProposed:
    places = tuple(TargetCluster(cluster, n) for cluster, n in targets.items())
    return RescheduleProposed(stream, name, f"roll back to {goal.said}", places)


# --- a policy


async def _policy_back(ledger: Ledger, key: str, to: str, now: Micros) -> RollBack:
    row = await _decision(ledger, to)
    point = point_of(to, now) if row is None else HistoryPoint(to, at=row.at)
    then = (await policies_at(ledger, point)).get(key)
    if then is None:
        raise RollBackError(f"{key} was not there then; `wharfinger delete` removes it")
    policies, bindings = await _told(ledger)
    present = policies.get(key)
    after = {**policies, key: then}
    moved = moved_bindings(bindings.values(), after.values())
    facts = [
        accepted(PolicyApplied(then)),
        *(accepted(BindingRequested(binding)) for binding in moved),
    ]
    world = await world_at(ledger)
    made = planned(world, facts, (), _id(world, key, *(f.data for f in facts)), now)
    fields = () if present is None else tuple(changed_fields(present, then))
    at = await moment_of(ledger, point)
    untold = await _untold(ledger, facts)
    # A policy as it is, with every binding under it, is nothing to do: its plan would tell it once
    # more.
    made = made if untold or made.parts else msgspec.structs.replace(made, facts=())
    return RollBack(
        key,
        to,
        now if at is None else at,
        fields,
        {},
        made,
        untold,
        _policy_notes(present, then, moved),
    )


def _policy_notes(
    present: Policy | None, then: Policy, moved: Sequence[Binding]
) -> tuple[str, ...]:
    notes = [f"{then.key} was removed since and is applied again"] if present is None else []
    if moved:
        notes.append(
            f"{len(moved)} binding{'s' if len(moved) > 1 else ''} requested again under it"
        )
    return tuple(notes)


async def _told(ledger: Ledger) -> tuple[dict[str, Policy], dict[str, Binding]]:
    """The newest facts of the intake: policies by key, bindings by name."""
    policies: dict[str, Policy] = {}
    async for fact in ledger.facts(POLICIES.name):
        if isinstance(data := event_of(fact).data, PolicyApplied):
            policies[fact.key] = data.policy
    bindings: dict[str, Binding] = {}
    async for fact in ledger.facts(BINDINGS.name):
        if isinstance(requested := event_of(fact).data, BindingRequested):
            bindings[fact.key] = requested.binding
    return policies, bindings


# --- both


async def _untold(ledger: Ledger, facts: Sequence[Accepted]) -> tuple[Accepted, ...]:
    """Those of `facts` that differ from the last fact of their subject in the intake. A subject
    that never came through the intake is left out."""
    end = next((head.round for head in await ledger.heads(INTAKE) if head.stream == INTAKE), 0) + 1
    told = await causality.told_before(ledger.database, {(fact.subject, end) for fact in facts})
    last = {subject: event.data for (subject, _), (event, _) in told.items()}
    return tuple(fact for fact in facts if fact.subject in last and last[fact.subject] != fact.data)


def _id(world: World, *parts: object) -> UUID:
    """Of the plan: the same while the same is wanted and no fleet stream has decided anything."""
    seqs = [f"{name}:{running.head.seq}" for name, running in sorted(world.streams.items())]
    return derived_id("rollback", *seqs, *(digest(part, 64) for part in parts))
