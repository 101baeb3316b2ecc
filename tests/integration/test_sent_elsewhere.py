"""Signals between processes of a plane: readers in one are woken by what another has sent. Here
each process is a pair of objects of one loop."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.paced_readers import paused, reading
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.fetch_pacing import Pace
from wharfinger.runtime.producer import SentBatch, idempotent_producer
from wharfinger.runtime.send_signals import SendSignals, WakeUp
from wharfinger.runtime.sent_elsewhere import (
    DATAGRAM_BYTES_MAX,
    RECORDS_BYTES_MAX,
    Datagram,
    SentElsewhere,
    UnsentBatches,
)
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.topics import TopicSpec, ensure_topics

TOPIC = "bindings"


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for a socket."""
    with TemporaryDirectory(prefix="w-") as found:
        yield Path(found)


@asynccontextmanager
async def a_process(directory: Path, name: str) -> AsyncIterator[tuple[SendSignals, SentElsewhere]]:
    signals = SendSignals()
    elsewhere = SentElsewhere(directory, name, signals)
    task = asyncio.create_task(elsewhere.run())
    try:
        await eventually(lambda: _is_there(directory, name))
        yield signals, elsewhere
    finally:
        await end_tasks([task])


async def _is_there(directory: Path, name: str) -> bool:
    return (directory / f"{name}.sent").exists()


def a_reader(signals: SendSignals, *topics: str) -> WakeUp:
    reader = WakeUp()
    signals.listen(topics or (TOPIC,), reader)
    return reader


async def sent_until_heard(signals: SendSignals, batch: SentBatch, reader: WakeUp) -> SentBatch:
    """Again and again: a process looks for others once a second."""
    while True:
        signals.sent(batch)
        if await reader.within(0.1):
            return reader.clear()[-1]


async def test_what_one_process_sends_all_others_hear_and_itself_once(directory: Path) -> None:
    async with (
        a_process(directory, "one") as (one, _),
        a_process(directory, "two") as (two, _),
        a_process(directory, "three") as (three, _),
    ):
        readers = [a_reader(signals) for signals in (two, three)]
        own, other_topic = a_reader(one), a_reader(two, "clusters")
        batch = SentBatch(TOPIC, 1, 3, 7, b"records", 1.0)
        for reader in readers:
            assert await sent_until_heard(one, batch, reader) == batch
        assert batch in own.clear()
        for reader in readers:
            reader.clear()
        later = [SentBatch(TOPIC, 1, 7, 9), SentBatch(TOPIC, 1, 9, 11, b"r"), SentBatch(TOPIC)]
        for batch in later:
            one.sent(batch)
        for reader in readers:
            heard: set[SentBatch] = set()
            while not heard >= set(later):
                await reader.within(1.0)
                heard |= set(reader.clear())
        assert own.clear() == later
        assert other_topic.clear() == []


async def test_processes_know_of_each_other_before_either_sends(directory: Path) -> None:
    async with (
        a_process(directory, "one") as (_, first),
        a_process(directory, "two") as (_, second),
    ):
        await eventually(lambda: first.fresh and second.fresh)
    assert not SentElsewhere(directory, "three", SendSignals()).fresh


async def test_a_process_is_sent_what_it_reads(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reading:
        reading.setblocking(False)
        reading.bind(str(directory / "reading.sent"))
        async with a_process(directory, "one") as (one, elsewhere):
            await eventually(lambda: "reading" in elsewhere._others)
            hello = Datagram("reading", (TOPIC,), ())
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as foreign:
                foreign.sendto(msgspec.msgpack.encode(hello), str(directory / "one.sent"))
            await eventually(lambda: elsewhere._others["reading"].reads is not None)
            for offset in range(3):
                wanted = SentBatch(TOPIC, 0, offset, offset + 1, b"records", 1.0)
                one.sent(wanted._replace(topic="another"))
                one.sent(wanted)
                found: list[SentBatch] = []
                while not found:
                    found += received(reading)
                    await asyncio.sleep(0.01)
                assert found == [wanted]


def received(reading: socket.socket) -> list[SentBatch]:
    """Of all datagrams that wait."""
    found: list[SentBatch] = []
    while True:
        try:
            datagram = reading.recv(DATAGRAM_BYTES_MAX)
        except BlockingIOError:
            return found
        found += msgspec.msgpack.decode(datagram, type=Datagram).batches


@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(["a", "b" * 200]),
            st.integers(0, 300),
            st.sampled_from([0, 1, 100, 10_000, RECORDS_BYTES_MAX]),
        ),
        max_size=20,
    ),
    partitions=st.sampled_from([1, 100, 2000]),
)
def test_what_waits_fits_into_a_datagram_and_names_every_batch(
    batches: list[tuple[str, int, int]], partitions: int
) -> None:
    """`partitions`: of a topic of which each gets a batch that is too large."""
    waiting, ends = UnsentBatches(), dict[tuple[str, int], int]()
    large = [("c", partition, RECORDS_BYTES_MAX) for partition in range(partitions)]
    for topic, partition, size in [*batches, *large, *batches]:
        end = ends.get((topic, partition), 0)
        waiting.add(SentBatch(topic, partition, end, end + 1, bytes(size), 1.0))
        ends[topic, partition] = end + 1
    found = waiting.all()
    somewhere = {batch.topic for batch in found if batch.offset < 0}
    for (topic, partition), end in ends.items():
        offsets = {
            offset
            for batch in found
            if (batch.topic, batch.partition) == (topic, partition)
            for offset in range(batch.offset, batch.end)
        }
        assert topic in somewhere or offsets == set(range(end))
    assert partitions > 1 or not somewhere
    datagram = Datagram("one", ("a", "b" * 200, "c"), found)
    assert len(msgspec.msgpack.encode(datagram)) <= DATAGRAM_BYTES_MAX


