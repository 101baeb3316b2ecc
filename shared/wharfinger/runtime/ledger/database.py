"""Connections to the database, and the one way in which our code opens a transaction.

Connections and transactions are those of asyncpg, and so is its pool: SQL is text, arrays and COPY
are at hand where rows go by the thousand, and a program that only reads loads nothing else.
SQLAlchemy describes the tables (`schema`) and migrates them.

A connection returns to the pool only in a state that we know. The driver prepares a statement
without ending the server's implicit transaction; a call that fails between preparing and executing
(an argument of a wrong type, a cancellation) leaves the server inside it, and the next user's
`BEGIN` would join it. So after any error that the server did not report itself the connection is
closed.

Most statements are planned each time: a plan kept from when a table was empty would scan it when it
is not. For a statement over tables with a partition a day, planning takes longer than executing. So
what every turn of a service repeats has connections of its own (`repeated`). They keep their plans,
and these plans can only look rows up by an index.

Every call has a deadline (`Deadlines`). One that runs out raises `DeadlineExceeded`, and its
connection is closed too: the server may still be at work on it. A server that lost us gives up an
open transaction after the same time.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import asyncpg
from asyncpg.exceptions import InterfaceError

from wharfinger.runtime.backends import async_database_url, plain_database_url, shown_database_url
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.ledger.errors import (
    DATABASE_ERRORS,
    DeadlineExceeded,
    LedgerError,
    LedgerUnavailable,
    reported,
    translate,
)
from wharfinger.runtime.plane import another_database

CONNECT_TIMEOUT_S = 10.0

CLOSE_TIMEOUT_S = 2.0
"""How long a pool that is closed waits for its users and for the server. After that its connections
are cut."""

IDLE_S = 300.0
"""A connection that was not used for so long is closed."""

_NO_HURRY = "set local idle_in_transaction_session_timeout = 0"
"""Opens a transaction whose user may take his time between two calls. It is no query: a snapshot of
another transaction can still be taken over."""

_PLANNED = {"plan_cache_mode": "force_custom_plan"}
_REPEATED = {
    "plan_cache_mode": "force_generic_plan",
    # What is left is a nested loop over indexes: right for few rows, and never wrong for many.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000}
"""A peer that is gone is noticed after eleven seconds, in both directions. The last one is in
milliseconds, the others in seconds and tries; systems other than Linux lack some of them."""

_UNLIMITED_S = 1e9
"""None would be the connection's own deadline."""

# Which database this is: the server's cluster (kept by a physical standby and by a failover to it),
# the database in it, and the ledger's own table in that. A restore into another server, a database
# and a schema made again each change it.
_IDENTITY = """
select (select system_identifier from pg_control_system())::text || '/' ||
       (select oid from pg_database where datname = current_database())::text || '/' ||
       coalesce(to_regclass('stream')::oid::text, '')
"""

Record = tuple[Any, ...]
"""A row as the driver gives it. It is unpacked into a typed value where it is read, and goes no
further."""


class Raw(Protocol):
    """What we use of an asyncpg connection."""

    async def fetch(self, query: str, *args: object) -> list[Record]: ...

    async def fetchrow(self, query: str, *args: object) -> Record | None: ...

    async def execute(self, query: str, *args: object) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str: ...

    async def copy_from_table(
        self,
        table_name: str,
        *,
        output: Callable[[bytes], Awaitable[None]],
        format: str,
        header: bool,
    ) -> str: ...

    def cursor(self, query: str, *args: object, prefetch: int) -> AsyncIterable[Record]: ...

    def is_in_transaction(self) -> bool: ...

    def is_closed(self) -> bool: ...

    def add_termination_listener(self, callback: Callable[[object], None]) -> None: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


