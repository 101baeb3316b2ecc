"""An observer as a service: a Faust app reads its partitions from the beginning, a broadcast reader the rest, one loop folds.

Whenever the partitions change, everything begins anew: the state from the ledger, the facts from the beginning. Published is
only what was counted from the whole.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.types import TP

from wharfinger.events.streams import Topic
from wharfinger.kernel.decider import Micros, S
from wharfinger.kernel.observer import Observer
from wharfinger.runtime.broadcast import ends_of
from wharfinger.runtime.faust_app import Partition, RawStream, ServiceApp, faust_app, take
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.observer_loop import Loaded, ObserverLoop
from wharfinger.runtime.producer import idempotent_producer
from wharfinger.runtime.reading import BroadcastReading, Reading
from wharfinger.runtime.service import ServiceContext

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Observing(Generic[S]):
    """What runs. `load(groups)` gives the events that bring a fresh state to the present for these partitions."""

    name: str
    observer: Observer[S]
    partitioned: Sequence[Topic]
    broadcast: Sequence[Topic]
    load: Callable[[frozenset[int]], Awaitable[Iterable[Loaded]]]
    coalesce_s: float = field(default=0.05)
    turn: Callable[[S, Micros], None] | None = None


class ObserverService(Generic[S]):
    def __init__(self, observing: Observing[S], context: ServiceContext) -> None:
        self.name = observing.name
        self._observing = observing
        self._context = context
        self._metrics = METRICS.of(observing.name)
        self._reading = Reading(
            self.name, context.ledger, context.incarnations, context.unwire, self._metrics, context.decoded
        )
        self._primary = context.wire(observing.partitioned[0].name)
        # What observers tell is coalesced anyway: polling less often costs less than it delays.
        self._fetch_wait_ms = 10 * context.backend.capabilities.fetch_wait_ms
        self._groups: frozenset[int] = frozenset()
        self._ends: dict[TP, int] | None = None
        self._next: dict[TP, int] = {}
        self._beginnings = 0
        self._broadcast_there = False
        self._beginning: asyncio.Task[None] | None = None
        self._failure = ""
        self._app: ServiceApp | None = None
        self._producer = idempotent_producer(context.backend, client_id=f"wharfinger-{self.name}", linger_ms=2)
        self.loop = ObserverLoop(
            self.name, observing.observer, self._producer, context.wire, context.partitions, context.clock, self._metrics,
            load=self._load, coalesce_s=observing.coalesce_s, turn=observing.turn,
        )  # fmt: skip
        self._broadcast = BroadcastReading(
            self.name, context.backend, [context.wire(t.name) for t in observing.broadcast], self._reading,
            self.loop.offer, self._broadcast_caught_up, self._fetch_wait_ms,
        )  # fmt: skip

    async def start(self) -> None:
        await self._producer.start()
        self._app = app = faust_app(
            self.name,
            self._context.backend,
            group=self._context.group(self.name),
            commits_offsets=False,
            fetch_wait_ms=self._fetch_wait_ms,
        )
        app.notify_assigned(self._assigned)
        app.notify_revoked(self._revoked)
        app.read(*(self._context.wire(t.name) for t in self._observing.partitioned), agent=self._agent)
        self.loop.start()
        await app.start()

    async def stop(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        await self._broadcast.stop()
        await self.loop.stop()
        if self._app is not None:
            await self._app.stop()
        await self._producer.stop()

    def ready(self) -> bool:
        return self._app is not None and self._app.ready and self.loop.ready()

    def lag(self) -> int:
        return self.loop.backlog()

    def failed(self) -> str:
        crashed = self._app.crash_reason if self._app is not None else None
        return self.loop.fatal or self._failure or self._broadcast.failure or (repr(crashed) if crashed else "")

    def groups(self) -> frozenset[int]:
        """The cluster partitions this process watches."""
        return self._groups

    async def _load(self) -> Iterable[Loaded]:
        return await self._observing.load(self._groups)

    async def _agent(self, stream: RawStream) -> None:
        """An exception must never leave an agent: Faust would acknowledge what it was holding."""
        try:
            await self._read(stream)
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            log.exception("agent.failed", service=self.name)

    async def _read(self, stream: RawStream) -> None:
        assert self._app is not None
        async for records in take(stream, self._context.settings.take_max):
            began = self._beginnings
            messages = await self._reading.messages(records)
            if not self._app.is_current(records[-1]):
                continue  # a dead letter was waited for, and the partitions were dealt anew meanwhile
            await self.loop.offer(m for m in messages if m.partition in self._groups)
            if began != self._beginnings:
                continue  # what we offered was forgotten with the old state: it says nothing of how far the new one is
            for r in records:
                self._next[TP(r.topic, r.partition)] = r.offset + 1
            self._check_caught_up()

    async def _revoked(self, partitions: frozenset[Partition]) -> None:
        self.loop.suspend()

    async def _assigned(self, partitions: frozenset[Partition]) -> None:
        """Called inside the rebalance, before anything is fetched: from here on everything is read from the beginning."""
        self._groups = frozenset(p for topic, p in partitions if topic == self._primary)
        self.loop.suspend()
        self._broadcast_there = False
        self._ends = None
        self._next.clear()
        self._beginnings += 1
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        self._beginning = asyncio.create_task(
            self._begin([TP(t, p) for t, p in sorted(partitions)]), name=f"begin-{self.name}"
        )

    async def _begin(self, partitions: Sequence[TP]) -> None:
        assert self._app is not None
        try:
            ends = await self._patiently(partitions)
            await self.loop.begin()
            self._ends = ends
            await self._broadcast.restart()
            self._check_caught_up()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever it is, we must not publish from half a state: restart
            self._failure = f"{type(error).__name__}: {error}"
            log.exception("begin.failed", service=self.name)

    async def _patiently(self, partitions: Sequence[TP]) -> dict[TP, int]:
        """What is to be read first: the end of each partition that holds anything. Waits for a broker that is away."""
        pause = 0.05
        while True:
            try:
                return await self._ends_of(partitions)
            except (KafkaError, OSError) as error:
                log.warning("broker.away", service=self.name, why=f"{type(error).__name__}: {error}", retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    async def _ends_of(self, partitions: Sequence[TP]) -> dict[TP, int]:
        """Asked by a consumer of its own: it looks at the ends, while the app's reads from the beginning."""
        if not partitions:
            return {}
        asked = [TopicPartition(tp.topic, tp.partition) for tp in partitions]
        backend = self._context.backend
        consumer = AIOKafkaConsumer(
            **backend.client_options(), client_id=f"wharfinger-{self.name}-ends", group_id=None, enable_auto_commit=False,
            fetch_max_wait_ms=backend.capabilities.fetch_wait_ms,
        )  # fmt: skip
        try:
            await consumer.start()
            consumer.assign(asked)
            begins = await consumer.beginning_offsets(asked)
            ends = await ends_of(consumer, asked)
        finally:
            await consumer.stop()
        return {TP(tp.topic, tp.partition): end for tp, end in ends.items() if end > begins[tp]}

    def _broadcast_caught_up(self) -> None:
        self._broadcast_there = True
        self._check_caught_up()

    def _check_caught_up(self) -> None:
        if self._ends is None or not self._broadcast_there:
            return
        if all(self._next.get(tp, 0) >= end for tp, end in self._ends.items()):
            self.loop.caught_up()
