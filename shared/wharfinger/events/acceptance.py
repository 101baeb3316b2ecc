"""The decisions of the stream `intake`: that a message was accepted, and where it goes.

The message itself is the round's input; the id of its event is the decision's cause.
"""

from __future__ import annotations

from wharfinger.domain.value import Value


class MessageAccepted(Value, frozen=True):
    """To be sent to `topic` under `key`; `partition_key` chooses the partition."""

    topic: str
    key: str
    partition_key: str
