"""Readers of a broker that does not wake them: signals between producers and readers of a process,
and the pauses without."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from tests.paced_readers import empty, fetched, paused, reading
from tests.patience import eventually

from wharfinger.runtime import fetch_pacing
from wharfinger.runtime.backends import DURABLE, MEMORY, Backend
from wharfinger.runtime.fetch_pacing import VAIN_MAX, Pace, PacedFetches
from wharfinger.runtime.producer import SentBatch, idempotent_producer
from wharfinger.runtime.send_signals import SendSignals, WakeUp
from wharfinger.runtime.topics import TopicSpec, ensure_topics

pytestmark = pytest.mark.integration

NEVER_S = 600.0
"""A pause that is longer than the patience of the test: what comes was not polled for."""
PATIENCE_S = 60.0


@pytest.fixture
async def topic(backend: Backend, topic_prefix: str) -> str:
    await ensure_topics(backend, [TopicSpec("bindings", 4, "compact")], topic_prefix)
    return f"{topic_prefix}bindings"


async def send(backend: Backend, topic: str, signals: SendSignals | None) -> None:
    producer = idempotent_producer(
        backend, client_id="test", sent=signals.sent if signals is not None else None
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"value", partition=2)
    finally:
        await producer.stop()


@pytest.fixture
def memory(backend: Backend) -> Backend:
    if not backend.capabilities.idle_poll_ms:
        pytest.skip("this broker wakes its readers itself")
    return backend


async def test_a_record_of_this_process_wakes_an_idle_reader(memory: Backend, topic: str) -> None:
    signals = SendSignals()
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, "woken") as consumer:
        await paused("woken")
        await send(memory, topic, signals)
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_a_lost_signal_delays_until_the_next_poll(memory: Backend, topic: str) -> None:
    async with reading(memory, topic, Pace(0.01, 1.0), SendSignals(), "unasked") as consumer:
        await send(memory, topic, None)
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_a_record_without_a_signal_makes_its_reader_quick_again(
    memory: Backend, topic: str
) -> None:
    """More may follow from the same process. With the long pause the polls that are waited for
    would take an hour."""
    async with reading(
        memory, topic, Pace(0.01, NEVER_S), SendSignals(), "quick-again", silence_s=8.0
    ) as consumer:
        await send(memory, topic, None)
        await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        before = empty("quick-again")
        await eventually(lambda: empty("quick-again") >= before + 6)


async def test_a_signal_that_comes_after_its_record_makes_no_reader_quick(
    memory: Backend, topic: str
) -> None:
    """Signals of other processes do. Without them the reader would ask about forty times before it
    rests again."""
    signals, name = SendSignals(), "late-signal"
    async with reading(
        memory, topic, Pace(0.01, NEVER_S), signals, name, silence_s=80.0
    ) as consumer:
        await send(memory, topic, None)
        signals.sent(SentBatch(topic))  # it is looked for
        assert await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        before = empty(name)
        signals.sent(SentBatch(topic, 2, 0, 1))
        await paused(name)
        assert empty(name) <= before + 2


async def test_a_signal_of_another_record_leaves_its_reader_quick(
    memory: Backend, topic: str
) -> None:
    signals, name = SendSignals(), "another-signal"
    async with reading(
        memory, topic, Pace(0.01, NEVER_S), signals, name, silence_s=80.0
    ) as consumer:
        await send(memory, topic, None)
        await send(memory, topic, None)
        signals.sent(SentBatch(topic))
        assert await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        before = empty(name)
        signals.sent(SentBatch(topic, 2, 1, 2))
        await eventually(lambda: empty(name) >= before + 6)


async def test_a_commit_of_another_process_makes_readers_quick(memory: Backend, topic: str) -> None:
    signals = SendSignals()
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, "expecting") as consumer:
        await paused("expecting")
        before = empty("expecting")
        signals.expect()
        # the record is not there yet, and is looked for again
        await eventually(lambda: empty("expecting") >= before + 3)
        await send(memory, topic, None)
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_a_record_that_came_while_its_partition_was_left_out_is_read_at_once(
    memory: Backend, topic: str
) -> None:
    """A partition whose records have not been taken is left out of fetches, so that its signal
    finds nothing."""
    signals, name = SendSignals(), "left-out"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        await paused(name)
        for _ in range(2):
            await send(memory, topic, signals)
            await paused(name)
        for _ in range(2):
            taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
            assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_signals_of_one_topic_keep_no_record_of_another_waiting(
    memory: Backend, topic_prefix: str
) -> None:
    """A fetch that follows a signal asks for that topic only; all have their turn all the same."""
    busy, other = f"{topic_prefix}bindings", f"{topic_prefix}policies"
    specs = [TopicSpec("bindings", 4, "compact"), TopicSpec("policies", 4, "compact")]
    await ensure_topics(memory, specs, topic_prefix)
    signals, name, seen = SendSignals(), "two-topics", dict[str, int]()
    pace = Pace(0.01, 1.0)
    async with reading(memory, busy, pace, signals, name, also=other) as consumer:
        for turn in range(40):
            await send(memory, busy, signals)
            if turn == 20:
                await send(memory, other, None)
            for partition, messages in (await consumer.getmany(timeout_ms=50)).items():
                seen[partition.topic] = seen.get(partition.topic, 0) + len(messages)
        async with asyncio.timeout(PATIENCE_S):
            while sum(seen.values()) < 41:
                for partition, messages in (await consumer.getmany(timeout_ms=1000)).items():
                    seen[partition.topic] = seen.get(partition.topic, 0) + len(messages)
    assert seen == {busy: 40, other: 1}


async def test_a_fetch_after_a_signal_asks_for_that_topic_only(
    memory: Backend, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, other = f"{topic_prefix}bindings", f"{topic_prefix}policies"
    specs = [TopicSpec("bindings", 4, "compact"), TopicSpec("policies", 4, "compact")]
    await ensure_topics(memory, specs, topic_prefix)
    signals, name = SendSignals(), "narrow"
    async with reading(memory, busy, Pace(0.01, NEVER_S), signals, name, also=other) as consumer:
        await paused(name)
        asked: list[set[str]] = []
        unnoted = consumer._client.send

        async def noted(node: int, request: object, **options: object) -> object:
            if isinstance(request, FetchRequest):
                asked.append({found for found, _ in request.topics})
            return await unnoted(node, request, **options)

        monkeypatch.setattr(consumer._client, "send", noted)
        await send(memory, busy, signals)
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        await paused(name)
        monkeypatch.undo()
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]
    assert asked
    assert all(found == {busy} for found in asked), asked


async def test_a_signal_for_a_record_that_is_here_asks_for_nothing(
    memory: Backend, topic: str
) -> None:
    signals, name = SendSignals(), "here-already"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        await paused(name)
        await send(memory, topic, signals)
        assert await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        await paused(name)
        before = fetched(name)
        for _ in range(20):
            signals.sent(SentBatch(topic, 2, 0, 1))
            await asyncio.sleep(0.02)
    assert fetched(name) == before


async def test_what_is_not_there_is_asked_for_a_few_times_only(memory: Backend, topic: str) -> None:
    """A topic that was made again has no such record."""
    signals, name = SendSignals(), "gone"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name):
        await paused(name)
        before = fetched(name)
        signals.sent(SentBatch(topic, 2, 1000, 1001))
        await eventually(lambda: fetched(name) == before + VAIN_MAX)
        await paused(name)
        assert fetched(name) == before + VAIN_MAX
        signals.sent(SentBatch(topic, 2, 1001, 1002))
        await eventually(lambda: fetched(name) > before + VAIN_MAX)


def strip(answer: Any) -> None:
    """Take the records from the answer to a fetch, and not how many there are."""
    answer.topics = [(name, [(*part[:-1], b"") for part in parts]) for name, parts in answer.topics]


async def test_what_an_answer_counts_and_does_not_give_is_asked_for_again(
    memory: Backend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the broker answers when it could not look within the wait. Nothing else says that there
    is something."""
    signals, name = SendSignals(), "counted"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        await paused(name)
        ask, stripped = consumer._client.send, 0

        async def stripping(node: int, request: object, **options: object) -> Any:
            nonlocal stripped
            answer = await ask(node, request, **options)
            if isinstance(request, FetchRequest) and stripped < 3:
                stripped += 1
                strip(answer)
            return answer

        monkeypatch.setattr(consumer._client, "send", stripping)
        await send(memory, topic, None)
        signals.sent(SentBatch(topic))  # of which the broker has not said where it is
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        monkeypatch.undo()
    assert stripped == 3
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_what_was_withheld_for_long_is_given_the_time_it_needs(
    memory: Backend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a broker that was busy for a while, and then needs more than a glance to look."""
    signals, name = SendSignals(), "withheld"
    async with reading(memory, topic, Pace(0.01, 0.05), signals, name) as consumer:
        ask, stripped = consumer._client.send, 0

        async def stripping(node: int, request: object, **options: object) -> Any:
            nonlocal stripped
            answer = await ask(node, request, **options)
            busy = stripped < 3 * VAIN_MAX
            if isinstance(request, FetchRequest) and (busy or request._max_wait_ms < 50):
                stripped += 1
                strip(answer)
            return answer

        monkeypatch.setattr(consumer._client, "send", stripping)
        await send(memory, topic, None)
        signals.sent(SentBatch(topic, 2, 0, 1))
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        monkeypatch.undo()
    assert stripped >= 3 * VAIN_MAX
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


async def test_a_backlog_is_read_to_its_end_by_one_signal(memory: Backend, topic: str) -> None:
    """A fetch holds a part of it only."""
    signals, name = SendSignals(), "backlog"
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        assert consumer._fetcher is not None
        consumer._fetcher._fetch_max_bytes = 5000
        await paused(name)
        before = fetched(name)
        producer = idempotent_producer(memory, client_id="test")
        await producer.start()
        for n in range(40):
            await producer.send_and_wait(topic, b"%05d" % n * 200, partition=2)
        await producer.stop()
        signals.sent(SentBatch(topic, 2, 39, 40))
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 40:
                taken = await consumer.getmany(timeout_ms=1000)
                found += [(m.value or b"")[:5] for messages in taken.values() for m in messages]
    assert fetched(name) - before > 3
    assert found == [b"%05d" % n for n in range(40)]


async def test_a_partition_that_was_held_back_is_asked_for_when_its_reader_goes_on(
    memory: Backend, topic: str
) -> None:
    signals, name = SendSignals(), "held-back"
    partition = TopicPartition(topic, 2)
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        consumer.pause(partition)
        await paused(name)
        await send(memory, topic, signals)
        await paused(name)
        assert not await consumer.getmany(timeout_ms=200)
        consumer.resume(partition)
        taken = await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
    assert [m.value for messages in taken.values() for m in messages] == [b"value"]


@pytest.mark.parametrize("move", ["seek", "seek_to_beginning"])
async def test_a_reader_in_its_pause_can_be_sought(memory: Backend, topic: str, move: str) -> None:
    """The client sets a position only while no fetch is under way."""
    signals, name = SendSignals(), f"sought-{move}"
    partition = TopicPartition(topic, 2)
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        for _ in range(2):
            await send(memory, topic, signals)
            assert await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        await paused(name)
        if move == "seek":
            consumer.seek(partition, 0)
        else:
            async with asyncio.timeout(PATIENCE_S):
                await consumer.seek_to_beginning(partition)
        taken = await consumer.getmany(partition, timeout_ms=int(PATIENCE_S * 1000))
    assert [one.offset for one in taken[partition]] == [0, 1]


async def test_a_reader_goes_on_where_it_is_sought_just_before_a_fetch_ends(
    memory: Backend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's loop then runs between the end of the fetch and the callback that notes it."""
    monkeypatch.setattr(fetch_pacing, "HOUSEKEEPING_S", NEVER_S)
    signals, name = SendSignals(), "sought-at-the-end"
    partition = TopicPartition(topic, 2)
    async with reading(memory, topic, Pace(0.01, NEVER_S), signals, name) as consumer:
        await send(memory, topic, signals)
        assert await consumer.getmany(timeout_ms=int(PATIENCE_S * 1000))
        await paused(name)
        fetched_as_ever, ended = PacedFetches._fetched, 0

        async def fetched(fetches: PacedFetches, *_: object) -> bool:
            nonlocal ended
            ended += 1
            monkeypatch.setattr(PacedFetches, "_fetched", fetched_as_ever)
            consumer.seek(partition, 0)
            await asyncio.sleep(0)  # the client's loop is woken, and runs after the end of this
            return False

        monkeypatch.setattr(PacedFetches, "_fetched", fetched)
        signals.sent(SentBatch(topic, 2, 1, 2))
        taken = await consumer.getmany(partition, timeout_ms=int(PATIENCE_S * 1000))
    assert ended == 1
    assert [one.offset for one in taken[partition]] == [0]


async def test_a_reader_in_its_pause_can_be_stopped(memory: Backend, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with reading(memory, topic, Pace(0.01, NEVER_S), None, "stopped"):
            await paused("stopped")


async def test_no_signal_reaches_a_reader_of_other_topics_or_one_that_has_gone() -> None:
    signals, mine, other = SendSignals(), WakeUp(), WakeUp()
    signals.listen(["a", "b"], mine)
    signals.listen(["b"], other)
    signals.sent(SentBatch("a"))
    assert await mine.within(PATIENCE_S)
    assert not await other.within(0)
    mine.clear()
    signals.forget(mine)
    signals.sent(SentBatch("b"))
    assert await other.within(PATIENCE_S)
    assert not await mine.within(0)


async def test_a_signal_comes_from_any_thread() -> None:
    wakeup = WakeUp()
    await asyncio.to_thread(wakeup.set)
    assert await wakeup.within(PATIENCE_S)


def test_a_signal_to_a_loop_that_has_ended_is_nothing() -> None:
    signals = SendSignals()

    async def listen() -> None:
        signals.listen(["a"], WakeUp())

    asyncio.run(listen())
    signals.sent(SentBatch("a"))


@pytest.mark.parametrize(
    ("silence_s", "pause_s"), [(0, 0.01), (0.05, 0.01), (0.8, 0.1), (8, 1.0), (1e6, 2.0)]
)
def test_the_pause_grows_with_the_silence(silence_s: float, pause_s: float) -> None:
    assert Pace.of(MEMORY).pause_s(silence_s) == pytest.approx(pause_s)


def test_a_broker_that_wakes_its_readers_is_not_paced() -> None:
    assert Pace.of(DURABLE).idle_s == 0
