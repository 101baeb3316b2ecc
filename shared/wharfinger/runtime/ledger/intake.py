"""The stream `intake`: what was accepted from outside, before any stage acts on it.

It is a stream like any other, so that the publisher and `verify` need no second way of reading: a
round's inputs are the accepted events, and to each input there is one decision (`MessageAccepted`)
that says which topic it goes to. It has many appenders and no owner. An appender looks at the head
and adds the round that follows it, in two statements. Where another one was first, it locks the row
of the head and adds the next round in a transaction. An id is accepted once: for as long as its
round is part of the history, and after that for as long as it is the latest fact under its key.

The last event under each key holds until the next event under that key. `fact` points at it, so a
reader need not read the whole intake to know what holds. Retirement keeps these events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.envelope import NO_VERSION, Event, FactVersion
from wharfinger.events.origin import AS_IT_CAME, Origin, stamped
from wharfinger.events.registry import type_of, types_of
from wharfinger.events.streams import CLUSTER_STATE, INTAKE
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.hashing import following
from wharfinger.kernel.incarnations import decision_id
from wharfinger.kernel.round import ENGINE, Head, InputRef, Round
from wharfinger.runtime.ledger.bodies import pack, unpack
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.errors import ChangedSinceError, LedgerError
from wharfinger.runtime.ledger.fact_writers import FactWriter, require_newest
from wharfinger.runtime.ledger.facts import TAKEN, Fact, latest_among
from wharfinger.runtime.ledger.heads import LOCKED, Locked, lock, locked_of
from wharfinger.runtime.ledger.retries import retried
from wharfinger.runtime.ledger.writer import (
    FOLLOWS,
    MORE_FROM,
    NOT_LOCKED,
    EventRow,
    MoreRows,
    MovedHeads,
    RoundRows,
    is_written,
)

CHUNK = 1000
"""Events a round: long enough for a transaction to pay, short enough for others not to wait
long."""

EVENT_BYTES_MAX = 1_000_000
"""Of one event. A workload, a policy or a proposal of that size is a mistake."""

BEHIND_MAX_US = 1_000_000
"""How long before it is written a round may be stamped. A process may be frozen in between, and
what was said of that time must stay true."""

STATE_BYTES_MAX = 16_000_000
"""Of one fact of a member cluster: all objects of a kind in a namespace may be many. It is divided
into records when it is sent."""

# Part of the statement that writes the round.
_FACTS = f"""
insert into fact (topic, key, partition_key, event, sha256, seq, at_us)
select * from unnest({
    ", ".join(
        f"${number}::{type_}[]"
        for number, type_ in enumerate(
            ("text", "text", "text", "uuid", "bytea", "bigint", "bigint"), MORE_FROM
        )
    )
})
where {FOLLOWS}
on conflict (topic, key) do update set (partition_key, event, sha256, seq, at_us) =
    (excluded.partition_key, excluded.event, excluded.sha256, excluded.seq, excluded.at_us)
"""

# All as of one moment: the head, and those of the ids ($1) that were accepted before.
_GLANCE = f"""
select {LOCKED},
    array(select event from ({TAKEN}) k where k.stream = stream.id)
