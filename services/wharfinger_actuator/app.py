"""The actuator as a service: an observer of decisions and facts, and one writer for each cluster
or hub that may be changed.

The directory of joined clusters is read again every few seconds, as by the collector. Until a
cluster is joined in a mode that writes, the service does nothing but look there: it is in no
consumer group, reads no topic, and has loaded neither what writes nor what observes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from wharfinger.events.streams import ASSIGNMENTS, CLUSTER_STATE, CLUSTERS
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.kube.joined import Joined, JoinedCluster, joined_clusters
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.tasks import end_tasks
from wharfinger_actuator.observed_effects import EffectSender

if TYPE_CHECKING:
    from wharfinger.runtime.observer_loop import Loaded
    from wharfinger.runtime.observer_service import ObserverService
    from wharfinger.stages.actuator import ActuatorState
    from wharfinger_actuator.copier import CopyWriter
    from wharfinger_actuator.hub import HubWriter
    from wharfinger_actuator.writer import Writer

NAME = "actuator"

CLAIMS = "/claims"
"""Behind the name of a cluster: the writer of its NodeClaims, beside that of its pods and nodes."""

COPIES = "/copies/"
"""Between the names of a cluster and of a hub: the writer of what is copied."""

LOOK_S = 2.0
"""How often the directory is read."""

log = get_logger(__name__)


@dataclass(slots=True)
class _RunningWriter:
    """`hub`: from which is copied."""

    joined: JoinedCluster
    hub: JoinedCluster | None
    writer: Writer | HubWriter | CopyWriter
    task: asyncio.Task[None]


class ActuatorService:
    """`failed` once the loop that looks or the observer has failed: the supervisor starts the
    process again."""

    def __init__(self, context: ServiceContext) -> None:
        self.name = NAME
        self._context = context
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._observer: ObserverService[ActuatorState] | None = None
        self._clusters: frozenset[str] = frozenset()
        self._caught_up_at: Micros | None = None
        self._running: dict[str, _RunningWriter] = {}
        self._looked = self._loading = False
        self._answers = EffectSender(context, self._holder)
        self._tasks: list[asyncio.Task[None]] = []
        self._failure = ""

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._guarded(self._run()), name=NAME),
            asyncio.create_task(self._guarded(self._answers.run()), name=f"{NAME}-answers"),
        ]

    async def stop(self) -> None:
        tasks = [running.task for running in self._running.values()]
        await end_tasks([*self._tasks, *tasks])
        await self._stop_observer()

    def ready(self) -> bool:
        """It knows what is decided and what is there. A cluster that is away makes it no less
        ready."""
        if not self._looked or self._failure:
            return False
        return self._observer is None or self._observer.ready()

    def stalled_s(self) -> float:
        return 0.0 if self._observer is None else self._observer.stalled_s()

    def oldest_s(self) -> float:
        return 0.0 if self._observer is None else self._observer.oldest_s()

    def lag(self) -> int:
        return 0 if self._observer is None else self._observer.lag()

    def failed(self) -> str:
        return self._failure or ("" if self._observer is None else self._observer.failed())

    def writers(self) -> dict[str, Writer | HubWriter | CopyWriter]:
        return {name: running.writer for name, running in self._running.items()}

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            log.exception("actuator.failed")

    async def _run(self) -> None:
        while True:
            found = await asyncio.to_thread(joined_clusters, self._context.settings.clusters_dir())
            writable = self._writable(found)
            if writable:
                self._begin_loading()
            members = frozenset(name for name, one in writable.items() if not one.hub)
            if members != self._clusters:
                await self._observe(members)
            await self._follow(writable)
            self._looked = True
            await asyncio.sleep(LOOK_S)

    def _begin_loading(self) -> None:
        """While the group is being joined, which is waiting most of the time."""
        if not self._loading:
            self._loading = True
            self._tasks.append(asyncio.create_task(self._guarded(asyncio.to_thread(_load))))

    def _writable(self, found: Joined) -> dict[str, JoinedCluster]:
        """Those that may be changed. One whose file cannot be read now stays as it is."""
        wanted = {name: one for name, one in found.clusters.items() if one.verbs_in_force}
        for name, why in found.errors.items():
            if name in self._running:
                log.warning("cluster.not_joined", cluster=name, why=why)
                wanted[name] = self._running[name].joined
        return wanted

    # --- the observer

    async def _observe(self, clusters: frozenset[str]) -> None:
        """Begin again with these clusters, and with none end."""
        of_members = [name for name, running in self._running.items() if not running.joined.hub]
        await end_tasks([self._running.pop(name).task for name in of_members])
        await self._stop_observer()
        self._clusters, self._caught_up_at = clusters, None
        if not clusters:
            return
        await asyncio.to_thread(_load_observer)
        from wharfinger.runtime.observer_service import ObserverService, Observing
        from wharfinger.stages.actuator import ActuatorObserver

        self._observer = ObserverService(
            Observing(
                NAME,
                ActuatorObserver(clusters),
                partitioned=(CLUSTER_STATE, ASSIGNMENTS),
                broadcast=(CLUSTERS,),
                load=self._load,
                turn=self._turn,
            ),
            self._context,
        )
        await self._observer.start()

    async def _stop_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            await observer.stop()

    async def _load(self, groups: frozenset[int]) -> Iterable[Loaded]:
        """Called when the partitions change: what is known until then counts no longer."""
        from wharfinger.runtime.actuation import standing_decisions

        self._caught_up_at = None
        partition = self._context.cluster_partition
        return await standing_decisions(
            self._context.ledger,
            lambda cluster: cluster in self._clusters and partition(cluster) in groups,
            self._context.clock(),
        )

    def _turn(self, state: ActuatorState, at: Micros) -> None:
        """Called only while the observer is caught up."""
        if self._caught_up_at is None:
            self._caught_up_at = at
        if not self._running:
            return
        from wharfinger_actuator.writer import Writer

        for running in self._running.values():
            if isinstance(running.writer, Writer):
                running.writer.wake()

    def _known(self) -> tuple[ActuatorState, Micros] | None:
        """The state, and since when it is caught up; None: it is not."""
        if self._observer is None or not self._observer.ready() or self._caught_up_at is None:
            return None
        return self._observer.loop.state, self._caught_up_at

    # --- the writers

    async def _follow(self, writable: dict[str, JoinedCluster]) -> None:
        groups = frozenset() if self._observer is None else self._observer.groups()
        hubs = [one for one in writable.values() if "templates" in one.verbs_in_force]
        wanted: dict[str, tuple[JoinedCluster, JoinedCluster | None]] = {}
        for name, joined in writable.items():
            # Of a hub one process of all writes: the one that holds its Lease.
            if joined.hub or self._context.cluster_partition(name) in groups:
                wanted[name] = joined, None
                if "claims" in joined.verbs_in_force:
                    wanted[f"{name}{CLAIMS}"] = joined, None
                if "copy" in joined.verbs_in_force:
                    wanted |= {f"{name}{COPIES}{hub.name}": (joined, hub) for hub in hubs}
        for name, running in list(self._running.items()):
            if running.task.done():
                error = running.task.exception() if not running.task.cancelled() else None
                log.error("cluster.failed", cluster=name, exc_info=error)
                del self._running[name]
            elif wanted.get(name) != (running.joined, running.hub):
                await end_tasks([running.task])
                del self._running[name]
        fresh = sorted(wanted.keys() - self._running.keys())
        if fresh:
            await asyncio.to_thread(_load)
        for name in fresh:
            joined, hub = wanted[name]
            writer = self._writer_of(joined, hub, name.endswith(CLAIMS))
            task = asyncio.create_task(writer.run(), name=f"write-{name}")
            self._running[name] = _RunningWriter(joined, hub, writer, task)
            log.info(
                "cluster.begun", cluster=name, mode=joined.mode, verbs=list(joined.verbs_in_force)
            )

    def _writer_of(
        self, joined: JoinedCluster, hub: JoinedCluster | None, claims: bool
    ) -> Writer | HubWriter | CopyWriter:
        from wharfinger_actuator.copier import CopyWriter
        from wharfinger_actuator.hub import HubWriter
        from wharfinger_actuator.writer import Writer

        if hub is not None:
            return CopyWriter(joined, hub, self._context, self._holder, self._answers)
        if joined.hub or claims:
            return HubWriter(joined, self._context, self._holder)
        return Writer(joined, self._context, self._holder, self._known, self._answers)


def _load_observer() -> None:
    """What observes decisions, with the stages and the client of the consumer group."""
    import wharfinger.runtime.actuation
    import wharfinger.runtime.observer_service  # noqa: F401


def _load() -> None:
    """What writes. It takes a second, so not in the event loop."""
    import wharfinger_actuator.copier
    import wharfinger_actuator.hub
    import wharfinger_actuator.writer  # noqa: F401


def build(context: ServiceContext) -> Service:
    return ActuatorService(context)


BUILDERS = {NAME: build}
