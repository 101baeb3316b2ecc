"""What the HTTP API does for requests that take longer than an answer should, so that every process
of it can say how far one is.

An operation belongs to the process that does it, which renews a lease. One whose lease has run out
is failed by who looks at it: nothing is lost silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Record

KEPT_US = 24 * 3600 * 1_000_000
LEASE_S = 15

State = Literal["running", "cancelling", "succeeded", "failed", "cancelled"]
OPEN = ("running", "cancelling")
LOST = b'{"kind":"lost","detail":"the process that did it has ended: ask again"}'

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_COLUMNS = "id, kind, actor, made_at_us, changed_at_us, state, step, done, total, plan, result"


@dataclass(frozen=True, slots=True)
class Operation:
    """`done` of `total` steps; `step`: the one that is under way. `plan`: that was made, or is
    carried out. `result`: JSON, of what came of it."""

    id: UUID
    kind: str
    actor: str
    made_at: Micros
    changed_at: Micros
    state: State
    step: str
    done: int
    total: int
    plan: UUID | None
    result: bytes

    @property
    def open(self) -> bool:
        return self.state in OPEN


async def begin(
    database: Database,
    id_: UUID,
    kind: str,
    actor: str,
    owner: UUID,
    total: int,
    plan: UUID | None = None,
) -> None:
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute(f"delete from operation where made_at_us < {_NOW} - {KEPT_US}")
        await raw.execute(
            "insert into operation (id, kind, actor, made_at_us, changed_at_us, state, step, done, "
            f"total, owner, lease_until_us, plan, result) values ($1, $2, $3, {_NOW}, {_NOW}, "
            f"'running', 'queued', 0, $4, $5, {_NOW} + {LEASE_S} * 1000000, $6, '')",
            id_,
            kind,
            actor,
            total,
            owner,
            plan,
        )


async def renew(database: Database, id_: UUID, owner: UUID, step: str, done: int) -> bool:
    """Keeps the lease, and says how far it is. False: it is to be cancelled, or no longer the
    caller's."""
    async with database.transaction() as transaction:
        row = await transaction.raw.fetchrow(
            f"update operation set lease_until_us = {_NOW} + {LEASE_S} * 1000000, changed_at_us = "
            f"case when step = $3 and done = $4 then changed_at_us else {_NOW} end, "
            "step = $3, done = $4 "
            "where id = $1 and owner = $2 and state in ('running', 'cancelling') returning state",
            id_,
            owner,
            step,
            done,
        )
    return row is not None and row[0] == "running"


async def end(
    database: Database,
    id_: UUID,
    owner: UUID,
    state: State,
    result: bytes,
    plan: UUID | None = None,
) -> None:
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            f"update operation set state = $3, result = $4, changed_at_us = {_NOW}, "
            "done = case when $3 = 'succeeded' then total else done end, "
            "plan = coalesce($5, plan) "
            "where id = $1 and owner = $2 and state in ('running', 'cancelling')",
            id_,
            owner,
            state,
            result,
            plan,
        )


async def cancel(database: Database, id_: UUID) -> None:
    """Asks its owner to stop, if it is running."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            f"update operation set state = 'cancelling', changed_at_us = {_NOW} "
            "where id = $1 and state = 'running'",
            id_,
        )


async def operation(database: Database, id_: UUID) -> Operation | None:
    """None: there is none. One whose lease has run out fails now."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute(
            f"update operation set state = 'failed', result = $2, changed_at_us = {_NOW} "
            "where id = $1 and state in ('running', 'cancelling') "
            f"and lease_until_us < {_NOW}",
            id_,
            LOST,
        )
        row = await raw.fetchrow(f"select {_COLUMNS} from operation where id = $1", id_)
    return None if row is None else _operation(row)


async def recent(database: Database, limit: int) -> list[Operation]:
    """The newest first."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            f"select {_COLUMNS} from operation order by made_at_us desc, id limit $1", limit
        )
    return [_operation(row) for row in rows]


def _operation(row: Record) -> Operation:
    found = Operation(*row)
    return replace(found, result=bytes(found.result))
