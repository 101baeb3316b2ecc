"""Commit rounds: one transaction for rounds of several streams.

Lock the heads, compare, drop the streams that another writer has advanced, write the rest, move the
heads. Committing the same rounds twice is harmless: a head that already has our last hash means
that they are committed, and is no conflict. After an error at COMMIT it is unknown whether the
commit took place, so the writer tries again with the same bytes. The new attempt waits for the row
locks of the old one, so it cannot overtake it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from wharfinger.domain.value import Value, canonical
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.round import Head, Round
from wharfinger.runtime.ledger.bodies import pack
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.heads import lock
from wharfinger.runtime.ledger.record_marks import Mark, columns, noting
from wharfinger.runtime.ledger.retries import retried

CHANNEL = "wharfinger_ledger"
"""What is notified, once a transaction, when rows were added."""

EventRow = tuple[UUID, bytes, int, str, str, str, int, bytes]
"""id, sha256, day, type, subject, source, encoding, body: a row of `event`."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`fenced`: streams that another writer owns now; nothing of theirs was written, and their
    states are worthless. `snapshots`: the digest of the newest snapshot of each committed stream,
    for its next round to carry. `ahead`: streams, among the fenced ones, whose rounds were stamped
    too far ahead of the database's clock. `now`: that clock when heads were locked."""

    committed: frozenset[str]
    fenced: frozenset[str]
    snapshots: Mapping[str, bytes]
    ahead: frozenset[str] = frozenset()
    now: Micros = 0


def alone(stream: str) -> object:
    """Every stream is a group of its own."""
    return stream


async def commit(
    database: Database,
    rounds: Sequence[Round],
    events: Mapping[Any, Event[Value]],
    group_of: Callable[[str], object] = alone,
    ahead_max_us: int | None = None,
    marks: Mapping[object, Sequence[Mark]] | None = None,
) -> CommitResult:
    """Write `rounds`, several of one stream in their order. `events`: the bodies their inputs refer
    to, under any keys.

    Streams with the same `group_of` are committed together or not at all: when one of them is
    fenced, all of them are. So the offset in the basis of any stream of a group says what all
    streams of that group have committed (`reading_starts`).

    A round whose time is more than `ahead_max_us` after the database's clock, and after its head's
    time, is refused like one of a fenced writer; None: its time is not checked. `marks`: of the
    records that the rounds of each group have in them.

    Transient: the database did not answer for all attempts; calling again with the same rounds is
    right. LedgerError: the rounds themselves are wrong (an unknown stream, a missing body, an event
    the stream has taken in before).
    """
    chains = _chains(rounds)
    if not chains:
        return CommitResult(frozenset(), frozenset(), {})
    # Streams may have different events of one id.
    by_ref = {(event.id, event.sha256): event for event in events.values()}
    bodies = {stream: _event_rows(chain, by_ref) for stream, chain in chains.items()}
    return await retried(
        lambda: _attempt(database, chains, bodies, group_of, ahead_max_us, marks or {})
    )


async def _attempt(
    database: Database,
    chains: Mapping[str, list[Round]],
    bodies: Mapping[str, list[EventRow]],
    group_of: Callable[[str], object],
    ahead_max_us: int | None,
    marks: Mapping[object, Sequence[Mark]],
) -> CommitResult:
    async with database.transaction(repeated=True) as transaction:
        locked = await lock(transaction, chains.keys())
        raw = transaction.raw
        fresh: list[str] = []
        committed: set[str] = set()
        ahead: set[str] = set()
        for name, chain in chains.items():
            head = locked[name].head
            if _follows(chain[0], head):
                # A stream's time never goes back: a round of a wrong clock would hold up all that
                # is due before it.
                latest = max(locked[name].now, head.at)
                if ahead_max_us is not None and chain[-1].at > latest + ahead_max_us:
                    ahead.add(name)
                else:
                    fresh.append(name)
            elif await is_written(raw, locked[name].id, chain[-1]):
                committed.add(name)
        lost = {group_of(name) for name in chains.keys() - committed - set(fresh)}
        fresh = [name for name in fresh if group_of(name) not in lost]
        if fresh:
            await write(
                raw,
                [(locked[name].id, chains[name]) for name in fresh],
                {row[:3]: row for name in fresh for row in bodies[name]}.values(),
                [
                    mark
                    for group in dict.fromkeys(group_of(name) for name in fresh)
                    for mark in marks.get(group, ())
                ],
            )
    committed.update(fresh)
    return CommitResult(
        frozenset(committed),
        frozenset(chains.keys() - committed),
        {name: locked[name].head.snapshot for name in committed},
        frozenset(ahead),
        max(found.now for found in locked.values()),
    )


def _chains(rounds: Sequence[Round]) -> dict[str, list[Round]]:
    """The rounds by stream. A chain that does not hold together is our own mistake, and never
    reaches the database."""
    chains: dict[str, list[Round]] = {}
    for round_ in rounds:
        chain = chains.setdefault(round_.stream, [])
        assert not chain or _follows(round_, chain[-1].head()), (
            f"{round_.stream}: round {round_.number} does not follow"
        )
        chain.append(round_)
    return chains


def _follows(round_: Round, head: Head) -> bool:
    return (
        round_.prev_hash == head.hash
        and round_.number == head.round + 1
        and round_.first_seq == head.seq + 1
        and round_.epoch == head.epoch
    )


async def is_written(raw: Raw, stream: int, round_: Round) -> bool:
    """Whether an earlier attempt of ours got through, even if others have gone on from there."""
    row = await raw.fetchrow(
        "select hash from round where stream = $1 and number = $2", stream, round_.number
    )
    return row is not None and bool(row[0] == round_.hash)


