"""The loop that runs an observer: fold what comes, publish what is new, at most once in a
coalescing time.

What was accepted together is published from together: an observer waits for the rest of it, for
`REST_S` at most. Where only the plane's own decisions are new, and others follow from them, it
waits for these, or until something else comes, for `GATHER_S` at most: the stages know of all of
them without it.

An observer has no history of its own. Whenever its partitions change it begins again: current
assignments from the ledger, then every fact from the beginning of its topics; and it publishes
nothing before it has reached the ends that were seen when it began. Nothing it reads is committed
to the broker.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic
from uuid import uuid4

from aiokafka.errors import KafkaError

from wharfinger.domain.value import Value
from wharfinger.events.codec import UndecodableError, decode, encode
from wharfinger.events.envelope import Event
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import PartitionBy
from wharfinger.events.versions import Versions
from wharfinger.kernel.decider import Micros, S
from wharfinger.kernel.incarnations import FIRST
from wharfinger.kernel.observer import Observer, Publication
from wharfinger.runtime.acceptances import REST_S, Acceptances
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.progress import Progress
from wharfinger.runtime.sending import (
    OutgoingRecord,
    ProducerLostError,
    Sending,
    UnacknowledgedRecords,
)
from wharfinger.runtime.topics import partition_for

Loaded = tuple[Event[Value], Micros]
"""An event out of the ledger and the time of its round."""

log = get_logger()

REST_TIMES = 9
"""After a publication the next one waits for so many times as long as it took, so that publishing
takes a tenth of the time at most, and less where other work needs the processor."""

GATHER_S = 0.1
"""A cluster decides within this time, in most cases, about what a fleet shard has assigned to it.
Told apart, each of both was an estimate, and for the fleet shard an input and a round."""

FOLD_EVERY_S = 1.0
"""While it rests between two publications it folds what has come, so that its readers are not held
back."""


class ObserverLoop(Generic[S]):
    """`load` gives the events that bring a fresh state to the present (from the ledger). `turn` is
    called before each publishing with the state: where an observer asks others, its shell starts
    the questions there. `coalesce_s`: how long changes are gathered before they are published.
    `incarnation`: of the ledger, for the envelope. `refuse`: makes a dead letter of a message that
    the observer fails on; without it such a message ends the loop. `reads`: whether a place is read
    here, of those that hold what was accepted together. `can_wait`: whether all that is new was
    decided by the plane itself."""

    def __init__(
        self,
        name: str,
        observer: Observer[S],
        sending: Sending,
        partitions: Mapping[str, int],
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
        *,
        load: Callable[[], Awaitable[Iterable[Loaded]]],
        turn: Callable[[S, Micros], None] | None = None,
        coalesce_s: float = 0.05,
        mailbox_max: int = 4000,
        incarnation: int = FIRST,
        refuse: Callable[[Message, str], Awaitable[None]] | None = None,
        reads: Callable[[str], bool] = lambda _: False,
        can_wait: Callable[[S], bool] = lambda _: False,
    ) -> None:
        self._can_wait = can_wait
        self._refuse = refuse
        self._reads = reads
        self._acceptances = Acceptances(reads)
        self._incarnation = "" if incarnation == FIRST else str(incarnation)
        self.name = name
        self.observer = observer
        self.state: S = observer.initial()
        self._versions = Versions()
        self._sending = sending
        self._partitions = partitions
        self._clock = clock
        self._metrics = metrics
        self._load = load
        self._turn = turn
        self._coalesce_s = self._rest_s = coalesce_s
        self._mailbox_max = mailbox_max
        self._waiting: deque[Message] = deque()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._begun = False
        self._caught_up = False
        self._stopping = False
        self._published_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.progress = Progress()
        self.fatal = ""

    async def offer(self, messages: Iterable[Message]) -> None:
        self._waiting.extend(messages)
        if self._waiting:
            self.progress.begin()
            self._work.set()
        if len(self._waiting) >= self._mailbox_max:
            self._room.clear()
        await self._room.wait()

    def suspend(self) -> None:
        """Nothing is folded or published until `begin`; what waits is forgotten, for it will be
        read again."""
        self._caught_up = False
        self._begun = False
        self._waiting.clear()
        self.progress.moved(more=False)
        self._room.set()

    async def begin(self) -> None:
        """A fresh state, brought to the present from the ledger; then what waits is folded into
        it."""
        state = self.observer.initial()
        for event, at in await self._load():
            self.observer.fold(state, event, at)
        self.state, self._versions = state, Versions()
        self._begun = True
        self._work.set()

    def caught_up(self) -> None:
        """All facts up to the ends seen at the beginning have been offered. The topics may have
        forgotten records of the acceptances before that."""
        if not self._caught_up:
            self._acceptances = Acceptances(self._reads)
        self._caught_up = True
        self._work.set()

    def ready(self) -> bool:
        return self._begun and self._caught_up and not self.fatal

    def backlog(self) -> int:
        return len(self._waiting)

    def stalled_s(self) -> float:
        """For how long nothing was completed although messages wait. Asked from any thread."""
        return self.progress.stalled_s()

    def oldest_s(self) -> float:
        """Age of the oldest message that is not folded yet; 0 while there is none. Asked from any
        thread."""
        try:
            return max(0.0, time.monotonic() - self._waiting[0].arrived_s)
        except IndexError:
            return 0.0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"observer-{self.name}")

    async def stop(self) -> None:
        self._stopping = True
        self._work.set()
        self._room.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def nudge(self) -> None:
        """Wake the loop: the state was changed from outside the mailbox (an answer came)."""
        self._work.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        took_before_s = 0.0
        try:
            while not self._stopping:
                await self._wait(loop)
                if not self._begun:
                    continue
                self.progress.begin()
                await self._fold()
                if not self._caught_up:
                    self.progress.moved(more=bool(self._waiting))
                    continue
                began_s = loop.time()
                while (
                    rest := self._published_at + self._rest_s - loop.time()
                ) > 0 and not self._stopping:
                    await asyncio.sleep(min(rest, FOLD_EVERY_S))
                    await self._fold()
                await self._gather(began_s + GATHER_S)
                await self._fold_rest(loop.time() + REST_S)
                if not self._caught_up:  # suspended meanwhile
                    self.progress.moved(more=bool(self._waiting))
                    continue
                self._published_at = loop.time()
                if self._turn is not None:
                    self._turn(self.state, self._clock())
                publications = self.observer.publish(self.state, self._clock())
                self._report(self.observer.failures.take())
                if publications:
                    await self._send(publications)
                self.progress.moved(more=bool(self._waiting))
                took_s = loop.time() - self._published_at
                # One that took much longer than the one before, for example the first, which loads
                # and compiles, is no reason to keep the next one back.
                self._rest_s = max(self._coalesce_s, REST_TIMES * min(took_s, took_before_s))
                took_before_s = took_s
        except Exception as error:
            # A bug must not repeat without a report: log it and let the supervisor restart us.
            self.fatal = f"{type(error).__name__}: {error}"
            log.exception("observer.failed", service=self.name)

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        timeout = None
        if self.ready() and (due := self.observer.next_due(self.state)) is not None:
            timeout = max(0.0, (due - self._clock()) / 1e6)
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()

    async def _fold_rest(self, until_s: float) -> None:
        """Fold the rest of what was accepted together. What has not come until then is no longer
        waited for."""
        while self._acceptances.incomplete() and not self._stopping:
            if not await self._work_by(until_s):
                self._acceptances = Acceptances(self._reads)
                return
            await self._fold()

    async def _gather(self, until_s: float) -> None:
        """Fold what follows from the plane's own decisions. Ends when all of it has come, when
        something else is new, or at that time of the loop."""
        while self._can_wait(self.state) and not self._stopping and await self._work_by(until_s):
            await self._fold()

    async def _work_by(self, until_s: float) -> bool:
        """Whether something comes before that time of the loop. A wait that is over at once does
        not look at its limit: under a steady load there is always something."""
        if asyncio.get_running_loop().time() >= until_s:
            return False
        try:
            async with asyncio.timeout_at(until_s):
                await self._work.wait()
        except TimeoutError:
            return False
        self._work.clear()
        return True

    async def _fold(self) -> None:
        """Fold all messages that wait. After every 200 the other tasks of this loop get a turn,
        among them the consumers' heartbeats."""
        while self._waiting and self._begun:
            at = self._clock()
            count = min(len(self._waiting), 200)
            for _ in range(count):
                message = self._waiting.popleft()
                try:
                    if self._versions.admits(message.event, at):
                        self.observer.fold(self.state, message.event, at)
                    else:
                        self._metrics.outdated.inc()
                except Exception as error:
                    if self._refuse is None:
                        raise
                    await self._lay_aside(message, error, self._refuse)
                if message.ack is not None:
                    message.ack()
                self._acceptances.add(message)
            self._metrics.events.inc(count)
            self.progress.moved(more=True)
            self._room.set()
            await asyncio.sleep(0)

    async def _lay_aside(
        self, message: Message, error: Exception, refuse: Callable[[Message, str], Awaitable[None]]
    ) -> None:
        """The state may hold half of the event, until the next fact of the same key. What an
        observer publishes is a fact or a proposal that a stage checks, so it goes on."""
        log.error(
            "event.laid_aside",
            service=self.name,
            event_id=str(message.event.id),
            why=repr(error),
            where="".join(traceback.format_tb(error.__traceback__)[-3:]),
        )
        await refuse(message, f"{self.name} cannot take it in: {type(error).__name__}: {error}")

    def _report(self, failures: Iterable[tuple[str, Exception]]) -> None:
        for cluster, error in failures:
            self._metrics.cluster_failures.inc()
            log.error(
                "cluster.failed",
                service=self.name,
                cluster=cluster,
                why=repr(error),
                where="".join(traceback.format_tb(error.__traceback__)[-3:]),
            )

    async def _send(self, publications: list[Publication]) -> None:
        """All of them acknowledged, in order, but for what the broker refuses for good: that is a
        failure of its key, and the others go on. A fact that comes twice is the same fact, a
        proposal has its own id."""
        pause = 0.05
        waiting = UnacknowledgedRecords()
        for publication in publications:
            record = self._record(publication)
            try:
                decode(record.value or b"")
            except UndecodableError as error:
                # No reader could read it either.
                self._report([(publication.partition_key, error)])
                continue
            waiting.add(self._sending.dividing.fitting(record))
        count = waiting.count
        while not self._stopping:
            try:
                while (refusal := await self._sending.send(waiting)) is not None:
                    self._metrics.refused.inc()
                    key = refusal.record.key.decode(errors="replace")
                    log.error(
                        "record.refused",
                        service=self.name,
                        topic=refusal.record.topic,
                        key=key,
                        why=refusal.why,
                    )
                self._metrics.published.inc(count)
                return
            except (KafkaError, OSError, ProducerLostError) as error:
                log.warning(
                    "broker.away",
                    service=self.name,
                    why=f"{type(error).__name__}: {error}",
                    retry_in_s=pause,
                )
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)
                if isinstance(error, ProducerLostError):
                    await self._restarted()

    async def _restarted(self) -> None:
        try:
            await self._sending.start()
        except (KafkaError, OSError) as error:
            log.warning("broker.away", service=self.name, why=f"{type(error).__name__}: {error}")

    def _record(self, p: Publication) -> OutgoingRecord:
        topic = LATEST[type(p.data)].topic
        assert topic is not None, f"{type(p.data).__name__} has no topic"
        count = self._partitions[topic.name]
        partition = (
            0 if topic.partition_by is PartitionBy.ONE else partition_for(p.partition_key, count)
        )
        id = p.id or uuid4()
        value = encode(
            p.data,
            id=id,
            source=f"/wharfinger/{self.name}",
            subject=p.subject,
            key=p.partition_key,
            causation=str(p.cause) if p.cause else "",
            incarnation=self._incarnation,
        )
        return OutgoingRecord(topic.name, partition, p.key.encode(), value, str(id))
