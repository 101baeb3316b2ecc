"""From Kafka records to messages: decoding, tombstones, dead letters.

Every record is decoded once, where it enters. What cannot be decoded becomes a row of the ledger first (stream `intake`,
topic `wharfinger.dead-letters`) and only then is it acknowledged; the service goes on. A null record forgets its key: the
event that ended the key came before it, so there is nothing to tell a stage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog
from aiokafka.errors import KafkaError

from wharfinger.domain.value import Value
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.envelope import Event
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.broadcast import BroadcastConsumer
from wharfinger.runtime.dead_letters import lay_aside
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.stage_loop import Message

Offer = Callable[[Iterable[Message]], Awaitable[None]]

log = structlog.get_logger()


class RawRecord(Protocol):
    """A Kafka record as either kind of reader gives it; one that is to be acknowledged has an `ack` too."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class Decoded:
    """Events decoded lately in this process, by place: services that share a process share the work of decoding.

    `size` 0 keeps none. Oldest out first; an event that is asked for again after that is decoded again.
    """

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._events: dict[tuple[str, int, int], Event[Value]] = {}

    def event(self, topic: str, partition: int, offset: int, body: bytes) -> Event[Value]:
        """Raises UndecodableError."""
        place = (topic, partition, offset)
        known = self._events.get(place)
        if known is not None and known.body == body:
            return known
        event = decode(body)
        if self._size:
            if len(self._events) >= self._size:
                del self._events[next(iter(self._events))]
            self._events[place] = event
        return event


class InOrder:
    """Acknowledges the records of a partition in the order of their offsets, whatever is done with first.

    The consumer commits behind the first run of acknowledged offsets, even where it leaves out what comes before: a null
    record that is done with at once would take the messages before it along, which nobody has decided yet.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int], deque[_Ack]] = {}

    def expect(self, record: RawRecord) -> Callable[[], object] | None:
        """To be called when the record is done with; None where nobody waits for it."""
        ack = getattr(record, "ack", None)
        if ack is None:
            return None
        place = record.topic, record.partition
        pending = self._pending.get(place)
        if pending is None:
            pending = self._pending[place] = deque()
        pending.append(expected := _Ack(ack, pending))
        return expected

    def forget(self) -> None:
        """The partitions were dealt anew and are read from where they were committed: what is done with of the records
        handed over before counts no more."""
        for pending in self._pending.values():
            pending.clear()
        self._pending.clear()


class _Ack:
    __slots__ = ("_ack", "_done", "_pending")

    def __init__(self, ack: Callable[[], object], pending: deque[_Ack]) -> None:
        self._ack = ack
        self._pending = pending
        self._done = False

    def __call__(self) -> None:
        self._done = True
        while self._pending and self._pending[0]._done:
            self._pending.popleft()._ack()


class Reading:
    """`unwire` turns a broker's topic name back into the name of the stream table. `acks` keeps the acknowledgements in order,
    for a service whose consumer commits them."""

    def __init__(
        self,
        service: str,
        ledger: Ledger,
        incarnations: Mapping[str, int],
        unwire: Callable[[str], str],
        metrics: ServiceMetrics,
        decoded: Decoded,
        acks: InOrder | None = None,
    ) -> None:
        self._decoded = decoded
        self._acks = acks
        self._service = service
        self._ledger = ledger
        self._incarnations = incarnations
        self._unwire = unwire
        self._metrics = metrics

    async def messages(self, records: Iterable[RawRecord]) -> list[Message]:
        """The messages among `records`; tombstones and dead letters (by then recorded) are acknowledged and left out."""
        found: list[Message] = []
        # All of them are expected before the first is done with: a dead letter is waited for, and others come meanwhile.
        for record, ack in [(r, self._acks.expect(r) if self._acks else getattr(r, "ack", None)) for r in records]:
            topic, value = self._unwire(record.topic), record.value
            if value is not None:
                try:
                    event = self._decoded.event(topic, record.partition, record.offset, value)
                    found.append(Message(topic, record.partition, record.offset, event, ack))
                    continue
                except UndecodableError as error:
                    await self._dead_letter(topic, record.partition, record.offset, record.key, value, str(error))
            if ack is not None:
                ack()
        return found

    async def _dead_letter(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes, reason: str
    ) -> None:
        life = self._incarnations[topic]
        await lay_aside(self._ledger, self._service, topic, life, partition, offset, key, value, reason)
        self._metrics.dead_letters.inc()


class BroadcastReading:
    """Reads whole topics for one loop. `restart` begins anew; `offer` takes messages, `caught_up` is called when the ends
    that stood at the beginning have been offered."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        topics: Sequence[str],
        reading: Reading,
        offer: Offer,
        caught_up: Callable[[], None],
        fetch_wait_ms: int = 0,
    ) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._name = name
        self._backend = backend
        self._topics = topics
        self._reading = reading
        self._offer = offer
        self._caught_up = caught_up
        self._task: asyncio.Task[None] | None = None
        self.failure = ""

    async def restart(self, begin: Mapping[tuple[str, int], int] | None = None) -> None:
        await self.stop()
        if self._topics:
            self._task = asyncio.create_task(self._guarded(begin or {}), name=f"broadcast-{self._name}")
        else:
            self._caught_up()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _guarded(self, begin: Mapping[tuple[str, int], int]) -> None:
        """A reader that ended unheard would leave its service deciding from what it last knew."""
        try:
            await self._read(begin)
        except Exception as error:  # whatever it is: restart
            self.failure = f"{type(error).__name__}: {error}"
            log.exception("broadcast.failed", service=self._name)

    async def _read(self, begin: Mapping[tuple[str, int], int]) -> None:
        """A broker that is away is waited for; what was offered twice is recognised by its offset."""
        pause = 0.05
        while True:
            consumer = BroadcastConsumer(
                self._backend,
                self._topics,
                client_id=f"wharfinger-{self._name}",
                begin=begin,
                fetch_wait_ms=self._fetch_wait_ms,
            )
            try:
                async with consumer:
                    told = asyncio.create_task(self._tell(consumer))
                    try:
                        async for batch in consumer.batches():
                            await self._offer(await self._reading.messages(batch))
                            pause = 0.05
                    finally:
                        told.cancel()
                return
            except (BackendError, KafkaError, OSError) as error:
                log.warning("broker.away", service=self._name, why=str(error), retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    async def _tell(self, consumer: BroadcastConsumer) -> None:
        await consumer.caught_up.wait()
        self._caught_up()