class Patient:
    """A connection whose calls have another deadline than the one it was made with."""

    def __init__(self, raw: Raw, deadline_s: float) -> None:
        self._raw: Any = raw  # the driver takes `timeout` with every call
        self._deadline_s = deadline_s

    async def fetch(self, query: str, *args: object) -> list[Record]:
        return cast(list[Record], await self._raw.fetch(query, *args, timeout=self._deadline_s))

    async def fetchrow(self, query: str, *args: object) -> Record | None:
        return cast(Record | None, await self._raw.fetchrow(query, *args, timeout=self._deadline_s))

    async def execute(self, query: str, *args: object) -> str:
        return cast(str, await self._raw.execute(query, *args, timeout=self._deadline_s))

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str:
        return cast(
            str,
            await self._raw.copy_records_to_table(
                table_name, records=records, columns=columns, timeout=self._deadline_s
            ),
        )

    async def copy_from_table(
        self,
        table_name: str,
        *,
        output: Callable[[bytes], Awaitable[None]],
        format: str,
        header: bool,
    ) -> str:
        """The deadline is for each piece that comes, not for the table."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._deadline_s) as deadline:

            async def take(chunk: bytes) -> None:
                await output(chunk)
                deadline.reschedule(loop.time() + self._deadline_s)

            return cast(
                str,
                await self._raw.copy_from_table(
                    table_name, output=take, format=format, header=header, timeout=_UNLIMITED_S
                ),
            )

    def cursor(self, query: str, *args: object, prefetch: int) -> AsyncIterable[Record]:
        return cast(
            AsyncIterable[Record],
            self._raw.cursor(query, *args, prefetch=prefetch, timeout=self._deadline_s),
        )

    def is_in_transaction(self) -> bool:
        return bool(self._raw.is_in_transaction())

    def is_closed(self) -> bool:
        return bool(self._raw.is_closed())

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        self._raw.add_termination_listener(callback)

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        await self._raw.add_listener(channel, callback)

    async def close(self, *, timeout: float | None = None) -> None:
        await self._raw.close(timeout=timeout)

    def terminate(self) -> None:
        self._raw.terminate()


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction. It commits when its block ends, and rolls back when the block raises.
    `raw`: its connection."""

    raw: Raw


class Database:
    """Two pools of at most `pool_size` connections, one of them for statements that are repeated,
    and connections outside of them for those that hold a lock or listen.

    `search_path`: schemas in which tables are looked up first, before those of the server's own
    setting.

    LedgerUnavailable: the URL is none of a PostgreSQL database."""

    def __init__(
        self,
        url: str,
        application_name: str,
        pool_size: int = 8,
        deadlines: Deadlines | None = None,
        search_path: str = "",
    ) -> None:
        self._search_path = search_path
        self._url = plain_database_url(checked_url(url))
        self.deadlines = deadlines or Deadlines()
        self._application_name = application_name
        self._pool_size = pool_size
        # asyncpg's, by whether plans are kept; made with their first use, since they belong to an
        # event loop
        self._pools: dict[bool, Any] = {}
        self._identity = ""
        self._replaced = ""

    @property
    def url(self) -> str:
        """With the password."""
        return async_database_url(self._url)

    @property
    def identity(self) -> str:
        """Which database the first connection has found; "" before that, or where the server does
        not tell it."""
        return self._identity

    @property
    def replaced(self) -> str:
        """Once a connection has found another database than the first one did: a line that says so.
        "" until then."""
        return self._replaced

    @property
    def shown(self) -> str:
        """The address without the password."""
        return shown_database_url(self._url)

    async def close(self) -> None:
        """Connections in use are waited for `CLOSE_TIMEOUT_S`, then cut."""
        with suppress(TimeoutError):  # by then the pools have cut them
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*[pool.close() for pool in self._pools.values()])

    @asynccontextmanager
    async def transaction(
        self, *, patient: bool = False, repeated: bool = False
    ) -> AsyncIterator[Transaction]:
        """Opens a transaction. Every error of the driver is raised as one of `errors`. `patient`:
        its statements have the time limit of a long read, and the time between them has no limit.
        `repeated`: as of `reading`."""
        async with self._connection(repeated) as raw, _opened(raw.transaction()):
            if patient:
                await raw.execute(_NO_HURRY)
            yield Transaction(self._patient(raw) if patient else raw)

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Transaction]:
        """A read-only transaction in which all statements see what was committed when the first
        query began."""
        async with (
            self._connection() as raw,
            _opened(raw.transaction(isolation="repeatable_read", readonly=True)),
        ):
            await raw.execute(_NO_HURRY)
            yield Transaction(self._patient(raw))

    @asynccontextmanager
    async def reading(self, *, patient: bool = False, repeated: bool = False) -> AsyncIterator[Raw]:
        """The driver outside of a transaction: every statement sees what is committed when it
        starts. `patient`: each may take as long as one of a long read. `repeated`: statements keep
        their plans. Each must find its rows by an index, beginning with its parameters."""
        async with self._connection(repeated) as raw:
            yield self._patient(raw) if patient else raw

    def _patient(self, raw: Raw) -> Raw:
        return Patient(raw, self.deadlines.fetch_s)

    @asynccontextmanager
    async def _connection(self, repeated: bool = False) -> AsyncIterator[Any]:
        """One of a pool, closed instead of returned after an error that leaves its state
        unknown."""
        try:
            pool = self._pools.get(repeated) or await self._new_pool(repeated)
            raw = await self._acquired(pool)
            try:
                yield raw
            except BaseException as error:
                # One that was cut has left the pool: the driver refuses to be asked about it, and
                # its refusal must not replace `error`, least of all a cancellation.
                with suppress(InterfaceError):
                    if raw.is_closed() or not _answered(error):
                        raw.terminate()
                raise
            finally:
                await pool.release(raw)
        except DATABASE_ERRORS as error:
            raise translate(error) from error

    async def _new_pool(self, repeated: bool) -> Any:
        plans = _REPEATED if repeated else _PLANNED

        async def connected(_url: None, **options: Any) -> Raw:
            """As the pool calls it: without a URL of its own, with its event loop and classes."""
            try:
                return await self._connect(self.deadlines.call_s, plans, **options)
            except (TimeoutError, ValueError) as error:
                # a deadline other than that of the wait for a free one; a wrong URL
                raise translate(error) from error

        pool: Any = asyncpg.create_pool(  # type: ignore[no-untyped-call]
            connect=connected,
            reset=_left_as_it_is,
            min_size=0,
            max_size=self._pool_size,
            max_queries=math.inf,
            max_inactive_connection_lifetime=IDLE_S,
        )
        self._pools[repeated] = pool
        await pool
        return pool

    async def _acquired(self, pool: Any) -> Any:
        try:
            # not the pool's own deadline, which makes a task of each wait
            async with asyncio.timeout(self.deadlines.call_s):
                return await pool.acquire()
        except TimeoutError as error:
            if error.errno is not None:  # the network's own
                raise
            raise DeadlineExceeded("database: no connection in time") from error

    async def dedicated(self, deadline_s: float | None = None) -> Raw:
        """A connection that belongs to the caller alone. `deadline_s`: of each call; None: the
        caller sets deadlines himself."""
        try:
            return await self._connect(deadline_s, _PLANNED)
        except (*DATABASE_ERRORS, ValueError) as error:
            raise translate(error) from error

    async def _connect(
        self, deadline_s: float | None, plans: Mapping[str, str], **options: Any
    ) -> Raw:
        connection: Any = await asyncpg.connect(  # type: ignore[no-untyped-call]
            self._url,
            **options,
            timeout=min(CONNECT_TIMEOUT_S, self.deadlines.call_s),
            command_timeout=deadline_s,
            server_settings={
                "application_name": self._application_name,
                "timezone": "UTC",
                **({"search_path": self._search_path} if self._search_path else {}),
                **plans,
                "jit": "off",
                # A server that lost us must not keep our locks until the kernel's two hours are
                # over.
                "tcp_keepalives_idle": "5",
                "tcp_keepalives_interval": "2",
                "tcp_keepalives_count": "3",
                "tcp_user_timeout": "11000",
                # The statements of a process that was killed would run to their end.
                "client_connection_check_interval": "5000",
                **(
                    {}
                    if deadline_s is None
                    else {"idle_in_transaction_session_timeout": f"{deadline_s * 1000:.0f}"}
                ),
            },
        )
        _keep_alive(connection._transport.get_extra_info("socket"))
        try:
            await self._recognise(connection)
        except BaseException:
            connection.terminate()
            raise
        return cast(Raw, connection)

    async def _recognise(self, connection: Any) -> None:
        """LedgerUnavailable: this is another database than the one that was found first. It may be
        as good, but what we remember of the other one is not true of it."""
        found = await _identity_of(connection)
        if not found or (not self._identity and found.endswith("/")):
            return  # not told, or no ledger in it yet: it is about to be made
        self._identity = self._identity or found
        if found != self._identity:
            self._replaced = another_database(self._identity, found)
            raise LedgerUnavailable(self._replaced)


