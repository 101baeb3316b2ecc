"""Read the feed: the decisions of all streams by their positions.

`page` reads from a position on, `head` says how far the feed goes and where it begins, `news` wakes
who waits for more. What a filter hides still moves a reader on: a page says through which position
it looked. `feed_writer` gives the positions.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from wharfinger.events.decisions import as_decision
from wharfinger.events.message_codec import PREFIX
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.days import DAY_US
from wharfinger.runtime.ledger.decision_rows import (
    BEHIND,
    FOUND,
    ROW,
    Days,
    LedgerRow,
    read_after,
    relayed,
    rows_after_in,
)
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.feed_order import RUN_MAX
from wharfinger.runtime.ledger.feed_writer import CHANNEL, FEW, GivenRows

if TYPE_CHECKING:
    from wharfinger.runtime.ledger.notifications import Listener

WINDOW = 5000
"""Positions that a filtered page looks at in one statement."""

SCAN_MAX = 50_000
"""Positions that one page looks at where its filter hides most of them."""

_HEAD = "select position, earliest from feed_head"

# A run begins at most RUN_MAX positions before what is in it. Each run leads to its decisions, and
# each decision to its round: `offset 0` and `limit 1` keep the planner from joining in another
# order, and the order by number from the index by time. By itself it read all decisions of a stream
# for each of its rounds: with 24,000 decisions a page took minutes.
PAGE = f"""
select f.first_position + d.seq - f.first_seq,
    substr(f.correlations, ((d.seq - f.first_seq) * 16 + 1)::int, 16), {ROW},
    a.id, a.type, a.encoding, a.body
from feed f join stream s on s.id = f.stream
cross join lateral (
    select * from decision d where d.stream = f.stream and d.day = (f.at_us / {DAY_US})::int
        and d.seq >= f.first_seq + greatest(0, $1 + 1 - f.first_position)
        and d.seq <= f.first_seq + least(f.count - 1, $2 - f.first_position)
    offset 0
) d
cross join lateral (
    select r.at_us, r.first_seq from round r
    where r.stream = d.stream and r.number >= d.round and r.number <= d.round and r.day = d.day
    order by r.number limit 1
) r
left join lateral (
    select e.id, e.type, e.encoding, e.body
    from input i join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
    where s.name = '{INTAKE}' and i.stream = d.stream and i.round = d.round
        and i.ordinal = d.seq - r.first_seq and i.day = d.day
    limit 1
) a on true
where f.first_position > $1 - {RUN_MAX} and f.first_position <= $2
    and f.first_position + f.count - 1 > $1
