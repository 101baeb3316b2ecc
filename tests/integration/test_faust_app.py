"""Faust apps, the broadcast reader, the producer and topic creation against the broker that is
there."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol import transaction
from tests.patience import PATIENCE_S, eventually, in_patience

from wharfinger.runtime import faust_app as faust_app_module
from wharfinger.runtime import producer as producer_module
from wharfinger.runtime.backends import DURABLE, MEMORY, Backend, BackendError, KafkaSecurity
from wharfinger.runtime.broadcast import BroadcastConsumer, IncomingRecord, TopicShorterError
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger.runtime.faust_app import RawStream, Received, ServiceApp, faust_app, take
from wharfinger.runtime.fetch_pacing import GLANCE_MS
from wharfinger.runtime.processes import free_port
from wharfinger.runtime.producer import idempotent_producer, teach_producer_id_v3
from wharfinger.runtime.send_signals import SendSignals
from wharfinger.runtime.topics import TopicSpec, ensure_topics, partition_for, topic_names

pytestmark = pytest.mark.integration

Handler = Callable[[list[Received]], None]

LATE_S = 2.0
"""How late an answer comes at most that waits for the next rebalance."""


@pytest.fixture
async def topic(backend: Backend, topic_prefix: str) -> str:
    await ensure_topics(backend, [TopicSpec("bindings", 4, "compact")], topic_prefix)
    return f"{topic_prefix}bindings"


def _reading(name: str, backend: Backend, group: str, handle: Handler, *topics: str) -> ServiceApp:
    """An app with one agent that hands each batch to `handle` and acknowledges it when `handle` did
    not raise."""
    app = faust_app(name, backend, group=group)

    async def read(stream: RawStream) -> None:
        async for batch in take(stream, 100):
            handle(batch)
            for received in batch:
                received.ack()

    app.agent(app.bytes_topic(*topics), name=f"{name}-agent")(read)
    return app


async def _started(*apps: ServiceApp) -> None:
    await asyncio.gather(*(app.start() for app in apps))
    await asyncio.gather(*(app.joined() for app in apps))


async def _stopped(*apps: ServiceApp) -> None:
    await asyncio.gather(*(app.stop() for app in apps))


async def _send(
    backend: Backend, topic: str, values: dict[str, bytes | None], partitions: int = 4
) -> None:
    producer = idempotent_producer(backend, client_id="test")
    await producer.start()
    try:
        for key, value in values.items():
            await producer.send_and_wait(
                topic, value, key=key.encode(), partition=partition_for(key, partitions)
            )
    finally:
        await producer.stop()


# topics


async def test_topics_are_created_once_and_their_partitions_are_checked(
    backend: Backend, topic_prefix: str
) -> None:
    specs = [TopicSpec("a", 3, "compact"), TopicSpec("b", 1, "delete", retention_ms=86_400_000)]
    a, b = f"{topic_prefix}a", f"{topic_prefix}b"
    assert await ensure_topics(backend, specs, topic_prefix) == {a: True, b: True}
    assert await ensure_topics(backend, [*specs, TopicSpec("c", 2, "delete")], topic_prefix) == {
        a: False,
        b: False,
        f"{topic_prefix}c": True,
    }
    with pytest.raises(BackendError, match=f"{a} has 3 partitions, 4 expected"):
        await ensure_topics(backend, [TopicSpec("a", 4, "compact")], topic_prefix)
    assert [name for name in await topic_names(backend) if name.startswith(topic_prefix)] == [
        a,
        b,
        f"{topic_prefix}c",
    ]


async def test_a_broker_that_is_not_there_is_one_line(backend: Backend) -> None:
    nowhere = dataclasses.replace(backend, bootstrap=f"127.0.0.1:{free_port()}")
    with pytest.raises(BackendError) as raised:
        await ensure_topics(nowhere, [TopicSpec("a", 1, "delete")])
    assert nowhere.bootstrap in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ["", "a", "default/web", "oslo", "zürich", "名前", "x" * 300])
def test_a_key_lies_where_every_kafka_client_puts_it(key: str) -> None:
    everyone = DefaultPartitioner()
    for count in (1, 4, 7, 64):
        assert partition_for(key, count) == everyone(key.encode(), list(range(count)), [])


def test_a_known_key_keeps_its_partition_for_ever() -> None:
    """Values of the reference implementation: a change here would move every stream to another
    owner."""
    assert [
        partition_for(key, 1 << 31) for key in ("21", "foobar", "a-little-bit-long-string")
    ] == [-973932308 & 0x7FFF_FFFF, -790332482 & 0x7FFF_FFFF, -985981536 & 0x7FFF_FFFF]


# the producer


async def test_an_idempotent_producer_works_on_this_broker(backend: Backend, topic: str) -> None:
    producer = idempotent_producer(backend, client_id="test")
    await producer.start()
    try:
        assert producer._txn_manager is not None
        assert producer._txn_manager.producer_id >= 0
        places = [
            await producer.send_and_wait(topic, b"%d" % n, key=b"k", partition=1) for n in range(5)
        ]
        assert [place.offset for place in places] == [0, 1, 2, 3, 4]
    finally:
        await producer.stop()


def test_the_newer_request_is_taught_once_and_old_brokers_get_the_old_one() -> None:
    assert teach_producer_id_v3()
    assert teach_producer_id_v3()
    request = transaction.InitProducerIdRequest(None, 60_000)  # type: ignore[arg-type]
    versions = [known.API_VERSION for known in transaction.InitProducerIdRequest._CLASSES]
    assert versions == [0, 3]
    assert [request.prepare({22: (0, newest)}).API_VERSION for newest in (1, 5)] == [0, 3]
    assert (
        request.prepare({22: (0, 3)}).encode()
        == b"\x00" + b"\x00\x00\xea\x60" + b"\xff" * 10 + b"\x00"
    )


def test_a_driver_that_moved_its_parts_is_told_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class _Moved:
        class InitProducerIdRequest:
            pass

    monkeypatch.setattr(producer_module, "transaction", _Moved)
    assert not teach_producer_id_v3()


# apps


async def test_an_app_reads_everything_once_with_deletions_and_places(
    backend: Backend, topic: str
) -> None:
    sent: dict[str, bytes | None] = {f"k{n}": b"v%d" % n if n % 5 else None for n in range(60)}
    await _send(backend, topic, sent)
    received: list[Received] = []
    app = _reading("one", backend, f"{topic}-one", received.extend, topic)
    await _started(app)
    try:
        await eventually(lambda: len(received) >= 60)
    finally:
        await _stopped(app)
    assert {(record.key or b"").decode(): record.value for record in received} == sent
    assert all(
        record.partition == partition_for((record.key or b"").decode(), 4) for record in received
    )
    assert len({(record.partition, record.offset) for record in received}) == 60


async def test_several_apps_live_in_one_loop_and_leave_nothing_behind(
    backend: Backend, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counts = [0, 0, 0]

    def counter(index: int) -> Handler:
        def count(batch: list[Received]) -> None:
            counts[index] += len(batch)

        return count

    apps = [_reading(f"s{n}", backend, f"{topic}-s{n}", counter(n), topic) for n in range(3)]
    await _started(*apps)
    try:
        assert all(app.ready for app in apps)
        await _send(backend, topic, {f"k{n}": b"v" for n in range(20)})
        await eventually(lambda: counts == [20, 20, 20])
    finally:
        await _stopped(*apps)
    assert os.listdir(tmp_path) == []


async def test_an_idle_reader_is_woken_by_each_record(backend: Backend, topic: str) -> None:
    """Where a broker does not wake its readers, the producers of the process do: nothing is polled
    for before the test ends."""
    seldom = dataclasses.replace(
        backend.capabilities, idle_poll_ms=600_000 if backend.capabilities.idle_poll_ms else 0
    )
    signals = SendSignals()
    arrived: list[bytes | None] = []
    app = faust_app(
        "woken",
        dataclasses.replace(backend, capabilities=seldom),
        group=f"{topic}-woken",
        signals=signals,
    )

    async def note(stream: RawStream) -> None:
        async for batch in take(stream, 100):
            arrived.extend(record.value for record in batch)

    app.read(topic, agent=note)
    producer = idempotent_producer(backend, client_id="test", sent=signals.sent)
    await _started(app)
    await producer.start()
    try:
        faust_consumer: Any = app.consumer
        faust_consumer._thread._fetches._silent_since -= 1e6
        for n in range(10):
            # compacted: a key is needed
            await producer.send_and_wait(topic, b"%d" % n, key=b"k", partition=n % 4)
            await eventually(lambda: arrived[-1:] == [b"%d" % n])  # noqa: B023 - awaited before the next one
    finally:
        await producer.stop()
        await _stopped(app)


async def test_the_fetch_wait_is_the_backends_own(backend: Backend, topic: str) -> None:
    """With the framework's own long poll the memory broker takes 400 ms and more; `make bench`
    measures the delay."""
    app = _reading("wait", backend, f"{topic}-wait", lambda batch: None, topic)
    await _started(app)
    try:
        faust_consumer: Any = app.consumer
        consumer = faust_consumer._thread._consumer
        paced = backend.capabilities.idle_poll_ms > 0
        assert consumer._fetcher._fetch_max_wait_ms in (
            (GLANCE_MS, 10) if paced else (backend.capabilities.fetch_wait_ms,)
        )
        assert consumer._coordinator._session_timeout_ms == backend.capabilities.session_s * 1000
    finally:
        await _stopped(app)


async def test_what_was_not_acknowledged_comes_again(backend: Backend, topic: str) -> None:
    await _send(backend, topic, {f"k{n}": b"v" for n in range(10)})
    first: list[Received] = []
    app = faust_app("again", backend, group=f"{topic}-again")

    async def hold(stream: RawStream) -> None:
        async for batch in take(stream, 100):
            first.extend(batch)

    app.agent(app.bytes_topic(topic), name="hold")(hold)
    app.conf.stream_wait_empty = False
    await _started(app)
    await eventually(lambda: len(first) == 10)
    await _stopped(app)
    second: list[Received] = []
    app = _reading("again", backend, f"{topic}-again", second.extend, topic)
    await _started(app)
    try:
        await eventually(lambda: len(second) == 10)
    finally:
        await _stopped(app)


async def test_what_was_acknowledged_does_not_come_again(backend: Backend, topic: str) -> None:
    await _send(backend, topic, {"before": b"v"})
    seen: list[Received] = []
    for _ in range(2):
        app = _reading("once", backend, f"{topic}-once", seen.extend, topic)
        await _started(app)
        try:
            await eventually(lambda: len(seen) > 0)
            await asyncio.sleep(0.3)
        finally:
            await _stopped(app)
    assert len(seen) == 1


async def test_two_members_share_the_partitions_and_topics_stay_together(
    backend: Backend, topic_prefix: str
) -> None:
    """A stage joins topics by partition, so one member must hold the same partitions of both."""
    await ensure_topics(
        backend, [TopicSpec("state", 4, "compact"), TopicSpec("load", 4, "delete")], topic_prefix
    )
    topics = [f"{topic_prefix}state", f"{topic_prefix}load"]
    held: dict[str, frozenset[tuple[str, int]]] = {}
    revoked: list[frozenset[tuple[str, int]]] = []
    apps = []
    for name in ("left", "right"):
        app = _reading(name, backend, f"{topic_prefix}pair", lambda batch: None, *topics)

        async def note(partitions: frozenset[tuple[str, int]], name: str = name) -> None:
            held[name] = partitions

        app.notify_assigned(note)
        apps.append(app)

    async def note_revoked(partitions: frozenset[tuple[str, int]]) -> None:
        revoked.append(partitions)

    apps[0].notify_revoked(note_revoked)
    await _started(apps[0])
    assert len(held["left"]) == 8
    await _started(apps[1])
    try:
        await eventually(lambda: len(held["left"]) == 4 and len(held.get("right", ())) == 4)
        for partitions in held.values():
            assert {p for t, p in partitions if t == topics[0]} == {
                p for t, p in partitions if t == topics[1]
            }
        assert not held["left"] & held["right"]
        assert any(len(partitions) == 8 for partitions in revoked)
    finally:
        await _stopped(*apps)


async def test_after_each_rebalance_reading_begins_where_the_service_says(
    backend: Backend, topic: str
) -> None:
    """Also where the answer comes late, when the next rebalance has begun: nothing is handed over
    from where the group has committed. The service says 0, and the group has committed more."""
    began: set[int] = set()
    next_one = asyncio.Event()
    gaps: list[tuple[int, int, int, int]] = []
    reached: dict[tuple[int | None, int], int] = {}

    async def late(partitions: frozenset[tuple[str, int]]) -> dict[tuple[str, int], int]:
        asked_in = first.rebalancing_count
        await asyncio.sleep(0.2)  # records could come meanwhile, were the flow not stopped
        if asked_in not in began:
            began.add(asked_in)
            next_one.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LATE_S):  # until others have joined or left
                    await next_one.wait()
        return {}

    async def begin_next(partitions: frozenset[tuple[str, int]]) -> None:
        next_one.set()

    def handle(batch: list[Received]) -> None:
        for record in batch:
            if first.is_current(record):
                place = record.generation, record.partition
                expected = reached.get(place, 0)
                if record.offset > expected:
                    gaps.append((record.generation or 0, record.partition, expected, record.offset))
                reached[place] = max(expected, record.offset + 1)

    first = _reading("first", backend, f"{topic}-late", handle, topic)
    others = [
        _reading(f"other{n}", backend, f"{topic}-late", lambda batch: None, topic) for n in range(3)
    ]
    sent: dict[str, bytes | None] = {f"k{n}": b"v" for n in range(40)}
    await _send(backend, topic, sent)
    await _started(first)
    first.read_from(late)
    first.notify_revoked(begin_next)
    ending = asyncio.Event()

    async def feed() -> None:
        while not ending.is_set():
            await _send(backend, topic, sent)

    feeding = asyncio.create_task(feed())
    try:
        for other in others:
            await other.start()
            await asyncio.sleep(0.3)
        for other in others:
            await other.stop()
            await asyncio.sleep(0.3)
        await eventually(lambda: first.ready and len(first.consumer.assignment()) == 4)
        ending.set()
        await feeding
        held = first.consumer_generation_id
        await eventually(lambda: {p for g, p in reached if g == held} == {0, 1, 2, 3})
    finally:
        ending.set()
        await asyncio.gather(feeding, return_exceptions=True)
        await _stopped(first, *others)
    assert began, "no seek was waited for"
    assert gaps == []


async def test_a_fetch_that_outlives_a_rebalance_takes_nothing_away(
    backend: Backend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for it is gone. What it takes once the partitions were sought has no reader."""
    monkeypatch.setattr(faust_app_module, "FETCH_S", PATIENCE_S)
    read: dict[tuple[int | None, int], set[int]] = {}

    def handle(batch: list[Received]) -> None:
        for record in batch:
            read.setdefault((record.generation, record.partition), set()).add(record.offset)

    async def from_the_beginning(
        partitions: frozenset[tuple[str, int]],
    ) -> dict[tuple[str, int], int]:
        return {}

    app = _reading("first", backend, f"{topic}-outlived", handle, topic)
    other = _reading("other", backend, f"{topic}-outlived", lambda batch: None, topic)
    app.read_from(from_the_beginning)
    await _send(backend, topic, {f"k{n}": b"v" for n in range(40)})
    await _started(app)
    try:
        await eventually(lambda: sum(map(len, read.values())) == 40)
        there = {partition: offsets for (_, partition), offsets in read.items()}
        sought = app.consumer.perform_seek

        async def slowly() -> None:
            await sought()
            await asyncio.sleep(1.0)  # a busy machine: the flow is resumed later

        monkeypatch.setattr(app.consumer, "perform_seek", slowly)
        before = app.consumer_generation_id
        await other.start()
        await other.joined()
        await eventually(lambda: app.ready and app.consumer_generation_id != before)
        held = {(app.consumer_generation_id, tp.partition) for tp in app.consumer.assignment()}
        await eventually(
            lambda: all(read.get(place) == there[place[1]] for place in held), seen=lambda: read
        )
    finally:
        await _stopped(app, other)


