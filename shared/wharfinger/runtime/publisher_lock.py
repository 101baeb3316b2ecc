"""The lock of the one process that writes to the topics: held by the publisher that leads, and by
a process that makes a topic again, so that no publisher writes to it before it is known to be
another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from wharfinger.runtime.ledger import Ledger, PartitionLock, Transient

PUBLISHER = "publisher"
TRY_S = 2.0

log = structlog.get_logger()


async def publisher_lock(ledger: Ledger, prefix: str, service: str) -> PartitionLock:
    """Once it is ours: a holder that is frozen is ended, a database that is away is waited for.
    `prefix`: of the plane's topics. `service`: who waits, for the log."""
    while True:
        try:
            lock = await ledger.partition_lock(f"{PUBLISHER}/{prefix}")
            try:
                if await _wait_for(ledger, lock, service):
                    return lock
            except BaseException:
                await asyncio.shield(lock.release())
                raise
        except Transient as error:
            log.warning("ledger.away", service=service, why=str(error))
            await asyncio.sleep(error.retry_after_s)


@asynccontextmanager
async def without_publisher(ledger: Ledger, prefix: str) -> AsyncIterator[PartitionLock]:
    """While no publisher leads. One that does is waited for: it ends when it sees that a topic is
    gone."""
    lock = await publisher_lock(ledger, prefix, "topics")
    try:
        yield lock
    finally:
        await asyncio.shield(lock.release())


async def _wait_for(ledger: Ledger, lock: PartitionLock, service: str) -> bool:
    """Whether we hold it; False: the connection that waited is lost."""
    if await lock.wait(TRY_S):
        return True
    log.info("publisher_lock.waits", service=service, why="another process holds it")
    while not lock.lost:
        await ledger.end_frozen(lock.group)
        if await lock.wait(TRY_S):
            return True
    return False
