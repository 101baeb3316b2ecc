"""The client's cursor over Kafka, while the broker is killed and its topic is filled again in
another order: nothing is missing, and nothing is there twice."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from tests.patience import in_patience
from tests.planes import kill

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger_client import Consumer, ConsumerError, Kafka, SqliteCursors

pytestmark = pytest.mark.integration

TOPIC = "wharfinger.decisions"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    found = EmbeddedBroker(tmp_path, die_with_parent=True)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def record(position: int) -> bytes:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": f"id-{position}",
            "source": "/wharfinger/fleet/0",
            "type": "io.wharfinger.schedule.decided.v1",
            "subject": f"shop/web-{position % 3}",
            "time": "2026-01-01T00:00:00Z",
            "position": str(position),
        }
    ).encode()


async def made(broker: EmbeddedBroker | Backend, topic: str = TOPIC) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    finally:
        await admin.close()


async def filled(
    broker: EmbeddedBroker | Backend, positions: Sequence[int], topic: str = TOPIC
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        for position in positions:
            await producer.send_and_wait(topic, record(position), partition=position % 2)
    finally:
        await producer.stop()


async def killed(broker: EmbeddedBroker) -> None:
    """And another one listens at the same address, without any record."""
    address = broker.bootstrap
    assert broker.pid is not None
    await asyncio.to_thread(kill, broker.pid)
    await asyncio.to_thread(broker.start)
    assert broker.bootstrap == address


def rows(path: Path) -> list[int]:
    with sqlite3.connect(path) as own:
        return [row[0] for row in own.execute("select position from own order by rowid")]


async def take(consumer: Consumer[sqlite3.Connection], path: Path, count: int) -> None:
    """Until there are so many rows."""

    async def taking() -> None:
        while len(rows(path)) < count:
            batch = await anext(consumer)
            async with batch.transaction() as tx:
                for event in batch.events:
                    tx.execute("insert into own values (?)", (event.position,))

    await in_patience(taking())


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.db"
    with sqlite3.connect(path) as made:
        made.execute("create table own (position integer)")
    return path


def reading(broker: EmbeddedBroker, cursors: SqliteCursors) -> Consumer[sqlite3.Connection]:
    return Consumer(cursors, Kafka(broker.bootstrap), "billing", lease_s=0.3, batch_max=7)


async def twenty_read(broker: EmbeddedBroker, own: Path) -> SqliteCursors:
    """The cursor of a subscriber that has read all there is, and is closed."""
    await made(broker)
    await filled(broker, range(1, 21))
    cursors = SqliteCursors(str(own))
    async with reading(broker, cursors) as consumer:
        await take(consumer, own, 20)
    return cursors


async def test_all_partitions_of_a_topic_are_read(backend: Backend, own: Path) -> None:
    """Also of Apache Kafka, which tells clients of all topics only if they ask for all of them."""
    topic = f"tests-{uuid4().hex[:12]}"
    await made(backend, topic)
    await filled(backend, range(1, 21), topic)
    cursors = SqliteCursors(str(own))
    source = Kafka(backend.bootstrap, topic)
    async with Consumer(cursors, source, "billing", lease_s=0.3, batch_max=7) as consumer:
        await take(consumer, own, 20)
    cursors.close()
    assert sorted(rows(own)) == list(range(1, 21))


OTHER_ORDER = [*range(21, 31), *range(1, 21)]
"""What was not read stands where something else was read."""


@pytest.mark.parametrize("refilled", [OTHER_ORDER, [*OTHER_ORDER, *range(31, 61)]])
async def test_a_topic_that_was_lost_and_filled_again_is_read_whole(
    broker: EmbeddedBroker, own: Path, refilled: Sequence[int]
) -> None:
    cursors = await twenty_read(broker, own)
    await killed(broker)
    await made(broker)
    await filled(broker, refilled)
    async with reading(broker, cursors) as consumer:
        await take(consumer, own, len(refilled))
    cursors.close()
    assert sorted(rows(own)) == sorted(refilled)


async def test_a_reader_that_stays_open_reads_it_whole_too(
    broker: EmbeddedBroker, own: Path
) -> None:
    await made(broker)
    await filled(broker, range(1, 21))
    cursors = SqliteCursors(str(own))
    async with reading(broker, cursors) as consumer:
        await take(consumer, own, 20)
        taking = asyncio.create_task(take(consumer, own, 60))
        await killed(broker)
        await made(broker)
        await filled(broker, [*OTHER_ORDER, *range(31, 61)])
        await taking
    cursors.close()
    assert sorted(rows(own)) == list(range(1, 61))


@pytest.mark.parametrize("begun", ["from kafka", "over http"])
async def test_a_broker_that_is_away_and_a_topic_that_is_not_made_yet_are_waited_for(
    broker: EmbeddedBroker, own: Path, begun: str
) -> None:
    cursors = await twenty_read(broker, own)
    with sqlite3.connect(own) as changed:  # as where all of it came over HTTP
        if begun == "over http":
            changed.execute("update wharfinger_cursor set position = 20, offsets = '{}'")
    assert broker.pid is not None
    await asyncio.to_thread(kill, broker.pid)
    async with reading(broker, cursors) as consumer:
        taking = asyncio.create_task(take(consumer, own, 25))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(broker.start)
        await asyncio.sleep(0.5)
        assert not taking.done()
        await made(broker)
        await filled(broker, range(1, 26))
        await taking
    cursors.close()
    assert sorted(rows(own)) == list(range(1, 26))


@pytest.mark.parametrize(
    "call", ["start", "fetch_all_metadata", "end_offsets", "beginning_offsets", "getmany"]
)
async def test_a_broker_that_is_killed_before_any_call_of_a_connection_is_waited_for(
    broker: EmbeddedBroker, own: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    cursors = await twenty_read(broker, own)
    of = AIOKafkaClient if call == "fetch_all_metadata" else AIOKafkaConsumer
    asked = getattr(of, call)
    again: list[asyncio.Task[None]] = []

    async def filled_again() -> None:
        await asyncio.sleep(0.5)
        await asyncio.to_thread(broker.start)
        await made(broker)
        await filled(broker, range(1, 26))

    async def killed_before(*args: Any, **kwargs: Any) -> Any:
        if not again:
            assert broker.pid is not None
            await asyncio.to_thread(kill, broker.pid)
            again.append(asyncio.create_task(filled_again()))
        return await asked(*args, **kwargs)

    monkeypatch.setattr(of, call, killed_before)
    async with reading(broker, cursors) as consumer:
        await take(consumer, own, 25)
    await asyncio.gather(*again)
    cursors.close()
    assert again
    assert sorted(rows(own)) == list(range(1, 26))


async def test_how_often_the_broker_is_asked_does_not_depend_on_the_size_of_batches(
    broker: EmbeddedBroker, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(broker)
    await filled(broker, range(1, 201))
    asked, calls = AIOKafkaConsumer.getmany, 0

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        came = await asked(*args, **kwargs)
        calls += bool(came)
        return came

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", counted)
    cursors = SqliteCursors(str(own))
    async with Consumer(cursors, Kafka(broker.bootstrap), "billing", batch_max=1) as consumer:
        await take(consumer, own, 200)
    cursors.close()
    assert sorted(rows(own)) == list(range(1, 201))
    assert calls < 50


async def test_a_reader_whose_fetch_has_failed_closes_without_an_error_and_leaves_nothing_open(
    broker: EmbeddedBroker, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursors = await twenty_read(broker, own)
    sent, failed = AIOKafkaClient.send, asyncio.Event()

    async def fails(client: AIOKafkaClient, node: Any, request: Any, **options: Any) -> Any:
        if "Fetch" in type(request).__name__:
            failed.set()
            raise KafkaConnectionError("the connection was lost")
        return await sent(client, node, request, **options)

    before = asyncio.all_tasks()
    source = Kafka(broker.bootstrap, retry_backoff_ms=60_000)
    async with Consumer(cursors, source, "billing") as consumer:
        monkeypatch.setattr(AIOKafkaClient, "send", fails)
        reads = asyncio.ensure_future(anext(consumer))
        await failed.wait()
        await asyncio.sleep(0)  # the fetch pauses
        reads.cancel()
    cursors.close()
    await asyncio.gather(reads, return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_a_topic_that_was_never_there_is_an_error(broker: EmbeddedBroker, own: Path) -> None:
    cursors = SqliteCursors(str(own))
    async with reading(broker, cursors) as consumer:
        with pytest.raises(ConsumerError, match=r"has no topic wharfinger\.decisions"):
            await anext(consumer)
    cursors.close()
