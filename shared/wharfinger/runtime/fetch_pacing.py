"""When a reader asks the broker again after an empty answer.

A durable broker holds an empty fetch open and answers it when a record comes, so its readers ask
with a long wait and this module only counts. The memory broker looks for records at fixed times
within the wait: a short wait keeps both sides busy with empty fetches, a long one delays every
record. Its readers therefore ask with the shortest wait, and the pause between two fetches is
theirs:

    empty answer -> pause until a producer of this process has sent to one of the topics, at most
    `idle_s` -> next fetch

Records of other processes give no such signal. One that a fetch finds by itself says that there are
such processes and that more may follow: from then on the pause is `quick_s`, and grows with the
time that nothing has come, to an eighth of it. The same follows when another process has committed
to the ledger, since its records come soon (`SendSignals.expect`). So a record waits for at most
`idle_s`, and for at most an eighth of the silence before it. A lost signal costs the same and
nothing else.

A partition whose records the reader has not taken yet is left out of a fetch. Its signals come too
early then, so a pause after such a fetch also ends when those records have been taken.

A fetch names every partition, and broker and client go through all of them for an answer that is
mostly about one. So a fetch that follows a signal asks for the topics that were signalled only. All
are asked for as often as without signals.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Set
from copy import copy
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from wharfinger.runtime.backends import Capabilities
from wharfinger.runtime.observability import METRICS

SILENCE_PART = 8
"""The pause is this part of the time in which nothing came without a signal."""

GLANCE_MS = 1
"""The shortest wait of a fetch: asked without one, the memory broker answers without looking for
records."""

HOUSEKEEPING_S = 5.0
"""How often the client's fetch loop wakes where nothing happens. It is woken by every event that it
has to act on, but for the first fetch of an assignment."""

BEGINNING_S = 0.05
"""How often it wakes until that fetch. Sometimes nothing wakes it when the positions are set: one
in five new planes read the bindings of its first command at once, and its clusters five seconds
later."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses between an empty answer and the next fetch, in seconds. `quick_s`: while records of
    other processes come, and twice the least time between two fetches. `idle_s`: the longest; 0
    leaves waiting to the broker."""

    quick_s: float
    idle_s: float

    @classmethod
    def of(cls, capabilities: Capabilities, fetch_wait_ms: int = 0) -> Pace:
        """`fetch_wait_ms` instead of the backend's, for a reader that may be slower; 0 takes the
        backend's."""
        return cls(
            (fetch_wait_ms or capabilities.fetch_wait_ms) / 1000, capabilities.idle_poll_ms / 1000
        )

    def pause_s(self, silence_s: float) -> float:
        """How long to wait for a signal where nothing has come without one for `silence_s`."""
        return min(self.idle_s, max(self.quick_s, silence_s / SILENCE_PART))


class WakeUp:
    """An event of the running loop that any thread may set. `expected` is called in that loop after
    `expect`."""

    def __init__(self, expected: Callable[[], object] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._expected = expected
        self._event = asyncio.Event()
        self._scheduled = False
        self._topics: deque[str] = deque()

    def set(self, topic: str = "") -> None:
        """`topic`: for whose records; "": not known."""
        self._topics.append(topic)
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

    def clear(self) -> Set[str]:
        """The topics for which it was set since the last time."""
        self._event.clear()
        # other threads may append meanwhile
        return {self._topics.popleft() for _ in range(len(self._topics))}

    async def within(self, timeout_s: float) -> bool:
        """Whether it was set in that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class SendSignals:
    """From the producers of a process to its readers: a record of this topic has been acknowledged.
    One for each process.

    `expect` is the weaker signal for records that another process is about to send: readers poll
    quickly for a while.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, tuple[WakeUp, ...]] = {}

    def sent(self, topic: str) -> None:
        for reader in self._readers.get(topic, ()):
            reader.set(topic)

    def expect(self) -> None:
        for reader in {reader for readers in tuple(self._readers.values()) for reader in readers}:
            reader.expect()

    def listen(self, topics: Iterable[str], reader: WakeUp) -> None:
        with self._lock:
            for topic in topics:
                self._readers[topic] = (*self._readers.get(topic, ()), reader)

    def forget(self, reader: WakeUp) -> None:
        with self._lock:
            for topic, readers in self._readers.items():
                self._readers[topic] = tuple(one for one in readers if one is not reader)


