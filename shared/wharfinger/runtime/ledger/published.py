"""What an auditor asks of the ledger while reading a topic: the decisions behind ids, and those
behind numbers.

Nothing is written and nothing is locked. Next: `wharfinger.history.topic_check`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.decision_rows import IN_ROUND, ROW, LedgerRow, row_of


class Life(NamedTuple):
    """Which life the topics are in, as the plane last recorded it, and of which broker."""

    counter: int
    boot_id: str


class Extent(NamedTuple):
    """A stream's decisions on record are numbered `after + 1` to `seq`; those up to `after` were
    retired."""

    after: int
    seq: int


class Decided(NamedTuple):
    """As much of a decision as says where it was published."""

    seq: int
    round: int
    subject: str
    at: Micros


_BY_ID = f"""
select {ROW} from decision d
{IN_ROUND}
where d.id = any($1::uuid[])
"""

_BY_SEQ = """
select d.seq, d.round, d.subject, r.at_us from unnest($2::bigint[]) as w(seq)
join stream s on s.name = $1
join decision d on d.stream = s.id and d.seq = w.seq
join round r on r.stream = d.stream and r.number = d.round order by d.seq
"""

_EXTENTS = """
select s.name, coalesce(h.seq, 0), s.seq from stream s left join horizon h on h.stream = s.id
order by s.name
"""


async def decisions_by_id(database: Database, ids: Collection[UUID]) -> dict[UUID, LedgerRow]:
    async with database.reading() as raw:
        found = await raw.fetch(_BY_ID, list(ids))
    return {row.id: row for row in map(row_of, found)}


async def decided(database: Database, stream: str, seqs: Collection[int]) -> list[Decided]:
    """In order of seq."""
    async with database.reading() as raw:
        found = await raw.fetch(_BY_SEQ, stream, list(seqs))
    return [Decided(*record) for record in found]


async def extents(database: Database) -> dict[str, Extent]:
    async with database.reading() as raw:
        found = await raw.fetch(_EXTENTS)
    return {name: Extent(after, seq) for name, after, seq in found}


async def life(database: Database, topic: str) -> Life:
    """`counter` 0: no plane has run on this database. As services count it, over all topics; the
    boot id of this one."""
    async with database.reading() as raw:
        found = await raw.fetch("select topic, counter, boot_id from incarnation")
    boot_ids = {name: boot_id for name, _, boot_id in found}
    return Life(max((counter for _, counter, _ in found), default=0), boot_ids.get(topic, ""))
