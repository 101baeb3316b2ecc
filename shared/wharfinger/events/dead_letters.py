"""Topic `wharfinger.dead-letters`: messages that could not be read, for people.

First a row of the stream `intake`, so that none is lost; `dead-letters retry` sends the original
bytes again.
"""

from __future__ import annotations

from wharfinger.domain.value import Value


class MessageDeadLettered(Value, frozen=True):
    """`payload`: the bytes as they came, base64. `reason`: one line."""

    service: str
    topic: str
    partition: int
    offset: int
    reason: str
    payload: str
    key: str = ""
