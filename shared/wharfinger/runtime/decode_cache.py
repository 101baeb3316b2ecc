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

    def event(
        self,
        topic: str,
        partition: int,
        offset: int,
        body: bytes,
        decode: Callable[[bytes], Event[Value]],
    ) -> Event[Value]:
        """Raises what `decode` raises, which is asked for what is not known."""
        place = (topic, partition, offset)
        known = self._events.get(place)
        if known is not None and known.body == body:
            return known
        event = decode(body)
        if self._size:
            if len(self._events) >= self._size:
                del self._events[next(iter(self._events))]
            self._events[place] = event
        return event
