"""One joined cluster: its identity, its reflectors, and the facts that are handed to the ledger.

    reflectors -> sinks -> ObservedCluster -> intake

A fact is durable when the ledger has accepted it; until then it is due again. Each session of a
collector with a cluster has an epoch of its own. Of a collector that was replaced, and does not
know it, the ledger accepts nothing: its session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from wharfinger.domain.actuation import Mode
from wharfinger.domain.cluster import MAY_READ, Cluster, Places, kinds_not_readable, stale_kinds
from wharfinger.domain.text import one_line
from wharfinger.domain.time import SECOND, Micros
from wharfinger.events.accepted import Fact
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.streams import CLUSTER_STATE, CLUSTERS
from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.credentials import CredentialsError
from wharfinger.runtime.kube.identity import AGAIN_S_MAX, AGAIN_S_MIN, AWAY, Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.kube.watched import NODE_METRICS, WATCHED
from wharfinger.runtime.ledger import FactWriter, Ledger
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.logs import get_logger
from wharfinger.stages.collector import ObservedCluster
from wharfinger.stages.collector.state import FRESH, REPLACED
from wharfinger_collector.metrics_api import MetricsApi, SendLoads
from wharfinger_collector.rights_review import RightsReview
from wharfinger_collector.sending import SOURCE, FactSender
from wharfinger_collector.sighting import LiveDecoder, NodeSink, ObjectSink, PodSink, WatchSink
from wharfinger_collector.watched_kinds import LOOK_S, watched_kinds

LEASE_S = 40
"""Of a cluster whose options name no lease: as long as that of a node in Kubernetes."""

BEATS = 4
"""Heartbeats in the time of one lease."""

RIGHTS_REVIEW_S = 30.0
"""Twice in the minute within which a missing right is shown."""

STALE_S = 60.0
"""A watch that is broken for so long: the cluster's facts are not fresh any more."""

log = get_logger(__name__)

PLACES: Mapping[Mode, Places] = {
    "observe": "none",
    "shadow": "shadow",
    "fleet": "none",
    "act": "pods",
}
"""Mode of a cluster -> what is placed on its nodes."""


