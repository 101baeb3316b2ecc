"""What a checkpoint signs, read as of one moment: heads, newest snapshots, runs of the feed, and
the rows that no chain covers.

The plane reads it by itself every minute, so it costs one short transaction with any length of the
history. Nothing is verified here. Next: `wharfinger.history.checkpoint`, `verify_marks`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wharfinger.events.streams import ACCESS, ROWS
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.database import Database, Raw, Record

CURSOR, POSITION, INCARNATION, EPOCH = "cursor", "cursor_position", "incarnation", "epoch"
"""What rows are named after. The epoch of a stream is one: no hash covers what is raised
without a round."""

_HEADS = "select name, round, seq, hash, epoch, at_us, snapshot from stream order by name"

_CHAINS = {
    ACCESS: "select seq, hash, at_us from access_head where seq > 0",
    ROWS: "select seq, hash, at_us from row_record order by seq desc limit 1",
}

_SNAPSHOTS = """
select s.name, n.round, n.digest from stream s join lateral (
    select round, digest from snapshot where stream = s.id and whole order by round desc limit 1
) n on true order by s.name
"""

# A cursor of what is withheld may go back: it is a cursor of one key, until the broker takes it.
_ROWS = f"""
select '{CURSOR}', concat_ws('/', consumer, incarnation, stream), seq, '' from cursor
    where right(consumer, 9) <> '.withheld'
union all select '{POSITION}', concat_ws('/', consumer, incarnation, place), end_offset, ''
    from cursor_position
union all select '{INCARNATION}', topic, counter,
    case when starts_with(boot_id, 'id:') then boot_id else '' end from incarnation
union all select '{EPOCH}', name, epoch, '' from stream
order by 1, 2
"""

_FEED = """
select first_position, stream, first_seq, count, at_us, correlations from feed
where first_position > $1 and first_position <= $2 order by first_position
"""

_AT_ONCE = 1000


class MarkedRow(NamedTuple):
    """As `RowMark` of a checkpoint."""

    table: str
    key: str
    number: int
    digest: str


class MarkedRuns(NamedTuple):
    """The runs of the feed that give the positions `first` to `last`. `digest`: SHA-256."""

    first: int
    last: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Marks:
    """`heads`: of all streams in order of name, and among them the access records and row records
    where there are some. `snapshots`: stream, round and digest of the newest whole one. `feed`:
    None where it has no new positions."""

    heads: tuple[Head, ...]
    snapshots: tuple[tuple[str, int, bytes], ...]
    rows: tuple[MarkedRow, ...]
    feed: MarkedRuns | None


async def read_marks(database: Database, feed_after: int) -> Marks:
    """`feed_after`: the runs of the feed behind this position."""
    async with database.moment() as transaction:
        raw = transaction.raw
        heads = [Head(*row) for row in await raw.fetch(_HEADS)]
        for chain, query in _CHAINS.items():
            last = await raw.fetchrow(query)
            if last is not None:
                heads.append(Head(chain, last[0], last[0], last[1], 0, last[2]))
        snapshots = tuple((row[0], row[1], row[2]) for row in await raw.fetch(_SNAPSHOTS))
        rows = await marked_rows(raw)
        position = await raw.fetchrow("select position from feed_head")
        runs = None
        if position is not None and position[0] > feed_after:
            runs = await marked_runs(raw, feed_after + 1, position[0])
    return Marks(tuple(sorted(heads, key=lambda one: one.stream)), snapshots, rows, runs)


async def marked_rows(raw: Raw) -> tuple[MarkedRow, ...]:
    """In order of table and key."""
    return tuple(MarkedRow(*row) for row in await raw.fetch(_ROWS))


async def marked_runs(raw: Raw, first: int, last: int) -> MarkedRuns:
    """Of the runs that begin at these positions, both included."""
    digest = hashlib.sha256(b"wharfinger feed\x00")
    async for row in raw.cursor(_FEED, first - 1, last, prefetch=_AT_ONCE):
        digest.update(_run(row))
    return MarkedRuns(first, last, digest.digest())


def _run(row: Record | Sequence[object]) -> bytes:
    *numbers, correlations = row
    assert isinstance(correlations, bytes), "a column of bytes"
    text = ",".join(map(str, numbers))
    return f"{len(text)}:{text}{len(correlations)}:".encode() + correlations
