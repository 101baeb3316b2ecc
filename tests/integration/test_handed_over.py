"""Records that go from a producer of a process to its readers without a fetch: what is read is
what the broker has, also where others write there and readers are moved."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.paced_readers import fetched, paused, reading
from tests.patience import eventually, in_patience

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.fetch_pacing import Pace
from wharfinger.runtime.handed_over import HandedOver
from wharfinger.runtime.producer import Producer, SentBatch, idempotent_producer
from wharfinger.runtime.send_signals import HANDED_OVER_BYTES_MAX, SendSignals
from wharfinger.runtime.sent_elsewhere import SentElsewhere
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.topics import TopicSpec, delete_topics, ensure_topics

pytestmark = pytest.mark.integration

NEVER_S = 600.0
"""A pause that is longer than the patience of the test: what comes was not polled for."""
SPEC = TopicSpec("bindings", 4, "compact")
PARTITION = 2


@pytest.fixture
def memory(backend: Backend) -> Backend:
    if not backend.capabilities.idle_poll_ms:
        pytest.skip("this broker wakes its readers itself")
    return backend


@pytest.fixture
async def topic(memory: Backend, topic_prefix: str) -> str:
    await ensure_topics(memory, [SPEC], topic_prefix)
    return f"{topic_prefix}bindings"


@pytest.fixture
def signals() -> SendSignals:
    return SendSignals()


@pytest.fixture
async def own(memory: Backend, signals: SendSignals) -> AsyncIterator[Producer]:
    """A producer of the reader's process."""
    producer = idempotent_producer(memory, client_id="own", sent=signals.sent)
    await producer.start()
    yield producer
    await producer.stop()


@dataclass
class Neighbouring:
    """Another process of the plane, which signals what its producer sends."""

    producer: Producer
    there: SentElsewhere

    def knows(self, topic: str) -> bool:
        """Whether the process has heard that the topic is read here."""
        return topic in (self.there._others["here"].reads or ())


@pytest.fixture
async def neighbour(memory: Backend, signals: SendSignals) -> AsyncIterator[Neighbouring]:
    with TemporaryDirectory(prefix="w-") as directory:
        there = SendSignals()
        processes = (
            SentElsewhere(Path(directory), "there", there),
            SentElsewhere(Path(directory), "here", signals),
        )
        running = [asyncio.create_task(process.run()) for process in processes]
        await eventually(lambda: all(process.fresh for process in processes))
        producer = idempotent_producer(memory, client_id="neighbour", sent=there.sent)
        await producer.start()
        yield Neighbouring(producer, processes[0])
        await producer.stop()
        await end_tasks(running)


@pytest.fixture
async def other(memory: Backend) -> AsyncIterator[Producer]:
    """A producer that gives no signal."""
    producer = idempotent_producer(memory, client_id="other")
    await producer.start()
    yield producer
    await producer.stop()


async def send(
    producer: Producer, topic: str, values: Sequence[bytes], partition: int = PARTITION
) -> int:
    """As one batch. The offset of its first record."""
    builder = producer.create_batch()
    for value in values:
        assert builder.append(key=b"key", value=value, timestamp=None, headers=[("name", b"x")])
    acknowledged = await producer.send_batch(builder, topic, partition=partition)
    return (await acknowledged).offset