from stream where name = '{INTAKE}'
"""

_CHANGED = """
select f.topic, f.key from fact f
join unnest($1::text[], $2::text[]) as w(topic, key) on w.topic = f.topic and w.key = f.key
where f.seq > $3 order by f.seq limit 1
"""

# By the primary key of each partition from the given day on.
_SINCE = """
select encoding, body from decision
where stream = $1 and seq > $2 and day >= $3 and type = any($4::text[]) order by seq
"""

_ACCEPTED = sorted(types_of(MessageAccepted))
_accepted = json_decoder(MessageAccepted)

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
class AsSeen:
    """The caller has looked at the facts under these (topic, key), as they were when the intake had
    come to `seq`."""

    seq: int
    places: Sequence[tuple[str, str]]


Place = tuple[str, str]
"""A topic and a key: where a fact is."""


@dataclass(frozen=True, slots=True)
class AsRead:
    """The submissions were made of the facts as they were when the intake had come to `seq`, at
    `at`. `stale`: of the places where facts were accepted after that, those to be read again; none:
    the submissions are the same with these facts. `again`: the submissions, made again with the
    facts that were read; at most `CHUNK`.

    Both are called under the lock of the head, and once more where the transaction is repeated."""

    seq: int
    at: Micros
    stale: Callable[[Sequence[Place]], Collection[Place]]
    again: Callable[[Sequence[Fact]], Sequence[Submission]]


@dataclass(frozen=True, slots=True)
class AcceptResult:
    """Ids accepted now; ids that were accepted before (or stood twice in the same call); and ids of
    facts that are older than the latest one under their key (`events.versions`), which were refused
    and not recorded. `seq`, `at`: how far the intake had come then; 0 where nothing was handed
    in."""

    new: tuple[UUID, ...]
    known: tuple[UUID, ...]
    outdated: tuple[UUID, ...] = ()
    seq: int = 0
    at: Micros = 0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """All of a submission that can be made before the head is locked."""

    submission: Submission
    packed: tuple[int, bytes]
    data: MessageAccepted
    body: bytes


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Submissions for one round, each id once, and the ids of those that were repeated."""

    prepared: Sequence[_Prepared]
    repeated: Sequence[UUID]

    @property
    def ids(self) -> list[UUID]:
        return [p.submission.event.id for p in self.prepared]


async def accept(
    database: Database,
    submissions: Sequence[Submission],
    clock: Callable[[], Micros] | None = None,
    origin: Origin = AS_IT_CAME,
    seen: AsSeen | None = None,
    read: AsRead | None = None,
    writer: FactWriter | None = None,
) -> AcceptResult:
    """Record what is new, in order. When this returns it is durable. Transient: call again with the
    same submissions. `origin`: who hands it in, for the envelopes. Stamped by the database's clock;
    `clock`: by this one instead, for a history of another time. `read`: the submissions are made
    again where facts that they depend on were accepted in the meantime; at most `CHUNK`.

    ChangedSinceError: what was `seen` has been changed after that, and not by this call. It is
    looked at in the transaction that accepts the first `CHUNK` submissions. WriterReplacedError:
    `writer` is not the newest of its name any more."""
    if read is not None:
        assert len(submissions) <= CHUNK, "what is made again is accepted in one round"
        chunk = _chunk(submissions, origin)
        return await _accept_chunk(database, chunk, clock, origin, seen, read, writer)
    if seen is not None and not submissions:
        async with database.reading(patient=True) as raw:
            await _refuse_changed(raw, seen)
    done = AcceptResult((), ())
    for start in range(0, len(submissions), CHUNK):
        chunk = _chunk(submissions[start : start + CHUNK], origin)
        part = await _accept_chunk(database, chunk, clock, origin, seen, None, writer)
        seen = None
        done = AcceptResult(
            done.new + part.new,
            done.known + part.known,
            done.outdated + part.outdated,
            part.seq,
            part.at,
        )
    return done


async def _accept_chunk(
    database: Database,
    chunk: _Chunk,
    clock: Callable[[], Micros] | None,
    origin: Origin,
    seen: AsSeen | None,
    read: AsRead | None,
    writer: FactWriter | None,
) -> AcceptResult:
    # rounds that may or may not be committed
    attempted: list[_Attempted] = []

    async def attempt() -> AcceptResult:
        if not attempted and writer is None:
            async with database.reading(repeated=True) as raw:
                done = await _at_once(raw, chunk, clock, seen, read, attempted)
            if done is not None:
                return done
        async with database.transaction(repeated=True) as transaction:
            locked = (await lock(transaction, [INTAKE]))[INTAKE]
            raw = transaction.raw
            for earlier in attempted:
                if await is_written(raw, locked.id, earlier.round):
                    return earlier.result
            if writer is not None:
                await require_newest(raw, writer)
            if seen is not None:
                await _refuse_changed(raw, seen)
            found = chunk if read is None else await _as_known_now(raw, locked, chunk, origin, read)
            known = await _known(raw, locked.id, found.ids)
            made = await _made(raw, locked, found, known, clock)
            if made.round is not None:
                attempted.append(_Attempted(made.round, made.result))
                if await made.write(raw) is None:
                    raise LedgerError(NOT_LOCKED)
            return made.result

    return await retried(attempt)


