"""The heads of the streams: where each stands, and which writer's rounds it takes.

A head is only moved by compare-and-set, in `writer` and `intake`. Raising the epoch is how a new
owner shuts the door on the old one: what was stepped under the old epoch can no longer be
committed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from wharfinger.kernel.decider import Micros
from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.database import Database, Record, Transaction
from wharfinger.runtime.ledger.errors import LedgerError

_COLUMNS = "name, round, seq, hash, epoch, at_us, snapshot"

LOCKED = f"{_COLUMNS}, id, (extract(epoch from clock_timestamp()) * 1000000)::bigint"
"""What `locked_of` reads of a row of `stream`."""

_HEADS = f"select {_COLUMNS} from stream order by name"

_GLANCE = f"select {LOCKED} from stream order by name"

# Every transaction that takes several heads takes them in order of name: they can wait for each
# other, never in a ring.
_LOCK = f"""
select {LOCKED}
from stream where name = any($1::text[]) order by name for update
"""

_ENSURE = f"""
insert into stream ({_COLUMNS})
select n.name, 0, 0, n.genesis, 0, 0, ''::bytea
from unnest($1::text[], $2::bytea[]) as n(name, genesis)
on conflict do nothing
"""

_RAISE = "update stream set epoch = epoch + 1 where id = any($1::int[])"


@dataclass(frozen=True, slots=True)
class Locked:
    """A head whose row is ours until the transaction ends, or which was only looked at. `id`: the
    stream's small number. `now`: the database's time once it was ours."""

    id: int
    head: Head
    now: Micros


def locked_of(name: str, *row: Any) -> Locked:
    """Of the columns `LOCKED`."""
    *head, id_, now = row
    return Locked(id_, Head(name, *head), now)


async def lock(transaction: Transaction, names: Collection[str]) -> dict[str, Locked]:
    """LedgerError: a stream that was never ensured."""
    rows = await transaction.raw.fetch(_LOCK, sorted(names))
    locked = {row[0]: locked_of(*row) for row in rows}
    if missing := sorted(set(names) - locked.keys()):
        raise LedgerError(f"unknown stream {missing[0]}: it must be ensured before it is written")
    return locked


async def glance(transaction: Transaction) -> dict[str, Locked]:
    """All heads and the database's time as they are now, not locked."""
    rows = await transaction.raw.fetch(_GLANCE)
    return {row[0]: locked_of(*row) for row in rows}


async def ensure_streams(database: Database, names: Collection[str]) -> dict[str, Head]:
    """The heads of `names`, each made empty if it was not there."""
    async with database.transaction() as transaction:
        if names:
            ordered = sorted(set(names))
            await transaction.raw.execute(_ENSURE, ordered, [genesis(name) for name in ordered])
        return {name: found.head for name, found in (await lock(transaction, names)).items()}


async def raise_epoch(database: Database, names: Collection[str]) -> dict[str, Head]:
    """The heads of `names` under a new epoch. Waits for a commit that is under way; what comes
    after it is fenced."""
    async with database.transaction() as transaction:
        locked = await lock(transaction, names)
        await transaction.raw.execute(_RAISE, [found.id for found in locked.values()])
        return {name: _raised(found.head) for name, found in locked.items()}


async def heads(database: Database, prefix: str) -> list[Head]:
    """All heads whose stream begins with `prefix`, in order of name."""
    async with database.reading() as raw:
        rows = await raw.fetch(_HEADS)
    return [_head(row) for row in rows if row[0].startswith(prefix)]


def selected(names: Collection[str], wanted: str) -> list[str]:
    """What people mean by `--stream`: the stream of this name, else all whose names begin with
    it."""
    return (
        [wanted] if wanted in names else sorted(name for name in names if name.startswith(wanted))
    )


def _head(row: Record) -> Head:
    return Head(*row)


def _raised(head: Head) -> Head:
    return Head(
        head.stream, head.round, head.seq, head.hash, head.epoch + 1, head.at, head.snapshot
    )
