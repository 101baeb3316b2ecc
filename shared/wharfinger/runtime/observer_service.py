"""An observer as a service: a Faust app reads its partitions from the beginning, a broadcast reader
the rest, one loop folds.

When the partitions change, everything is read again: the state from the ledger, the facts from the
beginning. Published is only what was counted from the whole.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from wharfinger.events.streams import Topic
from wharfinger.kernel.decider import Micros, S
from wharfinger.kernel.observer import Observer
from wharfinger.runtime.abandoned import Abandoned
from wharfinger.runtime.acceptances import is_read
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.faust_app import Partition, RawStream, ServiceApp, take
from wharfinger.runtime.group_service import GroupService
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.observer_loop import Loaded, ObserverLoop
from wharfinger.runtime.producer import Producer, idempotent_producer
from wharfinger.runtime.reading import BroadcastReading, Reading
from wharfinger.runtime.sending import Dividing, Sending
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.topics import largest_records

log = get_logger()


@dataclass(frozen=True, slots=True)
class Observing(Generic[S]):
    """What runs. `load(groups)` gives the events that bring a fresh state to the present for these
    partitions. `turn`, `can_wait`: see `ObserverLoop`."""

    name: str
    observer: Observer[S]
    partitioned: Sequence[Topic]
    broadcast: Sequence[Topic]
    load: Callable[[frozenset[int]], Awaitable[Iterable[Loaded]]]
    coalesce_s: float = field(default=0.05)
    turn: Callable[[S, Micros], None] | None = None
    can_wait: Callable[[S], bool] = lambda _: False


class ObserverService(GroupService, Generic[S]):
    loop: ObserverLoop[S]

    def __init__(self, observing: Observing[S], context: ServiceContext) -> None:
        super().__init__(observing.name, context, observing.partitioned, observing.broadcast)
        self._observing = observing
        self._metrics = METRICS.of(observing.name)
        self._reading = Reading(
            self.name,
            context.ledger,
            context.incarnations,
            context.unwire,
            self._metrics,
            context.decoded,
            abandoned=Abandoned(context.went_back),
            believed=BelievedSources.parse(context.settings.believed_sources),
        )
        # What observers tell is coalesced anyway: polling less often costs less than it delays.
        self._fetch_wait_ms = 10 * context.backend.capabilities.fetch_wait_ms
        self._groups: frozenset[int] = frozenset()
        self._broadcast_topics = frozenset(t.name for t in observing.broadcast)
        self._partitioned_topics = frozenset(t.name for t in observing.partitioned)
        self._beginnings = 0
        self._broadcast_begun = False
        """Whether the broadcast reader is the one of the newest assignment."""
        self._broadcast_there = False
        self._sending = Sending(self._new_producer, Dividing(), context.wire)
        self.loop = ObserverLoop(
            self.name,
            observing.observer,
            self._sending,
            context.partitions,
            context.clock,
            self._metrics,
            load=self._load,
            coalesce_s=observing.coalesce_s,
            turn=observing.turn,
            incarnation=context.ledger_incarnation,
            refuse=self._reading.refuse,
            reads=self._reads,
            can_wait=observing.can_wait,
        )
        self._broadcast = BroadcastReading(
            self.name,
            context.backend,
            [context.wire(t.name) for t in observing.broadcast],
            self._reading,
            self._offer_facts,
            self._broadcast_caught_up,
            self._fetch_wait_ms,
            context.signals,
        )

    async def start(self) -> None:
        await self._sending.start()
        self._sending.dividing.limits |= await largest_records(
            self._context.backend, self._context.prefix
        )
        app = self._new_app(commits_offsets=False, fetch_wait_ms=self._fetch_wait_ms)
        self.loop.start()
        await app.start()

    async def stop(self) -> None:
        await self._stop_reading()
        await self._reading.stop()
        await self._sending.stop()

    def _new_producer(self) -> Producer:
        return idempotent_producer(
            self._context.backend,
            client_id=f"wharfinger-{self.name}",
            sent=self._context.signals.sent,
        )

    def _reads(self, place: str) -> bool:
        return is_read(place, self._broadcast_topics, self._partitioned_topics, self._groups)

    def groups(self) -> frozenset[int]:
        """The cluster partitions this process watches."""
        return self._groups

    async def _load(self) -> Iterable[Loaded]:
        return await self._observing.load(self._groups)

    async def _read(self, app: ServiceApp, stream: RawStream) -> None:
        async for records in take(stream, self._context.settings.take_max):
            if not app.is_current(records[-1]):
                continue  # read before a rebalance, and read again since
            began = self._beginnings
            messages = await self._reading.messages(records)
            if not app.is_current(records[-1]):
                continue  # a dead letter was waited for, and the partitions changed meanwhile
            await self.loop.offer(m for m in messages if m.partition in self._groups)
            if began != self._beginnings:
                # what we offered was forgotten with the old state: it says nothing of how far the
                # new one is
                continue
            self._note_read(records)
            self._check_caught_up()

    async def _revoked(self, partitions: frozenset[Partition]) -> None:
        self.loop.suspend()

    async def _assigned(self, partitions: frozenset[Partition]) -> None:
        """Called inside the rebalance, before anything is fetched: from here on everything is read
        from the beginning."""
        self._groups = frozenset(self._groups_of(partitions))
        self.loop.suspend()
        self._reading.forget(partitions)
        self._broadcast_begun = self._broadcast_there = False
        self._beginnings += 1
        self._begin_reading()
        await self._begin_behind(lambda: self._begin(partitions))

    async def _begin(self, partitions: frozenset[Partition]) -> None:
        await self._broadcast.stop()
        ends = await self._ends_of(partitions)
        await self.loop.begin()
        self._ends = ends
        self._broadcast_begun = True
        await self._broadcast.restart()
        self._check_caught_up()

    async def _offer_facts(self, messages: Iterable[Message]) -> None:
        """What the reader of before a rebalance still has is read again from the beginning."""
        if self._broadcast_begun:
            await self.loop.offer(messages)

    def _broadcast_caught_up(self) -> None:
        if self._broadcast_begun:
            self._broadcast_there = True
            self._check_caught_up()

    def _check_caught_up(self) -> None:
        if self._broadcast_there and self._unread() == 0:
            self.loop.caught_up()
