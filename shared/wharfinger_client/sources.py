"""Where events come from: server-sent events, pulled batches, or Kafka; all for one cursor."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import httpx

from wharfinger_client import api
from wharfinger_client.client import AsyncClient, Retries
from wharfinger_client.cursors import Cursor
from wharfinger_client.errors import (
    ApiError,
    ConsumerError,
    GapError,
    InvalidError,
    RetiredError,
    RewindError,
    TooManyError,
    UnavailableError,
    UnreachableError,
)
from wharfinger_client.events import Event, EventFilter

TRANSIENT = (UnreachableError, UnavailableError, TooManyError)
PATIENT = Retries(tries=1_000_000_000)
STALE_AFTER = 1000
"""Offsets after which an event is given up whose last part has not come."""

READ_AHEAD = 1000
"""Records that are fetched at once, however few are given at a time: each fetch is looked at."""

FRAMES_AHEAD = 1000
"""Frames of a stream that are read before they are asked for."""

PART = "io.wharfinger.event.part.v1"
LAST = ".last"
DIGEST = ".digest"
"""Behind the number of a partition, among the offsets of a cursor: the offset of the record that
was read last, and a digest of it."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Delivered:
    """`through`: everything up to here was looked at; None: that is not known, as from Kafka, and
    the cursor keeps the positions of these events beside it. `offsets`: of partitions."""

    events: Sequence[Event]
    through: int | None
    offsets: Mapping[str, int] = field(default_factory=dict)


class Source(Protocol):
    async def begin(self, start: str, wanted: EventFilter) -> Cursor:
        """A cursor that begins at `start`: `earliest`, `latest`, a position, or a time."""

    async def open(self, cursor: Cursor, wanted: EventFilter) -> None:
        """Go on behind a cursor. GapError, RewindError."""

    async def next(self, limit: int) -> Delivered:
        """Wait for more. Failures that pass are waited for here."""

    async def close(self) -> None: ...


class _OverHttp:
    """What both ways over HTTP do alike."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._position = 0
        self._wanted = EventFilter()
        self._failed = 0

    async def begin(self, start: str, wanted: EventFilter) -> Cursor:
        found = await self._patiently(api.events_after(wanted, start, limit=1))
        first = found.events[0].position - 1 if found.events else found.through
        return Cursor(first, wanted.digest())

    async def open(self, cursor: Cursor, wanted: EventFilter) -> None:
        await self.close()
        self._position, self._wanted = cursor.position, wanted
        if not cursor.last_id:
            return
        before = str(cursor.last_position - 1)
        try:
            found = await self._patiently(api.events_after(wanted, before, limit=1))
        except GapError:
            return  # what was read last is retired, and what comes next may be there
        if not found.events or found.events[0].id != cursor.last_id:
            raise RewindError(
                f"the event {cursor.last_id} at position {cursor.last_position} is not there any "
                "more: the plane's database was set back, or the token sees less than before"
            )

    async def close(self) -> None: ...

    async def _patiently(self, call: api.Call[Any]) -> Any:
        while True:
            try:
                found = await self._client(call)
                self._failed = 0
                return found
            except TRANSIENT:
                await self._wait()
            except ApiError as error:
                raise self._meaning(error) from error

    async def _wait(self) -> None:
        self._failed += 1
        await asyncio.sleep(PATIENT.wait_s(min(self._failed, 10)))

    def _meaning(self, error: ApiError) -> Exception:
        if isinstance(error, RetiredError):
            return GapError(str(error), error.earliest)
        if isinstance(error, InvalidError) and error.detail.startswith("position:"):
            return RewindError(f"the plane's feed is behind this cursor: {error.detail}")
        return error


class Pull(_OverHttp):
    """Batches by long poll. `wait_s`: how long the server waits for a first event, at most 30."""

    def __init__(self, client: AsyncClient, wait_s: float = 20.0) -> None:
        super().__init__(client)
        self._wait_s = wait_s

    async def next(self, limit: int) -> Delivered:
        call = api.events_after(self._wanted, str(self._position), limit, self._wait_s)
        found = await self._patiently(call)
        self._position = found.through
        return Delivered(found.events, found.through)


class Sse(_OverHttp):
    """Server-sent events. A stream that ends or breaks is opened again behind the last id."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._stack: AsyncExitStack | None = None
        self._came: asyncio.Queue[Mapping[str, str] | Exception] = asyncio.Queue(FRAMES_AHEAD)
        """Frames that were read, and what ended the stream behind them."""
        self._reading: asyncio.Task[None] | None = None

    async def next(self, limit: int) -> Delivered:
        """What has come, at least one event or a bookmark."""
        events: list[Event] = []
        through = self._position
        while len(events) < limit:
            begun = through > self._position
            if begun and self._came.empty():
                break
            frame = await self._frame(patient=not begun)
            if frame is None:
                break
            if "id" in frame:
                through = int(frame["id"])
                if frame.get("event") != "bookmark":
                    events.append(Event.of(json.loads(frame["data"])))
        self._position = through
        return Delivered(events, through)

    async def close(self) -> None:
        stack, self._stack = self._stack, None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self._came = asyncio.Queue(FRAMES_AHEAD)
        if stack is not None:
            with suppress(*TRANSIENT):
                await stack.aclose()

    async def _frame(self, *, patient: bool) -> Mapping[str, str] | None:
        """The next one, over a new connection where the stream has ended. None: it has ended, and
        that is not waited for; what is wrong comes again with the next connection."""
        while True:
            try:
                if self._reading is None:
                    await self._connect()
                found = await self._came.get()
                if isinstance(found, Exception):
                    await self.close()
                    raise found
                self._failed = 0
                return found
            except TRANSIENT:
                if not patient:
                    return None
                await self._wait()
            except ApiError as error:
                if not patient:
                    return None
                raise self._meaning(error) from error

    async def _connect(self) -> None:
        call = api.events_after(self._wanted, str(self._position))
        stack = AsyncExitStack()
        opened = self._client.frames(call.path, call.query)
        frames = await stack.enter_async_context(opened)
        self._stack = stack
        self._reading = asyncio.create_task(_read(frames, self._came))


async def _read(
    frames: AsyncIterator[Mapping[str, str]], came: asyncio.Queue[Mapping[str, str] | Exception]
) -> None:
    """Until the stream ends; the last thing that comes is why."""
    try:
        async for frame in frames:
            await came.put(frame)
        await came.put(UnreachableError("the stream ended"))
    except httpx.TransportError as error:
        await came.put(UnreachableError(str(error)))
    except Exception as error:  # it is raised where the next frame is waited for
        await came.put(error)


class Kafka:
    """Records of `wharfinger.decisions`, from all partitions. Its own offsets are not used: they
    are with the cursor. `settings`: more for aiokafka, as for TLS. The filter may have types,
    namespaces, bindings and streams.

    A topic that was made again, or that lost its end, has other records at the offsets of the
    cursor, and some of them were not read. So the record that was read last of a partition is
    remembered by its offset and a digest of its timestamp and value. After more was fetched, it is
    read once more. Where it is not the same, the partition is read from its beginning, and what was
    taken already is passed over by its position. Example: 800 records were read, the broker lost
    all and was filled again with 1,000 in another order; all 1,000 are read, and 200 are given."""

    def __init__(
        self, bootstrap: str, topic: str = "wharfinger.decisions", **settings: Any
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._settings = settings
        self._consumer: Any = None
        self._wanted = EventFilter()
        self._offsets: dict[str, int] = {}
        self._parts: dict[tuple[int, str], _Parts] = {}
        self._ahead: dict[Any, Sequence[Any]] = {}
        """Fetched and looked at, and not given yet: records by partition."""
        self._failed = 0

    async def begin(self, start: str, wanted: EventFilter) -> Cursor:
        """ValueError: Kafka knows no positions; begin over HTTP, then change to Kafka."""
        if start not in ("earliest", "latest"):
            raise ValueError(f"start: expected earliest or latest with Kafka, got {start!r}")

        async def found() -> Mapping[Any, int]:
            consumer = await self._connected()
            find = consumer.beginning_offsets if start == "earliest" else consumer.end_offsets
            offsets: Mapping[Any, int] = await find(list(consumer.assignment()))
            return offsets

        offsets = {str(p.partition): offset for p, offset in (await self._patiently(found)).items()}
        return Cursor(0, wanted.digest(), offsets=offsets)

    async def open(self, cursor: Cursor, wanted: EventFilter) -> None:
        wanted.takes(Event(0, "", "", "", "", "", None, {}))  # ValueError: it asks for too much
        self._wanted = wanted
        self._offsets = dict(cursor.offsets)
        begun = bool(cursor.offsets) or cursor.position > 0  # there was a plane
        await self._patiently(self._seek, known=begun)

    async def _seek(self) -> None:
        """Every partition to where its cursor stands. GapError: what is there was removed."""
        consumer = await self._connected()
        self._parts.clear()
        self._ahead.clear()
        begun = bool(self._offsets)
        partitions = list(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        for partition, first in (await consumer.beginning_offsets(partitions)).items():
            number = str(partition.partition)
            known = self._offsets.get(number)
            if known is not None and known > ends[partition]:
                self._forget(number)  # it is another one, or lost its end
                known = None
            if known is None and begun:
                known = first  # that, or a partition that was added
            if self._offsets.get(number + LAST, first) < first:
                self._forget(number)  # what was read last is removed: it tells nothing any more
            if known is not None and known < first:
                raise GapError(
                    f"{self._topic}: records of partition {number} from offset {known} on were "
                    f"removed before they were read; the first is {first}",
                    None,
                )
            self._offsets[number] = first if known is None else known
            consumer.seek(partition, self._offsets[number])

    async def next(self, limit: int) -> Delivered:
        """Records of at most `limit`; none where a second passed without any."""

        async def fetched() -> Mapping[Any, Sequence[Any]]:
            if self._consumer is None:
                await self._seek()
            came: Mapping[Any, Sequence[Any]] = await self._consumer.getmany(
                timeout_ms=1000, max_records=max(limit, READ_AHEAD)
            )
            return came if await self._still_there(came) else {}

        if not self._ahead:
            self._ahead = dict(await self._patiently(fetched, known=True))
        events: list[Event] = []
        for partition, records in list(self._ahead.items()):
            given, rest = records[:limit], records[limit:]
            limit -= len(given)
            for record in given:
                event = self._whole(partition.partition, record)
                if event is not None and self._wanted.takes(event):
                    events.append(event)
            number, last = str(partition.partition), given[-1]
            self._offsets[number] = self._read_through(partition.partition, last.offset) + 1
            self._offsets[number + LAST] = last.offset
            self._offsets[number + DIGEST] = _digest(last)
            if rest:
                self._ahead[partition] = rest
            else:
                del self._ahead[partition]
            if not limit:
                break
        return Delivered(events, None, dict(self._offsets))

    async def _still_there(self, came: Mapping[Any, Sequence[Any]]) -> bool:
        """Whether the partitions of these records are the ones that were read before. False: that
        is not so or not known, and all are sought again, those that are others from their
        beginning."""
        known = [partition for partition in came if f"{partition.partition}{LAST}" in self._offsets]
        for partition in known:
            self._consumer.seek(partition, self._offsets[f"{partition.partition}{LAST}"])
        waiting, same = set(known), True
        while waiting and same:
            again = await self._consumer.getmany(*waiting, timeout_ms=1000, max_records=1)
            if not again:  # it comes late, or the partition ends before it now
                ends = await self._consumer.end_offsets(list(waiting))
                same = all(e > self._offsets[f"{p.partition}{LAST}"] for p, e in ends.items())
            for partition, (record,) in again.items():
                number = str(partition.partition)
                if (
                    record.offset != self._offsets[number + LAST]
                    or _digest(record) != self._offsets[number + DIGEST]
                ):
                    self._forget(number)
                    same = False
            waiting -= again.keys()
        if not same:
            await self.close()
            return False
        for partition in known:
            self._consumer.seek(partition, came[partition][-1].offset + 1)
        return True

    def _forget(self, number: str) -> None:
        """Where that partition was read to, and by what it is known."""
        for key in (number, number + LAST, number + DIGEST):
            self._offsets.pop(key, None)

    async def _patiently(
        self, call: Callable[[], Awaitable[_Found]], *, known: bool = False
    ) -> _Found:
        """Its result. While the broker is away it is called again over a new connection; also while
        the topic is away, where it is `known` to have been there."""
        # needed for this source only
        from aiokafka.errors import KafkaError, OffsetOutOfRangeError

        while True:
            try:
                found = await call()
                self._failed = 0
                return found
            except (_NoTopicError, KafkaError) as error:
                passes = known if isinstance(error, _NoTopicError) else _passes(error)
                if not passes and not isinstance(error, OffsetOutOfRangeError):
                    raise
                await self.close()
            self._failed += 1
            await asyncio.sleep(PATIENT.wait_s(min(self._failed, 10)))

    def _read_through(self, partition: int, offset: int) -> int:
        """Up to where all events are whole: an event whose last part is to come is read again."""
        for key, parts in list(self._parts.items()):
            if key[0] == partition and offset - parts.offset > STALE_AFTER:
                del self._parts[key]  # its writer stopped in the middle and sent it again
        return min([offset, *(p.offset - 1 for k, p in self._parts.items() if k[0] == partition)])

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._ahead.clear()
        if consumer is not None:
            await _stopped(consumer)

    async def _connected(self) -> Any:
        if self._consumer is None:
            # needed for this source only
            import aiokafka

            made: Any = aiokafka.AIOKafkaConsumer
            consumer = made(
                bootstrap_servers=self._bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                **self._settings,
            )
            self._consumer = consumer  # `close` stops it, also where it did not start
            await consumer.start()
            partitions = await self._partitions(consumer)
            consumer.assign([aiokafka.TopicPartition(self._topic, number) for number in partitions])
        return self._consumer

    async def _partitions(self, consumer: Any) -> list[int]:
        # A consumer keeps what it knows of the topics that are assigned to it, and knows the others
        # by chance only. It has no public way to ask for the partitions of one.
        brokers = await consumer._client.fetch_all_metadata()
        if self._topic not in brokers.topics():
            await self.close()
            raise _NoTopicError(f"{self._bootstrap} has no topic {self._topic}")
        partitions = brokers.partitions_for_topic(self._topic)
        if not partitions:  # it is being made
            from aiokafka.errors import LeaderNotAvailableError

            raise LeaderNotAvailableError(self._topic)
        return sorted(partitions)

    def _whole(self, partition: int, record: Any) -> Event | None:
        """None: it is a part, and others are still to come. ConsumerError: not an event."""
        if record.value is None:
            return None
        try:
            members = json.loads(record.value)
            if members.get("type") == PART:
                whole = self._joined(partition, record.offset, members)
                if whole is None:
                    return None
                members = json.loads(whole)
            return Event.of(members)
        except (ValueError, AttributeError, KeyError) as error:
            raise ConsumerError(
                f"{self._topic}: partition {partition}, offset {record.offset}: {error}"
            ) from error

    def _joined(self, partition: int, offset: int, members: Mapping[str, Any]) -> bytes | None:
        data = members["data"]
        key = (partition, str(data["event"]))
        if data["part"] == 1:
            self._parts[key] = _Parts(offset)
        held = self._parts.get(key)
        if held is None or len(held.payloads) + 1 != data["part"]:
            return None  # its beginning was not seen: it comes again as a whole
        held.payloads.append(base64.b64decode(data["payload"]))
        if data["part"] < data["parts"]:
            return None
        del self._parts[key]
        return b"".join(held.payloads)


class _NoTopicError(ConsumerError):
    """The broker has no topic of that name."""


def _passes(error: Any) -> bool:
    """Whether a failure of aiokafka is waited for. A request that had no answer in time is one, and
    so is an error without a class of its own and without a cause: no broker could be asked."""
    from aiokafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError

    if type(error) is KafkaError:
        return error.__cause__ is None
    return bool(error.retriable) or isinstance(error, KafkaTimeoutError | RequestTimedOutError)


async def _stopped(consumer: Any) -> None:
    """It has no task and no connection any more. aiokafka cancels its fetches when it stops. One
    that pauses after a failure passes its cancellation on to the caller, before connections are
    closed; so it stops in a task of its own."""
    stopping = asyncio.ensure_future(consumer.stop())
    try:
        await asyncio.wait({stopping})
    except asyncio.CancelledError:
        stopping.cancel()
        raise
    if stopping.cancelled():
        await consumer._client.close()  # there is no public way to what `stop` left open
    else:
        stopping.result()


def _digest(record: Any) -> int:
    digest = hashlib.sha256(f"{record.timestamp} ".encode() + (record.value or b"")).digest()
    return int.from_bytes(digest[:6], "big")


@dataclass(slots=True)
class _Parts:
    """Of one large event. `offset`: of its first record."""

    offset: int
    payloads: list[bytes] = field(default_factory=list)
