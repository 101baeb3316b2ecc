"""Ready means that it moves: what happens to probes, readiness and figures while something does not
go on.

Real broker, real ledger. What is stopped is stopped by a signal or by a decider that waits, never
by the clock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.apps import a_context, until
from tests.apps import running as services_running
from tests.counter import Counter, Counts, Writer, withdrawn
from tests.loops import Acks, a_loop, loop_running, messages
from tests.patience import PATIENCE_S

from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.runtime.backends import CAPABILITIES, Backend
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger.runtime.health import HealthServer, Watched
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.runtime.process_status import Readiness
from wharfinger.runtime.progress import Progress
from wharfinger_publisher.app import PublisherService

pytestmark = pytest.mark.integration


class Held(Counter):
    """Decides nothing until it may. `deciding`: it has begun to."""

    def __init__(self) -> None:
        super().__init__()
        self.deciding = threading.Event()
        self.may = threading.Event()

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        self.deciding.set()
        self.may.wait()
        yield from super().decide(state, at)


def ask(port: int, path: str) -> tuple[int, Readiness]:
    """Asked on the thread of the event loop, which stands still meanwhile."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, msgspec.json.decode(answer.read(), type=Readiness)
    except urllib.error.HTTPError as error:
        return error.code, msgspec.json.decode(error.read(), type=Readiness)


@asynccontextmanager
async def probed(*services: Watched) -> AsyncIterator[int]:
    server = HealthServer(lambda: services)
    yield await server.start()
    await server.stop()


async def test_probes_are_answered_while_the_services_loop_stands_still() -> None:
    async with probed() as port:
        assert ask(port, "/healthz")[0] == 200  # the call blocks the loop that made the server
        assert ask(port, "/readyz")[0] == 503


async def test_a_loop_that_has_stopped_for_good_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with probed() as port:
        monkeypatch.setattr("wharfinger.runtime.health.LOOP_DEAD_S", -1.0)
        assert ask(port, "/healthz")[0] == 503


async def test_the_event_loop_goes_on_while_a_stage_decides(ledger: Ledger) -> None:
    """What lets the decider go on runs on the event loop: a decider on the loop's own thread would
    wait for itself."""
    decider, acks = Held(), Acks()
    async with loop_running(a_loop(ledger, decider), 0) as loop:
        await loop.offer(messages(range(5), acks))
        await until(decider.deciding.is_set)
        assert loop.stalled_s() > 0
        assert loop.oldest_s() > 0
        assert loop.idle_s() == 0
        decider.may.set()
        await until(lambda: len(acks.done) == 5)
        await until(lambda: loop.stalled_s() == 0)
        assert loop.oldest_s() == 0


async def test_a_state_is_looked_at_between_two_rounds(ledger: Ledger) -> None:
    decider, acks = Held(), Acks()
    async with loop_running(a_loop(ledger, decider), 0) as loop:
        await loop.offer(messages(range(5), acks))
        await until(decider.deciding.is_set)
        look = asyncio.create_task(loop.look("fleet/0", lambda state: state.total))
        await asyncio.sleep(0.05)
        assert not look.done()
        decider.may.set()
        assert await look == 5
        assert await loop.look("fleet/1", lambda state: state.total) is None


async def test_requests_that_rounds_left_open_are_reported(ledger: Ledger) -> None:
    """Of all streams together, also by the next owner before its first round, and no more when the
    partitions go."""

    class Leaving(Counter):
        def open_requests(self, state: Counts) -> OpenRequests:
            return OpenRequests(state.total, 1000 * state.total)

    async with loop_running(a_loop(ledger, Leaving()), 0, 1) as loop:
        assert loop.open_requests() == NONE_OPEN
        await loop.offer(messages(range(3)))
        await until(lambda: loop.open_requests() == OpenRequests(3, 3000))
        await loop.offer(messages(range(2), partition=1))
        await until(lambda: loop.open_requests() == OpenRequests(5, 2000))
        await loop.revoke([0])
        assert loop.open_requests() == OpenRequests(2, 2000)
    async with loop_running(a_loop(ledger, Leaving()), 0) as loop:
        assert loop.open_requests() == OpenRequests(3, 3000)


