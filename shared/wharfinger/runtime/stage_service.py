"""A stage as a service: a Faust app reads its partitions, a broadcast reader what every process
must know, one loop decides.

Faust gives and takes partitions; each is a group of streams of the loop. Membership is all that the
consumer group is for: partitions are read from what the ledger has committed (`reading_starts`),
not from offsets committed to the broker. When groups come, the broadcast reader starts again from
the lowest offset any of their streams has seen, and nothing is decided before it has reached the
ends it found at that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from wharfinger.domain.open_requests import OpenRequests
from wharfinger.events.streams import Topic
from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Basis
from wharfinger.runtime.abandoned import Abandoned
from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.faust_app import Partition, RawStream, ServiceApp, take
from wharfinger.runtime.group_service import GroupService
from wharfinger.runtime.ledger import LedgerError, Transient
from wharfinger.runtime.ledger.follower import SnapshotCadence
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Routing
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.reading import BroadcastReading, InOrder, Reading
from wharfinger.runtime.reading_starts import reading_starts
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.snapshot_keeper import SnapshotKeeper
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.timeline import ensure_not_behind

log = get_logger()

COMPARE_AGAIN_S = 0.5
STARTS_PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""How long a database that is away is waited for while a rebalance waits for us."""
MEASURE_EVERY_S = 30.0
"""So often it is looked how old the newest snapshots are."""


@dataclass(frozen=True, slots=True)
class Stage(Generic[S]):
    """What runs: the decider, where its events go, the co-partitioned topics it owns by group (the
    first one names the groups), the topics every process reads whole, and what makes the decider of
    a recorded profile (None: no snapshots are made)."""

    name: str
    decider: Decider[S]
    routing: Routing
    partitioned: Sequence[Topic]
    broadcast: Sequence[Topic]
    of_profile: Callable[[str], Decider[S]] | None = None