"""

_PLACES = """
select s.name, f.first_seq, f.count, f.first_position, f.correlations
from unnest($1::text[], $2::bigint[], $3::bigint[]) as w(name, low, high)
join stream s on s.name = w.name
join feed f on f.stream = s.id and f.first_seq > w.low - $4 and f.first_seq <= w.high
order by f.first_position
"""

# What waits, and where it has its position, in one statement. A stream that is behind is in it also
# where none of its rows is: they may be of an earlier day. Of more rows than a few, `_PLACES` reads
# each run once.
_FEW_UNSENT = f"""
with behind as materialized ({BEHIND}),
found({FOUND}) as ({rows_after_in("behind", "$2", "$3")})
select b.seq, b.epoch, b.position, p.position, p.correlation, b.name, f.*
from behind b left join found f on f.name = b.name
left join lateral (
    select r.first_position + f.seq - r.first_seq as position,
        substr(r.correlations, ((f.seq - r.first_seq) * 16 + 1)::int, 16) as correlation
    from feed r where r.stream = b.id and r.first_seq > f.seq - {RUN_MAX} and r.first_seq <= f.seq
        and r.first_seq + r.count > f.seq
    offset 0
) p on true
order by b.name, f.seq
"""

# The run that has seq + 1 begins at most RUN_MAX before it.
_NEXT = """
select s.name, f.first_position + greatest(0, coalesce(w.seq, 0) + 1 - f.first_seq)
from stream s left join unnest($1::text[], $2::bigint[]) as w(name, seq) on w.name = s.name
cross join lateral (
    select r.first_position, r.first_seq from feed r
    where r.stream = s.id and r.first_seq > coalesce(w.seq, 0) + 1 - $3
        and r.first_seq + r.count > coalesce(w.seq, 0) + 1
    order by r.first_seq limit 1
) f
where s.seq > coalesce(w.seq, 0)
order by 2 limit 1
"""

# The first decision that was made at that time or later; all before it are earlier or were made at
# the same moment.
_AT = """
select min(f.first_position) from feed f where f.at_us >= $1
"""


class FeedRetiredError(LedgerError):
    """The position was retired. `earliest`: the first that can still be read."""

    def __init__(self, after: int, earliest: int) -> None:
        super().__init__(
            f"position {after + 1} of the feed was retired; the earliest is {earliest}"
        )
        self.earliest = earliest


class FeedHead(NamedTuple):
    """`position`: the last that was given; 0: none. `earliest`: from there on nothing was retired;
    one more than `position` where everything was."""

    position: int
    earliest: int


class FeedEntry(NamedTuple):
    """A decision and its position. `correlation`: the id of its first cause. Of a fact that was
    accepted, `row.accepted` is the event."""

    position: int
    correlation: UUID
    row: LedgerRow


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Which decisions are wanted; of each field any of, empty: all. `types`: with or without prefix
    and version. `clusters`: decided by the stream of the cluster, about it, or sent to it.
    `facts`: what was accepted is wanted too."""

    types: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    facts: bool = False

    @property
    def hides(self) -> bool:
        """Whether it leaves anything out."""
        return self != FeedFilter(facts=True)

    def digest(self) -> str:
        """By which a cursor knows the filter it was moved under: the same for any order of the same
        values. 16 hex digits."""
        plain = {
            field.name: sorted(value) if isinstance(value, tuple) else value
            for field in fields(self)
            if (value := getattr(self, field.name))
        }
        return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`entries`: in order of position. `through`: everything up to here was looked at; where a
    reader goes on. `head`: as of before the page was read."""

    entries: tuple[FeedEntry, ...]
    through: int
    head: FeedHead


class FeedPlaces:
    """Where decisions stand in the feed, for those that were looked up by `places`. `runs`: stream
    -> (first seq, count, first position, correlations), in order."""

    def __init__(self, runs: Mapping[str, Sequence[tuple[int, int, int, bytes]]]) -> None:
        self._runs = runs
        self._firsts = {stream: [run[0] for run in found] for stream, found in runs.items()}

    def has(self, stream: str, seq: int) -> bool:
        """Whether it has a position."""
        return self._run(stream, seq) is not None

    def _run(self, stream: str, seq: int) -> tuple[int, int, int, bytes] | None:
        at = bisect_right(self._firsts.get(stream, ()), seq) - 1
        if at < 0:
            return None
        run = self._runs[stream][at]
        return run if seq < run[0] + run[1] else None

    def of(self, stream: str, seq: int) -> tuple[int, UUID] | None:
        """Position and correlation; None: it has no position yet."""
        run = self._run(stream, seq)
        if run is None:
            return None
        first, _, position, correlations = run
        start = (seq - first) * 16
        return position + seq - first, msgspec.convert(correlations[start : start + 16], UUID)


class UnsentRows(NamedTuple):
    """`through`: what has a position up to here was visible when the rows were read. `hashes`: of
    their rounds, by stream and number. `places`: of those rows that have a position."""

    rows: Sequence[LedgerRow]
    through: int
    hashes: Mapping[tuple[str, int], bytes]
    places: FeedPlaces

    @classmethod
    def given(cls, given: Sequence[GivenRows]) -> UnsentRows:
        """What the feed's writer read whole and gave positions, one append after another."""
        return cls.of(
            given[-1].last,
            [
                (record, position, correlation)
                for one in given
                for position, (record, correlation) in enumerate(
                    zip(one.records, one.correlations, strict=True), one.first
                )
            ],
        )

    @classmethod
    def of(
        cls, through: int, found: Iterable[tuple[Record, int | None, bytes | None]]
    ) -> UnsentRows:
        """`found`: rows (`FOUND`) with position and correlation, if they have any."""
        rows: list[LedgerRow] = []
        hashes: dict[tuple[str, int], bytes] = {}
        places: dict[str, list[tuple[int, int, int, bytes]]] = {}
        for record, position, correlation in found:
            row = relayed(record)
            rows.append(row)
            hashes[row.stream, row.round] = record[15]
            if position is not None and correlation is not None:
                places.setdefault(row.stream, []).append((row.seq, 1, position, correlation))
        return cls(rows, through, hashes, FeedPlaces(places))


