"""The loop that runs an observer: fold what comes, publish what is new, at most once in a coalescing time.

An observer has no history of its own. Whenever its partitions change it begins anew: current assignments from the ledger,
then every fact from the beginning of its topics; and it publishes nothing before it has reached the ends that were seen
when it began. Nothing it reads is committed to the broker.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic
from uuid import uuid4

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from wharfinger.domain.value import Value
from wharfinger.events.codec import encode
from wharfinger.events.envelope import Event
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import PartitionBy
from wharfinger.kernel.decider import Micros, S
from wharfinger.kernel.observer import Observer, Publication
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.stage_loop import Message
from wharfinger.runtime.topics import partition_for

Loaded = tuple[Event[Value], Micros]
"""An event out of the ledger and the time of its round."""

log = structlog.get_logger()


class ObserverLoop(Generic[S]):
    """`load` gives the events that bring a fresh state to the present (from the ledger). `turn` is called before each publishing
    with the state: where an observer asks others, its shell starts the questions there. `coalesce_s`: how long changes are
    gathered before they are published."""

    def __init__(
        self,
        name: str,
        observer: Observer[S],
        producer: AIOKafkaProducer,
        wire: Callable[[str], str],
        partitions: Mapping[str, int],
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
        *,
        load: Callable[[], Awaitable[Iterable[Loaded]]],
        turn: Callable[[S, Micros], None] | None = None,
        coalesce_s: float = 0.05,
        mailbox_max: int = 4000,
    ) -> None:
        self.name = name
        self.observer = observer
        self.state: S = observer.initial()
        self._producer = producer
        self._wire = wire
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
        self.fatal = ""

    async def offer(self, messages: Iterable[Message]) -> None:
        self._waiting.extend(messages)
        if self._waiting:
            self._work.set()
        if len(self._waiting) >= self._mailbox_max:
            self._room.clear()
        await self._room.wait()

    def suspend(self) -> None:
        """Nothing is folded or published until `begin`; what waits is forgotten, for it will be read again."""
        self._caught_up = False
        self._begun = False
        self._waiting.clear()
        self._room.set()

    async def begin(self) -> None:
        """A fresh state, brought to the present from the ledger; then what waits is folded into it."""
        state = self.observer.initial()
        for event, at in await self._load():
            self.observer.fold(state, event, at)
        self.state = state
        self._begun = True
        self._work.set()

    def caught_up(self) -> None:
        """All facts up to the ends seen at the beginning have been offered."""
        self._caught_up = True
        self._work.set()

    def ready(self) -> bool:
        return self._begun and self._caught_up and not self.fatal

    def backlog(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"observer-{self.name}")

    async def stop(self) -> None:
        self._stopping = True
        self._work.set()
        self._room.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def nudge(self) -> None:
        """The state was changed from outside the mailbox (an answer came): look at it."""
        self._work.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                await self._wait(loop)
                if not self._begun:
                    continue
                await self._fold()
                if not self._caught_up:
                    continue
                rest = self._published_at + self._rest_s - loop.time()
                if rest > 0:
                    await asyncio.sleep(rest)
                    await self._fold()
                self._published_at = loop.time()
                if self._turn is not None:
                    self._turn(self.state, self._clock())
                publications = self.observer.publish(self.state, self._clock())
                if publications:
                    await self._send(publications)
                # Telling may cost a tenth of our time: a fleet that is slow to count is told of less often.
                self._rest_s = max(self._coalesce_s, 9 * (loop.time() - self._published_at))
        except Exception as error:  # a bug must not loop quietly: say it and let the supervisor restart us
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

    async def _fold(self) -> None:
        """All that waits, with a breath now and then: the consumers' heartbeats share this loop."""
        while self._waiting and self._begun:
            at = self._clock()
            for _ in range(min(len(self._waiting), 200)):
                message = self._waiting.popleft()
                self.observer.fold(self.state, message.event, at)
                self._metrics.events.inc()
                if message.ack is not None:
                    message.ack()
            self._room.set()
            await asyncio.sleep(0)

    async def _send(self, publications: list[Publication]) -> None:
        """All of them acknowledged, or all of them again: a fact twice is the same fact, a proposal has its own id."""
        pause = 0.05
        encoded = [self._record(p) for p in publications]
        while not self._stopping:
            try:
                futures = [
                    await self._producer.send(topic, value, key=key, partition=partition)
                    for topic, partition, key, value in encoded
                ]
                await asyncio.gather(*futures)
                self._metrics.published.inc(len(encoded))
                return
            except (KafkaError, OSError) as error:
                log.warning("broker.away", service=self.name, why=f"{type(error).__name__}: {error}", retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    def _record(self, p: Publication) -> tuple[str, int, bytes, bytes]:
        topic = LATEST[type(p.data)].topic
        assert topic is not None, f"{type(p.data).__name__} has no topic"
        count = self._partitions[topic.name]
        partition = 0 if topic.partition_by is PartitionBy.ONE else partition_for(p.partition_key, count)
        value = encode(
            p.data, id=p.id or uuid4(), source=f"/wharfinger/{self.name}", subject=p.subject, key=p.partition_key,
            causation=str(p.cause) if p.cause else "",
        )  # fmt: skip
        return self._wire(topic.name), partition, p.key.encode(), value