@pytest.mark.parametrize("size", [1000, 45_000])
async def test_who_does_not_come_for_its_signals_has_the_newest_later(
    directory: Path, size: int
) -> None:
    """The queue of a socket is short, and what is in it fills the buffer of its sender."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as slow:
        slow.setblocking(False)
        slow.bind(str(directory / "slow.sent"))
        async with (
            a_process(directory, "one") as (one, first),
            a_process(directory, "two") as (two, _),
        ):
            reader = a_reader(two)
            await eventually(lambda: list(first._others) == ["slow", "two"])
            for end in range(1, 2000):
                one.sent(SentBatch(TOPIC, 0, end - 1, end, bytes(size), 1.0))
                await asyncio.sleep(0)
            while max((batch.end for batch in reader.clear()), default=0) < 1999:
                await reader.within(1.0)  # the slow one delays no other
            newest = 0
            while newest < 1999:
                newest = max((batch.end for batch in received(slow)), default=newest)
                await asyncio.sleep(0.01)


async def test_a_process_that_was_killed_hinders_no_other(directory: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for name in ("two", "zed"):
        dead.bind(str(directory / f"{name}.sent"))
        dead.close()
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.close()
    async with a_process(directory, "one") as (one, _), a_process(directory, "two") as (two, _):
        await sent_until_heard(one, SentBatch(TOPIC, 0, 0, 1), a_reader(two))
    assert not (directory / "two.sent").exists()


async def test_only_the_owner_may_send(directory: Path) -> None:
    before = os.umask(0)
    try:
        async with a_process(directory, "one"):
            assert stat.S_IMODE((directory / "one.sent").stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_what_is_no_signal_is_left_out(directory: Path) -> None:
    async with a_process(directory, "one") as (one, _), a_process(directory, "two") as (two, _):
        reader = a_reader(two)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as foreign:
            for datagram in (
                b"no signal",
                msgspec.msgpack.encode(["one", 1, []]),
                b"\x93\xa2\xff\xfe\x90\x90",
            ):
                foreign.sendto(datagram, str(directory / "two.sent"))
        await sent_until_heard(one, SentBatch(TOPIC, 0, 0, 1), reader)


@pytest.mark.parametrize("name", ["d" * 100, "missing"])
async def test_a_directory_that_takes_no_socket_is_said(directory: Path, name: str) -> None:
    with capture_logs() as logs:
        await SentElsewhere(directory / name, "one", SendSignals()).run()
    assert [line["event"] for line in logs] == ["sent_elsewhere.off"]


@pytest.mark.integration
async def test_a_record_of_another_process_wakes_an_idle_reader(
    backend: Backend, topic_prefix: str, directory: Path
) -> None:
    if not backend.capabilities.idle_poll_ms:
        pytest.skip("this broker wakes its readers itself")
    await ensure_topics(backend, [TopicSpec(TOPIC, 4, "compact")], topic_prefix)
    topic = f"{topic_prefix}{TOPIC}"
    async with (
        a_process(directory, "sender") as (sender, _),
        a_process(directory, "reader") as (reader, _),
        reading(backend, topic, Pace(0.01, 600.0), reader, "elsewhere") as consumer,
    ):
        await sent_until_heard(sender, SentBatch("another"), a_reader(reader, "another"))
        await paused("elsewhere")
        producer = idempotent_producer(backend, client_id="test", sent=sender.sent)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"value", partition=2)
        finally:
            await producer.stop()
        taken = await consumer.getmany(timeout_ms=60_000)
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]
