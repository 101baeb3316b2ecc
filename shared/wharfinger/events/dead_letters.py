"""Topic `wharfinger.dead-letters`: messages that could not be read, for people.

First a row of the stream `intake`, so that none is lost; `dead-letters retry` sends the original
bytes again.
"""

from __future__ import annotations

from wharfinger.domain.value import Value


class MessageDeadLettered(Value, frozen=True):
    """`payload`: the bytes as they came, base64. `reason`: one line. `key`: as text; bytes that are
    none are replaced.

    `payload_bytes`, `key_bytes`: of the whole, where only the beginning is here; 0: it is whole.
    `producer`: the `source` of the event, where that could be read. `more`: the letter stands for
    so many records of this partition from `offset` on, none of which is here.
    """

    service: str
    topic: str
    partition: int
    offset: int
    reason: str
    payload: str
    key: str = ""
    payload_bytes: int = 0
    key_bytes: int = 0
    producer: str = ""
    more: int = 0
