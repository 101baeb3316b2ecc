"""When what is to be looked at again: one due time a key.

A stage with thousands of keys must answer "when next?" after every batch of events, so the earliest due time is kept at
hand in a heap. Moving a key leaves its old entry in the heap; it is recognised as outdated when it comes up, and the heap
is rebuilt before such entries outnumber the live ones.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from wharfinger.kernel.decider import Micros

K = TypeVar("K", bound=tuple[str, ...])


class Agenda(Generic[K]):
    """Due times by key. Keys are tuples of names, so that keys due together have an order of their own."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[K, Micros] = {}
        self._heap: list[tuple[Micros, K]] = []

    def __len__(self) -> int:
        return len(self._due)

    def copy(self) -> Agenda[K]:
        other: Agenda[K] = Agenda()
        other._due, other._heap = self._due.copy(), self._heap.copy()
        return other

    def due(self, key: K) -> Micros | None:
        return self._due.get(key)

    def set(self, key: K, due: Micros) -> None:
        """Look at `key` at `due`, and not at the time set before."""
        if self._due.get(key) == due:
            return
        self._due[key] = due
        heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(when, k) for k, when in self._due.items()]
            heapify(self._heap)

    def discard(self, key: K) -> None:
        self._due.pop(key, None)

    def next(self) -> Micros | None:
        """The earliest due time."""
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) == due:
                return due
            heappop(self._heap)
        return None

    def ripe(self, at: Micros) -> list[K]:
        """All keys that are due at `at`, in order of due time and key; they stay."""
        found: list[tuple[Micros, K]] = []
        while (due := self.next()) is not None and due <= at:
            found.append(heappop(self._heap))
            del self._due[found[-1][1]]
        for when, key in found:
            self.set(key, when)
        return [key for _, key in found]

    def pop(self, at: Micros) -> list[K]:
        """Take off all keys that are due at `at`, in order of due time and key."""
        keys: list[K] = []
        while (due := self.next()) is not None and due <= at:
            key = heappop(self._heap)[1]
            del self._due[key]
            keys.append(key)
        return keys
