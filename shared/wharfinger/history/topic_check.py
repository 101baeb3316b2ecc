"""The published decisions held against the ledger: a second witness, which the database's owner
cannot rewrite with it.

Every record on the topic must be a decision of the ledger with the same bytes, in the order of its
stream; and every decision up to the publisher's cursor must be on the topic, as far back as the
topic goes. A topic may begin late for two reasons: its retention has passed, or the broker lost it
and it was filled again with what is younger than that. How much of the ledger is covered is
therefore part of the answer.

The topic is read by a consumer without a group to the end that stood there at the start; nothing is
committed. What is compared is read in this order: cursor, topic, ledger. So a decision that is
published meanwhile is never missed, and one that is on the topic was in the ledger before.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from wharfinger.events.codec import UndecodableError, decode, frame_of
from wharfinger.events.envelope import Frame, uuid_of
from wharfinger.events.event_part import EventPart
from wharfinger.events.parts import Assembler
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import DECISIONS, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.abandoned import Abandoned, incarnation_of
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.broadcast import ends_of, stop_consumer
from wharfinger.runtime.ledger import Cursor, Ledger, LedgerRow, wall_clock
from wharfinger.runtime.ledger.published import (
    Decided,
    Extent,
    decided,
    decisions_by_id,
    extents,
    life,
)
from wharfinger.runtime.topic_ids import identity, topic_ids
from wharfinger.runtime.topics import partition_counts, partition_for
from wharfinger.runtime.unpacking import bound

PUBLISHER = "publisher"
"""The consumer under whose name the publisher keeps its cursors."""

BATCH_MAX = 2000
POLL_MS = 200
SKEW_US = 60_000_000
"""By so much the clocks of those who decide and those who publish may differ before a gap is called
one."""

_SOURCE = "/wharfinger/"
_PART = LATEST[EventPart].type
_RETENTION_US = (DECISIONS.retention_ms or 0) * 1000


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`offset`: None when the record is the one that is missing. `stream` and `seq`: of the
    decision it is or should be."""

    topic: str
    partition: int
    offset: int | None
    stream: str
    seq: int
    what: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class TopicResult:
    """`records`: read. `repeats`: of them, those that stood there before. `lost`: of them,
    decisions of an earlier incarnation that the ledger lost when it went back. `decisions`: of the
    ledger, without the intake. `covered`: of them, those on the topic. `waiting`: of them, those
    the publisher has not come to. `from_us`: when the earliest one on the topic was decided (0:
    none). `life`: which incarnation of the topics this is."""

    topic: str
    life: int
    records: int = 0
    repeats: int = 0
    lost: int = 0
    decisions: int = 0
    covered: int = 0
    waiting: int = 0
    from_us: Micros = 0
    first_bad: BadRecord | None = None

    @property
    def ok(self) -> bool:
        return self.first_bad is None


class _BadRecordFound(Exception):  # noqa: N818  (a way out of the walk, never seen outside)
    def __init__(self, bad: BadRecord) -> None:
        super().__init__(bad.what)
        self.bad = bad


@dataclass(slots=True)
class _Partition:
    """`from_us`: when its first record was published; 0 before there is one. `last`: stream -> last
    new seq."""

    begin: int
    end: int
    from_us: Micros = 0
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """`published`: stream -> by seq, when it was published; 0 where it was not seen."""

    topic: str
    partitions: dict[int, _Partition]
    abandoned: Abandoned
    published: dict[str, array[int]] = field(default_factory=dict)
    records: int = 0
    repeats: int = 0
    lost: int = 0
    from_us: Micros = 0
    parts: Assembler = field(default_factory=Assembler)

    def bad(
        self,
        partition: int,
        offset: int | None,
        stream: str,
        seq: int,
        what: str,
        expected: object,
        found: object,
    ) -> _BadRecordFound:
        return _BadRecordFound(
            BadRecord(self.topic, partition, offset, stream, seq, what, str(expected), str(found))
        )

    def count(self, stream: str, after: int) -> int:
        times = self.published.get(stream)
        return 0 if times is None else sum(1 for at in times[after + 1 :] if at)


