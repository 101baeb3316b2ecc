"""Snapshots made beside a running stage: a restart begins at them, and nobody waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.counter import Counter, Counts, withdrawn

from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, audit_verify, wall_clock
from wharfinger.runtime.ledger.follower import Cadence
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.replay import replay
from wharfinger.runtime.snapshot_keeper import SnapshotKeeper
from wharfinger.runtime.stage_loop import Message, StageLoop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TOPIC = "wharfinger.bindings"
REST_S = 0.05


EVERY = 10**6
"""Never reached: so each round is one input and one decision, two rows."""


class OneStream:
    prefix = "fleet/"

    def group_of(self, stream: str) -> int:
        return int(stream.removeprefix("fleet/"))

    def standing(self, group: int) -> Sequence[str]:
        return (f"fleet/{group}",)

    def addressed(self, message: Message) -> Sequence[str] | None:
        return ("fleet/0",)


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests")
    yield opened
    await opened.close()


@asynccontextmanager
async def a_stage(ledger: Ledger) -> AsyncIterator[StageLoop[Counts]]:
    loop = StageLoop("tests", Counter(EVERY), OneStream(), ledger, {TOPIC: 1}, wall_clock, METRICS.of("tests"))
    loop.expect([0])
    await loop.acquire()
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


@asynccontextmanager
async def keeping(
    ledger: Ledger,
    owner: StageLoop[Counts],
    every_rounds: int,
    of_profile: Callable[[str], Counter] = Counter.of_profile,
) -> AsyncIterator[SnapshotKeeper[Counts]]:
    keeper = SnapshotKeeper(ledger, of_profile, owner, Cadence(2 * every_rounds, 4 * every_rounds), REST_S)
    keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()


async def decided(loop: StageLoop[Counts], first: int, rounds: int) -> None:
    """One message a round."""
    for number in range(first, first + rounds):
        await loop.offer([Message(TOPIC, 0, number, withdrawn(number))])
        await until(lambda: head(loop).round > number)  # noqa: B023  (asked before the next one)


def head(loop: StageLoop[Counts]) -> Head:
    return loop.heads()["fleet/0"]


async def snapshot_of(ledger: Ledger, number: int) -> bytes:
    """The digest of the snapshot of round `number`, once it is the newest."""
    while True:
        found = await ledger.latest_snapshot("fleet/0")
        if found is not None and found.round == number:
            return found.digest
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.002)


async def test_a_restart_begins_at_the_snapshot_and_the_chain_vouches_for_it(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
        await decided(loop, 0, 33)
        digest = await snapshot_of(ledger, 30)
        await decided(loop, 33, 3)
        assert head(loop).snapshot == digest  # the first round after it was made learned of it, the next carried it
    with capture_logs() as logs:
        async with a_stage(ledger) as loop:
            await decided(loop, 36, 2)
            assert head(loop).snapshot == digest
    assert [line["rounds"] for line in logs if line["event"] == "stream.recovered"] == [6]
    whole = await replay(ledger, {"fleet/": Counter.of_profile})
    assert (whole.rounds, whole.inputs, whole.divergences) == (38, 38, ())
    late = await replay(ledger, {"fleet/": Counter.of_profile}, from_round=31)
    assert (late.rounds, late.divergences) == (8, ())
    verified = await audit_verify(ledger)
    assert verified.ok, verified.first_bad


async def test_only_what_has_enough_rounds_is_due_and_again_after_as_many(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
        await decided(loop, 0, 9)
        await asyncio.sleep(REST_S * 6)
        assert await ledger.latest_snapshot("fleet/0") is None
        await decided(loop, 9, 1)
        await snapshot_of(ledger, 10)
        await decided(loop, 10, 9)
        await asyncio.sleep(REST_S * 6)
        await snapshot_of(ledger, 10)
        await decided(loop, 19, 4)
        await snapshot_of(ledger, 20)


class Slow(Counter):
    """Deciding anything takes `SLOW_S`, as a large round does."""

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        time.sleep(SLOW_S)
        return super().decide(state, at)

    @classmethod
    def of_profile(cls, text: str) -> Counter:
        return cls(EVERY)


SLOW_S = 0.5


async def test_the_loop_never_waits_for_a_snapshot(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        await decided(loop, 0, 4)
        longest = 0.0
        async with keeping(ledger, loop, 4, Slow.of_profile):
            made = asyncio.create_task(snapshot_of(ledger, 4))
            while not made.done():
                before = time.perf_counter()
                await asyncio.sleep(0.01)
                longest = max(longest, time.perf_counter() - before)
        assert longest < SLOW_S / 2


async def test_a_busy_stage_is_left_alone(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        await decided(loop, 0, 8)
        async with keeping(ledger, loop, 4, Slow.of_profile):
            end = time.monotonic() + 1.0
            number = 8
            while time.monotonic() < end:  # never at rest for long enough
                await decided(loop, number, 1)
                number += 1
                await asyncio.sleep(REST_S / 10)
            assert await ledger.latest_snapshot("fleet/0") is None


async def test_a_stream_that_cannot_be_decided_again_has_no_snapshot_and_goes_on(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        with capture_logs() as logs:
            async with keeping(ledger, loop, 4, lambda _: Counter(every=2)):
                await decided(loop, 0, 5)
                await until(lambda: any(line["event"] == "snapshot_follower.diverged" for line in logs))
                await decided(loop, 5, 6)
                await asyncio.sleep(REST_S * 6)
        assert await ledger.latest_snapshot("fleet/0") is None
        assert len([line for line in logs if line["event"] == "snapshot_follower.diverged"]) == 1
