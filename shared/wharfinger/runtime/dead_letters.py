"""Laying a message aside for people: first a row of the ledger, then the publisher tells the topic.

What is laid aside is never lost and never in the way. The caller acknowledges the message only after this has returned.
"""

from __future__ import annotations

import asyncio
import base64

import structlog

from wharfinger.events.codec import made
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import DEAD_LETTERS
from wharfinger.runtime.ledger import Ledger, Submission, Transient

PAYLOAD_BYTES_MAX = 512 * 1024
"""More of a dead letter than this is cut off and said to be: as base64 it must still be a record that any broker takes."""

log = structlog.get_logger()


async def lay_aside(
    ledger: Ledger,
    service: str,
    topic: str,
    incarnation: int,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes,
    reason: str,
) -> None:
    """Returns when the ledger has it, however long that takes. `incarnation`: of the topic. The same place is the same letter."""
    log.warning("dead_letter", service=service, topic=topic, partition=partition, offset=offset, reason=reason)
    if len(value) > PAYLOAD_BYTES_MAX:
        reason = f"{reason} (payload of {len(value)} bytes cut to {PAYLOAD_BYTES_MAX})"
    # Without the service in it: several services may read the same bad record, which is one dead letter.
    id = derived_id("dead-letter", topic, incarnation, partition, offset)
    data = MessageDeadLettered(
        service, topic, partition, offset, reason, base64.b64encode(value[:PAYLOAD_BYTES_MAX]).decode(),
        (key or b"").decode(errors="replace"),
    )  # fmt: skip
    event = made(data, id=id, source=f"/wharfinger/{service}", subject=topic)
    pause = 0.05
    while True:
        try:
            await ledger.accept([Submission(event, DEAD_LETTERS.name, topic, topic)])
            return
        except Transient as error:
            log.warning("ledger.away", service=service, why=str(error), retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)