async def check_topic(ledger: Ledger, backend: Backend, prefix: str = "") -> TopicResult:
    """BackendError: the broker cannot be read, in one line. `prefix` stands before the plane's
    topics on the broker."""
    counter, boot_id = await life(ledger.database, DECISIONS.name)
    present = identity(prefix + DECISIONS.name, await topic_ids(backend), backend.boot_id)
    # Another topic than the one the cursors speak of: nothing has been published to it.
    lost = boot_id not in (present, backend.boot_id)
    cursor = Cursor({}, {}) if lost else await ledger.cursors(PUBLISHER, counter)
    seen = _Seen(prefix + DECISIONS.name, {}, Abandoned(await ledger.went_back()))
    known: Mapping[str, Extent] = {}
    bad: BadRecord | None = None
    try:
        async with _reading(backend, seen, cursor) as batches:
            async for batch in batches:
                await _compare(ledger, seen, batch)
        known = _decision_streams(await extents(ledger.database))
        await _nothing_missing(ledger, seen, known, cursor)
    except _BadRecordFound as caught:
        bad = caught.bad
        known = known or _decision_streams(await extents(ledger.database))
    except (KafkaError, OSError) as error:
        raise BackendError(
            f"broker {backend.bootstrap}: {seen.topic}: {' '.join(str(error).split())}"
        ) from error
    return TopicResult(
        seen.topic,
        counter,
        seen.records,
        seen.repeats,
        seen.lost,
        sum(extent.seq - extent.after for extent in known.values()),
        sum(seen.count(stream, extent.after) for stream, extent in known.items()),
        sum(
            max(0, extent.seq - max(extent.after, cursor.seqs.get(stream, 0)))
            for stream, extent in known.items()
        ),
        seen.from_us,
        bad,
    )


def _decision_streams(found: Mapping[str, Extent]) -> dict[str, Extent]:
    return {stream: extent for stream, extent in found.items() if stream != INTAKE}


# --- reading -------------------------------------------------------------------------------------


@asynccontextmanager
async def _reading(
    backend: Backend, seen: _Seen, cursor: Cursor
) -> AsyncIterator[AsyncIterator[Sequence[ConsumerRecord[bytes, bytes]]]]:
    """The records of all partitions, each in order of offset, to the ends that stand there now."""
    count = (await partition_counts(backend)).get(seen.topic, 0)
    if not count:
        raise BackendError(f"broker {backend.bootstrap}: no such topic: {seen.topic}")
    parts = [TopicPartition(seen.topic, number) for number in range(count)]
    consumer = AIOKafkaConsumer(
        **backend.client_options(),
        client_id="wharfinger-audit",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=backend.capabilities.fetch_wait_ms,
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )
    try:
        await consumer.start()
        bound(consumer)
        consumer.assign(parts)
        ends, begins = await ends_of(consumer, parts), await consumer.beginning_offsets(parts)
        for part in parts:
            seen.partitions[part.partition] = _Partition(begins[part], ends[part])
            _not_cut_off(seen, part.partition, cursor)
            consumer.seek(part, begins[part])
        yield _batches(consumer, {part: ends[part] for part in parts if begins[part] < ends[part]})
    finally:
        await stop_consumer(consumer)


