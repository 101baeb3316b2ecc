"""The access records: who wrote, was refused, or read what belongs to others.

A hash chain of its own, beside the streams: no round, no decision, no position in the feed. Each
record is hashed with the hash of the one before. The row of `access_head` is locked by who appends,
so that several processes of the API extend one chain. Nothing here deletes or changes a record.

Next: `verify_access`, which walks the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from wharfinger.domain.text import printable
from wharfinger.domain.value import Value, canonical
from wharfinger.events.streams import ACCESS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.hashing import genesis
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.errors import CorruptLedger

TEXT_MAX = 500
"""Characters of each text of a record."""

Outcome = Literal["allowed", "refused"]

COLUMNS = "seq, at_us, actor, action, target, outcome, reason, request, count"

_ADD = f"""
insert into access ({COLUMNS}, hash)
select * from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::bigint[], $10::bytea[])
"""

_CONTEXT = b"wharfinger access\x00"
_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"


class Access(Value, frozen=True):
    """What was asked. `actor`: type and name, such as `token:ci`. `action`: method and path of the
    route, or the command. `target`: what it was about. `reason`: why it was refused. `request`: the
    id that the answer had. `count`: this one and those like it that have no record."""

    actor: str
    action: str
    target: str
    outcome: Outcome
    reason: str = ""
    request: str = ""
    count: int = 1


class AccessRecord(Value, frozen=True):
    """An access in its place. `at`: when it was recorded, by the clock of the database."""

    seq: int
    at: Micros
    access: Access


class AccessQuery(Value, frozen=True):
    """The newest records first. `actors`, `outcomes` empty: all. `since`, `until`: times; 0: none.
    `before`: only records with a lower seq; 0: all."""

    actors: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    since: Micros = 0
    until: Micros = 0
    before: int = 0
    limit: Annotated[int, msgspec.Meta(ge=1)] = 100


def first_hash() -> bytes:
    """What the first record follows."""
    return genesis(ACCESS)


def next_hash(previous: bytes, record: AccessRecord) -> bytes:
    return hashlib.sha256(_CONTEXT + previous + canonical(record)).digest()


def bounded(access: Access) -> Access:
    """With texts that can be stored and shown; they may hold what a client has sent."""

    def text(given: str) -> str:
        return printable(given[:TEXT_MAX])[:TEXT_MAX]

    return Access(
        text(access.actor),
        text(access.action),
        text(access.target),
        access.outcome,
        text(access.reason),
        text(access.request),
        access.count,
    )


async def record_access(database: Database, accesses: Sequence[Access]) -> None:
    """Append them, in this order and in one transaction."""
    if not accesses:
        return
    async with database.transaction() as transaction:
        raw = transaction.raw
        seq, previous, last = await _head(raw)
        row = await raw.fetchrow(f"select greatest($1::bigint, {_NOW})", last)
        assert row is not None, "an expression always has a value"
        at: Micros = row[0]
        rows: list[tuple[object, ...]] = []
        for access in map(bounded, accesses):
            seq += 1
            record = AccessRecord(seq, at, access)
            previous = next_hash(previous, record)
            rows.append((*_row(record), previous))
        await raw.execute(_ADD, *zip(*rows, strict=True))
        await raw.execute(
            "update access_head set seq = $1, hash = $2, at_us = $3", seq, previous, at
        )


async def _head(raw: Raw) -> tuple[int, bytes, Micros]:
    """Locked until the transaction ends."""
    row = await raw.fetchrow("select seq, hash, at_us from access_head for update")
    if row is None:
        raise CorruptLedger(ACCESS, 0, 0, "the row of its head is missing")
    seq, found, at = row
    return seq, found if seq else first_hash(), at


def _row(record: AccessRecord) -> tuple[object, ...]:
    one = record.access
    return (
        record.seq,
        record.at,
        one.actor,
        one.action,
        one.target,
        one.outcome,
        one.reason,
        one.request,
        one.count,
    )


def record_in(row: Sequence[object] | Record) -> AccessRecord:
    """Of a row of `COLUMNS`."""
    seq, at, *rest = row
    return AccessRecord(seq, at, Access(*rest))  # type: ignore[arg-type]


async def access_records(database: Database, query: AccessQuery) -> list[AccessRecord]:
    async with database.reading() as raw:
        rows = await raw.fetch(
            f"select {COLUMNS} from access where (cardinality($1::text[]) = 0 or actor = any($1)) "
            "and (cardinality($2::text[]) = 0 or outcome = any($2)) and at_us >= $3 "
            "and ($4 = 0::bigint or at_us < $4) and ($5 = 0::bigint or seq < $5) "
            "order by seq desc limit $6",
            list(query.actors),
            list(query.outcomes),
            query.since,
            query.until,
            query.before,
            query.limit,
        )
    return [record_in(row) for row in rows]
