"""Where a consumer stands, in the subscriber's own database: PostgreSQL or SQLite.

The cursor is moved in the transaction in which the subscriber writes what it made of the events, by
compare-and-set. So both are kept or neither is, wherever the subscriber is killed.

One copy of a consumer works at a time: it holds the cursor for `lease_s` and renews that; another
copy waits. A copy that was stopped for longer has lost the cursor: `epoch` has moved on, and its
transaction fails.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncpg

Tx = TypeVar("Tx")

TABLES = (
    """create table if not exists wharfinger_cursor (
        name text primary key,
        position bigint not null,
        filter text not null,
        last_position bigint not null,
        last_id text not null,
        offsets text not null,
        epoch bigint not null,
        owner text not null,
        owned_until double precision not null
    )""",
    """create table if not exists wharfinger_cursor_ahead (
        name text not null,
        position bigint not null,
        primary key (name, position)
    )""",
)

_COLUMNS = "position, filter, last_position, last_id, offsets, epoch"
_LOAD = f"select {_COLUMNS} from wharfinger_cursor where name = $1"
_CREATE = """insert into wharfinger_cursor
    (name, position, filter, last_position, last_id, offsets, epoch, owner, owned_until)
    values ($1, $2, $3, 0, '', $4, 0, '', 0) on conflict (name) do nothing"""
_TAKE = f"""update wharfinger_cursor set epoch = epoch + 1, owner = $2, owned_until = $3
    where name = $1 and (owned_until < $4 or owner = $2) returning {_COLUMNS}"""
_EXTEND = "update wharfinger_cursor set owned_until = $3 where name = $1 and epoch = $2"
_FILTER = "update wharfinger_cursor set filter = $3 where name = $1 and epoch = $2"
_MOVE = """update wharfinger_cursor
    set position = $4, last_position = $5, last_id = $6, offsets = $7, owned_until = $8
    where name = $1 and epoch = $2 and position = $3 and offsets = $9"""
_AHEAD = "select position from wharfinger_cursor_ahead where name = $1"
_PUT_AHEAD = """insert into wharfinger_cursor_ahead (name, position) values ($1, $2)
    on conflict (name, position) do nothing"""
_DROP_AHEAD = "delete from wharfinger_cursor_ahead where name = $1 and position <= $2"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything through `position` was taken. `filter`: digest of the filter it was moved under.
    `last_position`, `last_id`: of the event that was taken last. `offsets`: Kafka partition -> the
    next offset. `epoch`: of who holds it."""

    position: int
    filter: str
    last_position: int = 0
    last_id: str = ""
    offsets: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0


def _cursor(row: Sequence[Any]) -> Cursor:
    return Cursor(row[0], row[1], row[2], row[3], json.loads(row[4]), row[5])


def _offsets(cursor: Cursor) -> str:
    return json.dumps(dict(cursor.offsets), sort_keys=True)


class _Statements(Protocol):
    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]: ...

    async def change(self, sql: str, *values: Any) -> int:
        """How many rows."""


class CursorStore(Generic[Tx]):
    """Cursors by name. `PostgresCursors` and `SqliteCursors` say how statements are run."""

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        raise NotImplementedError

    def _in(self, tx: Tx) -> _Statements:
        raise NotImplementedError

    async def prepare(self) -> None:
        """Make the tables where they are not there."""
        async with self.transaction() as tx:
            for table in TABLES:
                await self._in(tx).change(table)

    async def load(self, name: str) -> Cursor | None:
        async with self.transaction() as tx:
            found = await self._in(tx).rows(_LOAD, name)
        return _cursor(found[0]) if found else None

    async def create(self, name: str, cursor: Cursor) -> None:
        """Where there is one already it stays as it is."""
        async with self.transaction() as tx:
            values = (name, cursor.position, cursor.filter, _offsets(cursor))
            await self._in(tx).change(_CREATE, *values)

    async def take(self, name: str, owner: str, lease_s: float) -> Cursor | None:
        """None: another copy holds it."""
        now = time.time()
        async with self.transaction() as tx:
            found = await self._in(tx).rows(_TAKE, name, owner, now + lease_s, now)
        return _cursor(found[0]) if found else None

    async def extend(self, name: str, epoch: int, lease_s: float) -> bool:
        """False: another copy has taken it."""
        async with self.transaction() as tx:
            return await self._in(tx).change(_EXTEND, name, epoch, time.time() + lease_s) == 1

    async def change_filter(self, name: str, epoch: int, digest: str) -> None:
        async with self.transaction() as tx:
            await self._in(tx).change(_FILTER, name, epoch, digest)

    async def release(self, name: str, epoch: int) -> None:
        async with self.transaction() as tx:
            await self._in(tx).change(_EXTEND, name, epoch, 0.0)

    async def ahead(self, name: str) -> set[int]:
        """Positions beyond the cursor whose events were taken (from Kafka)."""
        async with self.transaction() as tx:
            return {row[0] for row in await self._in(tx).rows(_AHEAD, name)}

    async def move(
        self, tx: Tx, name: str, old: Cursor, new: Cursor, ahead: Collection[int], lease_s: float
    ) -> bool:
        """In the transaction of the subscriber. `ahead`: positions beyond the new cursor that are
        taken with it. False: the cursor is not `old` any more, and nothing was changed."""
        run = self._in(tx)
        moved = await run.change(
            _MOVE,
            name,
            old.epoch,
            old.position,
            new.position,
            new.last_position,
            new.last_id,
            _offsets(new),
            time.time() + lease_s,
            _offsets(old),
        )
        if moved != 1:
            return False
        for position in ahead:
            await run.change(_PUT_AHEAD, name, position)
        if new.position != old.position:
            await run.change(_DROP_AHEAD, name, new.position)
        return True


class PostgresCursors(CursorStore["asyncpg.Connection"]):
    """`pool`: asyncpg's, of the subscriber's database. A transaction is a connection of it."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def prepare(self) -> None:
        """Make the tables where they are not there; of two copies one after the other."""
        async with self.transaction() as tx:
            await tx.execute("select pg_advisory_xact_lock(hashtext('wharfinger_cursor'))")
            for table in TABLES:
                await tx.execute(table)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[asyncpg.Connection]:
        pool: Any = self._pool
        async with pool.acquire() as connection, connection.transaction():
            yield connection

    def transaction(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._transaction()

    def _in(self, tx: asyncpg.Connection) -> _Statements:
        return _Postgres(tx)


@dataclass(frozen=True, slots=True)
class _Postgres:
    connection: Any

    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        found: Sequence[Sequence[Any]] = await self.connection.fetch(sql, *values)
        return found

    async def change(self, sql: str, *values: Any) -> int:
        said = await self.connection.execute(sql, *values)
        count = said.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0


class SqliteCursors(CursorStore[sqlite3.Connection]):
    """`path`: of the subscriber's database file. A transaction is the one connection to it, after
    `begin immediate`. Statements run in the event loop: they are short and local."""

    def __init__(self, path: str, busy_s: float = 30.0) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=busy_s)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[sqlite3.Connection]:
        self.connection.execute("begin immediate")
        try:
            yield self.connection
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def transaction(self) -> AbstractAsyncContextManager[sqlite3.Connection]:
        return self._transaction()

    def _in(self, tx: sqlite3.Connection) -> _Statements:
        return _Sqlite(tx)

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True, slots=True)
class _Sqlite:
    connection: sqlite3.Connection

    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self.connection.execute(sql.replace("$", "?"), values).fetchall()

    async def change(self, sql: str, *values: Any) -> int:
        return self.connection.execute(sql.replace("$", "?"), values).rowcount
