"""The locks of partition groups on a real database: one holder each, also while processes come, go,
are cancelled and lose their connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.patience import PATIENCE_S, eventually

from wharfinger.runtime.ledger import Ledger, PartitionLock
from wharfinger.runtime.ledger.locks import HEARTBEAT_S

pytestmark = pytest.mark.integration

HOLDERS = (
    "from pg_locks l join pg_stat_activity a using (pid) "
    "where l.locktype = 'advisory' and a.datname = current_database()"
)
GROUPS = ("fleet/0", "fleet/1", "cluster/0")


@pytest_asyncio.fixture
async def other(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests-other")
    yield opened
    await opened.close()


async def connections(ledger: Ledger) -> int:
    """How many hold a lock or wait for one."""
    async with ledger.database.reading() as raw:
        found = await raw.fetchrow(f"select count(distinct l.pid) {HOLDERS}")
    assert found is not None
    return int(found[0])


async def cut(ledger: Ledger, one: str = "true") -> None:
    """Ends the connections that hold a lock, of those for which `one` is true."""
    async with ledger.database.reading() as raw:
        await raw.execute(
            f"select pg_terminate_backend(pid) from (select distinct a.pid {HOLDERS} "
            f"and l.granted and {one}) held"
        )


async def held(ledger: Ledger, *groups: str) -> list[PartitionLock]:
    locks = [await ledger.partition_lock(group) for group in groups]
    for lock in locks:
        assert await lock.wait(PATIENCE_S)
    return locks


async def test_a_partition_lock_has_one_holder_and_passes_on(ledger: Ledger) -> None:
    first = await ledger.partition_lock("fleet/0")
    assert await first.wait(PATIENCE_S)
    second = await ledger.partition_lock("fleet/0")
    assert not await second.wait(0.2)
    other = await ledger.partition_lock("fleet/1")
    assert await other.wait(PATIENCE_S)
    await first.release()
    assert await second.wait(PATIENCE_S)  # it had stayed in the queue
    await second.release()
    await other.release()


async def test_a_lost_connection_is_a_lost_lock(ledger: Ledger) -> None:
    told = asyncio.Event()
    lock = await ledger.partition_lock("fleet/0", on_lost=told.set)
    assert await lock.wait(PATIENCE_S)
    await cut(ledger)
    async with asyncio.timeout(PATIENCE_S):
        await told.wait()
    assert lock.lost
    assert not await lock.wait(0.1)
    again = await ledger.partition_lock("fleet/0")
    assert await again.wait(PATIENCE_S)
    await again.release()
    await lock.release()


async def test_the_locks_of_a_process_share_a_connection_while_it_has_one(
    ledger: Ledger, other: Ledger
) -> None:
    ours = await held(ledger, *GROUPS)
    assert await connections(ledger) == 1
    (theirs,) = await held(other, "publisher")
    assert await connections(ledger) == 2
    for lock in ours:
        await lock.release()
    assert await connections(ledger) == 1
    (again,) = await held(ledger, "fleet/0")
    assert await connections(ledger) == 2
    for lock in (theirs, again):
        await lock.release()
    assert await connections(ledger) == 0


async def test_a_released_lock_passes_on_and_the_others_stay(ledger: Ledger, other: Ledger) -> None:
    first, second = await held(ledger, "fleet/0", "fleet/1")
    waits = [await other.partition_lock(group) for group in ("fleet/0", "fleet/1")]
    await first.release()
    assert await waits[0].wait(PATIENCE_S)
    await asyncio.sleep(HEARTBEAT_S)
    assert not waits[1].held.is_set()
    assert second.held.is_set()
    assert not second.lost
    await second.release()
    assert await waits[1].wait(PATIENCE_S)
    for lock in waits:
        await lock.release()
    assert await connections(ledger) == 0


async def test_all_locks_of_a_lost_connection_are_lost_and_those_of_others_are_not(
    ledger: Ledger, other: Ledger
) -> None:
    ours, theirs = await held(ledger, "fleet/0", "fleet/1"), await held(other, "cluster/0")
    await cut(ledger, "a.application_name = 'tests'")
    await eventually(lambda: all(lock.lost for lock in ours))
    assert not theirs[0].lost
    again = await held(ledger, "fleet/0", "fleet/1")
    for lock in (*ours, *theirs, *again):
        await lock.release()
    assert await connections(ledger) == 0


@pytest.mark.parametrize("seed", range(6))
async def test_no_lock_has_two_holders_while_requests_are_cancelled_and_connections_cut(
    ledger: Ledger, other: Ledger, seed: int
) -> None:
    """What `ask` gave is held, waits, or is lost; two that are held are never of one group. At the
    end nothing is left at the server."""
    chosen = random.Random(seed)
    names = {"tests": ledger, "tests-other": other}
    asked: list[tuple[str, PartitionLock]] = []

    async def ask(process: str, group: str) -> None:
        asked.append((process, await names[process].partition_lock(group)))

    async def ask_and_be_cancelled(process: str, group: str) -> None:
        asking = asyncio.create_task(ask(process, group))
        for _ in range(chosen.randrange(12)):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    async def lose(process: str) -> None:
        held = [lock for name, lock in asked if name == process and lock.held.is_set()]
        await cut(ledger, f"a.application_name = '{process}'")
        await eventually(lambda: all(lock.lost for lock in held))

    for _ in range(60):
        process, group, what = chosen.choice([*names]), chosen.choice(GROUPS), chosen.random()
        if what < 0.4:
            await ask(process, group)
        elif what < 0.55:
            await ask_and_be_cancelled(process, group)
        elif what < 0.92 and asked:
            await asked.pop(chosen.randrange(len(asked)))[1].release()
        elif what >= 0.96:
            await lose(process)
        holders = [lock.group for _, lock in asked if lock.held.is_set()]
        assert len(holders) == len(set(holders))
        asked = [(name, lock) for name, lock in asked if not lock.lost]
    while asked:
        await eventually(lambda: any(lock.held.is_set() or lock.lost for _, lock in asked))
        for one in [x for x in asked if x[1].held.is_set() or x[1].lost]:
            asked.remove(one)
            await one[1].release()
    assert await connections(ledger) == 0
