"""Which record was at which offset when it was read or written: by that a truncated partition is
recognised.

A partition that lost its end (an unclean leader election, a restored disk) may have grown past our
offsets again by the time it is looked at. Its length then proves nothing, but the records do: a
mark keeps the offset and the SHA-256 of the value of the last record that a reader had taken in
with a round, or that the publisher had sent.

One mark for each reader and place would not do. After the truncation the next round would move it
to a record of the new end, before anybody has compared. So a mark that was made before a pause of
`PAUSE` is kept beside the next one until it is compared: no partition is truncated without a pause
in reading, since its leader changes.

Next: `runtime.record_check` compares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from wharfinger.runtime.ledger.database import Database

PAUSE = "200 milliseconds"
"""A mark that is younger is moved; an older one stays, and another is added."""

NO_EPOCH = -1


class Mark(NamedTuple):
    """`place`: topic/partition. `sha256`: of the record's value. `epoch`: a leader epoch in which
    the partition had this record at this offset, not older than the record's own; -1: not known."""

    reader: str
    place: str
    incarnation: int
    offset: int
    sha256: bytes
    epoch: int = NO_EPOCH


def noting(first: int, only: str = "true") -> str:
    """Parts of a `with`: the marks in the parameters from `first` on (as `columns` gives them) are
    moved or added. `only`: the condition under which that is done."""
    reader, place, incarnation, offset, sha256 = (f"${first + n}" for n in range(5))
    return f"""
new_mark as (
    select * from unnest({reader}::text[], {place}::text[], {incarnation}::bigint[],
        {offset}::bigint[], {sha256}::bytea[])
        as n(reader, place, incarnation, at_offset, sha256)
    where not exists (
        select from record_mark k
        where (k.reader, k.place, k.incarnation) = (n.reader, n.place, n.incarnation)
            and k.at_offset >= n.at_offset
    ) and {only}
), moved_mark as (
    update record_mark k set at_offset = n.at_offset, sha256 = n.sha256, epoch = {NO_EPOCH},
        noted_at = now()
    from new_mark n
    where (k.reader, k.place, k.incarnation) = (n.reader, n.place, n.incarnation)
        and k.noted_at > now() - interval '{PAUSE}'
        and k.at_offset = (
            select max(o.at_offset) from record_mark o
            where (o.reader, o.place, o.incarnation) = (n.reader, n.place, n.incarnation)
        )
    returning k.reader, k.place
), added_mark as (
    insert into record_mark (reader, place, incarnation, at_offset, sha256, epoch, noted_at)
    select n.reader, n.place, n.incarnation, n.at_offset, n.sha256, {NO_EPOCH}, now()
    from new_mark n
    where not exists (select from moved_mark m where (m.reader, m.place) = (n.reader, n.place))
    on conflict do nothing
)"""


def columns(marks: Collection[Mark]) -> list[list[object]]:
    """The parameters of `noting`."""
    return [
        [mark.reader for mark in marks],
        [mark.place for mark in marks],
        [mark.incarnation for mark in marks],
        [mark.offset for mark in marks],
        [mark.sha256 for mark in marks],
    ]


async def marks(database: Database, incarnations: Mapping[str, int]) -> list[Mark]:
    """Those of the present incarnations (by topic), older positions first. The publisher counts one
    incarnation for all topics, the highest; a topic whose incarnation began later has a higher
    one."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            "select reader, place, incarnation, at_offset, sha256, epoch from record_mark "
            "order by reader, place, at_offset"
        )
    found = (Mark(*row) for row in rows)
    return [
        mark
        for mark in found
        if mark.incarnation >= incarnations.get(mark.place.rpartition("/")[0], mark.incarnation + 1)
    ]


async def settle(
    database: Database,
    confirmed: Sequence[Mark],
    done: Sequence[Mark],
    incarnations: Mapping[str, int],
) -> None:
    """Record the epochs of `confirmed`, and let `done` go, together with all marks of past
    incarnations."""
    topics = sorted(incarnations)
    async with database.reading() as raw:
        await raw.execute(
            """
            with confirmed as (
                update record_mark k set epoch = n.epoch
                from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::int[])
                    as n(reader, place, incarnation, at_offset, epoch)
                where (k.reader, k.place, k.incarnation, k.at_offset)
                    = (n.reader, n.place, n.incarnation, n.at_offset)
            ), done as (
                delete from record_mark k
                using unnest($6::text[], $7::text[], $8::bigint[], $9::bigint[])
                    as n(reader, place, incarnation, at_offset)
                where (k.reader, k.place, k.incarnation, k.at_offset)
                    = (n.reader, n.place, n.incarnation, n.at_offset)
            )
            delete from record_mark k
                using unnest($10::text[], $11::bigint[]) as t(topic, incarnation)
            where regexp_replace(k.place, '/[0-9]+$', '') = t.topic
                and k.incarnation < t.incarnation
            """,
            *columns(confirmed)[:4],
            [mark.epoch for mark in confirmed],
            *columns(done)[:4],
            topics,
            [incarnations[topic] for topic in topics],
        )