async def taken(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of so many records."""
    found: list[tuple[int, int, bytes]] = []

    async def taking() -> None:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found.extend((one.partition, one.offset, one.value or b"") for one in records)

    await in_patience(taking())
    return found


@pytest.mark.parametrize("who", ["own", "neighbour"])
async def test_what_a_process_of_the_plane_sends_is_read_without_a_fetch(
    memory: Backend,
    topic: str,
    signals: SendSignals,
    own: Producer,
    neighbour: Neighbouring,
    who: str,
) -> None:
    producer = own if who == "own" else neighbour.producer
    name = f"without-a-fetch-{who}"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        await eventually(lambda: neighbour.knows(topic))
        await paused(name)
        before = fetched(name)
        for first in range(0, 30, 3):
            await send(producer, topic, [b"%d" % n for n in range(first, first + 3)])
        found = await taken(consumer, 30)
        assert fetched(name) == before
    assert found == [(PARTITION, n, b"%d" % n) for n in range(30)]


async def test_keys_headers_and_times_are_those_of_the_broker(
    memory: Backend, topic: str, signals: SendSignals, own: Producer
) -> None:
    async with (
        reading(memory, topic, Pace(0.01, NEVER_S), signals, "handed-over") as here,
        reading(memory, topic, Pace(0.01, 0.1), None, "fetched") as there,
    ):
        await paused("handed-over")
        await send(own, topic, [b"a", b"b"])
        pairs = [
            [
                one
                for records in (await reader.getmany(timeout_ms=60_000)).values()
                for one in records
            ]
            for reader in (here, there)
        ]
    assert len(pairs[0]) == 2
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize("seed", range(4))
async def test_every_record_is_read_once_and_in_order_among_other_producers_seeks_and_pauses(
    memory: Backend,
    topic: str,
    signals: SendSignals,
    own: Producer,
    neighbour: Neighbouring,
    other: Producer,
    seed: int,
) -> None:
    producers = {"own": own, "neighbour": neighbour.producer, "other": other}
    random = Random(seed)
    log: dict[int, list[bytes]] = {number: [] for number in range(SPEC.partitions)}
    partitions = [TopicPartition(topic, number) for number in log]
    next_offset = dict.fromkeys(log, 0)
    name = f"law-{seed}"

    async def look(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
        for records in (await consumer.getmany(timeout_ms=wait_ms)).values():
            for one in records:
                assert one.offset == next_offset[one.partition]
                assert one.value == log[one.partition][one.offset]
                next_offset[one.partition] += 1

    async with reading(memory, topic, Pace(0.01, 0.5), signals, name) as consumer:
        for turn in range(150):
            number = random.randrange(SPEC.partitions)
            match random.choice(
                ["own", "own", "neighbour", "neighbour", "other", "seek", "pause", "look", "look"]
            ):
                case "own" | "neighbour" | "other" as who:
                    values = [b"%d.%d" % (turn, n) for n in range(random.randint(1, 4))]
                    assert await send(producers[who], topic, values, number) == len(log[number])
                    log[number] += values
                case "seek":
                    offset = random.randint(0, len(log[number]))
                    consumer.seek(partitions[number], offset)
                    next_offset[number] = offset
                case "pause":
                    if partitions[number] in consumer.paused():
                        consumer.resume(partitions[number])
                    else:
                        consumer.pause(partitions[number])
                case "look":
                    await look(consumer, random.choice([0, 5, 50]))
        consumer.resume(*partitions)

        async def rest() -> None:
            while next_offset != {number: len(found) for number, found in log.items()}:
                await look(consumer, 1000)

        await in_patience(rest())


async def test_a_topic_that_was_made_again_is_read_and_not_what_was_handed_over_before(
    memory: Backend,
    topic: str,
    topic_prefix: str,
    signals: SendSignals,
    own: Producer,
    other: Producer,
) -> None:
    """The reader is sought to the same offset as before."""
    partition = TopicPartition(topic, PARTITION)
    name = "made-again"
    async with reading(memory, topic, Pace(0.01, 1.0), signals, name) as consumer:
        await send(own, topic, [b"first"])
        assert await taken(consumer, 1) == [(PARTITION, 0, b"first")]
        consumer.pause(partition)
        await send(own, topic, [b"old"])
        await delete_topics(memory, [topic])
        await ensure_topics(memory, [SPEC], topic_prefix)
        await send(other, topic, [b"another", b"new"])
        consumer.seek(partition, 1)
        consumer.resume(partition)
        assert await taken(consumer, 1) == [(PARTITION, 1, b"new")]


async def test_a_reader_that_does_not_come_keeps_a_bounded_number_of_bytes(
    memory: Backend, topic: str, signals: SendSignals, own: Producer
) -> None:
    """And reads everything when it comes."""
    name = "does-not-come"
    count = 2 * HANDED_OVER_BYTES_MAX // 100_000
    async with reading(memory, topic, Pace(0.01, 1.0), signals, name) as consumer:
        consumer.pause(TopicPartition(topic, PARTITION))
        for n in range(count):
            await send(own, topic, [b"%d " % n + bytes(100_000)])
            await asyncio.sleep(0)
        wakeups = {one for readers in signals._readers.values() for one in readers}
        waiting = [signal for one in wakeups for signal in one._signals]
        assert sum(len(one.records) for one in waiting) <= HANDED_OVER_BYTES_MAX
        consumer.resume(TopicPartition(topic, PARTITION))
        found = await taken(consumer, count)
    assert [(offset, int(value.split()[0])) for _, offset, value in found] == [
        (n, n) for n in range(count)
    ]


def test_a_batch_without_bytes_is_a_gap() -> None:
    """What follows it is not handed over in its place."""
    partition, kept = TopicPartition("t", 0), HandedOver()
    kept.add(partition, SentBatch("t", 0, 0, 2, b"ab", 1.0))
    kept.add(partition, SentBatch("t", 0, 2, 3, b"c", 1.0))
    kept.add(partition, SentBatch("t", 0, 4, 5, b"e", 1.0))
    assert kept.take(partition, 1, since=0.0) == (b"abc", 3)
    assert kept.take(partition, 3, since=0.0) is None
    assert kept.take(partition, 4, since=0.0) == (b"e", 5)
    assert kept.take(partition, 5, since=0.0) is None
    kept.add(partition, SentBatch("t", 0, 5, 6, b"f", 1.0))
    assert kept.take(partition, 5, since=1.0) is None


def test_what_was_read_otherwise_takes_no_room() -> None:
    partition, kept = TopicPartition("t", 0), HandedOver()
    for offset in range(3):
        kept.add(partition, SentBatch("t", 0, offset, offset + 1, bytes(10), 1.0))
    kept.drop(partition, 2)
    kept.drop(TopicPartition("t", 1), 9)
    assert kept._bytes == 10
    assert kept.take(partition, 2, since=0.0) == (bytes(10), 3)
