"""One session advisory lock per partition group: the polite half of having one writer a stream.

The lock keeps two owners from fighting; it is not what makes the ledger safe (the epoch in each
stream's head is). So a new owner waits for the old one only so long, and then raises the epoch
whether or not it has the lock: the old one's next commit is fenced. The lock lives as long as its
connection, which has its own heartbeat: an owner that cannot reach the database any more must know
before another one starts. A server that is frozen closes nothing; the heartbeat that it does not
answer in time is how its loss is noticed.

A holder that is frozen (SIGSTOP, a paused machine) keeps its connection, and so the lock. A process
that waits for the lock sees in the database that the heartbeat is missing (`end_frozen`), and ends
that connection. What the holder sends when it goes on is refused by the broker or the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS, translate
from wharfinger.runtime.logs import get_logger

HEARTBEAT_S = 1.0
HEARTBEAT_TIMEOUT_S = 5.0
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
    """Made by `ask`. `held`: we have it now. `gone`: the connection that held it, or waited for it,
    is lost."""

    def __init__(
        self,
        group: str,
        raw: Raw,
        on_lost: Callable[[], object] | None = None,
        timeout_s: float = HEARTBEAT_TIMEOUT_S,
    ) -> None:
        self.group = group
        self.held = asyncio.Event()
        self.gone = asyncio.Event()
        self._raw = raw
        self._on_lost = on_lost
        self._timeout_s = timeout_s
        self._released = False
        raw.add_termination_listener(self._lose)
        self._task = asyncio.create_task(self._hold(), name=f"partition-lock-{group}")

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
        """Let go, by closing the connection: there is no state in which the lock could outlive
        it."""
        self._released = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.held.clear()
        try:
            await self._raw.close(timeout=self._timeout_s)
        except (*DATABASE_ERRORS, TimeoutError):
            self._raw.terminate()

    async def _hold(self) -> None:
        try:
            await self._raw.execute("select pg_advisory_lock($1)", lock_key(self.group))
            self.held.set()
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                async with asyncio.timeout(self._timeout_s):
                    await self._raw.execute("select 1")
        except DATABASE_ERRORS as error:
            log.warning("partition_lock.lost", group=self.group, why=str(translate(error)))
            self._raw.terminate()
            self._lose()

    def _lose(self, _connection: object = None) -> None:
        if self._released or self.gone.is_set():
            return
        self.held.clear()
        self.gone.set()
        if self._on_lost is not None:
            self._on_lost()


async def ask(
    database: Database, group: str, on_lost: Callable[[], object] | None = None
) -> PartitionLock:
    """Stand in the queue for the lock of `group`; `wait` says when it is ours."""
    return PartitionLock(group, await database.dedicated(), on_lost, database.deadlines.lock_s)


@asynccontextmanager
async def holding(database: Database, group: str, service: str) -> AsyncIterator[PartitionLock]:
    """While the lock of `group` is ours, or was until its connection was lost. A holder that is
    frozen is ended. `service`: who waits, for the log. Transient: the database is away."""
    lock = await ask(database, group)
    try:
        if not await lock.wait(TRY_S):
            log.info("lock.waits", service=service, group=group, why="another process holds it")
            while not lock.lost:
                await end_frozen(database, group)
                if await lock.wait(TRY_S):
                    break
        yield lock
    finally:
        await asyncio.shield(lock.release())


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