async def head(database: Database) -> FeedHead:
    async with database.reading() as raw:
        return await _head(raw)


async def page(
    database: Database,
    after: int,
    limit: int,
    wanted: FeedFilter = FeedFilter(),
    scan_max: int = SCAN_MAX,
) -> FeedPage:
    """At most `limit` decisions beyond position `after`, looking at no more than `scan_max`
    positions (or `limit`, where nothing is hidden). At the end of the feed the page is empty.

    FeedRetiredError: something beyond `after` was retired."""
    conditions, values = _conditions(wanted)
    statement = f"{PAGE}{conditions} order by 1 limit $3"
    entries: list[FeedEntry] = []
    async with database.reading(repeated=True) as raw:
        known = await _head(raw)
        if after + 1 < known.earliest:
            raise FeedRetiredError(after, known.earliest)
        through, end = after, min(known.position, after + max(scan_max, limit))
        while through < end and len(entries) < limit:
            left = limit - len(entries)
            window = min(end, through + (max(WINDOW, left) if wanted.hides else left))
            found = await raw.fetch(statement, through, window, left, *values)
            rows = [FeedEntry(p, UUID(bytes=c), relayed(tuple(r))) for p, c, *r in found]
            entries += [entry for entry in rows if _concerns(entry.row, wanted.clusters)]
            # a statement that gave all it was allowed to may have left some of its window
            through = rows[-1].position if len(found) == left else window
    return FeedPage(tuple(entries), through, known)


async def position_at(database: Database, at: Micros) -> int:
    """After which position what was decided at `at` or later begins."""
    async with database.reading() as raw:
        found = await raw.fetchrow(_AT, at)
        known = await _head(raw)
    first = None if found is None else found[0]
    return known.position if first is None else max(int(first), known.earliest) - 1


