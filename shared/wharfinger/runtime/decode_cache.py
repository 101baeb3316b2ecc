"""What was read from topics lately, decoded: services that share a process share the work.
Who reads says how it is decoded.

Only what another reader has yet to take is kept. In a process of one service no topic has another
reader, and the cache would hold the last thousands of decoded events, some 40 MiB, and never give
one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event

SIZE = 8192
BYTES_MAX = 8 * 2**20
"""Of encoded events. Decoded they take some five times as much; a message to a cluster may have
hundreds of assignments."""


class Decoded:
    """Events decoded lately in this process, by place: services that share a process share the work
    of decoding.

    Kept are events of topics that at least two services read, until as many readers have taken
    them, at most `size` of them, with `bytes_max` bytes of encoded events; `size` 0 keeps none.
    Oldest out first; an event that is asked for again after that is decoded again.
    """

    def __init__(self, size: int = SIZE, bytes_max: int = BYTES_MAX) -> None:
        self._size = size
        self._bytes_max = bytes_max
        self._bytes = 0
        self._events: dict[tuple[str, int, int], tuple[Event[Value], int]] = {}
        """By place: the event, and how many readers have yet to take it."""
        self._readers: Counter[str] = Counter()

    def read_by_another(self, topics: Iterable[str]) -> None:
        """One more service of this process reads these topics."""
        self._readers.update(set(topics))

    def known(self, topic: str, partition: int, offset: int, body: bytes) -> Event[Value] | None:
        """The event at this place, where it was decoded lately from these bytes. To ask is not to
        take it."""
        event, _ = self._events.get((topic, partition, offset), (None, 0))
        return event if event is not None and event.body == body else None

    def event(
        self,
        topic: str,
        partition: int,
        offset: int,
        body: bytes,
        decode: Callable[[bytes], Event[Value]],
    ) -> Event[Value]:
        """Takes the event at this place. Raises what `decode` raises, which is asked for what is
        not known."""
        place = topic, partition, offset
        event, left = self._events.get(place, (None, 0))
        if event is None or event.body != body:
            event, left = decode(body), self._readers[topic] if self._size else 0
        self._keep(place, event, left - 1)
        return event

    def _keep(self, place: tuple[str, int, int], event: Event[Value], left: int) -> None:
        """`left`: how many readers have yet to take it."""
        if (replaced := self._events.get(place)) is not None:
            self._bytes -= len(replaced[0].body)
            if left <= 0 or replaced[0] is not event:
                del self._events[place]
        if left <= 0:
            return
        self._bytes += len(event.body)
        self._events[place] = event, left
        while len(self._events) > self._size or self._bytes > self._bytes_max:
            oldest, _ = self._events.pop(next(iter(self._events)))
            self._bytes -= len(oldest.body)
