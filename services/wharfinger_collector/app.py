"""The collector as a service: one task for each joined cluster that is this process's.

The directory of joined clusters is read again every few seconds, so joining, leaving and changed
options need no restart. A cluster whose file cannot be read stays as it is. Until a cluster is
joined the service does nothing but look there: it is in no consumer group, and has not loaded what
reads clusters.

Another collector may have taken a cluster over while this one was frozen, or could not reach the
broker. The ledger then refuses this one's facts. It begins with the cluster again when it has got
its partitions again, or still has them after the time in which the broker notices a lost member.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wharfinger.runtime.kube.joined import Joined, JoinedCluster, joined_clusters
from wharfinger.runtime.ledger import LedgerError, WriterReplacedError
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.tasks import end_tasks
from wharfinger_collector.heartbeats import FleetHeartbeats
from wharfinger_collector.metrics_api import LoadSender
from wharfinger_collector.partitions import Partitions

if TYPE_CHECKING:
    from wharfinger_collector.hub import JoinedHub
    from wharfinger_collector.member import Member

NAME = "collector"

LOOK_S = 2.0
"""How often the directory is read, and how long a change of partitions waits at most."""

log = get_logger(__name__)


@dataclass(slots=True)
class _Running:
    joined: JoinedCluster
    member: Member | JoinedHub
    task: asyncio.Task[None]


class CollectorService:
    def __init__(self, context: ServiceContext) -> None:
        self.name = NAME
        self._context = context
        self._metrics = METRICS.of(NAME)
        self._partitions = Partitions(NAME, context, self._partitions_changed)
        self._loads = LoadSender(NAME, context)
        self._heartbeats = FleetHeartbeats(context.ledger, context.clock, self._read_members)
        self._running: dict[str, _Running] = {}
        self._replaced: dict[str, float] = {}
        self._look = asyncio.Event()
        self._looked = self._joining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._failure = ""

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._guarded(self._run()), name="collector"),
            asyncio.create_task(self._guarded(self._heartbeats.run()), name="collector-heartbeats"),
        ]

    async def stop(self) -> None:
        tasks = [*self._tasks, *(running.task for running in self._running.values())]
        await end_tasks(tasks)
        await self._loads.stop()

    def ready(self) -> bool:
        """It has its partitions, and has read every cluster of theirs that can be reached."""
        there = self._looked and not self._failure
        return there and all(running.member.caught_up for running in self.members())

    def stalled_s(self) -> float:
        return 0.0

    def oldest_s(self) -> float:
        return 0.0

    def lag(self) -> int:
        return sum(running.member.waiting for running in self.members())

    def failed(self) -> str:
        return self._failure

    def members(self) -> list[_Running]:
        return list(self._running.values())

    def _read_members(self) -> list[Member]:
        """Without hubs."""
        if not self._running:
            return []
        from wharfinger_collector.member import Member

        return [r.member for r in self._running.values() if isinstance(r.member, Member)]

    def _partitions_changed(self, _: frozenset[int]) -> None:
        self._replaced.clear()
        self._look.set()

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            log.exception("collector.failed")

    async def _run(self) -> None:
        while True:
            self._look.clear()
            found = await asyncio.to_thread(joined_clusters, self._context.settings.clusters_dir())
            if found.clusters and not self._joining:
                self._joining = True
                self._tasks += [
                    asyncio.create_task(self._partitions.run(), name="collector-partitions"),
                    # Joining is waiting most of the time.
                    asyncio.create_task(
                        self._guarded(asyncio.to_thread(_load)), name="collector-load"
                    ),
                ]
            if self._partitions.mine is not None:
                if self._partitions.mine:
                    self._heartbeats.begin(f"{NAME}-{min(self._partitions.mine)}")
                await self._follow(self._partitions.mine, found)
            self._looked = self._partitions.mine is not None or not found.clusters
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                pass

    async def _follow(self, mine: frozenset[int], found: Joined) -> None:
        """Begin with clusters that are ours now, end with those that are not."""
        wanted = {
            name: joined
            for name, joined in found.clusters.items()
            if self._context.cluster_partition(name) in mine
        }
        for name, why in found.errors.items():
            log.warning("cluster.not_joined", cluster=name, why=why)
            if name in self._running and self._context.cluster_partition(name) in mine:
                wanted[name] = self._running[name].joined
        for name, running in list(self._running.items()):
            if running.task.done():
                error = running.task.exception() if not running.task.cancelled() else None
                if error is not None and (replaced := _replaced_by(error)):
                    log.warning("cluster.replaced", cluster=name, why=replaced)
                    session_s = self._context.backend.capabilities.session_s
                    self._replaced[name] = time.monotonic() + session_s
                else:
                    log.error("cluster.failed", cluster=name, exc_info=error)
                del self._running[name]
            elif wanted.get(name) != running.joined:
                await end_tasks([running.task])
                del self._running[name]
        now = time.monotonic()
        waiting = {name for name, until in self._replaced.items() if until > now}
        if new := sorted(wanted.keys() - self._running.keys() - waiting):
            await self._begin([wanted[name] for name in new], found)

    async def _begin(self, joined: list[JoinedCluster], found: Joined) -> None:
        await asyncio.to_thread(_load)
        from wharfinger.events.hub_facts import HUB_SOURCE
        from wharfinger_collector.hub import JoinedHub, known_hub_facts
        from wharfinger_collector.member import Member, known_facts

        ledger, clock = self._context.ledger, self._context.clock
        named = {one.name: f"{HUB_SOURCE}/{one.name}" if one.hub else one.name for one in joined}
        try:
            # First, so that nothing is added by an earlier session to what is read then.
            writers = {
                name: await ledger.begin_writer(writer, clock()) for name, writer in named.items()
            }
            names = [one.name for one in joined if not one.hub]
            known, before = await known_facts(ledger, names)
            hubs = [one.name for one in joined if one.hub]
            of_hubs, last = await known_hub_facts(ledger, hubs) if hubs else ({}, 0)
            for one in joined:
                if writers[one.name].epoch <= max(before, last):
                    later = max(before, last) + 1
                    writers[one.name] = await ledger.begin_writer(named[one.name], later)
        except LedgerError as error:
            log.warning("ledger.away", service=NAME, why=str(error))
            return
        # Where a Prometheus is set, the annotator asks it.
        send_loads = None if self._context.settings.prometheus_url else self._loads.send
        members = [name for name, one in found.clusters.items() if not one.hub]
        for one in joined:
            writer = writers[one.name]
            member: Member | JoinedHub
            if one.hub:
                member = JoinedHub(one, ledger, clock, writer, of_hubs[one.name], members)
            else:
                known_of, review_s = known[one.name], self._context.settings.rights_review_s
                member = Member(one, ledger, clock, writer, known_of, send_loads, review_s)
            task = asyncio.create_task(member.run(), name=f"cluster-{one.name}")
            self._running[one.name] = _Running(one, member, task)
            log.info("cluster.begun", cluster=one.name, mode=one.mode, epoch=writer.epoch)


def _replaced_by(error: BaseException) -> str:
    """Why the session ended, if another one has begun and there is no other reason; else empty."""
    if isinstance(error, BaseExceptionGroup):
        whys = [_replaced_by(inner) for inner in error.exceptions]
        return whys[0] if all(whys) else ""
    return str(error) if isinstance(error, WriterReplacedError) else ""


def _load() -> None:
    """What reads clusters. It takes a second, so not in the event loop."""
    import wharfinger_collector.hub
    import wharfinger_collector.member  # noqa: F401


def build(context: ServiceContext) -> Service:
    return CollectorService(context)


BUILDERS = {NAME: build}
