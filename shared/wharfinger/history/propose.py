"""Reschedule from history: what came out better in a replay is proposed to the plane as it is now.

A binding becomes a proposal when the replay left it elsewhere than it is; with `only_better`, when by the stated objective it is
better off there, in the present. Proposals go into the intake like everybody's, the largest gain first, at most `budget` of
them. They bind nobody: the fleet stage holds each against the present, commits it or refuses it with a reason, and what it
commits has the replay as its cause.

The replay's id follows from the question (facts, range, changes, objective) and a proposal's id from replay and binding. So
whoever is interrupted asks again: what was proposed is known, counts against the budget, and is not proposed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value
from wharfinger.engine.fleet.objective import OBJECTIVES, PRICE_LABEL, Objective, Place, price_micro, score
from wharfinger.events.codec import made
from wharfinger.events.decisions import ProposalRefused, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import FLEET, INTAKE, PROPOSALS
from wharfinger.history.states import state_at
from wharfinger.history.whatif import WhatIf
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, Submission
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages.fleet.state import BindingState, FleetState

SOURCE = "/wharfinger/replay"
ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.1

_ANSWERS = tuple(LATEST[data].type for data in (ScheduleDecided, ScheduleRefused, ProposalRefused))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A binding that could be moved. `present` and `targets`: cluster -> replicas. `gain`: by the objective, in its unit; None:
    it cannot be told."""

    id: UUID
    stream: str
    binding: str
    present: Mapping[str, int]
    targets: Mapping[str, int]
    gain: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one proposal. `gain`: as of now; None: it cannot be told any more. `decision`: id of the decision that
    answers it, empty while there is none."""

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
    """`candidates`: how many bindings could have been proposed; `before`: how many had been, by an earlier call. `why_none`: in
    words, where nothing was."""

    replay: UUID
    objective: Objective
    candidates: int
    before: int
    answers: tuple[Answer, ...]
    why_none: str = ""


def objective_of(text: str) -> Objective:
    """LedgerError: there is no such objective."""
    found = next((o for o in OBJECTIVES if o == text), None)
    if found is None:
        raise LedgerError(f"--objective: expected one of {', '.join(OBJECTIVES)}, got {text!r}")
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
    """Propose, wait for the answers, and report them. What is not answered in time is said to be unanswered: it stands in the
    intake and will be answered when the plane runs."""
    replay = replay_id(result, objective, only_better=only_better)
    everyone = {derived_id("reschedule", str(replay), name): name for name in result.placements}
    known = (await ledger.known({INTAKE: list(everyone)}))[INTAKE]
    cursors = {head.stream: head.seq for head in await ledger.heads(FLEET)}
    found = [
        candidate
        for stream in sorted(cursors)
        for candidate in candidates((await state_at(ledger, stream)).state, result.placements, replay, objective)
    ]
    worth = [c for c in found if c.id not in known and (not only_better or (c.gain is not None and c.gain > 0))]
    worth.sort(key=lambda c: (-(c.gain or 0), c.binding))
    left = len(worth) if budget is None else max(0, budget - len(known))
    chosen = worth[:left]
    claim = objective if only_better else ""
    await ledger.accept([submission(c, replay, claim, result) for c in chosen])
    by_id = {c.id: c for c in found}
    answers = await _earlier(ledger, result, {id_: everyone[id_] for id_ in known}, by_id)
    answers += await _await_answers(ledger, chosen, cursors, timeout_s)
    return Proposed(replay, objective, len(worth), len(known), tuple(answers), _why_none(found, worth, objective))


def candidates(
    state: FleetState, placements: Mapping[str, Mapping[str, int]], replay: UUID, objective: Objective
) -> Iterator[Candidate]:
    """The bindings of one fleet stream that the replay left elsewhere than they are, in order of name."""
    places = _Places(state)
    for name, targets in sorted(placements.items()):
        record = state.bindings.get(name)
        if record is None or not _movable(record, targets):
            continue
        held = {c: n for c, n in record.targets.items() if c not in record.suspect}
        if dict(targets) != held:
            gain = _gain(places, record, objective, held, targets)
            yield Candidate(derived_id("reschedule", str(replay), name), state.stream, name, held, dict(targets), gain)


def _movable(record: BindingState, targets: Mapping[str, int]) -> bool:
    """What goes wherever it may cannot be sent anywhere, and what is asked for now may be another number than then."""
    spec = record.spec
    return (
        not record.withdrawn and not spec.suspended and record.counted and not record.plan.duplicated
        and all(targets.values()) and sum(targets.values()) == spec.replicas > 0
    )  # fmt: skip


def submission(candidate: Candidate, replay: UUID, claim: str, result: WhatIf) -> Submission:
    """The proposal as it goes into the intake. `claim`: the objective the stage has to find it better by; empty: none."""
    data = RescheduleProposed(
        candidate.stream, candidate.binding, f"replay with {', '.join(result.asked)}"[:200],
        tuple(TargetCluster(name, n) for name, n in sorted(candidate.targets.items())), str(replay), claim,
        candidate.gain or 0,
    )  # fmt: skip
    event = made(
        data, id=candidate.id, source=SOURCE, subject=candidate.binding, key=candidate.stream, correlation=str(replay)
    )
    return Submission(event, PROPOSALS.name, candidate.stream, candidate.stream)


# --- gains


@dataclass(slots=True)
class _Places:
    """The clusters as an objective sees them, summed up once a resource: there may be many candidates."""

    state: FleetState
    by_resource: dict[str, dict[str, Place]] = field(default_factory=dict)

    def of(self, resource: str) -> dict[str, Place]:
        if resource not in self.by_resource:
            self.by_resource[resource] = dict(self._summed(resource))
        return self.by_resource[resource]

    def _summed(self, resource: str) -> Iterator[tuple[str, Place]]:
        state = self.state
        for name, cluster in sorted(state.clusters.items()):
            if cluster.facts is None:
                continue
            used = sum(
                state.bindings[b].targets.get(name, 0) * state.bindings[b].spec.requirements.requests.get(resource, 0)
                for b in state.by_cluster.get(name, ())
            )
            room = cluster.room
            total = 0 if room is None else used + max(0, room.left.get(resource, 0))
            yield name, Place(used, total, price_micro(cluster.facts))


def _gain(
    places: _Places, record: BindingState, objective: Objective, held: Mapping[str, int], targets: Mapping[str, int]
) -> int | None:
    """By how much it is better off there, in the present: an estimate, since what moves before it changes the present."""
    requests = record.spec.requirements.requests
    resource = "cpu" if "cpu" in requests else min(requests, default="cpu")
    every = places.of(resource)
    two = {name: every[name] for name in sorted({*held, *targets}) if name in every}
    if len(two) < len({*held, *targets}):
        return None
    now = score(objective, held, held, requests.get(resource, 0), two)
    then = score(objective, held, targets, requests.get(resource, 0), two)
    return None if now is None or then is None else now - then


def _why_none(found: Sequence[Candidate], worth: Sequence[Candidate], objective: Objective) -> str:
    if worth:
        return "the budget allows none"
    if not found:
        return "every binding that can be moved is where the replay left it"
    if all(c.gain is None for c in found):
        what = f"what a core costs in a cluster (its label {PRICE_LABEL})" if objective == "cost" else "room"
        return f"what is better by {objective} cannot be told: {what} is not known"
    return f"none of {len(found):,} bindings that the replay left elsewhere is better off there by {objective}"


# --- answers


async def _earlier(
    ledger: Ledger, result: WhatIf, known: Mapping[UUID, str], found: Mapping[UUID, Candidate]
) -> list[Answer]:
    """What became of proposals that an earlier call made."""
    answers: list[Answer] = []
    for id_, binding in sorted(known.items(), key=lambda item: item[1]):
        now = found.get(id_)
        answer = Answer(
            id_, binding, now.present if now else {}, dict(result.placements[binding]), now.gain if now else None,
            "unanswered", "no answer yet",
        )  # fmt: skip
        async for row in ledger.decisions(DecisionQuery(FLEET, types=_ANSWERS, subject=binding)):
            answer = _answered(answer, row) or answer
        answers.append(answer)
    return answers


async def _await_answers(
    ledger: Ledger, chosen: Sequence[Candidate], cursors: Mapping[str, int], timeout_s: float
) -> list[Answer]:
    waiting = {
        str(c.id): Answer(c.id, c.binding, c.present, c.targets, c.gain or 0, "unanswered", "no answer yet")
        for c in chosen
    }
    done: dict[str, Answer] = {}
    after = dict(cursors)
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while waiting and loop.time() < end:
        async for row in ledger.decisions(DecisionQuery(FLEET, types=_ANSWERS, after=after)):
            after[row.stream] = max(row.seq, after.get(row.stream, 0))
            asked = _asked(row.data())
            if asked in waiting and (answer := _answered(waiting[asked], row)):
                done[asked] = answer
                del waiting[asked]
        if waiting:
            await asyncio.sleep(POLL_S)
    return [done.get(str(c.id)) or waiting[str(c.id)] for c in chosen]


def _asked(data: Value) -> str:
    """The proposal that a decision answers; empty: none."""
    match data:
        case ScheduleDecided() | ScheduleRefused():
            return data.answers
        case ProposalRefused():
            return data.proposal
        case _:
            return ""


def _answered(answer: Answer, row: LedgerRow) -> Answer | None:
    data = row.data()
    if _asked(data) != str(answer.id):
        return None
    if isinstance(data, ProposalRefused):
        reason = f"{data.reason}: {data.detail}" if data.detail else data.reason
        return replace(answer, outcome="refused", reason=reason, decision=str(row.id))
    if isinstance(data, ScheduleRefused):
        return replace(answer, outcome="refused", reason=data.reason, decision=str(row.id))
    assert isinstance(data, ScheduleDecided), "nothing else names what it answers"
    before = {t.cluster: t.replicas for t in data.previous}
    return replace(answer, outcome="committed", reason="", decision=str(row.id), present=before)
