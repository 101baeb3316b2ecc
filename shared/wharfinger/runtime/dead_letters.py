"""Dead letters: a message that cannot be processed is set aside for the operator.

The dead letter is first a row of the ledger; then the publisher sends it to the topic. So it is not
lost, and the messages behind it are processed. The caller acknowledges the message only after
`lay_aside` has returned.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from uuid import UUID

import structlog

from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import derived_id
from wharfinger.events.ledger_codec import made
from wharfinger.events.streams import DEAD_LETTERS
from wharfinger.runtime.ledger import Ledger, Transient

PAYLOAD_BYTES_MAX = 512 * 1024
"""A larger payload is cut to this size, and the reason says so. As base64 it must still fit a
record that any broker takes."""

UNSENT = -1
"""The offset of a record that no broker has taken."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to be set aside. Two letters with the same `id` are the same letter. `offset`:
    `UNSENT` where no broker took the message."""

    id: UUID
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    reason: str

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
        return cls(id_, topic, partition, offset, key or b"", value, reason)

    @classmethod
    def unsent(
        cls, topic: str, partition: int, key: bytes, value: bytes, event: str, reason: str
    ) -> Letter:
        """A record that the broker refused, so it has no offset. The same event gives the same
        letter."""
        id_ = derived_id("dead-letter", topic, "unsent", key.decode(errors="replace"), event)
        return cls(id_, topic, partition, UNSENT, key, value, f"refused by the broker: {reason}")


async def lay_aside(ledger: Ledger, service: str, letter: Letter) -> None:
    """Returns when the letter is in the ledger. It retries for as long as the database is away."""
    log.warning(
        "dead_letter",
        service=service,
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        reason=letter.reason,
    )
    reason = letter.reason
    if len(letter.value) > PAYLOAD_BYTES_MAX:
        reason = f"{reason} (payload of {len(letter.value)} bytes cut to {PAYLOAD_BYTES_MAX})"
    data = MessageDeadLettered(
        service,
        letter.topic,
        letter.partition,
        letter.offset,
        reason,
        base64.b64encode(letter.value[:PAYLOAD_BYTES_MAX]).decode(),
        letter.key.decode(errors="replace"),
    )
    event = made(data, id=letter.id, source=f"/wharfinger/{service}", subject=letter.topic)
    # This is rare: a service does not load the code that writes until there is a dead letter.
    from wharfinger.runtime.ledger import Submission

    submission = Submission(event, DEAD_LETTERS.name, letter.topic, letter.topic)
    pause = 0.05
    while True:
        try:
            await ledger.accept([submission])
            return
        except Transient as error:
            log.warning("ledger.away", service=service, why=str(error), retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)
