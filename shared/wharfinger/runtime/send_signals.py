"""Signals from the producers of a process to its readers: what the broker has acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from wharfinger.runtime.producer import SentBatch

HANDED_OVER_BYTES_MAX = 2 * 1024 * 1024
"""Of batches that wait for one reader. What is more, it fetches."""


class WakeUp:
    """An event of the running loop that any thread may set. `expected` is called in that loop after
    `expect`."""

    def __init__(self, expected: Callable[[], object] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._expected = expected
        self._event = asyncio.Event()
        self._scheduled = False
        self._lock = threading.Lock()
        self._signals: list[SentBatch] = []
        self._bytes = 0

    def set(self, *signals: SentBatch) -> None:
        with self._lock:
            for signal in signals:
                self._bytes += len(signal.records)
                # a reader that does not come for them must not keep everything in memory
                kept = self._bytes <= HANDED_OVER_BYTES_MAX
                self._signals.append(signal if kept else signal._replace(records=b""))
        if self._scheduled:
            return
        self._scheduled = True
        self._call(self._set)

    def expect(self) -> None:
        self._call(self._expected)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed, and with it all that waited
            pass

    def _set(self) -> None:
        self._scheduled = False
        self._event.set()

    def clear(self) -> list[SentBatch]:
        """What it was set with since the last time."""
        self._event.clear()
        with self._lock:
            signals, self._signals, self._bytes = self._signals, [], 0
        return signals

    async def within(self, timeout_s: float) -> bool:
        """Whether it was set in that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class SendSignals:
    """From the producers of a process to its readers: a record has been acknowledged. One for each
    process.

    `expect` is the weaker signal for records that another process is about to send: readers poll
    quickly for a while.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, tuple[WakeUp, ...]] = {}
        self._others: Callable[[SentBatch], object] | None = None
        self.topics: tuple[str, ...] = ()
        """Those that have readers, in order of name."""

    def sent(self, batch: SentBatch) -> None:
        """By a producer of this process."""
        self.hear([batch])
        if self._others is not None:
            self._others(batch)

    def hear(self, batches: Iterable[SentBatch]) -> None:
        """By producers of any process."""
        for batch in batches:
            for reader in self._readers.get(batch.topic, ()):
                reader.set(batch)

    def tell_others(self, tell: Callable[[SentBatch], object] | None) -> None:
        """What is called after each of our own, by the thread of its producer; None: nothing."""
        self._others = tell

    def expect(self) -> None:
        for reader in {reader for readers in tuple(self._readers.values()) for reader in readers}:
            reader.expect()

    def listen(self, topics: Iterable[str], reader: WakeUp) -> None:
        with self._lock:
            for topic in topics:
                self._readers[topic] = (*self._readers.get(topic, ()), reader)
            self._note_topics()

    def forget(self, reader: WakeUp) -> None:
        with self._lock:
            for topic, readers in self._readers.items():
                self._readers[topic] = tuple(one for one in readers if one is not reader)
            self._note_topics()

    def _note_topics(self) -> None:
        self.topics = tuple(sorted(topic for topic, readers in self._readers.items() if readers))