async def _at_once(
    raw: Raw,
    chunk: _Chunk,
    clock: Callable[[], Micros] | None,
    seen: AsSeen | None,
    read: AsRead | None,
    attempted: list[_Attempted],
) -> AcceptResult | None:
    """Accept in two statements: one looks at the head and the ids, one writes where the head is
    still the same. None, and nothing is accepted: others were first, the intake has moved since
    `seen` or `read`, or too much time has passed since the look."""
    looked = await raw.fetchrow(_GLANCE, chunk.ids)
    if looked is None:
        return None
    *row, known = looked
    found = locked_of(*row)
    if any(basis is not None and basis.seq != found.head.seq for basis in (seen, read)):
        return None
    made = await _made(raw, found, chunk, set(known), clock)
    if made.round is None:
        # what made others outdated may have been accepted after the look
        return None if made.result.outdated else made.result
    if not made.rows.one_statement:
        return None
    attempted.append(_Attempted(made.round, made.result))
    if await made.write(raw, BEHIND_MAX_US if clock is None else None) is not None:
        return made.result
    attempted.clear()
    return None


@dataclass(frozen=True, slots=True)
class _Attempted:
    """A round that was written, unless the database did not get it."""

    round: Round
    result: AcceptResult


@dataclass(frozen=True)
class _Made:
    """What is to be written of a chunk, and what is said of it then. `round`: None: there is
    nothing to write. `fresh`: its inputs."""

    result: AcceptResult
    round: Round | None = None
    fresh: Sequence[_Prepared] = ()

    @cached_property
    def rows(self) -> RoundRows:
        assert self.round is not None, "there is nothing to write"
        day = day_of(self.round.at)
        return RoundRows([[self.round]], [_event_row(p, day) for p in self.fresh])

    async def write(self, raw: Raw, behind_max_us: int | None = None) -> MovedHeads | None:
        """Write the round and its facts. None, and nothing is written: its head has moved, or it
        was stamped more than `behind_max_us` ago."""
        assert self.round is not None, "there is nothing to write"
        facts = MoreRows(_FACTS, [*_fact_columns(self.round, self.fresh)])
        return await self.rows.write(raw, behind_max_us=behind_max_us, more=facts)


async def _made(
    raw: Raw,
    head: Locked,
    chunk: _Chunk,
    known: Collection[UUID],
    clock: Callable[[], Micros] | None,
) -> _Made:
    """The round that follows `head`. `known`: those of the ids that were accepted before."""
    fresh = [p for p in chunk.prepared if p.submission.event.id not in known]
    fresh, refused = _without_outdated(fresh, await _versions(raw, head.id, fresh))
    if not fresh:
        return _Made(_result(chunk, set(), refused, head.head.seq, head.head.at))
    round_ = _round(head, fresh, head.now if clock is None else clock())
    new = {ref.id for ref in round_.inputs}
    last = round_.first_seq - 1 + len(round_.decisions)
    return _Made(_result(chunk, new, refused, last, round_.at), round_, fresh)


def _chunk(submissions: Sequence[Submission], origin: Origin) -> _Chunk:
    once: dict[UUID, Submission] = {}
    repeated = [s.event.id for s in submissions if once.setdefault(s.event.id, s) is not s]
    return _Chunk(
        [_prepare(replace(s, event=stamped(s.event, origin))) for s in once.values()], repeated
    )


def _result(
    chunk: _Chunk, new: Collection[UUID], refused: Collection[UUID], seq: int, at: Micros
) -> AcceptResult:
    known = [id_ for id_ in chunk.ids if id_ not in new and id_ not in refused]
    return AcceptResult(
        tuple(id_ for id_ in chunk.ids if id_ in new),
        (*chunk.repeated, *known),
        tuple(id_ for id_ in chunk.ids if id_ in refused),
        seq,
        at,
    )


