"""A timer queue: one due time per key, in a binary heap with lazy deletion.

A stage with thousands of keys needs the earliest due time after every batch of events. Changing a
key's time leaves its old heap entry, which is skipped when it reaches the top. The heap is rebuilt
before outdated entries outnumber valid ones.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from wharfinger.kernel.decider import Micros

K = TypeVar("K", bound=tuple[str, ...])


class Agenda(Generic[K]):
    """Keeps one due time per key in a binary heap with lazy deletion. Keys are tuples of names;
    keys with equal due times are ordered by name."""

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
        """Sets the due time of `key`, replacing an earlier one."""
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
        """Returns the earliest due time; None if there is no key. Removes outdated entries from the
        top of the heap."""
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) == due:
                return due
            heappop(self._heap)
        return None

    def ripe(self, at: Micros) -> list[K]:
        """Returns all keys that are due at `at`, in order of due time and key, without removing
        them."""
        if not self._heap:
            return []
        found: list[tuple[Micros, K]] = []
        while (due := self.next()) is not None and due <= at:
            found.append(heappop(self._heap))
            del self._due[found[-1][1]]
        for when, key in found:
            self.set(key, when)
        return [key for _, key in found]

    def pop(self, at: Micros) -> list[K]:
        """Removes and returns all keys that are due at `at`, in order of due time and key."""
        if not self._heap:
            return []
        keys: list[K] = []
        while (due := self.next()) is not None and due <= at:
            key = heappop(self._heap)[1]
            del self._due[key]
            keys.append(key)
        return keys
