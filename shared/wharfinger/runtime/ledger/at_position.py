"""The ledger as it was: the same questions, asked of the rows that there were at a cut.

A cut says for every stream after which round and seq it is cut. Rows are never changed, so a
question that reads only rows up to a cut has the same answer now and in a year. The views of the
schema `ledger_at` (migration 0007) have the names of the tables; a connection with that schema
first on its search path reads them with every statement of this package. The cut is a setting of
the connection, made with each use.

What only the present has (cursors, locks, plans) is not cut.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from wharfinger.events.streams import LEDGER
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.version import require_version

SCHEMA = "ledger_at"

_HEADS = "select id, name, round, seq from stream order by id"
_EXTENT = f"""
select coalesce((select position from feed_head), 0), coalesce(sum(seq), 0)::bigint,
    coalesce(sum(seq) filter (where name = '{LEDGER}'), 0)::bigint
from stream
"""


_BY_SEQ = """
select s.id, s.name, coalesce(k.round, h.round, 0), c.seq, coalesce(h.seq, 0)
from unnest($1::text[], $2::bigint[]) as c(name, seq)
join stream s on s.name = c.name
left join horizon h on h.stream = s.id
left join lateral (
    select case when r.first_seq - 1 + r.decisions <= c.seq then d.round else d.round - 1 end
        as round
    from decision d join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
    where d.stream = s.id and d.seq = c.seq limit 1
) k on true
order by s.id
"""

_BY_POSITION = """
select s.name, f.first_seq + least(f.count::bigint, $1 - f.first_position + 1) - 1
from stream s cross join lateral (
    select f.first_seq, f.count, f.first_position from feed f
    where f.stream = s.id and f.first_position <= $1 order by f.first_position desc limit 1
) f
"""

_BY_TIME = """
select s.id, s.name, coalesce(r.number, h.round, 0), coalesce(r.seq, h.seq, 0), h.at_us
from stream s left join horizon h on h.stream = s.id
left join lateral (
    select r.number, r.first_seq - 1 + r.decisions as seq from round r
    where r.stream = s.id and r.at_us <= $1 order by r.at_us desc, r.number desc limit 1
) r on true
order by s.id
"""


class RetiredError(LedgerError):
    """The history up to there was retired."""


class StreamCut(NamedTuple):
    """Where a stream is cut: after this round, after this decision. `id`: its small number."""

    id: int
    round: int
    seq: int


class LedgerCut(NamedTuple):
    """Stream -> where it is cut. A stream that is not in it had not begun."""

    places: Mapping[str, StreamCut]

    @property
    def setting(self) -> str:
        return json.dumps({str(p.id): [p.round, p.seq] for p in self.places.values()})

    @property
    def seqs(self) -> dict[str, int]:
        return {name: place.seq for name, place in self.places.items()}


class Extent(NamedTuple):
    """How much the ledger has: the last position of the feed, and the decisions of all streams.
    `went_back`: how often it has lost some. As many as before means that nothing was decided since,
    if it did not go back."""

    position: int
    decisions: int
    went_back: int


class PastDatabase:
    """Connections that read a past of `url`'s ledger, one pool for every cut."""

    def __init__(
        self,
        url: str,
        application_name: str,
        pool_size: int = 8,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.present = Database(url, application_name, pool_size, deadlines)
        self._past = Database(
            url, application_name, pool_size, deadlines, f'{SCHEMA}, "$user", public'
        )

    async def close(self) -> None:
        await self.present.close()
        await self._past.close()

    async def require_version(self) -> None:
        """As `version.require_version`."""
        await require_version(self.present)

    def at(self, cut: LedgerCut) -> Ledger:
        """The ledger of which every question is answered as of `cut`. It is not closed: its
        connections are of this pool."""
        return Ledger(_DatabaseAt(self._past, cut.setting))

    async def heads(self) -> LedgerCut:
        """Where every stream stands now."""
        async with self.present.reading() as raw:
            rows = await raw.fetch(_HEADS)
        return LedgerCut({name: StreamCut(id_, number, seq) for id_, name, number, seq in rows})

    async def extent(self) -> Extent:
        async with self.present.reading(repeated=True) as raw:
            row = await raw.fetchrow(_EXTENT)
        assert row is not None, "an aggregate has a row"
        return Extent(*row)

    async def cut_by_seq(self, seqs: Mapping[str, int]) -> LedgerCut:
        """After the decision `seq` of each stream, and after the last round of which no decision is
        left out. RetiredError: a stream's place was retired."""
        async with self.present.reading() as raw:
            rows = await raw.fetch(_BY_SEQ, list(seqs), list(seqs.values()))
        for _, name, _, seq, retired in rows:
            if seq < retired:
                raise RetiredError(f"{name} is kept from decision {retired} on; {seq} was retired")
        return LedgerCut({name: StreamCut(id_, number, seq) for id_, name, number, seq, _ in rows})

    async def cut_by_position(self, position: int) -> LedgerCut:
        """After that position of the feed."""
        async with self.present.reading() as raw:
            rows = await raw.fetch(_BY_POSITION, position)
        return await self.cut_by_seq(dict(rows))

    async def position_of(self, cut: LedgerCut) -> int:
        """The last position through which the cut has everything."""
        async with self.present.reading() as raw:
            row = await raw.fetchrow(
                "select coalesce(min(greatest(f.first_position, f.first_position "
                "+ coalesce(c.seq, 0) + 1 - f.first_seq)) - 1, (select position from feed_head)) "
                "from stream s left join unnest($1::text[], $2::bigint[]) as c(name, seq) "
                "on c.name = s.name "
                "cross join lateral (select first_position, first_seq from feed f "
                "where f.stream = s.id and f.first_seq + f.count - 1 > coalesce(c.seq, 0) "
                "order by f.first_seq limit 1) f",
                list(cut.places),
                [place.seq for place in cut.places.values()],
            )
        return 0 if row is None else int(row[0])

    async def cut_by_time(self, at_us: int) -> LedgerCut:
        """After the last round of each stream that is not later. RetiredError: that was retired."""
        async with self.present.reading() as raw:
            rows = await raw.fetch(_BY_TIME, at_us)
        for _, name, _, _, retired in rows:
            if retired is not None and at_us < retired:
                raise RetiredError(f"{name} is kept from a later time on")
        return LedgerCut({name: StreamCut(id_, number, seq) for id_, name, number, seq, _ in rows})


_cuts: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""To which cut each connection is set."""


class _DatabaseAt(Database):
    """Another database's pool, each of whose connections is set to the cut before it is used."""

    def __init__(self, pool: Database, cut: str) -> None:
        self._shared = pool
        self._cut = cut
        self.deadlines = pool.deadlines

    @property
    def identity(self) -> str:
        return self._shared.identity

    async def close(self) -> None:
        """The pool is closed by its owner."""

    @asynccontextmanager
    async def _connection(self, repeated: bool = False) -> AsyncIterator[Any]:
        # the past is read through views, whose plans are made each time
        async with self._shared._connection() as raw:
            connection = raw._con  # a pool gives each use another proxy of it
            if _cuts.get(connection) != self._cut:
                _cuts.pop(connection, None)  # an error leaves it unknown
                await raw.execute("select set_config('wharfinger.cut', $1, false)", self._cut)
                _cuts[connection] = self._cut
            yield raw
