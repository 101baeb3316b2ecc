"""The heads of the streams: where each stands, and which writer's rounds it takes.

A head is only moved by compare-and-set, in `writer` and `intake`. Raising the epoch is how a new owner shuts the door on
the old one: what was stepped under the old epoch can no longer be committed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Text, any_, bindparam, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.database import Database, Transaction
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.schema import stream

_HEADS = select(
    stream.c.id, stream.c.name, stream.c.round, stream.c.seq, stream.c.hash, stream.c.epoch, stream.c.at_us,
    stream.c.snapshot,
).order_by(stream.c.name)  # fmt: skip

# Every transaction that takes several heads takes them in order of name: they can wait for each other, never in a ring.
_LOCK = _HEADS.where(stream.c.name == any_(bindparam("names", type_=ARRAY(Text)))).with_for_update()

_ENSURE = insert(stream).on_conflict_do_nothing()

_RAISE = update(stream).where(stream.c.id == any_(bindparam("ids", type_=ARRAY(stream.c.id.type)))).values(
    epoch=stream.c.epoch + 1
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Locked:
    """A head whose row is ours until the transaction ends. `id`: the stream's small number."""

    id: int
    head: Head


async def lock(transaction: Transaction, names: Collection[str]) -> dict[str, Locked]:
    """Also the statement that opens the transaction. LedgerError: a stream that was never ensured."""
    rows = (await transaction.execute(_LOCK, {"names": sorted(names)})).all()
    locked = {row.name: Locked(row.id, _head(row)) for row in rows}
    if missing := sorted(set(names) - locked.keys()):
        raise LedgerError(f"unknown stream {missing[0]}: it must be ensured before it is written")
    return locked


async def ensure_streams(database: Database, names: Collection[str]) -> dict[str, Head]:
    """The heads of `names`, each made empty if it was not there."""
    async with database.transaction() as transaction:
        if names:
            await transaction.execute(_ENSURE, [_empty_row(name) for name in sorted(set(names))])
        return {name: found.head for name, found in (await lock(transaction, names)).items()}


async def raise_epoch(database: Database, names: Collection[str]) -> dict[str, Head]:
    """The heads of `names` under a new epoch. Waits for a commit that is under way; what comes after it is fenced."""
    async with database.transaction() as transaction:
        locked = await lock(transaction, names)
        await transaction.execute(_RAISE, {"ids": [found.id for found in locked.values()]})
        return {name: _raised(found.head) for name, found in locked.items()}


async def heads(database: Database, prefix: str) -> list[Head]:
    """All heads whose stream begins with `prefix`, in order of name."""
    async with database.transaction() as transaction:
        rows = (await transaction.execute(_HEADS)).all()
    return [_head(row) for row in rows if row.name.startswith(prefix)]


def selected(names: Collection[str], wanted: str) -> list[str]:
    """What people mean by `--stream`: the stream of this name, else all whose names begin with it."""
    return [wanted] if wanted in names else sorted(name for name in names if name.startswith(wanted))


def _empty_row(name: str) -> dict[str, object]:
    return {"name": name, "round": 0, "seq": 0, "hash": genesis(name), "epoch": 0, "at_us": 0, "snapshot": b""}


def _head(row: Row[Any]) -> Head:
    return Head(row.name, row.round, row.seq, row.hash, row.epoch, row.at_us, row.snapshot)


def _raised(head: Head) -> Head:
    return Head(head.stream, head.round, head.seq, head.hash, head.epoch + 1, head.at, head.snapshot)
