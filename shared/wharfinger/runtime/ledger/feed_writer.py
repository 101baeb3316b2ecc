"""Give every decision of every stream a position in the feed: 1, 2, 3, without gaps.

One appender works at a time. It never waits for Kafka. What keeps two of them apart is not the
publisher's lock but the statement that writes: it moves `feed_head` by compare-and-set on position
and epoch and adds the runs with it, or does neither. So a position belongs to one decision and is
never given again, also after a kill. No database sequence has a part in it: its numbers become
visible out of order, and a reader would skip rows.

A turn sees the heads as of one moment, and all that is committed before a decision is visible with
it. So a cause has its position before its effects: it is in this turn or in an earlier one. Of a
ledger that was never numbered a turn takes a part of each stream, and looks up the causes that it
does not know; where one is further on in its stream, that stream is read up to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.decision_rows import FOUND, rows_after_in
from wharfinger.runtime.ledger.errors import CorruptLedger
from wharfinger.runtime.ledger.feed_order import FeedKey, Run, in_order, runs

CHANNEL = "wharfinger_feed"
"""What is notified when positions were given."""

PAGE = 2000
"""Rows of one stream that a turn reads at most."""

REMEMBERED_MAX = 65_536
"""Causes whose correlation is kept in memory: about 13 MB."""

# Beyond what has a position: retired decisions never get one. What was read is one object, since a
# list would be gone through for each stream.
_BEHIND = """
select s.id, s.name, greatest(coalesce(($1::jsonb ->> s.name)::bigint, 0), coalesce(h.seq, 0)),
    s.seq, s.epoch
