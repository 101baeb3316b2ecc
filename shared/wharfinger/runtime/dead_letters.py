"""Dead letters: a message that cannot be processed is set aside for the operator.

The dead letter is first a row of the ledger; then the publisher sends it to the topic. So it is not
lost, and the messages behind it are processed. The caller acknowledges the message only after it
was written.

A letter can always be written: payload, key and reason are cut to bounds that together stay below
what the ledger takes of one event. Readers write theirs in batches (`runtime.letter_box`).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from wharfinger.domain.text import printable
from wharfinger.domain.value import Value
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.ledger_codec import made
from wharfinger.events.message_codec import UndecodableError, frame_of
from wharfinger.events.streams import DEAD_LETTERS
from wharfinger.runtime.ledger import Ledger, Transient
from wharfinger.runtime.logs import get_logger

PAYLOAD_BYTES_MAX = 512 * 1024
"""A larger payload is cut to this size. As base64 it must still fit a record that any broker
takes."""

KEY_BYTES_MAX = 1024
REASON_MAX = 500
PRODUCER_MAX = 200

UNSENT = -1
"""The offset of a record that no broker has taken."""
HELD_BACK = -2
"""The offset of an event that a stage took in and held back. A stage does not keep where such an
event stood on its topic."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to be set aside. Two letters with the same `id` are the same letter. `offset`:
    `UNSENT` where no broker took the message, `HELD_BACK` where a stage had taken it in; then
    `partition` is 0. `key` and `value` are cut already, `key_bytes` and
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
        """One for all of them, which are of one partition and in order of their offsets. The same
        records give the same letter."""
        first, last = letters[0], letters[-1]
        # With the last: who reads a part again, and more behind it, counts from the same record on.
        place = (first.topic, incarnation, first.partition, first.offset, last.offset)
        return replace(
            first,
            id=derived_id("dead-letters", *place, len(letters)),
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

    @classmethod
    def held_back(
        cls, topic: str, stream: str, key: bytes, value: bytes, event: str, reason: str
    ) -> Letter:
        """An event that `stream` took in, held back, and cannot apply. The same event of the same
        stream gives the same letter. `event`: its id."""
        id_ = derived_id("dead-letter", topic, "held-back", stream, event)
        return cls._cut(id_, topic, 0, HELD_BACK, key, value, reason)

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


def _text(raw: bytes) -> str:
    """No database takes U+0000 in a text."""
    return raw.decode(errors="replace").replace("\0", "\ufffd")