class PacedFetches:
    """Counts the fetches of one started consumer and, for a broker that does not wake its readers,
    paces them.

    It wraps a private method of the client's fetcher; a test of this module notices when that
    moves.
    """

    def __init__(
        self,
        consumer: Any,
        service: str,
        topics: Iterable[str],
        pace: Pace,
        signals: SendSignals | None = None,
    ) -> None:
        # Only those who read: the publisher seldom does.
        from wharfinger.runtime.unpacking import bound

        bound(consumer)
        self._fetcher = consumer._fetcher
        self._fetch = self._fetcher._proc_fetch_request
        self._fetcher._proc_fetch_request = self._paced
        self._fetcher._fetcher_timeout = BEGINNING_S
        self._pace = pace
        if pace.idle_s:
            self._fetcher._fetch_max_wait_ms = GLANCE_MS
        self._metrics = METRICS.of(service)
        self._wakeup = WakeUp(self._expect)
        self._signals = signals
        if signals is not None:
            signals.listen(topics, self._wakeup)
        self._loop = asyncio.get_running_loop()
        self._assignment: object = None
        self._silent_since = self._whole_at = self._loop.time()
        self._asked_again: Set[str] = frozenset()
        """Topics whose signals have not been answered, or that may have more."""
        self._signalled: bool | None = None
        """Whether a signal ended the last pause; None where there was none since records came
        last."""

    def close(self) -> None:
        if self._signals is not None:
            self._signals.forget(self._wakeup)

    def _expect(self) -> None:
        """A long pause ends now; a short one goes on."""
        now = self._loop.time()
        if self._pace.pause_s(now - self._silent_since) > self._pace.quick_s:
            self._wakeup.set()
        self._silent_since = now

    async def _paced(self, assignment: Any, node: int, request: Any) -> bool:
        """As the method it wraps: whether records have come. It is over when the next fetch may be
        sent."""
        if assignment is not self._assignment:
            # positions are about to be set: do not let them wait
            self._assignment, self._silent_since = assignment, self._loop.time()
        self._fetcher._fetcher_timeout = HOUSEKEEPING_S
        try:
            return await self._fetched(assignment, node, request)
        finally:
            if not assignment.active:
                self._fetcher._fetcher_timeout = BEGINNING_S

    async def _fetched(self, assignment: Any, node: int, request: Any) -> bool:
        began = self._loop.time()
        wanted = self._wakeup.clear() | self._asked_again
        askable = _partitions(request)
        if self._asks_for_all(wanted, began):
            self._whole_at = began
        else:
            request = _narrowed(request, wanted)
        self._metrics.fetches.inc()
        found = bool(await self._fetch(assignment, node, request))
        left_out = assignment.tps - askable
        # what was left out has not been asked for
        self._asked_again = wanted & {partition.topic for partition in left_out}
        if found:
            self._asked_again |= wanted
            if not wanted:
                self._silent_since = self._loop.time()
            self._signalled = None
            return True
        self._metrics.empty_fetches.inc()
        if self._signalled:
            self._asked_again |= wanted
        if self._pace.idle_s and assignment.active and not self._fetcher._closed:
            self._signalled = await self._pause(began, left_out)
            # A broker under load may use up a wait of a millisecond before it looks.
            self._fetcher._fetch_max_wait_ms = (
                round(1000 * self._pace.quick_s) if self._signalled else GLANCE_MS
            )
        return False

    def _asks_for_all(self, wanted: Set[str], now: float) -> bool:
        """Whether the fetch is not for signals only, or all topics have their turn."""
        return (
            not self._pace.idle_s
            or not wanted
            or "" in wanted
            or now - self._whole_at >= self._pace.pause_s(now - self._silent_since)
        )

    async def _pause(self, began: float, left_out: Set[TopicPartition]) -> bool:
        """Whether there is reason to look again; False: it ended by itself. The client awaits a
        cancelled fetch without expecting that it raises. `left_out`: the partitions that the last
        fetch did not ask for."""
        # What was signalled and not found is looked for again soon.
        now = self._loop.time()
        pause_s = self._pace.pause_s(0.0 if self._signalled else now - self._silent_since)
        whole_in_s = self._whole_at + self._pace.pause_s(now - self._silent_since) - now
        try:
            if not await self._called(max(0.0, min(pause_s, whole_in_s)), left_out):
                return False
            await asyncio.sleep(max(0.0, began + self._pace.quick_s / 2 - self._loop.time()))
        except asyncio.CancelledError:
            pass
        return True

    async def _called(self, timeout_s: float, left_out: Set[TopicPartition]) -> bool:
        """Whether a signal has come in that time, or what kept partitions out of the last fetch has
        been taken."""
        if not left_out:
            return await self._wakeup.within(timeout_s)
        end = self._loop.time() + timeout_s
        while not left_out.isdisjoint(self._fetcher._records):
            left_s = end - self._loop.time()
            if left_s <= 0:
                return False
            if await self._wakeup.within(min(left_s, self._pace.quick_s)):
                break
        return True


def _partitions(request: Any) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number) for topic, parts in request.topics for number, *_ in parts
    }


def _narrowed(request: Any, wanted: Set[str]) -> Any:
    """For these topics only; as it is where it names none of them."""
    topics = [(topic, parts) for topic, parts in request.topics if topic in wanted]
    if not topics:
        return request
    narrowed = copy(request)
    narrowed._topics = topics
    return narrowed
