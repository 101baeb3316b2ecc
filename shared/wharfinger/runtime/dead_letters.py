"""Dead letters: a message that cannot be processed is set aside for the operator.

The dead letter is first a row of the ledger; then the publisher sends it to the topic. So it is not
lost, and the messages behind it are processed. The caller acknowledges the message only after it
was written.

A letter can always be written: payload, key and reason are cut to bounds that together stay below
what the ledger takes of one event. A producer that sends nothing else cannot fill the ledger. Of
one producer `LETTERS_PER_MINUTE` letters carry their payload. One letter counts the others of a
batch, or of each `COUNTED_TOGETHER` offsets of a partition. The records stay on their topic.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import structlog

from wharfinger.domain.text import printable
from wharfinger.domain.value import Value
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.ledger_codec import made
from wharfinger.events.message_codec import UndecodableError, frame_of
from wharfinger.events.streams import DEAD_LETTERS
from wharfinger.runtime.ledger import Ledger, Transient
from wharfinger.runtime.service import end_tasks

PAYLOAD_BYTES_MAX = 512 * 1024
"""A larger payload is cut to this size. As base64 it must still fit a record that any broker
takes."""

KEY_BYTES_MAX = 1024
REASON_MAX = 500
PRODUCER_MAX = 200

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Payload of the letters that are written in one transaction, but for the last of them."""

WAITING_MAX = 500
"""Letters that wait to be written; a reader that has more waits, as where their payload is larger
than one batch."""

LETTERS_PER_MINUTE = 200
COUNTED_TOGETHER = 1000

UNSENT = -1
"""The offset of a record that no broker has taken."""

Ack = Callable[[], object]
Place = tuple[str, int]
"""Topic and partition."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to be set aside. Two letters with the same `id` are the same letter. `offset`:
    `UNSENT` where no broker took the message. `key` and `value` are cut already, `key_bytes` and
    `value_bytes` are of the whole. The other fields are as in `MessageDeadLettered`."""

    id: UUID
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    reason: str
    key_bytes: int = 0
    value_bytes: int = 0
    producer: str = ""
    more: int = 0

    @classmethod
    def _cut(
        cls,
        id: UUID,
        topic: str,
        partition: int,
        offset: int,
        key: bytes,
        value: bytes,
        reason: str,
    ) -> Letter:
        return cls(
            id,
            topic,
            partition,
            offset,
            key[:KEY_BYTES_MAX],
            value[:PAYLOAD_BYTES_MAX],
            printable(reason, REASON_MAX),
            len(key),
            len(value),
            producer_of(value),
        )

    @classmethod
    def read(
        cls,
        topic: str,
        incarnation: int,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes,
        reason: str,
    ) -> Letter:
        """A record that was read and cannot be processed. The same place gives the same letter.
        `incarnation`: of the topic."""
        # Without the service in it: several services may read the same bad record, which is one
        # dead letter.
        id_ = derived_id("dead-letter", topic, incarnation, partition, offset)
        return cls._cut(id_, topic, partition, offset, key or b"", value, reason)

    @classmethod
    def counted(cls, incarnation: int, letters: Sequence[Letter]) -> Letter:
        """One for all of them, which are of one partition and in order of their offsets."""
        first = letters[0]
        return replace(
            first,
            id=derived_id("dead-letters", first.topic, incarnation, first.partition, first.offset),
            key=b"",
            value=b"",
            key_bytes=0,
            value_bytes=0,
            more=len(letters),
        )

    @classmethod
    def unsent(
        cls, topic: str, partition: int, key: bytes, value: bytes, event: str, reason: str
    ) -> Letter:
        """A record that the broker refused, so it has no offset. The same event gives the same
        letter."""
        id_ = derived_id("dead-letter", topic, "unsent", key.decode(errors="replace"), event)
        why = f"refused by the broker: {reason}"
        return cls._cut(id_, topic, partition, UNSENT, key, value, why)

    def event(self, service: str) -> Event[Value]:
        """The letter as an event of at most some 720,000 bytes."""
        reason = self.reason
        if (whole := self.value_bytes) > len(self.value):
            reason = f"{reason} (payload of {whole} bytes cut to {len(self.value)})"
        data = MessageDeadLettered(
            service,
            self.topic,
            self.partition,
            self.offset,
            reason,
            base64.b64encode(self.value).decode(),
            _text(self.key),
            self.value_bytes if self.value_bytes > len(self.value) else 0,
            self.key_bytes if self.key_bytes > len(self.key) else 0,
            self.producer,
            self.more,
        )
        return made(data, id=self.id, source=f"/wharfinger/{service}", subject=self.topic)