async def test_a_seek_that_a_broker_fails_is_made_again(backend: Backend, topic: str) -> None:
    await _send(backend, topic, {f"k{n}": b"v" for n in range(20)})
    seen: list[Received] = []
    app = _reading("again", backend, f"{topic}-again", seen.extend, topic)
    asked: list[frozenset[tuple[str, int]]] = []

    async def starts(partitions: frozenset[tuple[str, int]]) -> dict[tuple[str, int], int]:
        asked.append(partitions)
        if len(asked) < 3:
            raise NodeNotReadyError("the broker is away")
        return dict.fromkeys(partitions, 1)

    app.read_from(starts)
    await _started(app)
    try:
        await eventually(lambda: len(seen) >= 16)
    finally:
        await _stopped(app)
    assert len(asked) >= 3
    assert {record.offset for record in seen if record.offset < 2} == {1}
    assert app.crash_reason is None


async def test_an_app_runs_in_a_process_of_its_own_and_ends_on_a_signal(
    backend: Backend, topic: str, tmp_path: Path
) -> None:
    await _send(backend, topic, {"k": b"v"})
    script = tmp_path / "worker.py"
    script.write_text(
        textwrap.dedent(f"""
            import asyncio, signal
            from wharfinger.runtime.backends import CAPABILITIES, Backend
            from wharfinger.runtime.faust_app import faust_app, take

            async def main():
                wait_ms = {backend.capabilities.fetch_wait_ms}
                capabilities = next(c for c in CAPABILITIES.values() if c.fetch_wait_ms == wait_ms)
                backend = Backend({backend.bootstrap!r}, "postgresql+asyncpg:///x", capabilities)
                app = faust_app("alone", backend, group={topic!r} + "-alone")
                ended = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

                async def read(stream):
                    async for batch in take(stream, 10):
                        for received in batch:
                            print(received.value, flush=True)
                            received.ack()

                app.agent(app.bytes_topic({topic!r}), name="read")(read)
                await app.start()
                await app.joined()
                await ended.wait()
                await app.stop()
                print("ended", flush=True)

            asyncio.run(main())
        """)
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"b'v'\n"
            os.kill(process.pid, signal.SIGTERM)
            assert await process.stdout.readline() == b"ended\n"
            assert await process.wait() == 0
    finally:
        if process.returncode is None:  # it would outlive us and ask for its broker forever
            process.kill()


async def test_nobody_waits_long_for_a_broker_that_is_gone(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, die_with_parent=True)
    broker.start()
    backend = Backend(broker.bootstrap, "postgresql+asyncpg:///x", MEMORY, broker.boot_id)
    await ensure_topics(backend, [TopicSpec("t", 1, "delete")])
    app = _reading("left", backend, "left", lambda batch: None, "t")
    producer = idempotent_producer(backend, client_id="left")
    await asyncio.gather(_started(app), producer.start())
    broker.stop()
    under_way = await producer.send("t", b"v", partition=0)
    await in_patience(asyncio.gather(app.stop(), producer.stop()))
    assert not under_way.done() or under_way.exception() is not None


async def test_the_environment_of_the_framework_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "kafka://elsewhere:1")
    monkeypatch.setenv("BROKER_SESSION_TIMEOUT", "77")
    monkeypatch.setenv("WEB_ENABLED", "1")
    app = faust_app("deaf", Backend("h:1", "postgresql+asyncpg:///x", DURABLE), group="g")
    assert [str(url) for url in app.conf.broker] == ["aiokafka://h:1"]
    assert app.conf.broker_session_timeout == DURABLE.session_s
    assert not app.conf.web_enabled


