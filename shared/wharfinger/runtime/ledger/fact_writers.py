"""Which of several writers of the same facts may write: the one that began last.

Two collectors may believe at the same time that a cluster is theirs: one was frozen, or has lost
the broker, and does not know that the other one has taken over. Versions of facts
(`events.versions`) keep it from setting a key back. They do not keep it from writing under a key
that its successor has never written, such as the pods of a node that is gone by now. So a writer
draws an epoch when it begins, and from then on nothing of an earlier one is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import WriterReplacedError
from wharfinger.runtime.ledger.heads import lock

_BEGIN = """
insert into fact_writer (name, epoch) values ($1, $2)
on conflict (name) do update set epoch = greatest(excluded.epoch, fact_writer.epoch + 1)
returning epoch
"""


@dataclass(frozen=True, slots=True)
class FactWriter:
    """One session of a writer. `name`: of what it writes the facts of."""

    name: str
    epoch: int


async def begin(database: Database, name: str, at_least: int) -> FactWriter:
    """The newest writer from now on. What its predecessors are writing is waited for, so that a
    reader that begins after this sees all of it."""
    async with database.transaction() as transaction:
        await lock(transaction, [INTAKE])
        found = await transaction.raw.fetchrow(_BEGIN, name, at_least)
    assert found is not None, "the statement returns one row"
    return FactWriter(name, found[0])


async def require_newest(raw: Raw, writer: FactWriter) -> None:
    """In the transaction that writes, once the head of the intake is locked. WriterReplacedError:
    another one has begun."""
    found = await raw.fetchrow("select epoch from fact_writer where name = $1", writer.name)
    newest = 0 if found is None else int(found[0])
    if newest != writer.epoch:
        raise WriterReplacedError(writer.name, writer.epoch, newest)