def producer_of(value: bytes) -> str:
    """The `source` that the message names, "" where it is no CloudEvent. It is what the sender
    claims, and good for counting only."""
    try:
        return printable(frame_of(value).source, PRODUCER_MAX)
    except UndecodableError:
        return ""


async def lay_aside(ledger: Ledger, service: str, letters: Iterable[Letter]) -> None:
    """Returns when the letters are in the ledger. It retries for as long as the database is
    away."""
    # This is rare: a service does not load the code that writes until there is a dead letter.
    from wharfinger.runtime.ledger import Submission

    submissions = [
        Submission(letter.event(service), DEAD_LETTERS.name, letter.topic, letter.topic)
        for letter in letters
    ]
    pause = 0.05
    while True:
        try:
            await ledger.accept(submissions)
            return
        except Transient as error:
            log.warning("ledger.away", service=service, why=str(error), retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)


@dataclass(frozen=True, slots=True)
class _Waiting:
    letter: Letter
    life: int
    done: Ack

    @property
    def place(self) -> Place:
        return self.letter.topic, self.letter.partition


class LetterBox:
    """Letters of one reader that are written beside it, in batches, while the records behind them
    are processed. `failed` gets an error of the ledger that is not temporary."""

    def __init__(
        self,
        ledger: Ledger,
        service: str,
        failed: Callable[[Exception], object],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._service = service
        self._failed = failed
        self._clock_s = clock_s
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        """Payload of what waits."""
        self._writing: list[_Waiting] = []
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None
        self._minute = 0
        self._written: Counter[tuple[str, str]] = Counter()
        """Letters with their payload in this minute, by topic and producer."""

    async def add(self, letter: Letter, life: int, done: Ack) -> None:
        """`life`: the incarnation of its topic. `done` is called once it is written. Waits while
        too many wait."""
        await self._room.wait()
        self._waiting.append(_Waiting(letter, life, done))
        self._bytes += len(letter.value)
        if len(self._waiting) >= WAITING_MAX or self._bytes >= BATCH_BYTES_MAX:
            self._room.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._write(), name=f"letters-{self._service}")

    def reached(self, topic: str, partition: int, next_offset: int) -> int:
        """Where a reader must begin to meet every record of the partition whose letter is not
        written yet; `next_offset` where there is none."""
        if self._task is None:
            return next_offset
        offsets = [
            waiting.letter.offset
            for waiting in (*self._writing, *self._waiting)
            if waiting.place == (topic, partition)
        ]
        return min((*offsets, next_offset))

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are read from another place now, where their records come again."""
        gone = set(places)
        self._take([waiting for waiting in self._waiting if waiting.place in gone])

    async def stop(self) -> None:
        """What is not written is read again."""
        self._take(self._waiting)
        if self._task is not None:
            await end_tasks([self._task])

    async def _write(self) -> None:
        try:
            while self._waiting:
                self._writing = self._take(self._waiting)
                await lay_aside(self._ledger, self._service, self._limited(self._writing))
                for waiting in self._writing:
                    waiting.done()
                self._writing = []
        except Exception as error:
            self._failed(error)
        finally:
            self._task = None

    def _take(self, some: Sequence[_Waiting]) -> list[_Waiting]:
        """Those, which do not wait any longer."""
        taken = list(some)
        left = {id(waiting) for waiting in taken}
        self._waiting = [waiting for waiting in self._waiting if id(waiting) not in left]
        self._bytes = sum(len(waiting.letter.value) for waiting in self._waiting)
        self._room.set()
        return taken

    def _limited(self, batch: Sequence[_Waiting]) -> list[Letter]:
        """The letters to write: of a producer above its limit those that count."""
        minute = int(self._clock_s() // 60)
        if minute != self._minute:
            self._minute = minute
            self._written.clear()
        kept: list[Letter] = []
        counted: dict[tuple[Place, int, int], list[Letter]] = {}
        for waiting in batch:
            letter = waiting.letter
            producer = letter.topic, letter.producer
            self._written[producer] += 1
            if self._written[producer] <= LETTERS_PER_MINUTE:
                kept.append(letter)
                continue
            block = letter.offset // COUNTED_TOGETHER
            counted.setdefault((waiting.place, waiting.life, block), []).append(letter)
        log.warning(
            "dead_letters",
            service=self._service,
            letters=len(batch),
            first=f"{batch[0].letter.topic}/{batch[0].letter.partition}/{batch[0].letter.offset}",
            reason=batch[0].letter.reason,
            counted_only=len(batch) - len(kept),
        )
        kept += (Letter.counted(life, letters) for (_, life, _), letters in counted.items())
        return kept


def _text(raw: bytes) -> str:
    """No database takes U+0000 in a text."""
    return raw.decode(errors="replace").replace("\0", "\ufffd")