def _keep_alive(connected: socket.socket) -> None:
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return  # on one machine the kernel reports a closed peer at once
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def checked_url(url: str) -> str:
    """`postgresql://` with or without a driver's name. LedgerUnavailable: it is neither."""
    try:
        checked = async_database_url(url)
        _ = urlsplit(checked).port  # raises where it is none
    except ValueError:
        raise LedgerUnavailable(
            "database: expected a URL postgresql://user:password@host:port/name"
        ) from None
    return checked


async def _identity_of(connection: Any) -> str:
    try:
        row = await connection.fetchrow(_IDENTITY, timeout=CONNECT_TIMEOUT_S)
    except asyncpg.InsufficientPrivilegeError:
        # a managed server that keeps its control file to itself
        return ""
    return str(row[0]) if row is not None else ""


@asynccontextmanager
async def _opened(transaction: Any) -> AsyncIterator[None]:
    """Not the driver's own block: after an error that leaves the connection's state unknown nothing
    more is sent over it."""
    await transaction.start()
    try:
        yield
    except BaseException as error:
        if _answered(error):
            with suppress(*DATABASE_ERRORS):  # the connection is lost, and the transaction with it
                await transaction.rollback()
        raise
    await transaction.commit()


async def _left_as_it_is(_connection: Any) -> None:
    """What a connection needs before its next user: nothing, since settings are made in
    transactions only."""


def _answered(error: BaseException) -> bool:
    """Whether the server reported the error, or our own code raised it between two calls: nothing
    is under way then."""
    return isinstance(error, LedgerError) or reported(error)
