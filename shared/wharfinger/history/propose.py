"""Reschedule from history: proposes the better placements of a replay to the present plane.

A binding becomes a proposal if the replay ended with it in other clusters than it is in now; with
`only_better`, only if these clusters are better by the stated objective in the present. Proposals
go through the intake like all others, the largest gain first, at most `budget` of them. They are
not binding: the fleet stage checks each against the present state, and commits it or refuses it
with a reason. The replay is the cause of a decision that commits one.

The replay's id is derived from its inputs (facts, range, changes, objective), a proposal's id from
replay and binding. So an interrupted command can be repeated: earlier proposals are recognised,
count against the budget, and are not made twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args
from uuid import UUID

from wharfinger.domain.binding import TargetCluster
from wharfinger.engine.fleet.objective import (
    OBJECTIVES,
    PRICE_LABEL,
    Objective,
    ObjectiveCluster,
    price_micro,
    score,
)
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    ProposalEnd,
    ScheduleAnswer,
    as_decision,
    effect_of,
    kinds_about,
)
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.registry import types_of
from wharfinger.events.streams import FLEET, INTAKE, PROPOSALS
from wharfinger.history.states import state_at
from wharfinger.history.whatif import WhatIf
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, Submission
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages.fleet.state import BindingState, FleetState

SOURCE = "/wharfinger/replay"
ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.1

_ANSWERS = types_of(*get_args(ScheduleAnswer), *kinds_about("proposal"))


@dataclass(frozen=True, slots=True)
class MoveCandidate:
    """A binding that could be moved. `present` and `targets`: cluster -> replicas. `gain`: by the
    objective, in its unit; None: it cannot be told."""

    id: UUID
    stream: str
    binding: str
    present: Mapping[str, int]
    targets: Mapping[str, int]
    gain: int | None


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """What became of one proposal. `gain`: as of now; None: it cannot be told any more. `decision`:
    id of the decision that answers it, empty while there is none."""

    id: UUID
    binding: str
    present: Mapping[str, int]
    targets: Mapping[str, int]
    gain: int | None
    outcome: Literal["committed", "refused", "unanswered"]
    reason: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """`candidates`: how many bindings could have been proposed; `before`: how many had been, by an
    earlier call. `why_none`: in words, where nothing was."""

    replay: UUID
    objective: Objective
    candidates: int
    before: int
    answers: tuple[ProposalAnswer, ...]
    why_none: str = ""


PROPOSED_BY: tuple[Objective, ...] = tuple([o for o in OBJECTIVES if o != "moves"])


def objective_of(text: str) -> Objective:
    """LedgerError: there is no such objective. By `moves` staying is always best, so that nothing
    could be proposed by it."""
    found = next((o for o in PROPOSED_BY if o == text), None)
    if found is None:
        raise LedgerError(f"--objective: expected one of {', '.join(PROPOSED_BY)}, got {text!r}")
    return found


def replay_id(result: WhatIf, objective: Objective, *, only_better: bool) -> UUID:
    """The cause of all that comes of it."""
    return derived_id("replay", str(result.id), objective, int(only_better))


async def propose(
    ledger: Ledger,
    result: WhatIf,
    objective: Objective,
    *,
    only_better: bool = False,
    budget: int | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> Proposed:
    """Propose, wait for the answers, and report them. What is not answered in time is said to be
    unanswered: it stands in the intake and will be answered when the plane runs."""
    replay = replay_id(result, objective, only_better=only_better)
    everyone = {derived_id("reschedule", str(replay), name): name for name in result.placements}
    known = (await ledger.known({INTAKE: list(everyone)}))[INTAKE]
    cursors = {head.stream: head.seq for head in await ledger.heads(FLEET)}
    found = [
        candidate
        for stream in sorted(cursors)
        for candidate in candidates(
            (await state_at(ledger, stream)).state, result.placements, replay, objective
        )
    ]
    worth = [
        c
        for c in found
        if c.id not in known and (not only_better or (c.gain is not None and c.gain > 0))
    ]
    worth.sort(key=lambda c: (-(c.gain or 0), c.binding))
    left = len(worth) if budget is None else max(0, budget - len(known))
    chosen = worth[:left]
    claim = objective if only_better else ""
    await ledger.accept([submission(c, replay, claim, result) for c in chosen])
    by_id = {c.id: c for c in found}
    answers = await _earlier(ledger, result, {id_: everyone[id_] for id_ in known}, by_id)
    answers += await _await_answers(ledger, chosen, cursors, timeout_s)
    return Proposed(
        replay,
        objective,
        len(worth),
        len(known),
        tuple(answers),
        _why_none(found, worth, objective),
    )


def candidates(
    state: FleetState,
    placements: Mapping[str, Mapping[str, int]],
    replay: UUID,
    objective: Objective,
) -> Iterator[MoveCandidate]:
    """The bindings of one fleet stream that the replay left elsewhere than they are, in order of
    name."""
    places = _Places(state)
    for name, targets in sorted(placements.items()):
        record = state.bindings.get(name)
        if record is None or not _movable(record, targets):
            continue
        held = {c: n for c, n in record.targets.items() if c not in record.suspect}
        if dict(targets) != held:
            gain = _gain(places, record, objective, held, targets)
            yield MoveCandidate(
                derived_id("reschedule", str(replay), name),
                state.stream,
                name,
                held,
                dict(targets),
                gain,
            )


def _movable(record: BindingState, targets: Mapping[str, int]) -> bool:
    """What goes wherever it may cannot be sent anywhere, and what is asked for now may be another
    number than then."""
    spec = record.spec
    return (
        not record.withdrawn
        and not spec.suspended
        and record.counted
        and not record.parsed.duplicated
        and all(targets.values())
        and sum(targets.values()) == spec.replicas > 0
    )


def submission(candidate: MoveCandidate, replay: UUID, claim: str, result: WhatIf) -> Submission:
    """The proposal as it goes into the intake. `claim`: the objective the stage has to find it
    better by; empty: none."""
    data = RescheduleProposed(
        candidate.stream,
        candidate.binding,
        f"replay with {', '.join(result.asked)}"[:200],
        tuple(TargetCluster(name, n) for name, n in sorted(candidate.targets.items())),
        str(replay),
        claim,
        candidate.gain or 0,
    )
    event = made(
        data,
        id=candidate.id,
        source=SOURCE,
        subject=candidate.binding,
        key=candidate.stream,
        correlation=str(replay),
    )
    return Submission(event, PROPOSALS.name, candidate.stream, candidate.stream)


# --- gains


@dataclass(slots=True)
class _Places:
    """The clusters as an objective sees them, summed up once a resource: there may be many
    candidates."""

    state: FleetState
    by_resource: dict[str, dict[str, ObjectiveCluster]] = field(default_factory=dict)

    def of(self, resource: str) -> dict[str, ObjectiveCluster]:
        if resource not in self.by_resource:
            self.by_resource[resource] = dict(self._summed(resource))
        return self.by_resource[resource]

    def _summed(self, resource: str) -> Iterator[tuple[str, ObjectiveCluster]]:
        state = self.state
        for name, cluster in sorted(state.clusters.items()):
            if cluster.facts is None:
                continue
            used = sum(
                state.bindings[b].targets.get(name, 0)
                * state.bindings[b].spec.requirements.requests.get(resource, 0)
                for b in state.by_cluster.get(name, ())
            )
            room = cluster.room
            total = 0 if room is None else used + max(0, room.left.get(resource, 0))
            yield name, ObjectiveCluster(used, total, price_micro(cluster.facts))


def _gain(
    places: _Places,
    record: BindingState,
    objective: Objective,
    held: Mapping[str, int],
    targets: Mapping[str, int],
) -> int | None:
    """By how much it is better off there, in the present: an estimate, since what moves before it
    changes the present."""
    requests = record.spec.requirements.requests
    resource = "cpu" if "cpu" in requests else min(requests, default="cpu")
    every = places.of(resource)
    two = {name: every[name] for name in sorted({*held, *targets}) if name in every}
    if len(two) < len({*held, *targets}):
        return None
    now = score(objective, held, held, requests.get(resource, 0), two)
    then = score(objective, held, targets, requests.get(resource, 0), two)
    return None if now is None or then is None else now - then


def _why_none(
    found: Sequence[MoveCandidate], worth: Sequence[MoveCandidate], objective: Objective
) -> str:
    if worth:
        return "the budget allows none"
    if not found:
        return "every binding that can be moved is where the replay left it"
    if all(c.gain is None for c in found):
        what = (
            f"what a core costs in a cluster (its label {PRICE_LABEL})"
            if objective == "cost"
            else "room"
        )
        return f"what is better by {objective} cannot be told: {what} is not known"
    return (
        f"none of {len(found):,} bindings that the replay left elsewhere is better off there by "
        f"{objective}"
    )


# --- answers


async def _earlier(
    ledger: Ledger, result: WhatIf, known: Mapping[UUID, str], found: Mapping[UUID, MoveCandidate]
) -> list[ProposalAnswer]:
    """What became of proposals that an earlier call made."""
    answers: list[ProposalAnswer] = []
    for id_, binding in sorted(known.items(), key=lambda item: item[1]):
        now = found.get(id_)
        answer = ProposalAnswer(
            id_,
            binding,
            now.present if now else {},
            dict(result.placements[binding]),
            now.gain if now else None,
            "unanswered",
            "no answer yet",
        )
        async for row in ledger.decisions(DecisionQuery(FLEET, types=_ANSWERS, subject=binding)):
            answer = _answered(answer, row) or answer
        answers.append(answer)
    return answers


async def _await_answers(
    ledger: Ledger, chosen: Sequence[MoveCandidate], cursors: Mapping[str, int], timeout_s: float
) -> list[ProposalAnswer]:
    waiting = {
        str(c.id): ProposalAnswer(
            c.id, c.binding, c.present, c.targets, c.gain or 0, "unanswered", "no answer yet"
        )
        for c in chosen
    }
    done: dict[str, ProposalAnswer] = {}
    after = dict(cursors)
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while waiting and loop.time() < end:
        async for row in ledger.decisions(DecisionQuery(FLEET, types=_ANSWERS, after=after)):
            after[row.stream] = max(row.seq, after.get(row.stream, 0))
            asked = as_decision(row.data()).answered_proposal()
            if asked in waiting and (answer := _answered(waiting[asked], row)):
                done[asked] = answer
                del waiting[asked]
        if waiting:
            await asyncio.sleep(POLL_S)
    return [done.get(str(c.id)) or waiting[str(c.id)] for c in chosen]


def _answered(answer: ProposalAnswer, row: LedgerRow) -> ProposalAnswer | None:
    data = row.data()
    if as_decision(data).answered_proposal() != str(answer.id):
        return None
    if reason := as_decision(data).refusal():
        no = effect_of(data)
        detail = no.detail if isinstance(no, ProposalEnd) else ""
        said = f"{reason}: {detail}" if detail else reason
        return replace(answer, outcome="refused", reason=said, decision=str(row.id))
    assert isinstance(data, ScheduleAnswer), "only those were asked for"
    before = {t.cluster: t.replicas for t in data.previous}
    return replace(answer, outcome="committed", reason="", decision=str(row.id), present=before)
