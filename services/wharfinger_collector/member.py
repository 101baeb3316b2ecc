"""One joined cluster: its identity, its reflectors, and the facts that are handed to the ledger.

    reflectors -> sinks -> ObservedCluster -> intake

A fact is durable when the ledger has accepted it; until then it is due again. Each session of a
collector with a cluster has an epoch of its own, so that a collector that was replaced, and does
not know it, only has facts that are refused as outdated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.text import one_line
from wharfinger.domain.time import Micros
from wharfinger.domain.value import digest
from wharfinger.events.accepted import Fact
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
)
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import CLUSTER_STATE, CLUSTERS
from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.credentials import CredentialsError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.ledger import Ledger, Submission, Transient
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.stages.collector import ObservedCluster, Sighted
from wharfinger.stages.collector.state import FRESH, REPLACED, SECOND_US
from wharfinger_collector.metrics_api import AWAY, MetricsApi, SendLoads
from wharfinger_collector.sighting import LiveDecoder, NodeSink, ObjectSink, PodSink, WatchSink
from wharfinger_collector.watched_kinds import LOOK_S, watched_kinds

SOURCE = "/wharfinger/collector"

LEASE_S = 40
"""Of a cluster whose options name no lease: as long as that of a node in Kubernetes."""

BEATS = 4
"""Heartbeats in the time of one lease."""

STALE_S = 60.0
"""A watch that is broken for so long: the cluster's facts are not fresh any more."""

AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 30.0

ACCEPTED_AT_ONCE = 500

log = structlog.get_logger(__name__)


class _NamespaceMeta(msgspec.Struct):
    uid: str


class _Namespace(msgspec.Struct):
    metadata: _NamespaceMeta