class StageService(GroupService, Generic[S]):
    loop: StageLoop[S]

    def __init__(self, stage: Stage[S], context: ServiceContext) -> None:
        super().__init__(stage.name, context, stage.partitioned, stage.broadcast)
        self._stage = stage
        settings = context.settings
        self._metrics = metrics = METRICS.of(stage.name)
        self.loop = StageLoop(
            stage.name,
            stage.decider,
            stage.routing,
            context.ledger,
            context.incarnations,
            context.clock,
            metrics,
            take_max=settings.take_max,
            standing=[t.name for t in stage.broadcast if t.retention_ms is None],
            broadcast=[t.name for t in stage.broadcast],
            partitioned=[t.name for t in stage.partitioned],
            compare=self._compare,
        )
        self._acks = InOrder()
        self._reading = Reading(
            stage.name,
            context.ledger,
            context.incarnations,
            context.unwire,
            metrics,
            context.decoded,
            self._acks,
            Abandoned(context.went_back),
            BelievedSources.parse(settings.believed_sources),
        )
        self._broadcast = BroadcastReading(
            stage.name,
            context.backend,
            [context.wire(t.name) for t in stage.broadcast],
            self._reading,
            self.loop.offer_facts,
            lambda: self.loop.hold(False),
            signals=context.signals,
        )
        self._snapshots: SnapshotKeeper[S] | None = None
        if stage.of_profile is not None:
            cadence = SnapshotCadence(settings.snapshot_rows, settings.delta_rows)
            self._snapshots = SnapshotKeeper(
                context.ledger,
                stage.of_profile,
                self.loop,
                cadence,
                idle_s=context.idle_s,
                in_burst=context.in_burst,
            )
        context.stages_idle_s.append(self.loop.idle_s)
        context.stages_in_burst.append(self.loop.in_burst)
        self._measuring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        app = self._new_app(starts=self._starts)
        self.loop.hold(True)
        self.loop.start()
        if self._snapshots is not None:
            self._snapshots.start()
            self._measuring = asyncio.create_task(self._measure(), name=f"measure-{self.name}")
        await app.start()

    async def stop(self) -> None:
        if self._measuring is not None:
            await end_tasks([self._measuring])
        if self._snapshots is not None:
            await self._snapshots.stop()
        await self._stop_reading()
        await self._reading.stop()

    def divergences(self) -> int:
        return self._snapshots.divergences if self._snapshots is not None else 0

    def open_requests(self) -> OpenRequests:
        return self.loop.open_requests()

    async def _read(self, app: ServiceApp, stream: RawStream) -> None:
        async for records in take(stream, self._context.settings.take_max):
            # What was read before a rebalance is read again from a lower offset. Its higher
            # offsets, taken in now, would make those look as if they had been decided.
            if not app.is_current(records[-1]):
                continue
            messages = await self._reading.messages(records)
            if not app.is_current(records[-1]):
                continue  # a dead letter was waited for, and the partitions changed meanwhile
            await self.loop.offer(messages)
            if app.is_current(records[-1]):  # it may have waited for room in the mailbox
                self._note_read(records)

    async def _measure(self) -> None:
        """How old the newest snapshot is, of the stream of ours with most rows since its own."""
        while True:
            try:
                ages = {age.stream: age for age in await self._context.ledger.snapshot_ages()}
                mine = [ages[name] for name in self.loop.heads() if name in ages]
                furthest = max(mine, key=lambda age: (age.rows, age.stream), default=None)
                rows = furthest.rows if furthest is not None else 0
                at = furthest.at if furthest is not None else None
                self._metrics.snapshot_rows.set(rows)
                self._metrics.snapshot_age.set(
                    0 if at is None else max(0.0, (self._context.clock() - at) / 1e6)
                )
            except LedgerError as error:
                log.info("snapshot_ages.unknown", stage=self.name, why=str(error))
            await asyncio.sleep(MEASURE_EVERY_S)

    async def _revoked(self, partitions: frozenset[Partition]) -> None:
        await self.loop.revoke(self._groups_of(partitions))
        self._acks.forget()

    async def _assigned(self, partitions: frozenset[Partition]) -> None:
        """Called inside the rebalance, which others wait for: recovery goes on behind it."""
        self._acks.forget()
        self._reading.forget(partitions)
        self.loop.expect(self._groups_of(partitions))
        self._begin_reading()
        await self._begin_behind(lambda: self._take_over(partitions))

    async def _starts(self, partitions: frozenset[Partition]) -> Mapping[Partition, int]:
        """Where to read each partition from, as the ledger has it now. A former owner that has not
        finished yet may still commit: then we read what it decided once more, and know it by the
        basis. Without an answer from the database everything is read from the beginning, which is
        right and only takes longer."""
        assert self._app is not None, "the app asks"
        places = {
            f"{self._context.unwire(topic)}/{number}": (topic, number)
            for topic, number in partitions
        }
        asked_in = self._app.assigned_in
        bases = await self._last_bases()
        starts = reading_starts(
            places, bases, self._stage.routing.group_of, self._context.incarnations
        )
        log.info("reading.begins", stage=self.name, starts=starts)
        found = {places[place]: offset for place, offset in starts.items()}
        if asked_in == self._app.assigned_in:  # or others were assigned while the ledger was asked
            self._next = dict(found)
        return found

    async def _last_bases(self) -> Mapping[str, Basis]:
        for pause in (*STARTS_PAUSES_S, None):
            try:
                return await self._context.ledger.last_bases(self._stage.routing.prefix)
            except Transient as error:
                log.warning("ledger.away", stage=self.name, why=str(error), retry_in_s=pause)
                if pause is not None:
                    await asyncio.sleep(pause)
        return {}

    async def _compare(self) -> None:
        context = self._context
        while True:
            try:
                await ensure_not_behind(
                    context.ledger, context.backend, context.wire, context.went_back
                )
                return
            except (Transient, BackendError) as error:
                log.warning(
                    "timeline.not_compared",
                    stage=self.name,
                    why=str(error),
                    retry_in_s=COMPARE_AGAIN_S,
                )
                await asyncio.sleep(COMPARE_AGAIN_S)

    async def _take_over(self, partitions: frozenset[Partition]) -> None:
        self.loop.hold(True)
        # Before the new groups come: a reader that reached its ends now would let them decide
        # without their facts.
        await self._broadcast.stop()
        # It has gone on until now, beyond what the new groups have seen.
        self.loop.forget_early({topic.name for topic in self._stage.broadcast})
        await self.loop.acquire()
        begin = {}
        for place, offset in self.loop.positions().items():
            topic, _, partition = place.rpartition("/")
            begin[self._context.wire(topic), int(partition)] = offset
        await self._broadcast.restart(begin)
        self._ends = await self._ends_of(partitions)