from stream s left join horizon h on h.stream = s.id
where s.seq > greatest(coalesce(($1::jsonb ->> s.name)::bigint, 0), coalesce(h.seq, 0))
"""

# Which streams are behind, with whole rows of what waits, in one statement: for a turn in which
# little does. A stream that is behind is in it also where none of its rows is: they may be of an
# earlier day.
_FEW = f"""
with behind(id, name, seq, through, epoch) as materialized ({_BEHIND}),
found({FOUND}) as ({rows_after_in("behind", "$2", "$3")})
select b.*, f.* from behind b left join found f on f.name = b.name order by b.name, f.seq
"""

FEW = 64
"""So many decisions are few, for the feed's writer and for the relay: they are read whole, in one
statement."""

# Up to the heads that the turn has seen, though there may be more by now: what those were caused by
# may lie in a stream that the turn does not look at.
_KEYS = """
select w.name, d.seq, r.at_us, d.id, d.cause
from unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[]) as w(id, name, after, through)
cross join lateral (
    select d.stream, d.day, d.seq, d.round, d.id, d.cause from decision d
    where d.stream = w.id and d.seq > w.after and d.seq <= w.through and d.day >= $5
    order by d.seq
) d
join round r on r.stream = d.stream and r.number = d.round and r.day = d.day and r.day >= $5
order by w.name, d.seq
"""

_NUMBERED = """
select s.name, f.first_seq + f.count - 1 from stream s cross join lateral (
    select f.first_seq, f.count from feed f where f.stream = s.id order by f.first_seq desc limit 1
) f
"""

_BEGIN = "update feed_head set epoch = epoch + 1 returning position, epoch"

_HEAD = "select position, epoch from feed_head"

_APPEND = """
with moved as (
    update feed_head set position = position + $3 where position = $1 and epoch = $2
    returning position
), added as (
    insert into feed (first_position, stream, first_seq, count, at_us, correlations)
    select n.* from unnest($4::bigint[], $5::int[], $6::bigint[], $7::int[], $8::bigint[],
        $9::bytea[]) as n, moved
)
select position, pg_notify($10, position::text) from moved
"""

_FIND = """
select d.id, s.name, d.seq, f.correlation from decision d join stream s on s.id = d.stream
left join lateral (
    select case when d.seq < f.first_seq + f.count
        then substr(f.correlations, ((d.seq - f.first_seq) * 16 + 1)::int, 16) end as correlation
    from feed f where f.stream = d.stream and f.first_seq <= d.seq
    order by f.first_seq desc limit 1
) f on true
where d.id = any($1::uuid[])
"""

_FIND_ACCEPTED = f"""
select i.event, s.name, r.first_seq + i.ordinal from input i
join stream s on s.id = i.stream and s.name = '{INTAKE}'
join round r on r.stream = i.stream and r.number = i.round and r.day = i.day
where i.event = any($1::uuid[])
"""


class GivenRows(NamedTuple):
    """Decisions that were given positions, in order of them. `first`: the position of the first
    one. `records`: as `relayed` takes them, with the hash of their round behind
    (`rows_after_in`)."""

    first: int
    records: Sequence[Record]
    correlations: Sequence[bytes]

    @property
    def last(self) -> int:
        """The position of the last one."""
        return self.first + len(self.records) - 1


class FeedAppender:
    """Used by one task. `page`: rows of a stream that a turn reads at most.

    After any error the next call reads again where the feed stands: an append whose answer was lost
    is either found there or is made again."""

    def __init__(self, database: Database, page: int = PAGE) -> None:
        self._database = database
        self._page = page
        self._position = 0
        self._epoch = 0
        self._loaded = False
        self._few = True
        self._whole: dict[tuple[str, int], Record] = {}
        self.given: GivenRows | None = None
        """What the last `append` gave positions, where its rows were read whole; they are when they
        are few."""
        self._cursors: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        self._read: dict[str, list[FeedKey]] = {}
        self._unread: dict[str, int] = {}
        self._days: dict[str, tuple[int, int]] = {}
        self._correlations: dict[bytes, bytes] = {}

    @property
    def position(self) -> int:
        """The last that this appender gave or found."""
        return self._position

    async def begin(self) -> None:
        """Makes what another appender has read worthless."""
        async with self._database.reading() as raw:
            await raw.execute(_BEGIN)
        self._loaded = False

    async def append(self) -> int:
        """How many decisions got their positions; 0: none waits.

        CorruptLedger: a decision is missing. Transient: the database did not answer."""
        self.given = None
        while True:
            try:
                given = await self._turn()
            except BaseException:
                self._loaded = False
                raise
            if given is not None:
                return given
            self._loaded = False

    async def _turn(self) -> int | None:
        """None: another appender was faster, or history was retired meanwhile."""
        async with self._database.reading(repeated=True) as raw:
            if not self._loaded:
                await self._load(raw)
            await self._fetch(raw)
            rows = await self._next(raw)
            if not rows:
                return 0
            correlations = self._correlate(rows)
            made = runs(rows, correlations, DAY_US)
            if not await self._write(raw, made, len(rows)):
                return None
        whole = [record for row in rows if (record := self._whole.get((row.stream, row.seq)))]
        if len(whole) == len(rows):
            self.given = GivenRows(self._position + 1, whole, correlations)
        self._position += len(rows)
        for run in made:
            self._cursors[run.stream] = run.first_seq + run.size - 1
            self._days[run.stream] = (self._days[run.stream][0], day_of(run.at))
            del self._read[run.stream][: run.size]
        self._forget()
        return len(rows)

    # --- what waits

    async def _load(self, raw: Raw) -> None:
        head = await raw.fetchrow(_HEAD)
        assert head is not None, "the migration has made its row"
        self._position, self._epoch = head
        self._cursors = dict(await raw.fetch(_NUMBERED))
        self._read, self._unread, self._days = {}, {}, {}
        # of runs that were not written, perhaps
        self._correlations.clear()
        self._loaded = True

    async def _fetch(self, raw: Raw) -> None:
        """All that is visible now beyond what was read, but of no stream more than a page."""
        full = {name for name in self._unread if len(self._read[name]) * 2 >= self._page}
        known = {name: self._through(name) for name in self._cursors.keys() | self._read.keys()}
        self._whole.clear()
        if self._few and self._days and await self._fetch_few(raw, known):
            return
        places: list[tuple[int, str, int, int]] = []
        for id_, name, after, head, epoch in await raw.fetch(
            _BEHIND, msgspec.json.encode(known).decode()
        ):
            self._ids[name] = id_
            if self._days.get(name, (epoch, 0))[0] != epoch or name not in self._days:
                # its time may have been set back: any day is possible
                self._days[name] = (epoch, 0)
            if name in full:
                self._unread[name] = head
            else:
                places.append((id_, name, after, min(head, after + self._page)))
                self._unread[name] = head
        await self._take(raw, places)
        self._few = sum(through - after for _, _, after, through in places) < FEW

    async def _fetch_few(self, raw: Raw, known: Mapping[str, int]) -> bool:
        """As `_fetch`, in one statement. False, and nothing was taken: more than a few wait, or
        some are of an earlier day than was looked at."""
        since = max(day for _, day in self._days.values())
        found = await raw.fetch(_FEW, msgspec.json.encode(known).decode(), FEW, since)
        behind = {record[1]: record[:5] for record in found}
        places = [(id_, name, after, head) for id_, name, after, head, _ in behind.values()]
        if sum(head - after for _, _, after, head in places) > FEW or any(
            self._days.get(name) != (epoch, since) for _, name, _, _, epoch in behind.values()
        ):
            return False
        self._ids.update((name, id_) for id_, name, _, _ in places)
        rows = [record[5:] for record in found if record[5] is not None]
        self._add(places, [(row[0], row[1], row[3], row[4], row[8]) for row in rows])
        self._whole = {(row[0], row[1]): row for row in rows}
        return True

    def _through(self, stream: str) -> int:
        rows = self._read.get(stream)
        return rows[-1].seq if rows else self._cursors.get(stream, 0)

    async def _take(self, raw: Raw, places: Sequence[tuple[int, str, int, int]]) -> None:
        """Read `places`: (number of the stream, name, after which seq, through which)."""
        if not places:
            return
        since = min(self._days[name][1] for _, name, _, _ in places)
        self._add(places, await raw.fetch(_KEYS, *map(list, zip(*places, strict=True)), since))

    def _add(self, places: Sequence[tuple[int, str, int, int]], keys: Iterable[Record]) -> None:
        """Remember what was read of `places`: (stream, seq, time of its round, id, cause)."""
        expected = {name: after + 1 for _, name, after, _ in places}
        for name, seq, at, id_, cause in keys:
            if seq != expected[name]:
                continue
            expected[name] += 1
            caused_by = cause.bytes if cause is not None else b""
            # what others name as their cause is the accepted event, not that it was accepted
            own = (caused_by, b"") if name == INTAKE else (id_.bytes, caused_by)
            self._read.setdefault(name, []).append(FeedKey(name, seq, at, *own))
        for _, name, _, through in places:
            if expected[name] <= through:
                raise CorruptLedger(name, 0, expected[name], f"decision {expected[name]}: missing")
            if self._unread.get(name, 0) <= through:
                self._unread.pop(name, None)

    async def _next(self, raw: Raw) -> list[FeedKey]:
        """What can have its position now: all, or where streams are read in part what is not later
        than the rest of them."""
        looked_up: set[bytes] = set()
        while True:
            until = min(
                (max(row.at for row in self._read[name]) for name in self._unread), default=None
            )
            rows = in_order({name: r for name, r in self._read.items() if r}, until)
            unknown = self._unknown(rows) - looked_up
            if not unknown:
                return rows
            looked_up |= unknown
            await self._look_up(raw, unknown)

    def _unknown(self, rows: Iterable[FeedKey]) -> set[bytes]:
        here = {row.id for row in rows}
        return {
            row.cause
            for row in rows
            if row.cause and row.cause not in here and row.cause not in self._correlations
        }

    async def _look_up(self, raw: Raw, causes: Collection[bytes]) -> None:
        """The correlations of causes that have positions; and streams that are read in part are
        read up to those that have none yet."""
        ids = [UUID(bytes=cause) for cause in causes]
        ahead: dict[str, int] = {}
        found: set[bytes] = set()
        for id_, name, seq, correlation in await raw.fetch(_FIND, ids):
            found.add(id_.bytes)
            if correlation:
                self._correlations[id_.bytes] = correlation
            elif seq > self._through(name):
                ahead[name] = max(seq, ahead.get(name, 0))
            else:  # kept of what was retired before it had a position
                self._correlations[id_.bytes] = id_.bytes
        if self._unread:
            for event, name, seq in await raw.fetch(_FIND_ACCEPTED, ids):
                found.add(event.bytes)
                if seq > self._through(name):
                    ahead[name] = max(seq, ahead.get(name, 0))
        # what came from outside, or was retired, is where its thread begins
        self._correlations.update((cause, cause) for cause in causes if cause not in found)
        await self._take(
            raw,
            [
                (self._ids[name], name, self._through(name), seq)
                for name, seq in ahead.items()
                if name in self._unread
            ],
        )

    # --- positions

    def _correlate(self, rows: Sequence[FeedKey]) -> list[bytes]:
        """The first cause of each."""
        known = self._correlations
        found: list[bytes] = []
        for row in rows:
            correlation = known.get(row.cause, row.cause) if row.cause else row.id
            known[row.id] = correlation
            found.append(correlation)
        return found

    async def _write(self, raw: Raw, made: Sequence[Run], count: int) -> bool:
        places: list[int] = []
        first = self._position + 1
        for run in made:
            places.append(first)
            first += run.size
        row = await raw.fetchrow(
            _APPEND,
            self._position,
            self._epoch,
            count,
            places,
            [self._ids[run.stream] for run in made],
            [run.first_seq for run in made],
            [run.size for run in made],
            [run.at for run in made],
            [run.correlations for run in made],
            CHANNEL,
        )
        return row is not None

    def _forget(self) -> None:
        if len(self._correlations) > REMEMBERED_MAX:
            for cause in list(islice(self._correlations, REMEMBERED_MAX // 2)):
                del self._correlations[cause]
