"""From Kafka records to messages: decoding, tombstones, dead letters, and events that came in
several records.

Every record is decoded once, where it enters; a large one on a thread. An event that is too large
for one record comes in parts, which are joined here (`events.parts`): a service only sees whole
events. What cannot be decoded becomes a row of the ledger (stream `intake`, topic
`wharfinger.dead-letters`), and is acknowledged after that. Those rows are written beside the
reader: the records behind are processed meanwhile, and say that reading has to begin again at the
one whose row is not written yet. A null record removes its key from the topic. It
is not passed to a stage: the event that ended the key came before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from aiokafka.errors import KafkaError

from wharfinger.domain.value import Value
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.envelope import Event
from wharfinger.events.event_part import EventPart
from wharfinger.events.names import wrong_name
from wharfinger.events.parts import Assembler, Joined
from wharfinger.events.streams import (
    FOLLOWED,
    TOGETHER,
    TOPICS_INCARNATION,
    together_of,
    written_earlier,
)
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.believed_sources import ALL_BELIEVED, BelievedSources
from wharfinger.runtime.broadcast import BroadcastConsumer
from wharfinger.runtime.dead_letters import Letter
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.letter_box import LetterBox
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.send_signals import SendSignals
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.unpacking import REFUSED

RECEIVED_BYTES_MAX = 2 * 1024 * 1024
"""A larger record is not decoded. Ours have half of that at most (`events.streams`)."""

ON_A_THREAD_BYTES = 128 * 1024
"""From this size on a message is decoded on a thread."""

Offer = Callable[[Iterable[Message]], Awaitable[None]]

log = get_logger()


class _JoinedError(UndecodableError):
    """An event that came in parts is whole and cannot be taken in; all of its records are done with
    then."""

    def __init__(self, joined: Joined, reason: str) -> None:
        super().__init__(reason)
        self.body = joined.body
        self.ack = joined.ack


class RawRecord(Protocol):
    """A Kafka record as either kind of reader gives it; one that is to be acknowledged has an `ack`
    too."""

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
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


class InOrder:
    """Acknowledges the records of a partition in the order of their offsets, whichever is finished
    first.

    The consumer commits up to the end of the first run of acknowledged offsets, even where records
    before that run are not acknowledged. So a null record, which is finished at once, would commit
    the messages before it, which no stage has decided yet.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int], deque[_Ack]] = {}

    def expect(self, record: RawRecord) -> Callable[[], object] | None:
        """A function to call when the record is finished; None where its consumer needs no
        acknowledgement."""
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
        """The partitions were assigned again and are read from their committed offsets: an
        acknowledgement of a record from before is ignored from now on."""
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
    """`unwire` turns a broker's topic name back into the name of the stream table. `acks` keeps the
    acknowledgements in order, for a service whose consumer commits them. `abandoned`: which
    messages speak of decisions that the ledger has lost; they are left out. `believed`: the sources
    whose events are taken; an event of another one is a dead letter."""

    def __init__(
        self,
        service: str,
        ledger: Ledger,
        incarnations: Mapping[str, int],
        unwire: Callable[[str], str],
        metrics: ServiceMetrics,
        decoded: Decoded,
        acks: InOrder | None = None,
        abandoned: Callable[[Event[Value]], bool] = lambda event: False,
        believed: BelievedSources = ALL_BELIEVED,
    ) -> None:
        self._letters = LetterBox(ledger, service, self._fail)
        self.failure = ""
        """An error of the ledger that kept a dead letter from being written."""
        self._decoded = decoded
        self._parts = Assembler()
        self._acks = acks
        self._abandoned = abandoned
        self._believed = believed
        self._incarnations = incarnations
        self._written_earlier: set[str] = set()
        self._unwire = unwire
        self._metrics = metrics

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These partitions are read from another place now: the parts held of an event that has not
        come whole come again, or another process has joined them."""
        places = [(self._unwire(topic), number) for topic, number in partitions]
        self._parts.forget(places)
        self._letters.forget(places)

    async def stop(self) -> None:
        await self._letters.stop()

    async def refuse(self, message: Message, reason: str) -> None:
        """A dead letter of a message that its service cannot take in."""
        event = message.event
        letter = Letter.read(
            message.topic,
            self._incarnations[message.topic],
            message.partition,
            message.offset,
            event.subject.encode(),
            event.body,
            reason,
        )
        await self._letters.add(
            letter, self._incarnations[message.topic], self._metrics.dead_letters.inc
        )

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"

    async def messages(self, records: Iterable[RawRecord]) -> list[Message]:
        """The messages among `records`. Tombstones are acknowledged and left out; dead letters are
        too, once they are recorded."""
        found: list[Message] = []
        # All of them are expected before the first is done with: what is decoded on a thread is
        # waited for, and others come meanwhile.
        for record, ack in [
            (r, self._acks.expect(r) if self._acks else getattr(r, "ack", None)) for r in records
        ]:
            topic, value = self._unwire(record.topic), record.value
            if value is not None:
                try:
                    message = await self._message(record, topic, value, ack)
                except _JoinedError as error:
                    await self._dead_letter(topic, record, error.body, str(error), error.ack)
                except UndecodableError as error:
                    await self._dead_letter(topic, record, value, str(error), ack)
                else:
                    if message is not None:
                        found.append(message)
            elif ack is not None:
                ack()
        return found

    async def _message(
        self, raw: RawRecord, topic: str, value: bytes, ack: Callable[[], object] | None
    ) -> Message | None:
        """None: a part of an event whose other parts are still to come, or never will; or of
        decisions that the ledger has lost; or written to a topic that had begun again by a
        publisher that had not. Raises UndecodableError."""
        partition, offset = raw.partition, raw.offset
        place = topic, partition
        if (size := len(value) + len(raw.key or b"")) > RECEIVED_BYTES_MAX:
            raise UndecodableError(
                f"a record of {size:,} bytes; expected at most {RECEIVED_BYTES_MAX:,}"
            )
        followed, together = False, None
        for name, content in raw.headers:
            if name == TOPICS_INCARNATION and self._is_earlier(topic, content):
                if ack is not None:
                    ack()
                return None
            if name == REFUSED:
                raise UndecodableError((content or b"").decode(errors="replace"))
            followed = followed or name == FOLLOWED
            together = together_of(content) if name == TOGETHER else together
        record = event = await self._event(topic, partition, offset, value)
        while isinstance(event.data, EventPart):  # a part may itself be divided
            self._believe(topic, event)
            joined = self._parts.add(place, offset, event, event.data, ack)
            if joined is None:
                return None
            ack = joined.ack
            try:
                event = await _decoded(joined.body)
                self._believe(topic, event)
            except UndecodableError as error:
                raise _JoinedError(joined, str(error)) from None
        self._believe(topic, event)
        if self._abandoned(event):
            if ack is not None:
                ack()
            return None
        return Message(
            topic,
            partition,
            offset,
            event,
            ack,
            self._letters.reached(topic, partition, self._parts.reached(place, offset)),
            record.sha256,
            followed,
            together,
        )

    def _is_earlier(self, topic: str, header: bytes | None) -> bool:
        earlier = written_earlier(header, self._incarnations[topic])
        if earlier and topic not in self._written_earlier:
            self._written_earlier.add(topic)
            log.info("records.written_earlier", topic=topic, why="they come again")
        return earlier

    def _believe(self, topic: str, event: Event[Value]) -> None:
        """UndecodableError: its source may not send it."""
        if refusal := self._believed.refusal(topic, event):
            raise UndecodableError(refusal)

    async def _event(self, topic: str, partition: int, offset: int, value: bytes) -> Event[Value]:
        if len(value) < ON_A_THREAD_BYTES:
            return self._decoded.event(topic, partition, offset, value, _checked)
        known = self._decoded.known(topic, partition, offset, value)
        event = known or await _decoded(value)
        return self._decoded.event(topic, partition, offset, value, lambda _: event)

    async def _dead_letter(
        self,
        topic: str,
        raw: RawRecord,
        value: bytes,
        reason: str,
        ack: Callable[[], object] | None,
    ) -> None:
        life = self._incarnations[topic]
        letter = Letter.read(topic, life, raw.partition, raw.offset, raw.key, value, reason)

        def done() -> None:
            self._metrics.dead_letters.inc()
            if ack is not None:
                ack()

        await self._letters.add(letter, life, done)


async def _decoded(body: bytes) -> Event[Value]:
    if len(body) < ON_A_THREAD_BYTES:
        return _checked(body)
    return await asyncio.to_thread(_checked, body)


def _checked(body: bytes) -> Event[Value]:
    """The event, whose names are names; those of an event in parts are looked at when it is whole.
    Here and not where messages are made, so that services that share a process share this work
    too. Raises UndecodableError."""
    event = decode(body)
    if not isinstance(event.data, EventPart) and (wrong := wrong_name(event.data)):
        raise UndecodableError(f"data.{wrong}")
    return event


class BroadcastReading:
    """Reads whole topics for one loop. `restart` begins again; `offer` takes messages, `caught_up`
    is called when the ends that stood at the beginning have been offered."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        topics: Sequence[str],
        reading: Reading,
        offer: Offer,
        caught_up: Callable[[], None],
        fetch_wait_ms: int = 0,
        signals: SendSignals | None = None,
    ) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._signals = signals
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
            self._task = asyncio.create_task(
                self._guarded(begin or {}), name=f"broadcast-{self._name}"
            )
        else:
            self._caught_up()

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    async def _guarded(self, begin: Mapping[tuple[str, int], int]) -> None:
        """Record why the reader failed. Without that, its service would go on to decide from old
        facts."""
        try:
            await self._read(begin)
        except Exception as error:  # any failure: the process restarts
            self.failure = f"{type(error).__name__}: {error}"
            log.exception("broadcast.failed", service=self._name)

    async def _read(self, begin: Mapping[tuple[str, int], int]) -> None:
        """Read, and wait for a broker that is away. The receiver recognises a record that is
        offered twice by its offset."""
        pause = 0.05
        while True:
            consumer = BroadcastConsumer(
                self._backend,
                self._topics,
                client_id=f"wharfinger-{self._name}",
                begin=begin,
                fetch_wait_ms=self._fetch_wait_ms,
                signals=self._signals,
                service=self._name,
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