def _event_rows(
    chain: Sequence[Round], events: Mapping[tuple[UUID, bytes], Event[Value]]
) -> list[EventRow]:
    rows: list[EventRow] = []
    for round_ in chain:
        day = day_of(round_.at)
        for ref in round_.inputs:
            event = events.get((ref.id, ref.sha256))
            if event is None:
                raise LedgerError(
                    f"{round_.stream}: round {round_.number} refers to event {ref.id}, "
                    "its body is missing"
                )
            rows.append(event_row(event, day))
    return rows


def event_row(event: Event[Value], day: int) -> EventRow:
    """A body lies once in each day whose rounds refer to it: a day needs no other."""
    return (event.id, event.sha256, day, event.type, event.subject, event.source, *pack(event.body))


# --- the rows of a transaction --------------------------------------------------------------------


def _adding_decisions(first: int) -> str:
    """`first`: number of the first parameter."""
    n = range(first, first + 11)
    types = ("int", "int", "bigint", "bigint", "uuid", "text", "text", "text", "uuid", "smallint")
    lists = ", ".join(f"${i}::{type_}[]" for i, type_ in zip(n, (*types, "bytea"), strict=True))
    return (
        "insert into decision (stream, day, seq, round, id, type, subject, outcome, cause, encoding"
        f", body) select * from unnest({lists})"
    )


# Heads, bodies, rounds and the notification in one statement, so that a small round is a few trips
# to the server. Bodies go in order of id: two transactions that bring the same ones wait for each
# other, never in a ring. An event that a stream takes in twice on one day breaks the index of
# `input`; over several days the writer has asked `known` before.
_WRITE = f"""
with moved as (
    update stream s set round = n.round, seq = n.seq, hash = n.hash, at_us = n.at_us
    from unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[])
        as n(id, round, seq, hash, at_us)
    where s.id = n.id
), bodies as (
    insert into event (id, sha256, day, type, subject, source, encoding, body)
    select * from unnest($6::uuid[], $7::bytea[], $8::int[], $9::text[], $10::text[], $11::text[],
        $12::smallint[], $13::bytea[])
    on conflict do nothing
), rounds as (
    insert into round (stream, day, number, epoch, at_us, engine, profile, basis, first_seq, inputs,
        decisions, snapshot, prev_hash, hash)
    select * from unnest($14::int[], $15::int[], $16::bigint[], $17::bigint[], $18::bigint[],
        $19::text[], $20::text[], $21::bytea[], $22::bigint[], $23::int[], $24::int[], $25::bytea[],
        $26::bytea[], $27::bytea[])
), inputs as (
    insert into input (stream, day, round, ordinal, event, sha256)
    select * from unnest($28::int[], $29::int[], $30::bigint[], $31::int[], $32::uuid[],
        $33::bytea[])
), decisions as (
    {_adding_decisions(34)}
), {noting(47)}
select pg_notify($45, $46)
"""

_DECISIONS = _adding_decisions(1)

BYTES_AT_ONCE = 16_000_000
"""Of decisions in one statement. PostgreSQL takes no list of more than 1 GB."""


async def write(
    raw: Raw,
    chains: Sequence[tuple[int, Sequence[Round]]],
    bodies: Iterable[EventRow],
    marks: Sequence[Mark] = (),
) -> None:
    """Add the rounds of locked streams, given by their small numbers, and move their heads.

    The rows are parameters of statements. COPY is some 3 us a row cheaper, but the server waits for
    its rows without a limit of time: a process that was frozen meanwhile kept the streams locked.
    """
    lasts = [(id_, chain[-1].head()) for id_, chain in chains]
    rounds = [(id_, r) for id_, chain in chains for r in chain]
    inputs = [
        (id_, day_of(r.at), r.number, ordinal, ref.id, ref.sha256)
        for id_, r in rounds
        for ordinal, ref in enumerate(r.inputs)
    ]
    decisions = [
        _decision_row(id_, day_of(r.at), r.number, d) for id_, r in rounds for d in r.decisions
    ]
    first, *more = _parts(decisions) or [[]]
    await raw.execute(
        _WRITE,
        [id_ for id_, _ in lasts],
        [h.round for _, h in lasts],
        [h.seq for _, h in lasts],
        [h.hash for _, h in lasts],
        [h.at for _, h in lasts],
        *_columns(sorted(bodies, key=lambda row: row[:3]), 8),
        *_columns([_round_row(id_, r) for id_, r in rounds], 14),
        *_columns(inputs, 6),
        *_columns(first, 11),
        CHANNEL,
        chains[0][1][0].stream,
        *columns(marks),
    )
    for part in more:
        await raw.execute(_DECISIONS, *_columns(part, 11))


_DecisionRow = tuple[int, int, int, int, UUID, str, str, str, UUID | None, int, bytes]


def _parts(rows: Iterable[_DecisionRow]) -> list[list[_DecisionRow]]:
    """Of at most `BYTES_AT_ONCE`, or of one row."""
    parts: list[list[_DecisionRow]] = []
    left = 0
    for row in rows:
        if (size := len(row[-1])) > left or not parts:
            parts.append([])
            left = BYTES_AT_ONCE
        parts[-1].append(row)
        left -= size
    return parts


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[tuple[object, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _round_row(id_: int, r: Round) -> tuple[object, ...]:
    return (
        id_,
        day_of(r.at),
        r.number,
        r.epoch,
        r.at,
        r.engine,
        r.profile,
        canonical(r.basis),
        r.first_seq,
        len(r.inputs),
        len(r.decisions),
        r.snapshot,
        r.prev_hash,
        r.hash,
    )


def _decision_row(id_: int, day: int, number: int, d: Decision) -> _DecisionRow:
    encoding, body = pack(d.body)
    return (id_, day, d.seq, number, d.id, d.type, d.subject, d.outcome, d.cause, encoding, body)