class Member:
    """`joined`: how it is reached and its options. `writer`: this session, newer than every earlier
    one. `known`: its facts in the ledger. `send_loads`: takes the loads of its nodes; None: they
    are not asked for. `rights_review_s`: seconds between two reviews of our rights."""

    def __init__(
        self,
        joined: JoinedCluster,
        ledger: Ledger,
        clock: Callable[[], Micros],
        writer: FactWriter,
        known: Iterable[Fact],
        send_loads: SendLoads | None = None,
        rights_review_s: float = RIGHTS_REVIEW_S,
    ) -> None:
        self.joined = joined
        self.facts = ObservedCluster(_cluster_of(joined, ()), known)
        self._identity = Identity(joined.name, joined.uid, self._say_replaced)
        self._sender = FactSender(
            joined.name, self.facts, ledger, clock, writer, SOURCE, lambda: self._identity.uid
        )
        self._clock = clock
        self._send_loads = send_loads
        self._watched: dict[str, WatchSink] = {}
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._refused: frozenset[str] = frozenset()
        kinds = [k for k in WATCHED if k is not NODE_METRICS or send_loads is not None]
        self._review = RightsReview(joined.name, kinds, rights_review_s, self._reviewed)
        self._replaced = self._answered = False

    @property
    def beat_s(self) -> float:
        """How often, in seconds, the cluster is to be named in a heartbeat."""
        return (self.facts.cluster.lease_s or LEASE_S) / BEATS

    def take_answered(self) -> bool:
        """Whether the cluster has answered since this was called last."""
        answered, self._answered = self._answered, False
        return answered

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
        return next((w.why for w in self._watched.values() if w.broken_since), self._identity.why)

    @property
    def broken(self) -> dict[str, str]:
        """Kind -> why its watch is broken; empty: it is not."""
        return {kind: w.why if w.broken_since else "" for kind, w in self._watched.items()}

    @property
    def waiting(self) -> int:
        """1 if facts are due."""
        return self._sender.waiting

    async def run(self) -> None:
        """Until cancelled. When another cluster answers under the name, nothing of it is taken in,
        until the one that was joined is back. WriterReplacedError, in a group: another session has
        begun with the cluster."""
        async with KubeApi(self.joined.access) as api, asyncio.TaskGroup() as group:
            group.create_task(self._review_rights(api), name=f"{self.joined.name}-rights")
            while True:
                await self._identity.found(api)
                self._replaced = False
                try:
                    await self._read(api)
                except* ReplacedError:
                    self._watched, self._reflectors, self._answered = {}, {}, False

    async def _read(self, api: KubeApi) -> None:
        reading = LiveDecoder()
        nodes = NodeSink(self.facts, self._clock, self._sender.wake)
        pods = PodSink(self.facts, self._clock, self._sender.wake)
        self._watched = {"Node": nodes, "Pod": pods}
        name = self.joined.name
        same = partial(self._identity.checked, api)
        async with asyncio.TaskGroup() as group:
            self._reflectors = {
                "Node": Reflector(api, "/api/v1/nodes", reading.node, nodes, check=same),
                "Pod": Reflector(api, "/api/v1/pods", reading.pod, pods, check=same),
            }
            for reflector in self._reflectors.values():
                group.create_task(reflector.run(), name=f"{name}-watch")
            group.create_task(self._watch_others(api, reading, group), name=f"{name}-kinds")
            group.create_task(self._beat(api), name=f"{name}-heartbeat")
            group.create_task(self._sender.run(), name=f"{name}-facts")
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
                sink = ObjectSink(kind, self.facts, self._clock, self._sender.wake)
                self._watched[kind] = sink
                self._reflectors[kind] = reflector = Reflector(
                    api,
                    path,
                    reading.object(read_as),
                    sink,
                    check=partial(self._identity.checked, api),
                )
                group.create_task(reflector.run(), name=f"{self.joined.name}-watch")
            await asyncio.sleep(LOOK_S)

    # --- which cluster it is

    async def _say_replaced(self) -> None:
        """Once: nothing else is said of a cluster that is not the one that was joined."""
        if self._replaced:
            return
        cluster = msgspec.structs.replace(self.facts.cluster, conditions={REPLACED: "True"})
        self.facts.observe_cluster(cluster, self._clock())
        await self._sender.accept([self.facts.heartbeat()])
        self._replaced = True

    # --- rights

    async def _review_rights(self, api: KubeApi) -> None:
        await self._identity.asked.wait()
        await self._review.run(api)

    async def _reviewed(self, refused: frozenset[str]) -> None:
        """A right that is there again ends the pause of its reflector. A cluster that was never
        listed, because it refuses that, is known by this alone."""
        returned = self._refused - refused
        if refused != self._refused:
            log.info("rights.changed", cluster=self.joined.name, refused=sorted(refused))
        self._refused = refused
        for kind in returned & self._reflectors.keys():
            self._reflectors[kind].retry()
        if self._replaced:
            return
        at = self._clock()
        self._judge_rights(at)
        if self.facts.complete:
            self._sender.wake()
        else:
            await self._sender.accept(self.facts.unlisted(at))

    def _judge_rights(self, at: Micros) -> None:
        """What the last review says, and what the watches have found out since."""
        refused = self._refused | {kind for kind, w in self._watched.items() if w.refused}
        for kind in sorted(refused.union(kinds_not_readable(self.facts.cluster))):
            self.facts.condition(f"{MAY_READ}{kind}", kind not in refused, at)

    # --- heartbeats

    async def _beat(self, api: KubeApi) -> None:
        """A cluster that answers, and whose facts have been listed, is alive. Of one that does not
        answer nothing is said: its lease runs out (`heartbeats`)."""
        while True:
            ready = await self._ready(api)
            at = self._clock()
            if ready is not None and self.facts.complete:
                self._judge_watches(at)
                self._judge_rights(at)
                cluster = _cluster_of(self.joined, self.facts.zones, ready)
                self.facts.observe_cluster(cluster, at)
                self._answered = True
                self._sender.wake()
                await asyncio.sleep(self.beat_s)
            else:
                await asyncio.sleep(min(AGAIN_S_MIN, self.beat_s))

    async def _ready(self, api: KubeApi) -> bool | None:
        """None: no answer. A server that refuses this path works; whether it is ready it does not
        say."""
        try:
            await api.request("GET", "/readyz")
        except ApiError as error:
            if error.code == 403:
                return True
            return False if error.code >= 500 else None
        except (UnreachableError, CredentialsError):
            return None
        return True

    def _judge_watches(self, at: Micros) -> None:
        """What is known of nodes and pods is what most decisions and writes are about."""
        stale = {
            kind
            for kind, watched in self._watched.items()
            if watched.broken_since is not None and at - watched.broken_since > STALE_S * SECOND
        }
        self.facts.condition(FRESH, not stale & {"Node", "Pod"}, at)
        for kind in sorted(stale | stale_kinds(self.facts.cluster)):
            self.facts.condition(f"{FRESH}{kind}", kind not in stale, at)


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
                ClusterObserved
                | NodesObserved
                | NodeImagesObserved
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
        places=PLACES[joined.mode],
        scheduler=joined.scheduler,
        evicts="evict" in joined.verbs_in_force,
    )
