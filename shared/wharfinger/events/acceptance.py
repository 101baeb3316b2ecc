"""The decisions of the stream `intake`: that a message was accepted, and where it goes.

The message itself is the round's input; the id of its event is the decision's cause.
"""

from __future__ import annotations

from wharfinger.domain.value import Value
from wharfinger.events.envelope import NO_VERSION, FactVersion


class MessageAccepted(Value, frozen=True):
    """To be sent to `topic` under `key`; `partition_key` chooses the partition. `version`: of the
    fact, where it has one."""

    topic: str
    key: str
    partition_key: str
    version: FactVersion = NO_VERSION