async def test_broker_security_reaches_faust() -> None:
    security = KafkaSecurity(
        protocol="SASL_SSL", mechanism="SCRAM-SHA-256", username="u", password="p"
    )
    secure = Backend("h:1,i:2", "postgresql+asyncpg:///x", DURABLE, security=security)
    app = faust_app("secure", secure, group="g")
    credentials: Any = app.conf.broker_credentials
    assert (credentials.username, credentials.password, credentials.mechanism.value) == (
        "u",
        "p",
        "SCRAM-SHA-256",
    )
    assert credentials.ssl_context is not None
    assert [str(url) for url in app.conf.broker] == ["aiokafka://h:1", "aiokafka://i:2"]


# the broadcast reader


async def test_a_broadcast_reader_reads_all_from_the_beginning_and_then_what_comes(
    backend: Backend, topic_prefix: str
) -> None:
    await ensure_topics(
        backend,
        [TopicSpec("clusters", 4, "compact"), TopicSpec("policies", 1, "compact")],
        topic_prefix,
    )
    clusters, policies = f"{topic_prefix}clusters", f"{topic_prefix}policies"
    await _send(backend, clusters, {f"c{n}": b"x" for n in range(30)})
    await _send(backend, policies, {"p": None}, partitions=1)
    records: list[IncomingRecord] = []

    async def read(consumer: BroadcastConsumer) -> None:
        async for batch in consumer.batches():
            assert batch
            records.extend(batch)

    async with BroadcastConsumer(backend, [clusters, policies], client_id="test") as consumer:
        assert not consumer.caught_up.is_set()
        reading = asyncio.create_task(read(consumer))
        await in_patience(consumer.caught_up.wait())
        assert len(records) == 31
        assert {record.value for record in records if record.topic == policies} == {None}
        await _send(backend, clusters, {"late": b"y"})
        await eventually(lambda: len(records) == 32)
        place = (clusters, partition_for("late", 4))
        assert consumer.positions[place] == records[-1].offset + 1
    await in_patience(reading)


