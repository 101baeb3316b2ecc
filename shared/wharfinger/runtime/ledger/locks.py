"""One session advisory lock per partition group: the polite half of having one writer a stream.

The lock keeps two owners from fighting; it is not what makes the ledger safe (the epoch in each
stream's head is). So a new owner waits for the old one only so long, and then raises the epoch
whether or not it has the lock: the old one's next commit is fenced. A lock lives as long as its
connection, which has its own heartbeat: an owner that cannot reach the database any more must know
before another one starts. A server that is frozen closes nothing; the heartbeat that it does not
answer in time is how its loss is noticed.

The locks of a process that were free when it asked for them share one connection and its heartbeat;
they are lost together. A lock that another process holds is waited for in the server's queue, on a
connection of its own, and stays on that.

A holder that is frozen (SIGSTOP, a paused machine) keeps its connection, and so its locks. A
process that waits for one sees in the database that the heartbeat is missing (`end_frozen`), and
ends that connection. What the holder sends when it goes on is refused by the broker or the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, LedgerError, translate
from wharfinger.runtime.logs import get_logger

T = TypeVar("T")

HEARTBEAT_S = 1.0
TRY_S = 2.0
"""So often who waits looks whether the holder is frozen."""

# An advisory lock of one bigint stands in pg_locks as two halves.
_END_FROZEN = """
select a.pid, pg_terminate_backend(a.pid) from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select oid from pg_database where datname = current_database())
    and l.classid::bigint = ($1::bigint >> 32) & 4294967295
    and l.objid::bigint = $1::bigint & 4294967295
    and a.state_change < clock_timestamp() - make_interval(secs => $2)
"""

log = get_logger(__name__)


class PartitionLock:
    """Made by `Locks.ask`. `held`: we have it now. `gone`: the connection that held it, or waited
    for it, is lost."""

    def __init__(self, group: str, on_lost: Callable[[], object] | None = None) -> None:
        self.group = group
        self.held = asyncio.Event()
        self.gone = asyncio.Event()
        self.session: Session | None = None
        """Whose connection holds it or waits for it; None: neither yet, or not any more."""
        self._on_lost = on_lost

    @property
    def lost(self) -> bool:
        return self.gone.is_set()

    async def wait(self, timeout_s: float) -> bool:
        """Whether we hold it within `timeout_s`. If not we stay in the queue, and hold it as soon
        as we may."""
        either = [asyncio.create_task(self.held.wait()), asyncio.create_task(self.gone.wait())]
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in either:
                task.cancel()
        return self.held.is_set() and not self.lost

    async def release(self) -> None:
        """Let go of it, or leave the queue. Where the server does not confirm that, the connection
        is closed, and with it all locks that it holds."""
        if self.session is not None:
            await _to_its_end(self.session.release(self))

    def lose(self) -> None:
        self.session = None
        self.held.clear()
        self.gone.set()
        if self._on_lost is not None:
            self._on_lost()


class Locks:
    """The locks of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._shared: Session | None = None
        self._asking = asyncio.Lock()

    async def ask(self, group: str, on_lost: Callable[[], object] | None = None) -> PartitionLock:
        """Take the lock of `group`, or stand in the queue for it; `wait` says when it is ours.
        Transient: the database is away."""
        lock = PartitionLock(group, on_lost)
        try:
            async with self._asking:
                shared = self._shared
                if shared is None or shared.ended:
                    shared = self._shared = await self._session()
                if not await _to_its_end(shared.take(lock)):
                    if shared.holds_any or shared.ended:
                        (await self._session()).queue(lock)
                    else:
                        self._shared = None
                        shared.queue(lock)
        except BaseException:
            await lock.release()
            raise
        return lock

    @asynccontextmanager
    async def holding(self, group: str, service: str) -> AsyncIterator[PartitionLock]:
        """While the lock of `group` is ours, or was until its connection was lost. A holder that is
        frozen is ended. `service`: who waits, for the log. Transient: the database is away."""
        lock = await self.ask(group)
        try:
            if not await lock.wait(TRY_S):
                log.info("lock.waits", service=service, group=group, why="another process holds it")
                while not lock.lost:
                    await end_frozen(self._database, group)
                    if await lock.wait(TRY_S):
                        break
            yield lock
        finally:
            await asyncio.shield(lock.release())

    async def _session(self) -> Session:
        return Session(await self._database.dedicated(), self._database.deadlines.lock_s)


