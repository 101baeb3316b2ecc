"""Plans: see what a change would do before it happens, and have it happen exactly so or not at all.

A plan is made on a world that begins where the plane stands now (`plan_making`, `planning`).
`save` keeps it in a table of its own. `apply` asks each stream the plan concerns: the stream goes
through the steps again on the state it has in the committing round, and commits them when the
outcome is what the plan expects, else refuses and says what has changed. Several fleet streams are
asked in one acceptance, and all commit or none does (`stages.fleet.joint_plans`). Only then are the
facts handed in, so that the rest of the plane learns of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import get_args
from uuid import UUID

import msgspec

from wharfinger.domain.text import as_time
from wharfinger.domain.value import canonical, json_decoder
from wharfinger.events.accepted import Accepted
from wharfinger.events.decisions import PlanAnswer, PlanEnd, effect_of
from wharfinger.events.origin import Origin
from wharfinger.events.plans import PlanRequested
from wharfinger.events.registry import types_of
from wharfinger.events.streams import BINDINGS, PROPOSALS
from wharfinger.history.names import UnknownNameError
from wharfinger.history.plan_records import Plan, fact_event, in_turn, request_event
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Submission, plans, wall_clock
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.intake import EVENT_BYTES_MAX

ANSWERS = types_of(*get_args(PlanAnswer))
REQUEST_BYTES_MAX = EVENT_BYTES_MAX - 1000
"""Without its envelope: some thousands of bindings."""
POLL_S = 0.25
"""How often answers are looked for by itself: a notification may be lost."""


class PlanExpiredError(LedgerError):
    """The plan was made too long ago to be carried out."""


class NoAnswerError(LedgerError):
    """Not every stream has answered in time. What was asked stands."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Every stream committed its part. `decisions`: ids of the `PlanCommitted`, by stream. `again`:
    it had happened before."""

    plan: UUID
    decisions: dict[str, UUID]
    again: bool


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """At least one stream refused. `refusals`: by stream; without those that refused only because
    another did. `committed`: streams that committed their own part: clusters."""

    plan: UUID
    refusals: dict[str, PlanEnd]
    committed: tuple[str, ...]


# --- keeping it


async def save(ledger: Ledger, plan: Plan, made_by: str = "") -> None:
    """Keep the plan, so that it can be carried out by its id. The same one twice is one. `made_by`:
    the actor that has asked for it over the HTTP API."""
    await plans.save(ledger.database, plan.id, plan.made_at, canonical(plan), made_by)


async def load(ledger: Ledger, id: UUID) -> Plan:
    """UnknownNameError: there is none of this id. LedgerError: another version of this program
    made it."""
    body = await plans.load(ledger.database, id)
    if body is None:
        raise UnknownNameError(f"there is no plan {id}")
    try:
        return json_decoder(Plan).decode(body)
    except msgspec.ValidationError as error:
        raise LedgerError(f"plan {id} cannot be read by this version: {error}") from None


async def named(ledger: Ledger, text: str) -> Plan:
    """The plan with this id or the only one whose id begins so. UnknownNameError: none;
    LedgerError: several."""
    found = await plans.ids_like(ledger.database, text.lower(), 2) if text else []
    if not found:
        raise UnknownNameError(f"there is no plan {text}")
    if len(found) > 1:
        raise LedgerError(f"there is more than one plan {text}")
    return await load(ledger, found[0])


# --- carrying it out


def too_large(plan: Plan) -> str:
    """Why the plan cannot be carried out as one: what a stream is asked has to fit into one
    message. Empty: it can."""
    for part in plan.parts:
        size = len(canonical(part))
        if size > REQUEST_BYTES_MAX:
            return (
                f"{part.stream} would be asked {size:,} bytes at once, "
                f"a message holds {REQUEST_BYTES_MAX:,}: split the change"
            )
    return ""


async def apply(
    ledger: Ledger,
    plan: Plan,
    timeout_s: float,
    *,
    origin: Origin | None = None,
    answered: Callable[[int], None] = lambda _: None,
    at: Micros | None = None,
) -> Applied | PlanRefusal:
    """Ask the streams, wait for their answers, and hand in the facts. Interrupted and called again
    it finishes; called again after that it changes nothing. `origin`: who asks, None: whose the
    ledger is. `answered` is called with the number of streams that have answered. `at`: when it is
    asked, None: now.

    NoAnswerError: no answer came in time. PlanExpiredError: it is too old, and no stream was asked
    before. LedgerError: it is too large."""
    if no := too_large(plan):
        raise LedgerError(f"plan {plan.id}: {no}")
    before = await _answers(ledger, plan)
    if not before and (wall_clock() if at is None else at) >= plan.expires_at:
        raise PlanExpiredError(
            f"plan {plan.id} expired at {as_time(plan.expires_at)}: make a new one"
        )
    answers: dict[str, tuple[UUID, PlanAnswer]] = {}
    refusals: dict[str, PlanEnd] = {}
    for parts in in_turn(plan.parts):
        await ledger.accept([_asking(part) for part in parts], origin)
        answers = await _all_answers(ledger, plan, parts, timeout_s)
        answered(len(answers))
        effects = {stream: effect_of(data) for stream, (_, data) in answers.items()}
        refusals = {stream: end for stream, end in effects.items() if isinstance(end, PlanEnd)}
        if refusals:
            break  # the rest is not asked
    committed = {stream: id for stream, (id, data) in answers.items() if not data.refusal()}
    facts = [fact.accepted for fact in plan.facts]
    if refusals:
        taken = [part for part in plan.parts if part.stream in committed]
        facts = [fact for fact in facts if any(_is_step_of(fact, part) for part in taken)]
    handed_in = await ledger.accept([_handing_in(plan, fact) for fact in facts], origin)
    if refusals:
        own = {s: end for s, end in refusals.items() if end.reason != "RefusedElsewhere"}
        return PlanRefusal(plan.id, own or refusals, tuple(sorted(committed)))
    again = not handed_in.new and len(before) == len(plan.parts)
    return Applied(plan.id, committed, again)


def waited_for(plan: Plan) -> tuple[list[tuple[str, str]], list[str]]:
    """What to wait for once the plan is carried out: (topic, key) of what the streams were asked
    and of the facts, and the bindings that it moves or leaves without a place.

    Without the facts of bindings: the streams have decided about them with the plan, and say
    nothing more when they read them."""
    facts = [(PROPOSALS.name, str(part.stream)) for part in plan.parts]
    handed_in = [fact.accepted for fact in plan.facts]
    facts += [(fact.topic.name, fact.key) for fact in handed_in if fact.topic is not BINDINGS]
    bindings = [move.binding for move in plan.moves]
    bindings += [refusal.binding for refusal in plan.refusals if not refusal.before]
    return list(dict.fromkeys(facts)), list(dict.fromkeys(bindings))


def _asking(part: PlanRequested) -> Submission:
    return Submission(request_event(part), PROPOSALS.name, part.stream, part.stream)


def _handing_in(plan: Plan, fact: Accepted) -> Submission:
    return Submission(fact_event(plan.id, fact), fact.topic.name, fact.key, fact.partition_key)


def _is_step_of(fact: Accepted, part: PlanRequested) -> bool:
    return any(step.data == fact.data for step in part.steps)


async def _all_answers(
    ledger: Ledger, plan: Plan, parts: Sequence[PlanRequested], timeout_s: float
) -> dict[str, tuple[UUID, PlanAnswer]]:
    async with _woken(ledger) as wakeup:
        end = time.monotonic() + timeout_s
        while True:
            wakeup.clear()
            answers = await _answers(ledger, plan)
            missing = [part.stream for part in parts if part.stream not in answers]
            if not missing:
                return answers
            if time.monotonic() >= end:
                raise NoAnswerError(
                    f"plan {plan.id}: no answer from {', '.join(missing)} within {timeout_s:g} s; "
                    f"is a scheduler up? The request stands: ask again to see what came of it"
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    # not `wait_for`, which may forget that it was cancelled
                    await wakeup.wait()


async def _answers(ledger: Ledger, plan: Plan) -> dict[str, tuple[UUID, PlanAnswer]]:
    found: dict[str, tuple[UUID, PlanAnswer]] = {}
    async for row in ledger.decisions(DecisionQuery(types=ANSWERS, subject=str(plan.id))):
        data = row.data()
        if isinstance(data, PlanAnswer):
            found[row.stream] = (row.id, data)
    return found


@asynccontextmanager
async def _woken(ledger: Ledger) -> AsyncIterator[asyncio.Event]:
    """Set whenever the ledger has grown."""
    wakeup = asyncio.Event()
    listening = asyncio.create_task(ledger.notifications(wakeup))
    try:
        yield wakeup
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
