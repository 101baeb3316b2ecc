"""When a reader asks the broker again after an empty answer.

A durable broker holds an empty fetch open and answers it when a record comes, so its readers ask
with a long wait and this module only counts. The memory broker looks for records at fixed times
within the wait: a short wait keeps both sides busy with empty fetches, a long one delays every
record. Its readers therefore ask with the shortest wait, and the pause between two fetches is
theirs:

    nothing to ask for -> pause until a producer of this process has sent to one of the partitions,
    at most `idle_s` -> fetch of that partition

A signal names the records and has their bytes. Where they follow what the reader has, they are its
next fetch, and the broker is not asked (`runtime.handed_over`). A reader that has them already does
not ask either. One that was given nothing asks again soon: a broker under load may use up a wait of
a millisecond before it looks.

Other processes of the plane signal as well (`runtime.sent_elsewhere`), a little later. A record
without a signal that a fetch finds by itself says that there are other producers and that more may
follow: from then on the pause is `quick_s`, and grows with the time that nothing has come, to an
eighth of it. It ends when the signal of that record comes after all. The same follows when another
process that does not signal has committed to the ledger, since its records come soon. So a record
waits for at most `idle_s`, and for at most an eighth of the silence before it. A lost signal costs
the same and nothing else.

A fetch names every partition, and broker and client go through all of them for an answer that is
mostly about one. So a fetch that follows a signal asks for the partitions that were signalled, and
for those that are known to have more. All are asked for as often as without signals. A partition
whose records have not been taken yet cannot be asked for; its signals are kept until they have.

Where the broker does not give what is known to be there, the wait grows with every fetch. After ten
of them the partition waits for the turn of all, and every other such turn is its own, with a wait
that still grows: a broker that is slow for a minute, or has much to read, gives nothing within a
glance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from wharfinger.runtime.backends import Capabilities
from wharfinger.runtime.handed_over import AnsweredFetch, HandedOver, note_seeks, sought_at
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.producer import SentBatch
from wharfinger.runtime.send_signals import SendSignals, WakeUp
from wharfinger.runtime.unpacking import bound

SILENCE_PART = 8
"""The pause is this part of the time in which nothing came without a signal."""

GLANCE_MS = 1
"""The shortest wait of a fetch: asked without one, the memory broker answers without looking for
records."""

HOUSEKEEPING_S = 5.0
"""How often the client's fetch loop wakes where nothing happens. It is woken by every event that it
has to act on."""

CLOCK_TICK_S = 0.001
"""Of the timers of libuv: a shorter wait would turn the loop until it is over."""

VAIN_MAX = 10
"""So often in a row a partition is asked for what is known to be there, and is not given: it may be
gone. A broker under load gives it the second or third time, so each time it has longer to look."""

WITHHELD_MAX = 50
"""Up to so many times the shortest wait a partition is given then."""


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


class PacedFetches:
    """Counts the fetches of one started consumer and, for a broker that does not wake its readers,
    paces them.

    It wraps private methods of the client's fetcher; a test of this module notices when they
    move.
    """

    def __init__(
        self,
        consumer: Any,
        service: str,
        topics: Iterable[str],
        pace: Pace,
        signals: SendSignals | None = None,
    ) -> None:
        bound(consumer)
        note_seeks()
        self._fetcher = consumer._fetcher
        self._fetch = self._fetcher._proc_fetch_request
        self._fetcher._proc_fetch_request = self._noticed(self._paced)
        self._fetcher._update_fetch_positions = self._noticed(self._fetcher._update_fetch_positions)
        if pace.idle_s:
            for name in ("seek_to", "request_offset_reset"):
                setattr(self._fetcher, name, self._waking(getattr(self._fetcher, name)))
        self._fetcher._fetcher_timeout = HOUSEKEEPING_S
        self._pace = pace
        if pace.idle_s:
            self._fetcher._fetch_max_wait_ms = GLANCE_MS
        self._metrics = METRICS.of(service)
        self._wakeup = WakeUp(self._expect)
        self._signals = signals
        if signals is not None:
            signals.listen(topics, self._wakeup)
        self._loop = asyncio.get_running_loop()
        self._assignment: Any = None
        """That of the fetch under way. The client ends the fetches of another one first."""
        self._silent_since = self._loop.time()
        """When something last came without a signal, but for `_unsignalled`."""
        self._unsignalled: dict[TopicPartition, tuple[int, float]] = {}
        """Offset and time of what a fetch found by itself and whose signal may still be on its
        way."""
        self._began = self._all_due = self._all_began = 0.0
        """When the last fetch began, when all partitions have their turn, and had the last one."""
        self._withheld_last = False
        """Whether that turn was given last to what was asked for in vain."""
        self._ends: dict[TopicPartition, int] = {}
        """How far each partition is known to go, by signals and by the broker's answers."""
        self._vain: dict[TopicPartition, tuple[int, int]] = {}
        """How far a partition was asked for in vain, and how often."""
        self._handed_over = HandedOver()
        self._given: dict[TopicPartition, int] = {}
        """How far each partition goes with what was handed over and is perhaps not taken yet."""

    def close(self) -> None:
        if self._signals is not None:
            self._signals.forget(self._wakeup)

    def _waking(self, move: Callable[..., Any]) -> Callable[..., Any]:
        """`move`, which changes positions; afterwards a fetch that waits looks at them again."""

        def moved(*arguments: Any) -> Any:
            result = move(*arguments)
            self._wakeup.set()
            return result

        return moved

    def _noticed(
        self, ask: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """`ask`, a question to a node, whose end the client's loop notices.

        The client notes by a callback of the question's task that the node may be asked again.
        Where something else, for example a new position, has woken its loop just before the task
        ends, the loop runs before that callback. It then finds the node busy, has no task to wait
        for, and sleeps for `HOUSEKEEPING_S`: one in ten new planes decided its first bindings three
        seconds late. So it is woken once more after that callback, where it has not asked yet."""

        def look_again(node: int) -> None:
            if node not in self._fetcher._in_flight:
                self._fetcher._notify(self._fetcher._wait_consume_future)

        async def asked(assignment: Any, node: int, *arguments: Any) -> Any:
            try:
                return await ask(assignment, node, *arguments)
            finally:
                if not self._loop.is_closed():
                    # the callbacks of a task run in the turn of the loop after its end
                    self._loop.call_soon(self._loop.call_soon, look_again, node)

        return asked

    def _expect(self) -> None:
        """A long pause ends soon; a short one goes on."""
        self._silent_since = now = self._loop.time()
        self._all_due = min(self._all_due, now + self._pace.quick_s)
        self._wakeup.set()

    async def _paced(self, assignment: Any, node: int, request: Any) -> bool:
        """As the method it wraps: whether records have come. It is over when the next fetch may be
        sent."""
        if assignment is not self._assignment:
            # positions are about to be set: do not let them wait
            self._assignment, self._silent_since = assignment, self._loop.time()
            self._all_due = 0.0
            self._unsignalled.clear()
            self._ends.clear()
            self._vain.clear()
            self._handed_over.clear()
            self._given.clear()
        return await self._fetched(assignment, node, request)

    async def _fetched(self, assignment: Any, node: int, request: Any) -> bool:
        if not self._pace.idle_s:
            return await self._asked(assignment, node, request)
        try:
            behind = await self._until_due()
        except asyncio.CancelledError:  # the client does not expect that it raises
            return False
        self._began = now = self._loop.time()
        if now < self._all_due:
            if answered := self._answered(behind):
                return bool(await self._fetch(assignment, node, answered))
            times = max((self._vain.get(tp, (0, 0))[1] for tp in behind), default=0)
            wanted, wait_ms = behind, round(1000 * self._pace.quick_s * times)
        else:
            self._all_began = now
            self._all_due = now + self._pace.pause_s(self._silence_s(now))
            withheld = {} if self._withheld_last else self._withheld()
            self._withheld_last = bool(withheld)
            wanted, wait_ms = self._positions(assignment.tps), 0
            if withheld:
                behind = wanted = withheld
                times = min(WITHHELD_MAX, max(self._vain[tp][1] for tp in withheld))
                wait_ms = round(1000 * self._pace.quick_s * times)
        if not wanted:
            return False
        found = await self._asked(assignment, node, _of(request, wanted, wait_ms))
        self._note_found(behind, wanted)
        return found

    async def _until_due(self) -> dict[TopicPartition, int]:
        """Until all partitions have their turn, or some are known to have more and can be asked
        for: those, and from where. None where the fetch is to end without a question: the client
        sets the position of a partition only while none is under way."""
        await asyncio.sleep(max(0.0, self._began + self._pace.quick_s / 2 - self._loop.time()))
        assignment = self._assignment
        while assignment.active and not self._fetcher._closed:
            self._note_signals()
            waiting = {tp for tp in self._ends if self._has_more(tp)}
            behind = self._positions(waiting)
            left_s = self._all_due - self._loop.time()
            if behind or left_s < CLOCK_TICK_S:
                return behind
            if not all(self._state(tp).has_valid_position for tp in assignment.tps):
                await asyncio.sleep(self._pace.quick_s)
                return {}
            # nothing tells when a partition that cannot be asked for can be
            await self._wakeup.within(min(left_s, self._pace.quick_s) if waiting else left_s)
        return {}

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of those that can be asked for: what has come of them has been taken."""
        records = self._fetcher._records
        states = {tp: self._state(tp) for tp in partitions if tp not in records}
        return {
            tp: state.position
            for tp, state in states.items()
            if state.has_valid_position and not state.paused
        }

    def _withheld(self) -> dict[TopicPartition, int]:
        """Where they go on: partitions that were asked for in vain so often that they are asked for
        in the turn of all only."""
        return {
            tp: offset
            for tp, offset in self._positions(self._vain).items()
            if self._vain[tp][1] >= VAIN_MAX and offset < self._ends.get(tp, 0)
        }

    async def _asked(self, assignment: Any, node: int, request: Any) -> bool:
        self._metrics.fetches.inc()
        found = bool(await self._fetch(assignment, node, request))
        if not found:
            self._metrics.empty_fetches.inc()
        return found

    def _answered(self, behind: Mapping[TopicPartition, int]) -> AnsweredFetch | None:
        """What was handed over of these partitions from these offsets on; None: nothing."""
        answers = []
        for tp, offset in behind.items():
            if given := self._handed_over.take(tp, offset, sought_at(self._state(tp))):
                records, self._given[tp] = given
                answers.append((tp, offset, self._ends[tp], records))
        return AnsweredFetch(answers) if answers else None

    def _state(self, tp: TopicPartition) -> Any:
        return self._assignment.state_value(tp)

    def _note_signals(self) -> None:
        for batch in self._wakeup.clear():
            if batch.offset < 0:
                self._all_due = 0.0  # at once
                continue
            tp = TopicPartition(batch.topic, batch.partition)
            if tp in self._assignment.tps:
                self._ends[tp] = max(self._ends.get(tp, 0), batch.end)
                if batch.records:
                    self._handed_over.add(tp, batch)
                self._note_late_signal(tp, batch)

    def _note_late_signal(self, tp: TopicPartition, batch: SentBatch) -> None:
        """A fetch may find a record before its signal comes, above all from another process."""
        offset, _ = self._unsignalled.get(tp, (-1, 0.0))
        if batch.offset <= offset < batch.end:
            del self._unsignalled[tp]
            if self._all_due:
                began = self._all_began
                self._all_due = began + self._pace.pause_s(self._silence_s(began))

    def _silence_s(self, now: float) -> float:
        return now - max([self._silent_since, *(at for _, at in self._unsignalled.values())])

    def _has_more(self, tp: TopicPartition) -> bool:
        """Whether the partition is known to go on behind what has come of it."""
        end, state = self._ends[tp], self._state(tp)
        if state.has_valid_position and state.position >= end:
            self._vain.pop(tp, None)
            self._handed_over.drop(tp, state.position)
            return False
        if tp in self._fetcher._records and self._given.get(tp) == end:
            return False
        asked, times = self._vain.get(tp, (0, 0))
        return asked < end or times < VAIN_MAX

    def _note_found(
        self, behind: Container[TopicPartition], asked: Mapping[TopicPartition, int]
    ) -> None:
        """`behind`: those that were known to have more; `asked`: from where each was asked for."""
        records = self._fetcher._records
        self._note_signals()  # of what came while it was asked for
        for tp, offset in asked.items():
            known = self._ends.get(tp, 0)
            # an answer may count records and have none of them
            self._ends[tp] = end = max(known, self._state(tp).highwater or 0)
            if tp in records:
                self._vain.pop(tp, None)
                self._given.pop(tp, None)
                if tp not in behind and known <= offset:
                    # more may follow, from a process that gives no signals
                    now = self._loop.time()
                    _, before = self._unsignalled.get(tp, (0, self._silent_since))
                    self._silent_since = max(self._silent_since, before)
                    self._unsignalled[tp] = offset, now
                    self._all_due = min(self._all_due, now + self._pace.quick_s)
            elif tp in behind:
                before, times = self._vain.get(tp, (0, 0))
                self._vain[tp] = end, times + 1 if before == end else 1


def _of(request: Any, positions: Mapping[TopicPartition, int], wait_ms: int) -> Any:
    """The request, for these partitions from these offsets on. The brokers that this is for are one
    node each, so it may ask for any."""
    topics: dict[str, list[tuple[int, int, int]]] = {}
    size = max((part[2] for _, parts in request.topics for part in parts), default=0)
    for tp, position in positions.items():
        topics.setdefault(tp.topic, []).append((tp.partition, position, size))
    wanted = copy(request)
    wanted._max_wait_ms = max(GLANCE_MS, wait_ms)
    wanted._topics = list(topics.items())
    return wanted
