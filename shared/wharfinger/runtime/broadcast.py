"""A reader of everything: all partitions of some topics, from the beginning or from where a stage
says, without a group.

Broadcast topics (clusters, policies, capacity) are read whole by every process, and services
without a stream fold theirs again at each start. Nothing is committed and nothing is shared, so
partitions are assigned by hand. `caught_up` is set when every partition has reached the end that
was seen at the start: before that, state is not to be trusted.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from wharfinger.domain.text import one_line
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.send_signals import SendSignals
from wharfinger.runtime.topics import partition_counts

if TYPE_CHECKING:
    from wharfinger.runtime.fetch_pacing import PacedFetches

BATCH_MAX = 1000
CATCH_UP_POLL_MS = (
    200  # a position may move without a record: how often it is looked at until the end is reached
)
POLL_MS = 30_000  # afterwards; a record and a stop end it at once
METADATA_TIMEOUT_S = 10.0
ENDS_TIMEOUT_S = 30.0
STOP_PATIENCE_S = 10.0

log = get_logger()


class TopicShorterError(Exception):
    """A topic ends before where it is to be read from. A new start ends its incarnation
    (`incarnation_watch`), and all is read again."""


class IncomingRecord(NamedTuple):
    """One Kafka record. `value` is None for a key that was deleted. `headers`: name and value of
    each."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