async def _batches(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncIterator[Sequence[ConsumerRecord[bytes, bytes]]]:
    """A partition is done when the consumer's position reaches its end. The last record cannot show
    that: some offsets have no record."""
    behind = set(ends)
    while behind:
        for part, records in (
            await consumer.getmany(*behind, timeout_ms=POLL_MS, max_records=BATCH_MAX)
        ).items():
            yield [record for record in records if record.offset < ends[part]]
        behind = {part for part in behind if await consumer.position(part) < ends[part]}


def _not_cut_off(seen: _Seen, partition: int, cursor: Cursor) -> None:
    place, end = f"{DECISIONS.name}/{partition}", seen.partitions[partition].end
    if end < (published := cursor.positions.get(place, 0)):
        raise seen.bad(
            partition,
            end,
            "",
            0,
            "end",
            f"offset {published}, where the publisher had been",
            f"offset {end}",
        )


# --- what is there -------------------------------------------------------------------------------


async def _compare(
    ledger: Ledger, seen: _Seen, batch: Sequence[ConsumerRecord[bytes, bytes]]
) -> None:
    """Each event with the decision whose id it has."""
    batch = list(_joined(seen, batch))
    frames = [_frame(seen, record) for record in batch]
    ids = {id_ for frame in frames if (id_ := uuid_of(frame.id)) is not None}
    rows = await decisions_by_id(ledger.database, ids)
    retired: Mapping[str, Extent] = {}
    for record, frame in zip(batch, frames, strict=True):
        seen.records += 1
        id_ = uuid_of(frame.id)
        row = None if id_ is None else rows.get(id_)
        if row is not None:
            _same(seen, record, frame, row)
            _in_order(seen, record, row)
            continue
        if seen.abandoned.lost(*_named(frame), incarnation_of(frame.incarnation)):
            seen.lost += 1
            continue
        retired = retired or await extents(ledger.database)
        stream, seq = _named(frame)
        if not 0 < seq <= retired.get(stream, Extent(0, 0)).after:
            raise seen.bad(
                record.partition,
                record.offset,
                stream,
                seq,
                "id",
                "of a decision in the ledger",
                f"{frame.id}, unknown",
            )


def _joined(
    seen: _Seen, batch: Sequence[ConsumerRecord[bytes, bytes]]
) -> Iterator[ConsumerRecord[bytes, bytes]]:
    """Records with whole decisions in them; one that is divided counts as its last part."""
    for record in batch:
        if _frame(seen, record).type != _PART:
            yield record
            continue
        try:
            event = decode(record.value or b"")
            assert isinstance(event.data, EventPart), "the type says so"
            whole = seen.parts.add(
                (record.topic, record.partition), record.offset, event, event.data, None
            )
        except UndecodableError as error:
            raise seen.bad(
                record.partition, record.offset, "", 0, "record", "a part of a decision", error
            ) from None
        if whole is not None:
            yield replace(record, value=whole.body)


def _named(frame: Frame) -> tuple[str, int]:
    """The stream and seq that a decision gives for its own."""
    return frame.source.removeprefix(_SOURCE), int(
        frame.sequence
    ) if frame.sequence.isdecimal() else 0


def _frame(seen: _Seen, record: ConsumerRecord[bytes, bytes]) -> Frame:
    try:
        return frame_of(record.value or b"")
    except UndecodableError as error:
        raise seen.bad(
            record.partition, record.offset, "", 0, "record", "a decision", error
        ) from None


def _same(seen: _Seen, record: ConsumerRecord[bytes, bytes], frame: Frame, row: LedgerRow) -> None:
    """A record without a sequence is from before it was sent along; the id says the same."""
    count = len(seen.partitions)
    for what, recorded, published in (
        ("source", _SOURCE + row.stream, frame.source),
        ("sequence", str(row.seq), frame.sequence or str(row.seq)),
        ("type", row.type, frame.type),
        ("subject", row.subject, frame.subject),
        ("cause", str(row.cause or ""), frame.causationid),
        ("key", row.subject, (record.key or b"").decode(errors="replace")),
        ("partition", partition_for(row.subject, count), record.partition),
        ("data", row.body, bytes(frame.data)),
    ):
        if recorded != published:
            raise seen.bad(
                record.partition,
                record.offset,
                row.stream,
                row.seq,
                what,
                _text(recorded),
                _text(published),
            )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _in_order(seen: _Seen, record: ConsumerRecord[bytes, bytes], row: LedgerRow) -> None:
    """New decisions of a stream come in its order; one that comes again is a repeat, which readers
    drop by its number."""
    partition, published_us = seen.partitions[record.partition], record.timestamp * 1000
    partition.from_us = partition.from_us or published_us
    times = seen.published.setdefault(row.stream, array("q"))
    if row.seq >= len(times):
        times.extend([0] * (row.seq + 1 - len(times) + len(times) // 8))
    if times[row.seq]:
        seen.repeats += 1
        return
    last = partition.last.get(row.stream, 0)
    if row.seq < last:
        raise seen.bad(
            record.partition,
            record.offset,
            row.stream,
            row.seq,
            "order",
            f"nothing before {last + 1}",
            row.seq,
        )
    times[row.seq] = max(1, published_us)
    partition.last[row.stream] = row.seq
    partition.first.setdefault(row.stream, row.seq)
    seen.from_us = min(seen.from_us or row.at, row.at)


# --- what is not there ---------------------------------------------------------------------------


async def _nothing_missing(
    ledger: Ledger, seen: _Seen, known: Mapping[str, Extent], cursor: Cursor
) -> None:
    now = wall_clock()
    for stream, extent in known.items():
        published = min(extent.seq, cursor.seqs.get(stream, 0))
        absent = _absent(seen.published.get(stream, array("q")), extent.after, published, now)
        seqs = sorted(absent)
        for start in range(0, len(seqs), BATCH_MAX):
            for row in await decided(ledger.database, stream, seqs[start : start + BATCH_MAX]):
                partition = partition_for(row.subject, len(seen.partitions))
                if not _rightly_absent(
                    seen.partitions[partition], stream, row, absent[row.seq], now
                ):
                    raise seen.bad(
                        partition,
                        None,
                        stream,
                        row.seq,
                        "decision",
                        f"{row.subject}, decided in round {row.round}",
                        "missing",
                    )


def _absent(times: array[int], after: int, published: int, now: Micros) -> dict[int, Micros]:
    """The numbers from `after + 1` to `published` that were not seen -> when the next one of the
    stream was published."""
    absent: dict[int, Micros] = {}
    behind = now
    for seq in range(published, after, -1):
        at = times[seq] if seq < len(times) else 0
        if at:
            behind = at
        else:
            absent[seq] = behind
    return absent


def _rightly_absent(
    partition: _Partition, stream: str, row: Decided, next_us: Micros, now: Micros
) -> bool:
    """Too old to be filled in again when the next one was; or before the first record that the
    broker still keeps."""
    if row.at < next_us - _RETENTION_US + SKEW_US:
        return True
    if not partition.begin:
        return False
    return (
        row.seq < partition.first.get(stream, row.seq + 1)
        and row.at < (partition.from_us or now) + SKEW_US
    )