class Member:
    """`joined`: how it is reached and its options. `epoch`: greater than that of every earlier
    session. `known`: its facts in the ledger. `send_loads`: takes the loads of its nodes; None:
    they are not asked for."""

    def __init__(
        self,
        joined: JoinedCluster,
        ledger: Ledger,
        clock: Callable[[], Micros],
        epoch: int,
        known: Iterable[Fact],
        send_loads: SendLoads | None = None,
    ) -> None:
        self.joined = joined
        self.facts = ObservedCluster(_cluster_of(joined, ()), known)
        self.uid = ""
        self.sent = self.outdated = 0
        self._ledger = ledger
        self._clock = clock
        self._epoch = epoch
        self._send_loads = send_loads
        self._wake = asyncio.Event()
        self._watched: dict[str, WatchSink] = {}
        self._replaced = False

    @property
    def caught_up(self) -> bool:
        """All that was listed first is in the ledger, or the cluster cannot be reached: a service
        is not unready because a cluster is away."""
        if not self._watched:
            return bool(self.why)
        lists = [watched.listed or watched.broken_since for watched in self._watched.values()]
        return all(lists) and not self.waiting

    @property
    def why(self) -> str:
        """Why the cluster is not read; empty: it is."""
        return next((w.why for w in self._watched.values() if w.broken_since), self._why)

    _why = ""

    @property
    def waiting(self) -> int:
        """Facts that are due."""
        due = self.facts.next_at()
        return 0 if due is None or due > self._clock() else 1

    async def run(self) -> None:
        """Until cancelled."""
        async with KubeApi(self.joined.access) as api:
            await self._identify(api)
            reading = LiveDecoder()
            nodes = NodeSink(self.facts, self._clock, self._wake.set)
            pods = PodSink(self.facts, self._clock, self._wake.set)
            self._watched = {"Node": nodes, "Pod": pods}
            name = self.joined.name
            async with asyncio.TaskGroup() as group:
                for reflector in (
                    Reflector(api, "/api/v1/nodes", reading.node, nodes),
                    Reflector(api, "/api/v1/pods", reading.pod, pods),
                ):
                    group.create_task(reflector.run(), name=f"{name}-watch")
                group.create_task(self._watch_others(api, reading, group), name=f"{name}-kinds")
                group.create_task(self._beat(api), name=f"{name}-heartbeat")
                group.create_task(self._tell(), name=f"{name}-facts")
                if self._send_loads is not None:
                    loads = MetricsApi(api, self.facts, self._clock, self._send_loads)
                    group.create_task(loads.run(), name=f"{name}-loads")

    async def _watch_others(
        self, api: KubeApi, reading: LiveDecoder, group: asyncio.TaskGroup
    ) -> None:
        """Reflectors of all other kinds that the server has, also of those that it gets later."""
        while True:
            try:
                found = await watched_kinds(api)
            except AWAY as error:
                log.info("cluster.kinds_unknown", cluster=self.joined.name, why=one_line(error))
                await asyncio.sleep(AGAIN_S_MAX)
                continue
            for kind in sorted(found.keys() - self._watched.keys()):
                path, read_as = found[kind]
                sink = ObjectSink(kind, self.facts, self._clock, self._wake.set)
                self._watched[kind] = sink
                reflector = Reflector(api, path, reading.object(read_as), sink)
                group.create_task(reflector.run(), name=f"{self.joined.name}-watch")
            await asyncio.sleep(LOOK_S)

    # --- which cluster it is

    async def _identify(self, api: KubeApi) -> None:
        """Until the server has said which cluster it is, and it is the one that was joined."""
        pause = AGAIN_S_MIN
        while True:
            try:
                found = await api.get("/api/v1/namespaces/kube-system", _Namespace)
                self.uid = found.metadata.uid
                if not self.joined.uid or self.joined.uid == self.uid:
                    self._why = ""
                    return
                self._why = (
                    f"another cluster answers: expected the uid {self.joined.uid}, got {self.uid}"
                )
                await self._say_replaced()
            except AWAY as error:
                self._why = one_line(error)
            log.warning("cluster.not_read", cluster=self.joined.name, why=self._why)
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(AGAIN_S_MAX, pause * 2)

    async def _say_replaced(self) -> None:
        """Once: nothing else is said of a cluster that is not the one that was joined."""
        if self._replaced:
            return
        cluster = msgspec.structs.replace(self.facts.cluster, conditions={REPLACED: "True"})
        self.facts.observe_cluster(cluster, self._clock())
        await self._accept([self.facts.heartbeat()])
        self._replaced = True

    # --- heartbeats

    async def _beat(self, api: KubeApi) -> None:
        """A cluster that answers, and whose facts have been listed, is alive. Of one that does not
        answer nothing is said: its lease runs out."""
        lease_s = self.facts.cluster.lease_s or LEASE_S
        while True:
            ready = await self._ready(api)
            at = self._clock()
            if ready is not None and self.facts.complete:
                self.facts.condition(FRESH, not self._stale(at), at)
                cluster = _cluster_of(self.joined, self.facts.zones, ready)
                self.facts.observe_cluster(cluster, at)
                await self._accept([self.facts.heartbeat()])
                self._wake.set()
                await asyncio.sleep(lease_s / BEATS)
            else:
                await asyncio.sleep(min(AGAIN_S_MIN, lease_s / BEATS))

    async def _ready(self, api: KubeApi) -> bool | None:
        """None: no answer."""
        try:
            await api.request("GET", "/readyz")
        except ApiError as error:
            return False if error.code >= 500 else None
        except (UnreachableError, CredentialsError):
            return None
        return True

    def _stale(self, at: Micros) -> bool:
        return any(
            watched.broken_since is not None and at - watched.broken_since > STALE_S * SECOND_US
            for watched in self._watched.values()
        )

    # --- facts

    async def _tell(self) -> None:
        while True:
            self._wake.clear()
            at = self._clock()
            if due := self.facts.due(at):
                await self._accept(due)
                continue
            next_at = self.facts.next_at()
            wait_s = None if next_at is None else max(0.0, (next_at - at) / SECOND_US)
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _accept(self, sightings: Sequence[Sighted]) -> None:
        """Durable when this returns, or due again."""
        for start in range(0, len(sightings), ACCEPTED_AT_ONCE):
            chunk = sightings[start : start + ACCEPTED_AT_ONCE]
            try:
                result = await self._ledger.accept([self._submission(one) for one in chunk])
            except Transient as error:
                log.warning("ledger.away", cluster=self.joined.name, why=str(error))
                self.facts.unsent(sightings[start:], self._clock())
                await asyncio.sleep(error.retry_after_s)
                return
            self.sent += len(result.new)
            self.outdated += len(result.outdated)

    def _submission(self, sighted: Sighted) -> Submission:
        fact, version = sighted.fact, (self._epoch, sighted.version)
        event = made(
            fact.data,
            id=derived_id("seen", self.uid, fact.key, *version, digest(fact.data, 64)),
            source=SOURCE,
            subject=fact.subject,
            key=fact.partition_key,
            version=version,
        )
        return Submission(event, fact.topic.name, fact.key, fact.partition_key)


async def known_facts(ledger: Ledger, names: Iterable[str]) -> tuple[dict[str, list[Fact]], int]:
    """The latest facts of these clusters in the ledger, and the greatest epoch among them."""
    wanted = set(names)
    found: dict[str, list[Fact]] = {name: [] for name in wanted}
    epoch = 0
    for topic in (CLUSTERS.name, CLUSTER_STATE.name):
        async for fact in ledger.facts(topic):
            if fact.partition_key not in wanted:
                continue
            event = event_of(fact)
            epoch = max(epoch, event.version[0])
            if isinstance(
                event.data,
                NodesObserved
                | PodsObserved
                | WaitingPodsObserved
                | FinishedPodsObserved
                | ObjectsObserved
                | QuotasObserved,
            ):
                found[fact.partition_key].append(event.data)
    return found, epoch


def _cluster_of(joined: JoinedCluster, zones: tuple[str, ...], ready: bool = True) -> Cluster:
    return Cluster(
        joined.name,
        labels=dict(joined.labels),
        provider=joined.provider,
        region=joined.region,
        zones=zones,
        lease_s=joined.lease_s or LEASE_S,
        conditions={"Ready": "True" if ready else "False"},
    )
