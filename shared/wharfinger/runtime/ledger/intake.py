"""The stream `intake`: what was accepted from outside, before anybody acts on it.

It is a stream like any other, so that the publisher and `verify` need no second way of reading: a round's inputs are the
accepted events, and to each input there is one decision (`MessageAccepted`) that says which topic it goes to. It has many
appenders and no owner: whoever holds the row of its head adds the next round. An id is accepted once, for ever.

What was told last under each key stays true until something else is told: `fact` points at it, so that nobody has to read
the whole intake to know what holds, and no retirement takes it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.value import Value, canonical
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.envelope import Event
from wharfinger.events.registry import type_of
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.hashing import round_hash
from wharfinger.kernel.round import Head, InputRef, Round
from wharfinger.kernel.step import ENGINE, decision_id
from wharfinger.runtime.ledger.bodies import pack
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.heads import Locked, lock
from wharfinger.runtime.ledger.retries import retried
from wharfinger.runtime.ledger.schema import day_of
from wharfinger.runtime.ledger.writer import EventRow, is_written, write

CHUNK = 1000
"""Events a round: long enough for COPY to pay, short enough for other appenders not to wait long."""

EVENT_BYTES_MAX = 1_000_000
"""A broker refuses records beyond a mebibyte unless told otherwise, and what is refused would hold up all that follows."""

_FACTS = """
insert into fact (topic, key, partition_key, event, sha256, seq, at_us)
select * from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], $6::bigint[], $7::bigint[])
on conflict (topic, key) do update set (partition_key, event, sha256, seq, at_us) =
    (excluded.partition_key, excluded.event, excluded.sha256, excluded.seq, excluded.at_us)
"""

PROFILE = "intake"
OUTCOME = "accepted"


@dataclass(frozen=True, slots=True)
class Submission:
    """An event to be accepted, and where it is to be sent."""

    event: Event[Value]
    topic: str
    key: str
    partition_key: str


@dataclass(frozen=True, slots=True)
class AcceptResult:
    """Ids accepted now, and ids that were accepted before (or stood twice in the same call)."""

    new: tuple[UUID, ...]
    known: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """All of a submission that can be made before the head is locked."""

    submission: Submission
    packed: tuple[int, bytes]
    data: MessageAccepted
    body: bytes


async def accept(database: Database, submissions: Sequence[Submission], clock: Callable[[], Micros]) -> AcceptResult:
    """Record what is new, in order. When this returns it is durable. Transient: call again with the same submissions."""
    new: list[UUID] = []
    known: list[UUID] = []
    for start in range(0, len(submissions), CHUNK):
        once: dict[UUID, Submission] = {}
        for submission in submissions[start : start + CHUNK]:
            if once.setdefault(submission.event.id, submission) is not submission:
                known.append(submission.event.id)
        prepared = [_prepare(s) for s in once.values()]
        accepted = await _accept_chunk(database, prepared, clock)
        new += [id_ for id_ in once if id_ in accepted]
        known += [id_ for id_ in once if id_ not in accepted]
    return AcceptResult(tuple(new), tuple(known))


async def _accept_chunk(database: Database, prepared: Sequence[_Prepared], clock: Callable[[], Micros]) -> set[UUID]:
    attempted: list[Round] = []  # rounds whose COMMIT may or may not have taken place

    async def attempt() -> set[UUID]:
        async with database.transaction() as transaction:
            locked = (await lock(transaction, [INTAKE]))[INTAKE]
            raw = transaction.raw
            for earlier in attempted:
                if await is_written(raw, locked.id, earlier):
                    return {ref.id for ref in earlier.inputs}
            known = await _known(raw, locked.id, [p.submission.event.id for p in prepared])
            fresh = [p for p in prepared if p.submission.event.id not in known]
            if not fresh:
                return set()
            round_ = _round(locked, fresh, clock())
            attempted.append(round_)
            await write(raw, [(locked.id, [round_])], [_event_row(p, day_of(round_.at)) for p in fresh])
            await raw.execute(_FACTS, *_fact_columns(round_, fresh))
            return {ref.id for ref in round_.inputs}

    return await retried(attempt)


async def _known(raw: Raw, stream: int, ids: Sequence[UUID]) -> set[UUID]:
    rows = await raw.fetch(
        "select w.event from unnest($2::uuid[]) as w(event) cross join lateral "
        "(select from taken t where t.stream = $1 and t.event = w.event limit 1) probe",
        stream, ids,
    )  # fmt: skip
    return {row[0] for row in rows}


def _prepare(submission: Submission) -> _Prepared:
    size = len(submission.event.body)
    if size > EVENT_BYTES_MAX:
        raise LedgerError(
            f"{submission.event.subject}: an event of {size:,} bytes; expected at most {EVENT_BYTES_MAX:,}, which a broker takes"
        )
    data = MessageAccepted(submission.topic, submission.key, submission.partition_key)
    return _Prepared(submission, pack(submission.event.body), data, canonical(data))


def _event_row(p: _Prepared, day: int) -> EventRow:
    """The body is packed before the head is locked, its day is known only then."""
    event = p.submission.event
    return (event.id, event.sha256, day, event.type, event.subject, event.source, *p.packed)


def _fact_columns(round_: Round, fresh: Sequence[_Prepared]) -> Iterator[Sequence[object]]:
    """The last word under each key, in order of keys: a statement may touch a row only once."""
    latest = {(p.data.topic, p.data.key): (seq, p) for seq, p in enumerate(fresh, round_.first_seq)}
    told = [latest[place] for place in sorted(latest)]
    yield [p.data.topic for _, p in told]
    yield [p.data.key for _, p in told]
    yield [p.data.partition_key for _, p in told]
    yield [p.submission.event.id for _, p in told]
    yield [p.submission.event.sha256 for _, p in told]
    yield [seq for seq, _ in told]
    yield [round_.at] * len(told)


def _round(locked: Locked, fresh: Sequence[_Prepared], now: Micros) -> Round:
    head: Head = locked.head
    at = max(head.at, now)
    refs = tuple(InputRef(p.submission.event.id, p.submission.event.sha256) for p in fresh)
    decisions = tuple(_decision(head.seq + place, p) for place, p in enumerate(fresh, 1))
    hash_ = round_hash(
        head.hash, INTAKE, head.round + 1, head.epoch, at, ENGINE, PROFILE, refs, {}, decisions, head.snapshot
    )
    return Round(
        INTAKE, head.round + 1, head.epoch, at, ENGINE, PROFILE, refs, {}, decisions, head.snapshot, head.hash, hash_,
        head.seq + 1,
    )  # fmt: skip


def _decision(seq: int, p: _Prepared) -> Decision:
    event = p.submission.event
    return Decision(
        INTAKE, seq, decision_id(INTAKE, seq), type_of(p.data), event.subject, OUTCOME, event.id, p.data, p.body
    )
