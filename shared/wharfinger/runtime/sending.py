"""Sending records to the broker: each place (topic and partition) in order, and what was
acknowledged never again.

`UnacknowledgedRecords` is what is still to be sent, by place. A turn that breaks off keeps it, so
the next attempt goes on behind the last record that was acknowledged, at every place by itself. A
place whose last batch was neither acknowledged nor refused is *unsure*: who must send nothing twice
reads its end before anything is sent there again (the publisher's relay does that).

A broker refuses some records for good. Which one of a batch it was is found by sending fewer at
once; one that is too large is divided again, and what cannot be sent at all is handed back as a
`RefusedRecord`.

All producers of a plane's publishers have one fencing id (`runtime.producer`): what a publisher
sends that has been succeeded, the broker refuses. Its producer is therefore started before anything
is read that will be sent with it, and never replaced in between.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
    UnknownError,
    UnsupportedForMessageFormatError,
)

from wharfinger.events.message_codec import UndecodableError, frame_of
from wharfinger.events.parts import TooSmallLimitError, divided, part_key
from wharfinger.events.streams import (
    BY_NAME,
    FOLLOWED,
    RECORD_BYTES_MAX,
    TOGETHER,
    TOPICS,
    TOPICS_INCARNATION,
)
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.producer import (
    BATCH_BYTES_MAX,
    InvalidRecordError,
    NewerProducerError,
    Producer,
    started,
)

Place = tuple[str, int]
"""Topic, by its name in the stream table, and partition."""

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
REFUSED = (*TOO_LARGE, InvalidRecordError, UnsupportedForMessageFormatError)
"""Errors about what is in a batch: the same bytes will be refused again."""

LOST = (
    ProducerFenced,
    NewerProducerError,
    InvalidProducerEpoch,  # a newer producer has our fencing id
    OutOfOrderSequenceNumber,
    InvalidProducerIdMapping,  # the broker has forgotten ours, or part of what we sent
    UnknownError,
)
"""Nothing more can be sent with this producer."""

RECORD_OVERHEAD = 100
"""Bytes that a record takes in a batch beside key and value, at most."""

log = get_logger()


class OutgoingRecord(msgspec.Struct, frozen=True):
    """One Kafka record. `topic` is the name in the stream table; `id`: of the event in it, empty
    for tombstones.

    Of an envelope, `stream` and `seq` name the first decision in it: its reader needs every
    decision of that stream in order, so an envelope that cannot be sent holds back those after it.
    Every other record stands for itself (`stream` is empty).

    `followed`: another record at this place was accepted together with this one and comes later.
    `together`: the header that names the other places of its acceptance; empty: there are none.
    """

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    id: str = ""
    stream: str = ""
    seq: int = 0
    followed: bool = False
    together: bytes = b""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return len(self.value or b"")


class Dividing:
    """Makes as many records of one as its topic's limit asks for. `limits`: topic -> bytes that a
    record's value may have there. They may change, for records divided afterwards."""

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        self.limits = {topic.name: RECORD_BYTES_MAX for topic in TOPICS} | dict(limits or {})

    def fitting(self, record: OutgoingRecord) -> list[OutgoingRecord]:
        """Nearly always the record itself. One of which not even a part can be made stays as it is:
        the broker will refuse it, and that is dealt with there."""
        limit = self.limits[record.topic]
        if record.size <= limit:
            return [record]
        try:
            return self.divided(record, limit)
        except (TooSmallLimitError, UndecodableError):
            return [record]

    def divided(self, record: OutgoingRecord, limit: int) -> list[OutgoingRecord]:
        """Raises what `parts.divided` raises. A part may be divided again."""
        parts = divided(record.value or b"", limit)
        compacted = BY_NAME[record.topic].retention_ms is None
        return [
            msgspec.structs.replace(
                record,
                key=part_key(record.key, number) if compacted else record.key,
                value=part,
                id=frame_of(part).id,
            )
            for number, part in enumerate(parts, 1)
        ]


class ProducerLostError(Exception):
    """Perhaps a newer publisher writes to these topics: ask who leads, and begin with a new
    producer from the ledger."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that the broker refuses for good. It is not among what waits any more."""

    record: OutgoingRecord
    why: str


class RefusedError(Exception):
    """The broker refused a batch of `count` records."""

    def __init__(self, place: Place, count: int, size: int, error: KafkaError) -> None:
        super().__init__(f"{place}: {error!r}")
        self.place, self.count, self.size, self.error = place, count, size, error


@dataclass(slots=True)
class UnacknowledgedRecords:
    """Records that are not acknowledged, by place, in order. `unsure`: places at whose end some of
    them may stand."""

    records: dict[Place, deque[OutgoingRecord]] = field(default_factory=dict)
    unsure: set[Place] = field(default_factory=set)

    def add(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            self.records.setdefault(record.place, deque()).append(record)

    def drop(self, unwanted: Callable[[OutgoingRecord], bool]) -> None:
        for place, records in list(self.records.items()):
            kept = deque(record for record in records if not unwanted(record))
            if kept:
                self.records[place] = kept
            else:
                del self.records[place]

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))


