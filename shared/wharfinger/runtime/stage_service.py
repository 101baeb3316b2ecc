"""A stage as a service: a Faust app reads its partitions, a broadcast reader what every process must know, one loop decides.

Faust gives and takes partitions; each is a group of streams of the loop. When groups come, the broadcast reader begins anew
from the lowest offset any of their streams has seen, and nothing is decided before it has reached the ends that stood there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import structlog

from wharfinger.events.streams import Topic
from wharfinger.kernel.decider import Decider, S
from wharfinger.runtime.faust_app import Partition, RawStream, ServiceApp, faust_app, take
from wharfinger.runtime.ledger.follower import Cadence
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.reading import BroadcastReading, InOrder, Reading
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.snapshot_keeper import SnapshotKeeper
from wharfinger.runtime.stage_loop import Routing, StageLoop

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Stage(Generic[S]):
    """What runs: the decider, where its events go, the co-partitioned topics it owns by group (the first one names the
    groups), the topics every process reads whole, and what makes the decider of a recorded profile (None: no snapshots are
    made)."""

    name: str
    decider: Decider[S]
    routing: Routing
    partitioned: Sequence[Topic]
    broadcast: Sequence[Topic]
    of_profile: Callable[[str], Decider[S]] | None = None


class StageService(Generic[S]):
    def __init__(self, stage: Stage[S], context: ServiceContext) -> None:
        self.name = stage.name
        self._stage = stage
        self._context = context
        settings = context.settings
        metrics = METRICS.of(stage.name)
        self.loop = StageLoop(
            stage.name, stage.decider, stage.routing, context.ledger, context.incarnations, context.clock, metrics,
            take_max=settings.take_max, standing=[t.name for t in stage.broadcast if t.retention_ms is None],
        )  # fmt: skip
        self._acks = InOrder()
        self._reading = Reading(
            stage.name, context.ledger, context.incarnations, context.unwire, metrics, context.decoded, self._acks
        )
        self._broadcast = BroadcastReading(
            stage.name, context.backend, [context.wire(t.name) for t in stage.broadcast], self._reading,
            self.loop.offer_facts, lambda: self.loop.hold(False),
        )  # fmt: skip
        self._snapshots: SnapshotKeeper[S] | None = None
        if stage.of_profile is not None:
            cadence = Cadence(settings.snapshot_rows, settings.delta_rows)
            self._snapshots = SnapshotKeeper(context.ledger, stage.of_profile, self.loop, cadence)
        self._primary = context.wire(stage.partitioned[0].name)
        self._taking_over: asyncio.Task[None] | None = None
        self._failure = ""
        self._app: ServiceApp | None = None

    async def start(self) -> None:
        self._app = app = faust_app(self.name, self._context.backend, group=self._context.group(self.name))
        app.notify_assigned(self._assigned)
        app.notify_revoked(self._revoked)
        app.read(*(self._context.wire(t.name) for t in self._stage.partitioned), agent=self._agent)
        self.loop.hold(True)
        self.loop.start()
        if self._snapshots is not None:
            self._snapshots.start()
        await app.start()

    async def stop(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
        if self._snapshots is not None:
            await self._snapshots.stop()
        await self._broadcast.stop()
        await self.loop.stop()
        if self._app is not None:
            await self._app.stop()

    def ready(self) -> bool:
        return self._app is not None and self._app.ready and self.loop.ready()

    def lag(self) -> int:
        return self.loop.backlog()

    def failed(self) -> str:
        crashed = self._app.crash_reason if self._app is not None else None
        return self.loop.fatal or self._failure or self._broadcast.failure or (repr(crashed) if crashed else "")

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
            messages = await self._reading.messages(records)
            # A dead letter is waited for, perhaps through a rebalance: an offset of before it, taken in now, would make those
            # below it, which are read again, look like old ones.
            if self._app.is_current(records[-1]):
                await self.loop.offer(messages)

    async def _revoked(self, partitions: frozenset[Partition]) -> None:
        await self.loop.revoke(sorted(p for topic, p in partitions if topic == self._primary))
        self._acks.forget()

    async def _assigned(self, partitions: frozenset[Partition]) -> None:
        """Called inside the rebalance, which others wait for: recovery goes on behind it."""
        self._acks.forget()
        self.loop.expect(sorted(p for topic, p in partitions if topic == self._primary))
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
        self._taking_over = asyncio.create_task(self._take_over(), name=f"take-over-{self.name}")

    async def _take_over(self) -> None:
        try:
            self.loop.hold(True)
            # Before the new groups come: a reader that reached its ends now would let them decide without their facts.
            await self._broadcast.stop()
            await self.loop.acquire()
            begin = {}
            for place, offset in self.loop.positions().items():
                topic, _, partition = place.rpartition("/")
                begin[self._context.wire(topic), int(partition)] = offset
            await self._broadcast.restart(begin)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever it is, we cannot decide without our streams: restart
            self._failure = f"{type(error).__name__}: {error}"
            log.exception("take_over.failed", stage=self.name)