async def test_a_reader_of_empty_topics_has_caught_up_at_once(backend: Backend, topic: str) -> None:
    async with BroadcastConsumer(backend, [topic], client_id="test") as consumer:
        assert consumer.caught_up.is_set()


async def test_a_topic_that_is_not_there_is_named(backend: Backend, topic_prefix: str) -> None:
    with pytest.raises(BackendError, match=f"no such topic: {topic_prefix}absent"):
        async with BroadcastConsumer(backend, [f"{topic_prefix}absent"], client_id="test"):
            pass


async def test_a_reader_may_begin_where_a_stage_left_off(
    backend: Backend, topic_prefix: str
) -> None:
    await ensure_topics(backend, [TopicSpec("one", 1, "compact")], topic_prefix)
    topic = f"{topic_prefix}one"
    await _send(backend, topic, {f"k{n}": b"x" for n in range(10)}, partitions=1)
    async with BroadcastConsumer(
        backend, [topic], client_id="test", begin={(topic, 0): 7}
    ) as consumer:
        batch = await anext(aiter(consumer.batches()))
        assert batch[0].offset == 7
    async with BroadcastConsumer(
        backend, [topic], client_id="test", begin={(topic, 0): 10}
    ) as consumer:
        assert consumer.caught_up.is_set()
        assert consumer.positions == {(topic, 0): 10}


async def test_a_topic_that_ends_before_what_was_read_is_not_read_on(
    backend: Backend, topic_prefix: str
) -> None:
    """It began again or lost its end: to go on at its end would pass over what comes at offsets
    that were read before."""
    await ensure_topics(backend, [TopicSpec("one", 1, "compact")], topic_prefix)
    topic = f"{topic_prefix}one"
    await _send(backend, topic, {f"k{n}": b"x" for n in range(10)}, partitions=1)
    with pytest.raises(TopicShorterError, match="ends at offset 10, it was read up to 99"):
        async with BroadcastConsumer(backend, [topic], client_id="test", begin={(topic, 0): 99}):
            pass
