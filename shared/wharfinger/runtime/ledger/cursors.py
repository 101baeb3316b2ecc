"""How far the publisher has come, and in which life of the broker.

A cursor is only worth something together with where the topics ended when it was written: after a
crash the publisher reads from there to the end and skips the ids it finds. Both belong to an
incarnation: when the broker forgot everything, an old cursor says nothing about the new topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.record_marks import Mark, columns, noting

_ADVANCE = f"""
with positions as (
    insert into cursor_position (consumer, incarnation, place, end_offset)
    select $1, $2, p.place, p.end_offset
    from unnest($5::text[], $6::bigint[]) as p(place, end_offset)
    on conflict (consumer, incarnation, place)
    do update set end_offset = greatest(cursor_position.end_offset, excluded.end_offset)
), {noting(7)}
insert into cursor (consumer, incarnation, stream, seq)
select $1, $2, c.stream, c.seq from unnest($3::text[], $4::bigint[]) as c(stream, seq)
on conflict (consumer, incarnation, stream) do update set seq = greatest(cursor.seq, excluded.seq)
"""

# A topic is known by its id where the broker gives ids (`id:...`), else by the broker's boot id.
# Another id, or another boot id, means another topic; so does one that was made just now, where
# there was no id to compare with. The new counter is above all others, so the highest counter grows
# whenever any topic begins again.
_RAISE = """
insert into incarnation as i (topic, counter, boot_id)
select w.topic, 1, w.identity from unnest($1::text[], $2::text[]) as w(topic, identity)
order by w.topic
on conflict (topic) do update set
    boot_id = excluded.boot_id,
    counter = case
        when case
            when starts_with(i.boot_id, 'id:') and starts_with(excluded.boot_id, 'id:')
                then i.boot_id <> excluded.boot_id
            when starts_with(excluded.boot_id, 'id:')
                then i.boot_id <> $4 or i.topic = any($3::text[])
            else true
        end then (select max(counter) from incarnation) + 1
        else i.counter
    end
where i.boot_id <> excluded.boot_id or i.topic = any($3::text[])
"""

_END = """
update incarnation i set counter = (select max(counter) from incarnation) + 1
from unnest($1::text[], $2::bigint[]) as w(topic, counter)
where i.topic = w.topic and i.counter = w.counter
"""


_WITHHOLD = """
insert into cursor (consumer, incarnation, stream, seq) values ($1, $2, $3, $4)
on conflict (consumer, incarnation, stream) do update set seq = excluded.seq
"""


class Withheld(NamedTuple):
    """A key of a topic that gets nothing of this stream any more, since one of its records was
    refused for good."""

    topic: str
    key: str
    stream: str


class Cursor(NamedTuple):
    """`seqs`: stream -> last seq published. `positions`: topic/partition -> end offset when that
    was recorded."""

    seqs: Mapping[str, int]
    positions: Mapping[str, int]


async def load(database: Database, consumer: str, incarnation: int) -> Cursor:
    """Empty where nothing was recorded in this incarnation."""
    async with database.reading() as raw:
        seqs = await raw.fetch(
            "select stream, seq from cursor where consumer = $1 and incarnation = $2",
            consumer,
            incarnation,
        )
        positions = await raw.fetch(
            "select place, end_offset from cursor_position where consumer = $1 "
            "and incarnation = $2",
            consumer,
            incarnation,
        )
    return Cursor(dict(seqs), dict(positions))


async def advance(
    database: Database,
    consumer: str,
    incarnation: int,
    seqs: Mapping[str, int],
    positions: Mapping[str, int],
    marks: Sequence[Mark] = (),
) -> None:
    """Record all of it together, for the streams and places named. Nothing ever goes back, so
    saying it twice is harmless."""
    streams, places = sorted(seqs), sorted(positions)
    async with database.reading(repeated=True) as raw:
        await raw.execute(
            _ADVANCE,
            consumer,
            incarnation,
            streams,
            [seqs[s] for s in streams],
            places,
            [positions[p] for p in places],
            *columns(marks),
        )


async def withheld(database: Database, consumer: str, incarnation: int) -> dict[Withheld, int]:
    """What is held back, and from which seq of its stream."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            "select stream, seq from cursor where consumer = $1 and incarnation = $2 "
            "order by stream",
            _of_withheld(consumer),
            incarnation,
        )
    return {json_decoder(Withheld).decode(name): seq for name, seq in rows}


async def withhold(
    database: Database, consumer: str, incarnation: int, what: Withheld, seq: int
) -> None:
    async with database.reading() as raw:
        await raw.execute(_WITHHOLD, _of_withheld(consumer), incarnation, _name(what), seq)


async def release(database: Database, consumer: str, incarnation: int, what: Withheld) -> None:
    async with database.reading() as raw:
        await raw.execute(
            "delete from cursor where consumer = $1 and incarnation = $2 and stream = $3",
            _of_withheld(consumer),
            incarnation,
            _name(what),
        )


async def lives(database: Database) -> dict[str, int]:
    """Topic -> which life of it is the present one, as last recorded."""
    async with database.reading() as raw:
        return dict(await raw.fetch("select topic, counter from incarnation"))


def _of_withheld(consumer: str) -> str:
    """Kept beside the cursors: it is a cursor, of one key."""
    return f"{consumer}.withheld"


def _name(what: Withheld) -> str:
    return msgspec.json.encode(what).decode()


async def incarnation(
    database: Database,
    topics: Collection[str],
    created: Collection[str],
    boot_id: str,
    identities: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Which incarnation each topic is in, counted from 1.

    `created`: those the caller has really made just now. `boot_id`: the broker's; another one than
    last time means that all its topics are new. `identities`: by what each topic is known, where
    that is not the boot id.
    """
    names = sorted(set(topics))
    known = [(identities or {}).get(name, boot_id) for name in names]
    async with database.reading() as raw:
        await raw.execute(_RAISE, names, known, sorted(created), boot_id)
        found = await raw.fetch(
            "select topic, counter from incarnation where topic = any($1::text[])", names
        )
    return dict(found)


async def end_incarnations(database: Database, ended: Mapping[str, int]) -> dict[str, int]:
    """Begin the next incarnation of these topics, each from the one that is named: who comes second
    changes nothing. Those of all topics afterwards."""
    names = sorted(ended)
    async with database.reading() as raw:
        await raw.execute(_END, names, [ended[name] for name in names])
    return await incarnations(database)


async def incarnations(database: Database) -> dict[str, int]:
    async with database.reading() as raw:
        return dict(await raw.fetch("select topic, counter from incarnation"))


async def topic_identities(database: Database) -> dict[str, str]:
    """By what each topic was known last: `id:` and its id, or the broker's boot id."""
    async with database.reading() as raw:
        return dict(await raw.fetch("select topic, boot_id from incarnation"))
