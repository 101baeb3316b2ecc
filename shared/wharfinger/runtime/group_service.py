"""What a stage and an observer have in common as services: membership in a consumer group, one
agent, one loop.

A Faust app gives and takes partitions. An agent reads those partitions, a broadcast reader the
topics that every process reads whole, and both hand messages to the loop. When partitions come,
work of the service's own follows behind the rebalance (`_begin`): recovering streams, or reading
everything again.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from wharfinger.events.streams import Topic
from wharfinger.runtime.broadcast import ends_of, stop_consumer
from wharfinger.runtime.faust_app import (
    Partition,
    RawStream,
    Received,
    ServiceApp,
    Starts,
    faust_app,
)
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.reading import BroadcastReading, Reading
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.unpacking import bound

log = get_logger()


class Loop(Protocol):
    """What does the work of a service. `fatal`: why it cannot go on; empty: it can."""

    fatal: str

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def ready(self) -> bool: ...

    def stalled_s(self) -> float: ...

    def oldest_s(self) -> float: ...

    def backlog(self) -> int: ...


class GroupService(ABC):
    """`partitioned`: the co-partitioned topics that the group shares out; the first one names the
    groups. `broadcast`: the topics that are read whole. A subclass makes `loop`, `_reading` and
    `_broadcast`."""

    loop: Loop
    _broadcast: BroadcastReading
    _reading: Reading

    def __init__(
        self,
        name: str,
        context: ServiceContext,
        partitioned: Sequence[Topic],
        broadcast: Sequence[Topic],
    ) -> None:
        self.name = name
        self._context = context
        context.decoded.read_by_another(topic.name for topic in (*partitioned, *broadcast))
        self._topics = [context.wire(topic.name) for topic in partitioned]
        self._app: ServiceApp | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._failure = ""
        self._ends: Mapping[Partition, int] | None = None
        """Where the partitions ended when they were taken over, of those that hold anything; None:
        not known yet."""
        self._next: dict[Partition, int] = {}
        """The next offset of each partition, after what was handed to the loop."""

    def ready(self) -> bool:
        """Caught up, and moving: everything has been read that was on the topics when the
        partitions came."""
        moves = self.stalled_s() <= self._context.settings.stalled_after_s
        there = self._app is not None and self._app.ready and self.loop.ready()
        return there and self._unread() == 0 and moves

    def stalled_s(self) -> float:
        return self.loop.stalled_s()

    def oldest_s(self) -> float:
        return self.loop.oldest_s()

    def lag(self) -> int:
        """Messages that wait for the loop, and records not yet read of those that were on the
        topics when the partitions came."""
        return self.loop.backlog() + (self._unread() or 0)

    def failed(self) -> str:
        crashed = self._app.crash_reason if self._app is not None else None
        return (
            self.loop.fatal
            or self._failure
            or self._broadcast.failure
            or self._reading.failure
            or (repr(crashed) if crashed else "")
        )

    def _new_app(
        self, *, commits_offsets: bool = True, fetch_wait_ms: int = 0, starts: Starts | None = None
    ) -> ServiceApp:
        """The app, not started yet, whose agent hands records to `_read`."""
        self._app = app = faust_app(
            self.name,
            self._context.backend,
            group=self._context.group(self.name),
            commits_offsets=commits_offsets,
            fetch_wait_ms=fetch_wait_ms,
            signals=self._context.signals,
        )
        app.notify_assigned(self._assigned)
        app.notify_revoked(self._revoked)
        if starts is not None:
            app.read_from(starts)
        app.read(*self._topics, agent=self._agent)
        return app

    async def _stop_reading(self) -> None:
        await self._end_beginning()
        await self._broadcast.stop()
        await self.loop.stop()
        if self._app is not None:
            await self._app.stop()

    def _groups_of(self, partitions: frozenset[Partition]) -> list[int]:
        return sorted(number for topic, number in partitions if topic == self._topics[0])

    def _begin_reading(self) -> None:
        """Partitions have come: where they end is not known yet, and nothing of them has been
        read."""
        self._ends = None
        self._next = {}

    def _note_read(self, records: Sequence[Received]) -> None:
        for record in records:
            self._next[record.topic, record.partition] = record.offset + 1

    def _unread(self) -> int | None:
        """Records up to the ends seen; None: the ends are not known. Asked from any thread."""
        if (ends := self._ends) is None:
            return None
        return sum(max(0, end - self._next.get(partition, 0)) for partition, end in ends.items())

    async def _agent(self, stream: RawStream) -> None:
        """An exception must never leave an agent: Faust would acknowledge what it was holding."""
        try:
            assert self._app is not None
            await self._read(self._app, stream)
        except Exception as error:
            self._fail("agent.failed", error)

    async def _begin_behind(self, work: Callable[[], Awaitable[None]]) -> None:
        """Let `work` go on behind the rebalance, which others wait for, instead of what the last
        one began."""
        await self._end_beginning()
        self._beginning = asyncio.create_task(self._guarded(work), name=f"begin-{self.name}")

    async def _end_beginning(self) -> None:
        if self._beginning is not None:
            await end_tasks([self._beginning])

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A failure ends the service: it cannot work with half of its streams or facts."""
        try:
            await work()
        except Exception as error:
            self._fail("begin.failed", error)

    async def _ends_of(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The end of each partition that holds anything. Waits for a broker that is away."""
        pause = 0.05
        while True:
            try:
                return await self._ends_now(partitions)
            except (KafkaError, OSError) as error:
                log.warning(
                    "broker.away",
                    service=self.name,
                    why=f"{type(error).__name__}: {error}",
                    retry_in_s=pause,
                )
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    async def _ends_now(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Asked by a consumer of its own: it looks at the ends, while the app's reads."""
        if not partitions:
            return {}
        asked = [TopicPartition(topic, number) for topic, number in sorted(partitions)]
        backend = self._context.backend
        consumer = AIOKafkaConsumer(
            **backend.client_options(),
            client_id=f"wharfinger-{self.name}-ends",
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=backend.capabilities.fetch_wait_ms,
        )
        try:
            await consumer.start()
            bound(consumer)
            consumer.assign(asked)
            begins = await consumer.beginning_offsets(asked)
            ends = await ends_of(consumer, asked)
        finally:
            await stop_consumer(consumer)
        return {(tp.topic, tp.partition): end for tp, end in ends.items() if end > begins[tp]}

    def _fail(self, what: str, error: Exception) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        log.exception(what, service=self.name)

    @abstractmethod
    async def _read(self, app: ServiceApp, stream: RawStream) -> None: ...

    @abstractmethod
    async def _assigned(self, partitions: frozenset[Partition]) -> None:
        """Called inside the rebalance with all partitions held from now on, before anything of them
        is read."""

    @abstractmethod
    async def _revoked(self, partitions: frozenset[Partition]) -> None: ...