class Sending:
    """`make` gives a producer that is not started; the limits of `dividing` follow what the broker
    takes. `life`: the incarnation of the topics, which a header of every record names; None: what
    is sent counts in any, because its sender sends it again whenever it starts. `positions`: place
    -> offset behind the last record that was acknowledged there. `last`: place -> offset and
    SHA-256 of the value of that record; may be cleared."""

    def __init__(
        self,
        make: Callable[[], Producer],
        dividing: Dividing,
        wire: Callable[[str], str],
        life: int | None = None,
    ) -> None:
        self._make = make
        self._written_in = [] if life is None else [(TOPICS_INCARNATION, str(life).encode())]
        self.dividing = dividing
        self._wire = wire
        self._producer: Producer | None = None
        self._batch_bytes: dict[str, int] = {}
        self._singly: set[Place] = set()
        self._refusals: deque[RefusedRecord] = deque()
        self._started_at = 0.0
        self.positions: dict[Place, int] = {}
        self.last: dict[Place, tuple[int, bytes]] = {}

    async def start(self) -> None:
        """With a new producer: any that was started before it, here or elsewhere, is fenced off."""
        await self.stop()
        self._producer = await started(self._make())
        self._started_at = asyncio.get_running_loop().time()
        self._batch_bytes.clear()
        self._singly.clear()
        self._refusals.clear()

    async def stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    @property
    def age_s(self) -> float:
        """Since the producer was started."""
        return asyncio.get_running_loop().time() - self._started_at

    async def send(self, waiting: UnacknowledgedRecords) -> RefusedRecord | None:
        """Until nothing waits, or a record is refused for good: the caller deals with it and calls
        again.

        KafkaError: some places did not get through; they are unsure, the others are done.
        ProducerLostError: send none of it.
        """
        if self._producer is None:
            await self.start()
        while waiting:
            refused: list[RefusedError] = []
            failed: list[BaseException] = []
            places = [
                self._send_place(place, records) for place, records in waiting.records.items()
            ]
            for place, outcome in zip(
                list(waiting.records),
                await asyncio.gather(*places, return_exceptions=True),
                strict=True,
            ):
                if not waiting.records[place]:
                    del waiting.records[place]
                if isinstance(outcome, RefusedError):
                    refused.append(outcome)
                elif isinstance(outcome, BaseException):
                    waiting.unsure.add(place)
                    failed.append(outcome)
            for error in failed:
                if isinstance(error, LOST):
                    raise ProducerLostError(f"{type(error).__name__}: {error}") from error
            refusals = [self._reduce(one, waiting) for one in refused]
            self._refusals += [refusal for refusal in refusals if refusal is not None]
            if failed:
                raise failed[0]
            if self._refusals:
                return self._refusals.popleft()
        return self._refusals.popleft() if self._refusals else None

    def _reduce(
        self, refused: RefusedError, waiting: UnacknowledgedRecords
    ) -> RefusedRecord | None:
        """Make less of what was refused: fewer records at once, then a record in more parts."""
        topic, records = refused.place[0], waiting.records[refused.place]
        too_large = isinstance(refused.error, TOO_LARGE)
        if refused.count > 1:
            if too_large:
                self._batch_bytes[topic] = refused.size // 2
            else:
                self._singly.add(refused.place)
            return None
        record = records.popleft()
        self._singly.discard(refused.place)
        why = f"{type(refused.error).__name__}: {refused.error}"
        if too_large:
            known = self.dividing.limits[topic]
            # A record that is larger than the known limit was made before that was found.
            limit = known if record.size > known else record.size // 2
            try:
                parts = self.dividing.divided(record, limit)
            except (TooSmallLimitError, UndecodableError) as error:
                why = f"{why}; {error}"
            else:
                if limit < known:
                    log.warning(
                        "topic.takes_less", topic=topic, refused_bytes=record.size, limit=limit
                    )
                self.dividing.limits[topic] = limit
                records.extendleft(reversed(parts))
                return None
        if not records:
            del waiting.records[refused.place]
        return RefusedRecord(record, why)

    async def _send_place(self, place: Place, records: deque[OutgoingRecord]) -> None:
        """One batch after another; each leaves `records` when it is acknowledged."""
        topic, partition = place
        while records:
            assert self._producer is not None, "started"
            builder = self._producer.create_batch()
            count = size = 0
            most = min(self._batch_bytes.get(topic, BATCH_BYTES_MAX), self.dividing.limits[topic])
            for record in records:
                takes = record.size + len(record.key) + len(record.together) + RECORD_OVERHEAD
                if count and (size + takes > most or place in self._singly):
                    break
                headers = [*self._written_in]
                if record.followed:
                    headers.append((FOLLOWED, b""))
                if record.together:
                    headers.append((TOGETHER, record.together))
                if (
                    builder.append(
                        key=record.key, value=record.value, timestamp=None, headers=headers
                    )
                    is None
                ):
                    break
                count, size = count + 1, size + takes
            if not count:  # larger than anything that the client sends
                raise RefusedError(
                    place,
                    1,
                    records[0].size,
                    MessageSizeTooLargeError(f"{records[0].size:,} bytes"),
                )
            try:
                future = await self._producer.send_batch(
                    builder, self._wire(topic), partition=partition
                )
                metadata = await asyncio.shield(future)
            except REFUSED as error:
                self._producer.take_back(self._wire(topic), partition, count)
                raise RefusedError(place, count, size, error) from error
            for _ in range(count):
                record = records.popleft()
            if metadata.offset >= 0:  # the broker does not tell it of a batch that it had already
                self.positions[place] = max(self.positions.get(place, 0), metadata.offset + count)
                self.last[place] = (
                    metadata.offset + count - 1,
                    hashlib.sha256(record.value or b"").digest(),
                )


def as_text(place: Place) -> str:
    """A place as cursors name it."""
    return f"{place[0]}/{place[1]}"
