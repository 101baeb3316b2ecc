"""What was read from topics lately, decoded: services that share a process share the work.
Who reads says how it is decoded."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event


class Decoded:
    """Events decoded lately in this process, by place: services that share a process share the work
    of decoding.

    `size` 0 keeps none. Oldest out first; an event that is asked for again after that is decoded
    again.
    """

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._events: dict[tuple[str, int, int], Event[Value]] = {}

    def known(self, topic: str, partition: int, offset: int, body: bytes) -> Event[Value] | None:
        """The event at this place, where it was decoded lately from these bytes."""
        event = self._events.get((topic, partition, offset))
        return event if event is not None and event.body == body else None

    def event(
        self,
        topic: str,
        partition: int,
        offset: int,
        body: bytes,
        decode: Callable[[bytes], Event[Value]],
    ) -> Event[Value]:
        """Raises what `decode` raises, which is asked for what is not known."""
        if (known := self.known(topic, partition, offset, body)) is not None:
            return known
        event = decode(body)
        if self._size:
            if len(self._events) >= self._size:
                del self._events[next(iter(self._events))]
            self._events[topic, partition, offset] = event
        return event
