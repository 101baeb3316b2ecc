"""A connection of the pool is as good as new for its next user, however its last call ended."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from tests.counter import Writer, withdrawn
from tests.patience import eventually, in_patience

from wharfinger.runtime.ledger import Ledger, LedgerError, audit_verify
from wharfinger.runtime.ledger.database import Transaction

pytestmark = pytest.mark.integration

CANCELLATIONS = 25

REFUSED = "insert into stream select * from stream"


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """With one connection, so that whatever is done next is done on the same one."""
    ledger = await Ledger.open(database_url, "tests-connections", pool_size=1)
    await ledger.ensure_streams(["fleet/0"])
    yield ledger
    await ledger.close()


async def refused_by_the_driver(ledger: Ledger) -> None:
    """Prepared, and never executed: the argument is none that the driver can send."""
    async with ledger.database.reading() as raw:
        await raw.fetch("select name from stream where id = $1", "no number")


async def refused_by_the_server(ledger: Ledger) -> None:
    async with ledger.database.reading() as raw:
        await raw.fetch("select name from stream where 1 / (id - id) = 1")


async def refused_within_a_transaction(ledger: Ledger) -> None:
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute(REFUSED)


async def left_by_ourselves(ledger: Ledger) -> None:
    async with ledger.database.reading() as raw:
        await raw.fetch("select name from stream")
        raise LedgerError("not what we wanted")


@pytest.mark.parametrize(
    "failing",
    [refused_by_the_driver, refused_by_the_server, refused_within_a_transaction, left_by_ourselves],
)
async def test_after_a_call_that_failed_the_next_one_begins_afresh(
    ledger: Ledger, failing: Callable[[Ledger], Awaitable[None]]
) -> None:
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    for number in range(3):
        with pytest.raises(LedgerError):
            await failing(ledger)
        assert (await audit_verify(ledger)).ok
        with pytest.raises(LedgerError):
            await failing(ledger)
        assert (
            await ledger.commit([writer.step([withdrawn(number)])], writer.events)
        ).committed == {"fleet/0"}
    assert await ledger.heads("fleet/") == [writer.head]


async def test_after_a_call_that_was_cancelled_the_next_one_begins_afresh(ledger: Ledger) -> None:
    """At any moment of reading, committing and verifying; what was cut off either took place whole
    or not at all."""
    chance = random.Random(20261122)
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    for number in range(CANCELLATIONS):
        round_ = writer.step([withdrawn(number)])
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: ledger.known({"fleet/0": [withdrawn(n).id for n in range(number + 1)]}),  # noqa: B023 (awaited here)
            lambda: ledger.commit([round_], writer.events),  # noqa: B023
            lambda: audit_verify(ledger),
        ]
        under_way = asyncio.ensure_future(chance.choice(calls)())
        await asyncio.sleep(chance.random() * 0.02)
        under_way.cancel()
        await asyncio.gather(under_way, return_exceptions=True)
        assert (await audit_verify(ledger)).ok
        assert (await ledger.commit([round_], writer.events)).committed == {"fleet/0"}
    assert (await audit_verify(ledger)).ok
    assert await ledger.heads("fleet/") == [writer.head]


@pytest.mark.parametrize("transacted", [False, True])
async def test_a_cancellation_is_not_lost_where_the_connection_is(
    ledger: Ledger, database_url: str, transacted: bool
) -> None:
    """Both at one moment, as where a service stops what it does because its lock went with the same
    server."""
    working = asyncio.Event()
    block = ledger.database.transaction if transacted else ledger.database.reading

    def cancelled(_connection: object) -> None:
        work.cancel()

    async def worked() -> None:
        async with block() as opened:
            raw = opened.raw if isinstance(opened, Transaction) else opened
            raw.add_termination_listener(cancelled)
            working.set()
            await raw.fetch("select pg_sleep(600)")

    work = asyncio.create_task(worked())
    await in_patience(working.wait())
    other = await Ledger.open(database_url, "tests-other")
    try:
        async with other.database.reading() as raw:
            while not work.done():
                await raw.fetch(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and application_name = 'tests-connections'"
                )
                await asyncio.sleep(0)
    finally:
        await other.close()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await ledger.heads("fleet/")


ENDLESS = """
import asyncio, sys
from wharfinger.runtime.ledger import Ledger

async def run():
    ledger = await Ledger.open(sys.argv[1], sys.argv[2])
    async with ledger.database.reading(patient=True) as raw:
        await raw.fetch("select pg_sleep(100000)")

asyncio.run(run())
"""


async def test_a_statement_of_a_process_that_was_killed_is_ended(
    ledger: Ledger, database_url: str
) -> None:
    """The server looks every few seconds whether its client is still there. Readers that were
    killed with a long statement would keep a processor busy each."""
    name = f"tests-killed-{random.randrange(2**40)}"

    async def running() -> int:
        async with ledger.database.reading() as raw:
            found = await raw.fetchrow(
                "select count(*) from pg_stat_activity "
                "where application_name = $1 and query like '%pg_sleep(100000)%'",
                name,
            )
        assert found is not None
        return int(found[0])

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDLESS, database_url, name
    )
    try:
        await eventually(running)
    finally:
        process.kill()
        await process.wait()

    async def ended() -> bool:
        return not await running()

    await eventually(ended)
