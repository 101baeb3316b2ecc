"""What an explanation needs of the history around one decision: single rows by index, never a stretch of the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import FLEET
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.reader import ROW, LedgerRow, row_of

_SCHEDULED = (LATEST[ScheduleDecided].type, LATEST[ScheduleRefused].type)

_LAST_UNTIL = f"""
select {ROW} from decision d
join stream s on s.id = d.stream join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
where d.stream = $1 and d.subject = $2 and d.seq <= $3 order by d.seq desc limit 1
"""

# One probe of the index a binding; the type is looked at on the rows that are met, nearly always the first.
_BEFORE = f"""
select {ROW} from unnest($2::text[]) as w(name)
cross join lateral (
    select d.* from decision d
    where d.subject = w.name and d.stream = $1 and d.seq < $3 and d.type = any($4::text[]) order by d.seq desc limit 1
) d
join stream s on s.id = d.stream join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
"""


async def shard_of(database: Database, binding: str) -> str | None:
    """The fleet stream that decides about `binding`; None: none ever did."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select s.name from stream s where s.name like $2 || '%' "
            "and exists (select from decision d where d.subject = $1 and d.stream = s.id) limit 1",
            binding, FLEET,
        )  # fmt: skip
    return None if row is None else str(row[0])


async def last_until(database: Database, binding: str, stream: str, seq: int) -> LedgerRow | None:
    """The last decision about `binding` in `stream` up to number `seq`."""
    async with database.reading() as raw:
        id_ = await _id(database, stream)
        row = await raw.fetchrow(_LAST_UNTIL, id_, binding, seq)
    return None if row is None else row_of(row)


async def requirements_before(
    database: Database, stream: str, bindings: Collection[str], seq: int
) -> Mapping[str, Requirements]:
    """binding -> what its last schedule before number `seq` was made for; those without one are left out."""
    if not bindings:
        return {}
    id_ = await _id(database, stream)
    async with database.reading() as raw:
        rows = await raw.fetch(_BEFORE, id_, list(bindings), seq, list(_SCHEDULED))
    found: dict[str, Requirements] = {}
    for row in map(row_of, rows):
        data = row.data()
        assert isinstance(data, ScheduleDecided | ScheduleRefused), "only those were asked for"
        found[row.subject] = data.requirements
    return found


async def engine_of(database: Database, stream: str, number: int) -> str:
    """Which engine decided round `number`."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.engine from round r join stream s on s.id = r.stream where s.name = $1 and r.number = $2",
            stream,
            number,
        )
    return "" if row is None else str(row[0])


async def _id(database: Database, stream: str) -> int:
    """Asked apart, so that the planner sees a constant and takes the index it has for one stream."""
    async with database.reading() as raw:
        row = await raw.fetchrow("select id from stream where name = $1", stream)
    return 0 if row is None else int(row[0])