class Session:
    """A connection that holds locks, or waits for one. Its locks are lost with the first call that
    fails. `timeout_s`: of each call, but for the wait for a lock. `ended`: it takes none any
    more."""

    def __init__(self, raw: Raw, timeout_s: float) -> None:
        self.ended = False
        self._raw = raw
        self._timeout_s = timeout_s
        self._locks: dict[str, PartitionLock] = {}
        self._one_call = asyncio.Lock()
        raw.add_termination_listener(lambda _: self._end("the connection was closed"))
        self._task = asyncio.create_task(self._beat(), name="partition-locks")

    @property
    def holds_any(self) -> bool:
        return bool(self._locks)

    async def take(self, lock: PartitionLock) -> bool:
        """Whether the lock was free, and is ours now. The server would give a session once more
        what it has already; here that is not free. Transient: the connection is lost."""
        async with self._one_call:
            if self.ended or lock.group in self._locks:
                return False
            taken = await self._ask("select pg_try_advisory_lock($1)", lock)
            if taken:
                self._put(lock)
                lock.held.set()
            return taken

    def queue(self, lock: PartitionLock) -> None:
        """Wait for the lock. From then on the connection is for this one alone."""
        self._put(lock)
        self._task.cancel()
        self._task = asyncio.create_task(self._wait(lock), name=f"partition-lock-{lock.group}")

    async def release(self, lock: PartitionLock) -> None:
        """With the last lock the connection is closed."""
        if not lock.held.is_set():
            self._task.cancel()  # it waits, in a call that has no end of its own
        async with self._one_call:
            if lock.session is not self:
                return  # lost meanwhile
            del self._locks[lock.group]
            lock.session = None
            lock.held.clear()
            if self._locks:
                with suppress(LedgerError):  # its connection is closed then
                    await self._ask("select pg_advisory_unlock($1)", lock)
                return
            self.ended = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._raw.close(timeout=self._timeout_s)
        except (*DATABASE_ERRORS, TimeoutError):
            self._raw.terminate()

    def _put(self, lock: PartitionLock) -> None:
        self._locks[lock.group] = lock
        lock.session = self

    async def _ask(self, statement: str, lock: PartitionLock) -> bool:
        try:
            async with asyncio.timeout(self._timeout_s):
                row = await self._raw.fetchrow(statement, lock_key(lock.group))
        except DATABASE_ERRORS as error:
            self._end(str(translate(error)))
            raise translate(error) from error
        return bool(row and row[0])

    async def _wait(self, lock: PartitionLock) -> None:
        try:
            await self._raw.execute("select pg_advisory_lock($1)", lock_key(lock.group))
        except DATABASE_ERRORS as error:
            self._end(str(translate(error)))
            return
        lock.held.set()
        await self._beat()

    async def _beat(self) -> None:
        try:
            while not self.ended:
                await asyncio.sleep(HEARTBEAT_S)
                async with self._one_call, asyncio.timeout(self._timeout_s):
                    await self._raw.execute("select 1")
        except DATABASE_ERRORS as error:
            self._end(str(translate(error)))

    def _end(self, why: str) -> None:
        if self.ended:
            return
        self.ended = True
        locks, self._locks = list(self._locks.values()), {}
        for lock in locks:
            log.warning("partition_lock.lost", group=lock.group, why=why)
            lock.lose()
        self._raw.terminate()


async def _to_its_end(call: Coroutine[object, object, T]) -> T:
    """The result of the call, which a cancellation does not interrupt: nothing would tell what
    became of it at the server. It has a deadline of its own."""
    task = asyncio.ensure_future(call)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()  # it is looked at
        raise asyncio.CancelledError
    return task.result()


async def end_frozen(database: Database, group: str) -> bool:
    """Whether the lock of `group` was held by a connection without a heartbeat, which is ended now.
    It was silent for twice the time after which a holder that runs gives up."""
    after_s = 2 * database.deadlines.lock_s
    async with database.reading() as raw:
        ended = await raw.fetch(_END_FROZEN, lock_key(group), after_s)
    for pid, _ in ended:
        log.warning("partition_lock.holder_frozen", group=group, backend=pid, silent_s=after_s)
    return bool(ended)


def lock_key(group: str) -> int:
    """Advisory locks are known by a signed 64-bit number; the name is hashed together with what it
    is a name of."""
    digest = hashlib.blake2b(
        b"wharfinger partition group\x00" + group.encode(), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big", signed=True)
