"""How far the publisher has come, and in which life of the broker.

A cursor is only worth something together with where the topics ended when it was written: after a crash the publisher
reads from there to the end and skips the ids it finds. Both belong to an incarnation: when the broker forgot everything, an
old cursor says nothing about the new topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from wharfinger.runtime.ledger.database import Database

_ADVANCE = """
with positions as (
    insert into cursor_position (consumer, incarnation, place, end_offset)
    select $1, $2, p.place, p.end_offset from unnest($5::text[], $6::bigint[]) as p(place, end_offset)
    on conflict (consumer, incarnation, place)
    do update set end_offset = greatest(cursor_position.end_offset, excluded.end_offset)
)
insert into cursor (consumer, incarnation, stream, seq)
select $1, $2, c.stream, c.seq from unnest($3::text[], $4::bigint[]) as c(stream, seq)
on conflict (consumer, incarnation, stream) do update set seq = greatest(cursor.seq, excluded.seq)
"""

# Compared with what was stored before this statement: another life of the broker, or a topic made anew within one.
_RAISE = """
insert into incarnation as i (topic, counter, boot_id)
select w.topic, 1, $2 from unnest($1::text[]) as w(topic) order by w.topic
on conflict (topic) do update set counter = i.counter + 1, boot_id = excluded.boot_id
where i.boot_id <> excluded.boot_id or i.topic = any($3::text[])
"""


class Cursor(NamedTuple):
    """`seqs`: stream -> last seq published. `positions`: topic/partition -> end offset when that was recorded."""

    seqs: Mapping[str, int]
    positions: Mapping[str, int]


async def load(database: Database, consumer: str, incarnation: int) -> Cursor:
    """Empty where nothing was recorded in this incarnation."""
    async with database.reading() as raw:
        seqs = await raw.fetch(
            "select stream, seq from cursor where consumer = $1 and incarnation = $2", consumer, incarnation
        )
        positions = await raw.fetch(
            "select place, end_offset from cursor_position where consumer = $1 and incarnation = $2",
            consumer, incarnation,
        )  # fmt: skip
    return Cursor(dict(seqs), dict(positions))


async def advance(
    database: Database, consumer: str, incarnation: int, seqs: Mapping[str, int], positions: Mapping[str, int]
) -> None:
    """Record both together, for the streams and places named. Neither ever goes back, so saying it twice is harmless."""
    streams, places = sorted(seqs), sorted(positions)
    async with database.reading() as raw:
        await raw.execute(
            _ADVANCE, consumer, incarnation, streams, [seqs[s] for s in streams], places, [positions[p] for p in places]
        )


async def incarnation(
    database: Database, topics: Collection[str], created: Collection[str], boot_id: str
) -> dict[str, int]:
    """Which life each topic is in, counted from 1.

    `created`: those the caller has really made just now. `boot_id`: the broker's; another one than last time means that
    all its topics are new.
    """
    names = sorted(set(topics))
    async with database.reading() as raw:
        await raw.execute(_RAISE, names, boot_id, sorted(created))
        found = await raw.fetch("select topic, counter from incarnation where topic = any($1::text[])", names)
    return dict(found)
