"""Whether all that was accepted together has been read.

One acceptance of the intake has records at several *places*, partitions of topics, and readers take
places in any order. The publisher marks its records (`Message.followed` and `Message.together`). So
a reader can tell when it has all records of an acceptance that it reads, and takes a cluster
together with its nodes, its policies and its bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from wharfinger.runtime.messages import Message

REST_S = 1.0
"""The longest wait for the rest of an acceptance. It comes in milliseconds, unless the broker
refuses one of its records."""

KEPT = 4096
"""Acceptances remembered, the newest ones: of a reader that lags behind another, both have records
of the same ones."""


def is_read(
    place: str,
    broadcast: Collection[str],
    partitioned: Collection[str],
    partitions: Collection[int],
) -> bool:
    """Whether a reader reads the place (`topic/partition`) that reads these topics whole, and these
    partitions of others. The place comes from a header, so it may be any text."""
    topic, _, partition = place.rpartition("/")
    return topic in broadcast or (topic in partitioned and partition in map(str, partitions))


class ReadPlaces:
    """At which places an acceptance has been read to its last record."""

    def __init__(self) -> None:
        self._read: dict[str, set[str]] = {}

    def add(self, message: Message) -> None:
        if (mark := message.together) is not None:
            self._read.setdefault(mark.acceptance, set()).add(message.place)
            if len(self._read) > KEPT:
                del self._read[next(iter(self._read))]

    def lacks(self, message: Message, reads: Callable[[str], bool]) -> bool:
        """Whether more of what was accepted with the message is still to be read. `reads`: whether
        a place is read here."""
        mark = message.together
        if mark is None:
            return False
        read = self._read.get(mark.acceptance, ())
        return any(place not in read and reads(place) for place in mark.places)


class Acceptances:
    """Whether the acceptances of the messages that were added are complete. At each place the
    furthest message counts: one that is read again says nothing new.

    `reads`: whether a place is read here. `read`: what has been read in all; None: the messages
    that were added."""

    def __init__(self, reads: Callable[[str], bool], read: ReadPlaces | None = None) -> None:
        self._reads = reads
        self._grows = read is None
        self._read = read or ReadPlaces()
        self._furthest: dict[str, int] = {}
        self._followed: set[str] = set()
        self._lacking: set[str] = set()

    def add(self, message: Message) -> None:
        if self._furthest.get(message.place, -1) > message.offset:
            return
        self._furthest[message.place] = message.offset
        (self._followed.add if message.followed else self._followed.discard)(message.place)
        if (mark := message.together) is not None:
            if self._grows:
                self._read.add(message)
            lacks = self._read.lacks(message, self._reads)
            (self._lacking.add if lacks else self._lacking.discard)(mark.acceptance)

    def incomplete(self) -> bool:
        return bool(self._followed or self._lacking)