async def ends_of(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each assigned partition ends now: the offset of the next record to come. Moves the
    positions.

    Asked for the end, the memory broker answers with the first offset of the last *batch* and one,
    however many records the batch has. Of a topic that was written to between its deletion and its
    next beginning it names an end that no fetch reaches. The end that comes with a fetch is right
    on every broker, so one fetch behind that answer settles it.
    """
    begins, answers = (
        await consumer.beginning_offsets(partitions),
        await consumer.end_offsets(partitions),
    )
    written = [partition for partition in partitions if answers[partition] > begins[partition]]
    for partition in partitions:
        consumer.seek(partition, max(begins[partition], answers[partition] - 1))
    async with asyncio.timeout(ENDS_TIMEOUT_S):
        while any(consumer.highwater(partition) is None for partition in written):
            await consumer.getmany(*written, timeout_ms=20)
    return {p: consumer.highwater(p) if p in written else answers[p] for p in partitions}


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, within `STOP_PATIENCE_S`. The client waits for its own tasks without end,
    and keeps a cancellation of its caller for itself. So it stops in a task of its own: when the
    time is over, that task is cancelled and left. A fetch that pauses after a failure passes its
    cancellation on to the client, which then leaves its connections open; they are closed here."""
    stopping = asyncio.create_task(consumer.stop(), name="stop-consumer")
    try:
        done, _ = await asyncio.wait({stopping}, timeout=STOP_PATIENCE_S)
    except asyncio.CancelledError:
        stopping.cancel()
        raise
    if not done:
        log.warning("consumer_not_stopped", waited_s=STOP_PATIENCE_S)
        stopping.cancel()
    elif stopping.cancelled():
        await consumer._client.close()
    else:
        stopping.result()


class BroadcastConsumer:
    """Use as a context manager, then iterate `batches()`. One reader of `batches` at a time."""

    def __init__(
        self,
        backend: Backend,
        topics: Iterable[str],
        *,
        client_id: str,
        begin: Mapping[tuple[str, int], int] | None = None,
        fetch_wait_ms: int = 0,
        signals: SendSignals | None = None,
        service: str = "",
    ) -> None:
        self._backend = backend
        self._fetch_wait_ms = fetch_wait_ms or backend.capabilities.fetch_wait_ms
        self._signals = signals
        self._service = service or client_id
        self._fetches: PacedFetches | None = None
        self._begin = dict(begin or {})
        self._topics = sorted(set(topics))
        self._client_id = client_id
        self._consumer: AIOKafkaConsumer | None = None
        self._behind: dict[TopicPartition, int] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._stopping = False
        self.caught_up = asyncio.Event()

    @property
    def positions(self) -> Mapping[tuple[str, int], int]:
        """Next offset of each (topic, partition) that was yielded from or started at."""
        return self._positions

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Assign and seek. BackendError when the broker cannot be reached or a topic does not
        exist."""
        # Only those who read: the publisher seldom does.
        from wharfinger.runtime.fetch_pacing import Pace, PacedFetches

        self._consumer = AIOKafkaConsumer(
            **self._backend.client_options(),
            client_id=self._client_id,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=self._fetch_wait_ms,
            metadata_max_age_ms=self._backend.capabilities.metadata_max_age_ms,
            max_partition_fetch_bytes=8 * 1024 * 1024,
        )
        try:
            await self._consumer.start()
            pace = Pace.of(self._backend.capabilities, self._fetch_wait_ms)
            self._fetches = PacedFetches(
                self._consumer, self._service, self._topics, pace, self._signals
            )
            partitions = await self._partitions()
            self._consumer.assign(partitions)
            begins = await self._consumer.beginning_offsets(partitions)
            ends = await ends_of(self._consumer, partitions)
        except (KafkaError, OSError) as error:
            await self.stop()
            why = one_line(error)
            raise BackendError(
                f"broker {self._backend.bootstrap}: {', '.join(self._topics)}: {why}"
            ) from error
        except BaseException:
            await self.stop()
            raise
        for partition in partitions:
            asked = self._begin.get((partition.topic, partition.partition), 0)
            if asked > ends[partition]:
                await self.stop()
                raise TopicShorterError(
                    f"{partition.topic}/{partition.partition} ends at offset {ends[partition]}, "
                    f"it was read up to {asked}: "
                    "the topic began again or lost its end"
                )
            begins[partition] = max(begins[partition], asked)
            self._consumer.seek(partition, begins[partition])
        self._positions = {(tp.topic, tp.partition): begins[tp] for tp in partitions}
        self._behind = {tp: ends[tp] for tp in partitions if begins[tp] < ends[tp]}
        if not self._behind:
            self.caught_up.set()

    async def stop(self) -> None:
        self._stopping = True
        if self._fetches is not None:
            self._fetches.close()
        if self._consumer is not None:
            await stop_consumer(self._consumer)
            self._consumer = None

    async def batches(self) -> AsyncIterator[list[IncomingRecord]]:
        """Lists of records, in offset order within a partition, until `stop`. Never an empty list.

        `caught_up` is set after the batch that reached the end was handled, when the next one is
        asked for.
        """
        while not self._stopping and self._consumer is not None:
            poll_ms = POLL_MS if self.caught_up.is_set() else CATCH_UP_POLL_MS
            taken = await self._consumer.getmany(timeout_ms=poll_ms, max_records=BATCH_MAX)
            batch = [
                IncomingRecord(
                    message.topic,
                    message.partition,
                    message.offset,
                    message.key,
                    message.value,
                    message.headers,
                )
                for messages in taken.values()
                for message in messages
            ]
            if batch:
                self._positions.update(
                    {(record.topic, record.partition): record.offset + 1 for record in batch}
                )
                yield batch
            await self._note_progress()

    async def _note_progress(self) -> None:
        """The position, not the last record: compaction and markers leave offsets that no record
        has."""
        if self.caught_up.is_set() or self._consumer is None:
            return
        for partition, end in list(self._behind.items()):
            if await self._consumer.position(partition) >= end:
                del self._behind[partition]
        if not self._behind:
            self.caught_up.set()

    async def _partitions(self) -> list[TopicPartition]:
        """Asked of the broker: a consumer knows the partitions of its own topics only, and has none
        before it is assigned."""
        async with asyncio.timeout(METADATA_TIMEOUT_S):
            counts = await partition_counts(self._backend)
        missing = [topic for topic in self._topics if not counts.get(topic)]
        if missing:
            raise BackendError(
                f"broker {self._backend.bootstrap}: no such topic: {', '.join(missing)}"
            )
        return [
            TopicPartition(topic, partition)
            for topic in self._topics
            for partition in range(counts[topic])
        ]
