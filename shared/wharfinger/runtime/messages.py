"""What readers hand to a loop: one event each, with the place that it was read from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.streams import Together


class Message(msgspec.Struct, frozen=True, eq=False):
    """One event as it was read. `ack` acknowledges it to the consumer; None where no consumer waits
    for that. `reached`: the offset at which a reader must continue to miss no later event; -1: the
    next offset. It is lower while an event that is divided into several records is incomplete.
    `sha256`: of the record's value, if that is not the event's body. `followed`: another event at
    this place was accepted together with this one and comes later. `together`: of the last event of
    an acceptance at this place, where the others are; None: there are no others. `arrived_s`: when
    it was read, by the monotonic clock."""

    topic: str
    partition: int
    offset: int
    event: Event[Value]
    ack: Callable[[], object] | None = None
    reached: int = -1
    sha256: bytes = b""
    followed: bool = False
    together: Together | None = None
    arrived_s: float = msgspec.field(default_factory=time.monotonic)

    @property
    def next_offset(self) -> int:
        return self.offset + 1 if self.reached < 0 else self.reached

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}"

    def acknowledge(self) -> None:
        if self.ack is not None:
            self.ack()


class Routing(Protocol):
    """Which streams of a group an event is for."""

    @property
    def prefix(self) -> str:
        """All streams of the stage begin with it."""
        ...

    def group_of(self, stream: str) -> int: ...

    def permanent_streams(self, group: int) -> Sequence[str]:
        """Streams that a group always has."""
        ...

    def addressed(self, message: Message) -> Sequence[str] | None:
        """The streams that the message is for; None: all streams of all groups we hold."""
        ...