async def _as_known_now(
    raw: Raw, locked: Locked, chunk: _Chunk, origin: Origin, read: AsRead
) -> _Chunk:
    """`chunk`, or what takes its place where facts that it depends on were accepted after it was
    made. No query where the intake has not moved."""
    if locked.head.seq == read.seq:
        return chunk
    # a stream whose time was corrected in the meantime has gone back
    day = day_of(min(read.at, locked.head.at))
    rows = await raw.fetch(_SINCE, locked.id, read.seq, day, _ACCEPTED)
    told = [_accepted.decode(unpack(encoding, body)) for encoding, body in rows]
    stale = read.stale([(one.topic, one.key) for one in told])
    if not stale:
        return chunk
    return _chunk(read.again(await latest_among(raw, stale)), origin)


async def _refuse_changed(raw: Raw, seen: AsSeen) -> None:
    topics, keys = [topic for topic, _ in seen.places], [key for _, key in seen.places]
    if (changed := await raw.fetchrow(_CHANGED, topics, keys, seen.seq)) is not None:
        raise ChangedSinceError(*changed)


async def _versions(
    raw: Raw, stream: int, prepared: Sequence[_Prepared]
) -> dict[tuple[str, str], FactVersion]:
    """The version of the latest fact under each key that a versioned one of `prepared` has. It
    stands in the decision that accepted the fact; where that was retired it is not known any
    more."""
    places = sorted({(p.data.topic, p.data.key) for p in prepared if p.data.version != NO_VERSION})
    if not places:
        return {}
    rows = await raw.fetch(
        "select f.topic, f.key, d.encoding, d.body "
        "from unnest($2::text[], $3::text[]) as w(topic, key) "
        f"join fact f on f.topic = w.topic and f.key = w.key "
        f"join decision d on d.stream = $1 and d.day = f.at_us / {DAY_US} and d.seq = f.seq",
        stream,
        [topic for topic, _ in places],
        [key for _, key in places],
    )
    return {
        (topic, key): _accepted.decode(unpack(encoding, body)).version
        for topic, key, encoding, body in rows
    }


def _without_outdated(
    prepared: Sequence[_Prepared], newest: dict[tuple[str, str], FactVersion]
) -> tuple[list[_Prepared], set[UUID]]:
    """In order: what is not older than what came before it under its key, and the ids of what
    is."""
    kept: list[_Prepared] = []
    refused: set[UUID] = set()
    for p in prepared:
        place = (p.data.topic, p.data.key)
        if p.data.version == NO_VERSION:
            kept.append(p)
        elif p.data.version < newest.get(place, NO_VERSION):
            refused.add(p.submission.event.id)
        else:
            newest[place] = p.data.version
            kept.append(p)
    return kept, refused


async def _known(raw: Raw, stream: int, ids: Sequence[UUID]) -> set[UUID]:
    rows = await raw.fetch(f"select event from ({TAKEN}) k where stream = $2", ids, stream)
    return {row[0] for row in rows}


def _prepare(submission: Submission) -> _Prepared:
    size = len(submission.event.body)
    most = STATE_BYTES_MAX if submission.topic == CLUSTER_STATE.name else EVENT_BYTES_MAX
    if size > most:
        raise LedgerError(
            f"{submission.event.subject}: an event of {size:,} bytes; expected at most {most:,}"
        )
    data = MessageAccepted(
        submission.topic, submission.key, submission.partition_key, submission.event.version
    )
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
    refs = [InputRef(p.submission.event.id, p.submission.event.sha256) for p in fresh]
    decisions = [_decision(head.seq + place, p) for place, p in enumerate(fresh, 1)]
    return following(head, max(head.at, now), ENGINE, PROFILE, refs, decisions)


def _decision(seq: int, p: _Prepared) -> Decision:
    event = p.submission.event
    return Decision(
        INTAKE,
        seq,
        decision_id(INTAKE, seq),
        type_of(p.data),
        event.subject,
        OUTCOME,
        event.id,
        p.data,
        p.body,
    )