async def position_of(database: Database, stream: str, seq: int) -> int | None:
    """None: it has none yet."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select f.first_position + $2 - f.first_seq from feed f "
            "join stream s on s.id = f.stream "
            "where s.name = $1 and f.first_seq <= $2 and f.first_seq + f.count > $2",
            stream,
            seq,
        )
    return None if row is None else int(row[0])


async def places(database: Database, rows: Iterable[LedgerRow]) -> FeedPlaces:
    """The places of `rows`, those that have one."""
    async with database.reading(repeated=True) as raw:
        return await _places(raw, rows)


async def _places(raw: Raw, rows: Iterable[LedgerRow]) -> FeedPlaces:
    ranges: dict[str, tuple[int, int]] = {}
    for row in rows:
        low, high = ranges.get(row.stream, (row.seq, row.seq))
        ranges[row.stream] = min(low, row.seq), max(high, row.seq)
    found: dict[str, list[tuple[int, int, int, bytes]]] = {}
    if ranges:
        for stream, first, count, position, correlations in await raw.fetch(
            _PLACES,
            list(ranges),
            [low for low, _ in ranges.values()],
            [high for _, high in ranges.values()],
            RUN_MAX,
        ):
            found.setdefault(stream, []).append((first, count, position, correlations))
    return FeedPlaces(found)


async def unsent(
    database: Database, cursors: Mapping[str, int], limit: int, days: Days
) -> UnsentRows:
    """What the relay has not sent: at most `limit` rows beyond `cursors`. Rows of one stream are in
    its order."""
    async with database.reading(repeated=True) as raw:
        few = await _few_unsent(raw, cursors, min(limit, FEW), days) if days.few else None
        if few is not None:
            return few
        rows, position, hashes = await read_after(raw, cursors, limit, days)
        days.few = len(rows) < FEW
        return UnsentRows(rows, position, hashes, await _places(raw, rows))


async def _few_unsent(
    raw: Raw, cursors: Mapping[str, int], limit: int, days: Days
) -> UnsentRows | None:
    """None: `limit` rows wait or more, or some are of an earlier day than was looked at."""
    since = days.newest
    found = await raw.fetch(_FEW_UNSENT, msgspec.json.encode(cursors).decode(), limit, since)
    if not found:
        return UnsentRows((), 0, {}, FeedPlaces({}))
    behind = {name: (seq, epoch) for seq, epoch, _, _, _, name, *_ in found}
    waiting = [record for record in found if record[6] is not None]
    if len(waiting) >= limit or since > days.since(behind):
        return None
    unsent = UnsentRows.of(found[0][2], [(record[6:], record[3], record[4]) for record in waiting])
    days.read(unsent.rows, {name: epoch for name, (_, epoch) in behind.items()})
    return unsent


async def next_place(database: Database, seqs: Mapping[str, int]) -> tuple[str, int] | None:
    """Stream and position of the first decision in the feed that is beyond `seqs` (stream -> seq; a
    stream that is not there counts from its start). None: there is none."""
    async with database.reading() as raw:
        found = await raw.fetchrow(_NEXT, list(seqs.keys()), list(seqs.values()), RUN_MAX)
    return None if found is None else (str(found[0]), int(found[1]))


async def news(
    listener: Listener, wakeup: asyncio.Event, known: Callable[[int], bool] = lambda _: False
) -> None:
    """Sets `wakeup` whenever positions were given, until cancelled; after each (re)connection too.
    `known`: whether the reader needs no wakeup to learn that they were given through this one."""
    await listener.follow(
        CHANNEL, wakeup, lambda position: position.isdecimal() and known(int(position))
    )


async def _head(raw: Raw) -> FeedHead:
    row = await raw.fetchrow(_HEAD)
    assert row is not None, "the migration has made its row"
    return FeedHead(*row)


def _conditions(wanted: FeedFilter) -> tuple[str, list[object]]:
    """Of the statement of a page, beginning with its fourth argument."""
    conditions: list[str] = []
    values: list[object] = []

    def where(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values) + 3}"))

    if not wanted.facts:
        conditions.append(f"s.name <> '{INTAKE}'")
    if wanted.types:
        full = [t for t in wanted.types if t.startswith(PREFIX)]
        short = [t for t in wanted.types if not t.startswith(PREFIX)]
        values += [full, [PREFIX + t for t in short]]
        conditions.append(
            f"(coalesce(a.type, d.type) = any(${len(values) + 2}::text[]) or "
            rf"regexp_replace(coalesce(a.type, d.type), '\.v\d+$', '') = "
            f"any(${len(values) + 3}::text[]))"
        )
    if wanted.namespaces:
        where("split_part(d.subject, '/', 1) = any({}::text[])", list(wanted.namespaces))
        conditions.append("position('/' in d.subject) > 0")
    if wanted.bindings:
        where("d.subject = any({}::text[])", list(wanted.bindings))
    if wanted.streams:
        where("s.name = any({}::text[])", list(wanted.streams))
    if wanted.outcomes:
        where("d.outcome = any({}::text[])", list(wanted.outcomes))
    if wanted.clusters:
        where(
            f"(s.name like '{FLEET}%%' or d.subject = any({{0}}::text[]) or "
            f"s.name = any(select '{CLUSTER}' || c from unnest({{0}}::text[]) as c))".replace(
                "%%", "%"
            ),
            list(wanted.clusters),
        )
    return "".join(f" and {condition}" for condition in conditions), values


def _concerns(row: LedgerRow, clusters: Sequence[str]) -> bool:
    """Whether a decision that the statement has let through concerns one of these clusters: a fleet
    decision says so in its body alone."""
    if not clusters or row.subject in clusters or not row.stream.startswith(FLEET):
        return True
    decided = as_decision(row.data())
    return decided is not None and any(
        cluster in clusters for cluster, _ in decided.assignment_items(row.seq, str(row.id))
    )
