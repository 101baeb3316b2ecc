"""Connections to the database, and the one way in which our code opens a transaction.

Short statements are SQLAlchemy Core. Where rows go by the thousand, arrays and COPY of the driver itself are used, on the
same connection and inside the same transaction. SQLAlchemy begins that transaction only with its first own statement, and
a driver call before it would commit by itself; `Transaction.raw` asserts that this has not happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import asyncpg
from sqlalchemy import Connection, Executable, event
from sqlalchemy.engine import URL, Result, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, LedgerUnavailable, translate

CONNECT_TIMEOUT_S = 10.0

Record = tuple[Any, ...]
"""A row as the driver gives it. It is unpacked into a typed value where it is read, and goes no further."""


class Raw(Protocol):
    """What we use of an asyncpg connection."""

    async def fetch(self, query: str, *args: object) -> list[Record]: ...

    async def fetchrow(self, query: str, *args: object) -> Record | None: ...

    async def execute(self, query: str, *args: object) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str: ...

    async def copy_from_table(
        self, table_name: str, *, output: Callable[[bytes], Awaitable[None]], format: str, header: bool
    ) -> str: ...

    def cursor(self, query: str, *args: object, prefetch: int) -> AsyncIterable[Record]: ...

    def is_in_transaction(self) -> bool: ...

    def is_closed(self) -> bool: ...

    def add_termination_listener(self, callback: Callable[[object], None]) -> None: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


class Transaction:
    """An open transaction. It commits when its block ends, and rolls back when the block raises."""

    def __init__(self, connection: AsyncConnection, raw: Raw) -> None:
        self._connection = connection
        self._raw = raw

    async def execute(
        self, statement: Executable, values: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None
    ) -> Result[Any]:
        return await self._connection.execute(statement, values)

    async def run_sync(self, task: Callable[[Connection], None]) -> None:
        await self._connection.run_sync(task)

    @property
    def raw(self) -> Raw:
        assert self._raw.is_in_transaction(), "a Core statement must open the transaction before the driver is used"
        return self._raw


class Database:
    """A small pool, and connections outside of it for those that hold a lock or listen."""

    def __init__(self, url: str, application_name: str, pool_size: int = 4) -> None:
        self._url = parse_url(url)
        self._application_name = application_name
        self._engine: AsyncEngine = create_async_engine(
            self._url, async_creator=self._connect, pool_size=pool_size, max_overflow=pool_size
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_closed)

    @property
    def url(self) -> str:
        return self._url.render_as_string(hide_password=False)

    @property
    def shown(self) -> str:
        """The address without the password."""
        return shown_url(self._url)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Raises the errors of `errors`, whatever the driver raised."""
        try:
            async with self._engine.connect() as connection:
                raw = await _driver(connection)
                try:
                    yield Transaction(connection, raw)
                    await connection.commit()
                except BaseException:
                    if raw.is_closed():  # SQLAlchemy does not see what the driver was called for directly
                        await connection.invalidate()
                    raise
        except DATABASE_ERRORS as error:
            raise translate(error) from error

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Raw]:
        """The driver outside of a transaction: every statement sees what is committed when it starts."""
        try:
            async with self._engine.connect() as connection:
                raw = await _driver(connection)
                try:
                    yield raw
                except BaseException:
                    if raw.is_closed():
                        await connection.invalidate()
                    raise
        except DATABASE_ERRORS as error:
            raise translate(error) from error

    async def dedicated(self) -> Raw:
        """A connection that belongs to the caller alone."""
        try:
            return await self._connect()
        except (*DATABASE_ERRORS, ValueError) as error:
            raise translate(error) from error

    async def _connect(self) -> Raw:
        connection: Raw = await asyncpg.connect(  # type: ignore[no-untyped-call]
            self._url.set(drivername="postgresql").render_as_string(hide_password=False),
            timeout=CONNECT_TIMEOUT_S,
            server_settings={
                "application_name": self._application_name,
                "timezone": "UTC",
                # A plan kept from when the tables were empty would scan them when they are not.
                "plan_cache_mode": "force_custom_plan",
                "jit": "off",
                # A server that lost us must not keep our locks until the kernel's two hours are over.
                "tcp_keepalives_idle": "5",
                "tcp_keepalives_interval": "2",
                "tcp_keepalives_count": "3",
            },
        )
        return connection


def parse_url(url: str) -> URL:
    """`postgresql://` with or without the driver's name. LedgerUnavailable: it is neither."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise LedgerUnavailable("database: expected a URL postgresql://user:password@host:port/name") from None
    if parsed.drivername not in ("postgres", "postgresql", "postgresql+asyncpg"):
        raise LedgerUnavailable(f"database: expected a postgresql:// URL, got {parsed.drivername}://")
    return parsed.set(drivername="postgresql+asyncpg")


def shown_url(url: URL) -> str:
    host = url.host or str(url.query.get("host", "localhost"))
    return f"{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"


async def _driver(connection: AsyncConnection) -> Raw:
    pooled = await connection.get_raw_connection()
    return cast(Raw, pooled.driver_connection)


def _refuse_closed(dbapi_connection: Any, _record: object, _proxy: object) -> None:
    """A connection whose server went away while it lay in the pool is replaced before anybody sees it."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError
