"""Where events come from: server-sent events, pulled batches, or Kafka; all for one cursor."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

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

PART = "io.wharfinger.event.part.v1"


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
        self._frames: AsyncIterator[Mapping[str, str]] | None = None
        self._reading: asyncio.Task[Mapping[str, str]] | None = None

    async def next(self, limit: int) -> Delivered:
        """What has come, at least one event or a bookmark."""
        events: list[Event] = []
        through = self._position
        while True:
            frame = await self._frame(patient=through == self._position)
            if frame is None:
                break
            if "id" in frame:
                through = int(frame["id"])
                if frame.get("event") != "bookmark":
                    events.append(Event.of(json.loads(frame["data"])))
                if len(events) >= limit:
                    break
        self._position = through
        return Delivered(events, through)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        stack, self._stack, self._frames, self._reading = self._stack, None, None, None
        if stack is not None:
            with suppress(*TRANSIENT):
                await stack.aclose()

    async def _frame(self, *, patient: bool) -> Mapping[str, str] | None:
        """The next frame. Not `patient`: None where none is here at once, or the stream ended."""
        while True:
            try:
                if self._frames is None:
                    if not patient:
                        return None
                    await self._connect()
                if self._reading is None:
                    self._reading = asyncio.ensure_future(self._read())
                if not patient:
                    await asyncio.wait({self._reading}, timeout=0.002)
                    if not self._reading.done():
                        return None
                reading = self._reading
                found = await asyncio.shield(reading)
                self._reading = None
                self._failed = 0
                return found
            except TRANSIENT:
                await self.close()
                if not patient:
                    return None
                await self._wait()
            except ApiError as error:
                await self.close()
                raise self._meaning(error) from error

    async def _read(self) -> Mapping[str, str]:
        assert self._frames is not None, "connected before"
        try:
            return await anext(self._frames)
        except StopAsyncIteration:
            raise UnreachableError("the stream ended") from None
        except httpx.TransportError as error:
            raise UnreachableError(str(error)) from error

    async def _connect(self) -> None:
        call = api.events_after(self._wanted, str(self._position))
        stack = AsyncExitStack()
        opened = self._client.frames(call.path, call.query)
        self._frames = await stack.enter_async_context(opened)
        self._stack = stack


class Kafka:
    """Records of `wharfinger.decisions`, from all partitions. Its own offsets are not used: they
    are with the cursor. `settings`: more for aiokafka, as for TLS. The filter may have types,
    namespaces, bindings and streams."""

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

    async def begin(self, start: str, wanted: EventFilter) -> Cursor:
        """ValueError: Kafka knows no positions; begin over HTTP, then change to Kafka."""
        if start not in ("earliest", "latest"):
            raise ValueError(f"start: expected earliest or latest with Kafka, got {start!r}")
        consumer = await self._connected()
        partitions = consumer.assignment()
        find = consumer.beginning_offsets if start == "earliest" else consumer.end_offsets
        found = await find(list(partitions))
        offsets = {str(p.partition): offset for p, offset in found.items()}
        return Cursor(0, wanted.digest(), offsets=offsets)

    async def open(self, cursor: Cursor, wanted: EventFilter) -> None:
        wanted.takes(Event(0, "", "", "", "", "", None, {}))  # ValueError: it asks for too much
        self._wanted = wanted
        consumer = await self._connected()
        self._parts.clear()
        earliest = await consumer.beginning_offsets(list(consumer.assignment()))
        self._offsets = {}
        for partition, first in earliest.items():
            number = str(partition.partition)
            known = cursor.offsets.get(number)
            if known is None and cursor.offsets:
                known = first  # a partition that was added
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
        found = await self._consumer.getmany(timeout_ms=1000, max_records=limit)
        events: list[Event] = []
        for partition, records in found.items():
            for record in records:
                event = self._whole(partition.partition, record)
                if event is not None and self._wanted.takes(event):
                    events.append(event)
            number = str(partition.partition)
            self._offsets[number] = self._read_through(partition.partition, records[-1].offset) + 1
        return Delivered(events, None, dict(self._offsets))

    def _read_through(self, partition: int, offset: int) -> int:
        """Up to where all events are whole: an event whose last part is to come is read again."""
        for key, parts in list(self._parts.items()):
            if key[0] == partition and offset - parts.offset > STALE_AFTER:
                del self._parts[key]  # its writer stopped in the middle and sent it again
        return min([offset, *(p.offset - 1 for k, p in self._parts.items() if k[0] == partition)])

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None

    async def _connected(self) -> Any:
        if self._consumer is None:
            # needed for this source only
            import aiokafka

            made: Any = aiokafka.AIOKafkaConsumer
            consumer = made(
                bootstrap_servers=self._bootstrap,
                group_id=None,
                enable_auto_commit=False,
                **self._settings,
            )
            await consumer.start()
            self._consumer = consumer
            partitions = await self._partitions(consumer)
            consumer.assign([aiokafka.TopicPartition(self._topic, number) for number in partitions])
        return self._consumer

    async def _partitions(self, consumer: Any) -> list[int]:
        topics = await consumer.topics()
        if self._topic not in topics:
            await self.close()
            raise ConsumerError(f"{self._bootstrap} has no topic {self._topic}")
        return sorted(consumer.partitions_for_topic(self._topic))

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


@dataclass(slots=True)
class _Parts:
    """Of one large event. `offset`: of its first record."""

    offset: int
    payloads: list[bytes] = field(default_factory=list)