async def test_a_due_time_that_passes_without_a_round_is_a_stall(ledger: Ledger) -> None:
    class Ticking(Held):
        def next_due(self, state: Counts) -> Micros | None:
            return wall_clock() if not state.total else None

    decider = Ticking()
    async with loop_running(a_loop(ledger, decider), 0) as loop:
        await until(decider.deciding.is_set)
        await until(lambda: loop.stalled_s() > 0.1)
        assert loop.oldest_s() == 0  # no message waits
        await loop.offer(messages([1]))
        decider.may.set()
        await until(lambda: loop.stalled_s() == 0)


async def test_partitions_that_go_take_what_waited_with_them(ledger: Ledger) -> None:
    async with loop_running(a_loop(ledger), 0) as loop:
        loop.hold(True)
        await loop.offer(messages(range(3)))
        assert loop.stalled_s() > 0
        await loop.revoke([0])
        assert (loop.stalled_s(), loop.oldest_s()) == (0, 0)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_relay_whose_broker_takes_nothing_is_alive_and_not_ready(
    backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    broker = EmbeddedBroker(tmp_path, die_with_parent=True)
    broker.start()
    try:
        own = replace(
            backend,
            bootstrap=broker.bootstrap,
            capabilities=CAPABILITIES["memory"],
            boot_id=broker.boot_id,
        )
        context = await a_context(own, ledger, topic_prefix)
        context = replace(
            context, settings=context.settings.model_copy(update={"stalled_after_s": 0.5})
        )
        await ledger.ensure_streams(["fleet/0"])
        writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"], Counter())
        publisher = PublisherService(context)
        async with services_running(publisher), probed(publisher) as port:
            assert ask(port, "/readyz")[0] == 200
            assert broker.pid is not None
            with stopped(broker.pid):
                await ledger.commit([writer.step([withdrawn(1)], wall_clock())], writer.events)
                await until(lambda: not publisher.ready())
                status, report = ask(port, "/readyz")
                assert status == 503
                assert report.services["publisher"].stalled_s > 0.5
                assert report.services["publisher"].oldest_s > 0
                assert ask(port, "/healthz")[0] == 200
                assert (await ledger.freshness()).unrelayed.rows > 0
                assert (await ledger.freshness()).oldest_unrelayed_s > 0
            await until(publisher.ready)

            async def relayed() -> bool:
                return (await ledger.freshness()).unrelayed == (0, None)

            await until(relayed)
    finally:
        broker.stop()


async def test_the_ledger_says_how_old_each_streams_newest_snapshot_is(ledger: Ledger) -> None:
    await ledger.ensure_streams(["fleet/0"])
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"], Counter())
    at = wall_clock() - 60_000_000
    await ledger.commit([writer.step([withdrawn(n)], at + n) for n in range(4)], writer.events)
    found = await ledger.freshness()
    assert [(age.stream, age.at) for age in found.snapshots] == [("fleet/0", None)]
    assert found.snapshots[0].rows == 4 + writer.head.seq
    await ledger.write_snapshot("fleet/0", 4, {"all": b"{}"})
    (age,) = (await ledger.freshness()).snapshots
    assert (age.rows, age.at) == (0, at + 3)
    assert ((await ledger.freshness()).snapshot_age_s(age) or 0) >= 59
    assert abs(found.skew_us) < 60_000_000  # one machine, one clock


def test_progress_is_measured_from_the_last_completed_piece_of_work() -> None:
    now = 100.0
    progress = Progress(lambda: now)
    assert progress.stalled_s() == 0
    progress.begin()
    now = 103.0
    progress.begin()  # known already
    assert progress.stalled_s() == 3
    progress.moved(more=True)
    now = 104.0
    assert progress.stalled_s() == 1
    progress.moved(more=False)
    now = 200.0
    assert progress.stalled_s() == 0
