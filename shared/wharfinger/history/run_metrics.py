"""The metrics of one run of history: collected decision by decision, and read at the end.

The same code measures the record, the closed loop under the unchanged policy and the closed loop
under the changed one, so that a metric means the same in all three. All values are integers:
milli-cores, bytes, thousandths of a device, microseconds; shares in thousandths.

Usage is the sum of the requests of placed replicas and foreign pods, node by node. A cluster that
reports no nodes has no placed replicas: there usage is what is assigned to it, out of the totals
that its agent reports.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import NamedTuple, assert_never

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.resources import DEVICE_MILLI, GPU
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import (
    BindingEnd,
    DisruptionCommand,
    DisruptionResult,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    NodeShare,
    PlanEnd,
    ProposalEnd,
    ReplicaChange,
    ScheduleAnswer,
    SelectionEnd,
    SelectionPart,
    TimeCorrection,
    effect_of,
)
from wharfinger.history.prices import PriceList
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.node_buckets import NodeBuckets
from wharfinger.stages.world import World

RESOURCES = ("cpu", "memory", "gpu")
"""Milli-cores, bytes, thousandths of a device: the order of every `Vector`."""

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOUR: Micros = 3_600_000_000
TENANTS_SHOWN = 8

Vector = tuple[int, int, int]
NOTHING: Vector = (0, 0, 0)
TenantOf = Callable[[Binding], str]


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment. `used`: cluster -> thousandths of its allocatable in use, by
    resource; None: it has none of it. `total`: the same of the whole fleet. `deviation`: standard
    deviation of `used` over the clusters that have the resource. `shares`: tenant -> thousandths of
    the fleet that it holds of the resource it holds most of. `moves`, `refusals`: so far.
    `price_micro`: of an hour of the nodes in use, millionths; 0 without prices."""

    at: Micros
    used: Mapping[str, tuple[int | None, ...]]
    total: tuple[int | None, ...]
    deviation: tuple[int | None, ...]
    shares: Mapping[str, int]
    moves: int
    refusals: int
    nodes: int
    price_micro: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run comes to. `used`, `deviation`: means over time, thousandths, by resource.
    `wait_*`: from a request to its last replica in place, microseconds; a request that still waits
    counts with the time it has waited. `unplaced`: replicas asked for and not in place at the end.
    `node_us`, `core_us`: nodes with a replica on them, and milli-cores in use, times microseconds.
    `cost_micro`: of those nodes, millionths of a currency unit; None without prices. `unpriced`:
    instance types of nodes in use that have no price; empty text: a node says no type."""

    decisions: int = 0
    moves: int = 0
    refusals: int = 0
    unplaced: int = 0
    waiting: int = 0
    wait_p50: Micros = 0
    wait_p99: Micros = 0
    used: tuple[int | None, ...] = (None, None, None)
    deviation: tuple[int | None, ...] = (None, None, None)
    shares: Mapping[str, int] = field(default_factory=dict)
    node_us: int = 0
    core_us: int = 0
    cost_micro: int | None = None
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Final:
    """Where a binding is at the end. `nodes`: (cluster, node) -> replicas. `wait`: of its last
    request; None: it still waits."""

    targets: Mapping[str, int]
    nodes: Mapping[tuple[str, str], int]
    reason: str
    wait: Micros | None


class _PlacedReplica(NamedTuple):
    """`pod`: uid of the pod that it is; empty: it was placed before its pod existed."""

    node: str
    vector: Vector
    pod: str


@dataclass(slots=True)
class _ClusterReplicas:
    """Replicas of a binding in a cluster. `right`: how many have the shape that is asked for
    now."""

    replicas: dict[int, _PlacedReplica] = field(default_factory=dict)
    right: int = 0


@dataclass(slots=True)
class _Bound:
    """`asked_at` None: its last request is done. `given_back`: what clusters refused since the last
    decision."""

    spec: Binding
    vector: Vector
    tenant: str
    asked_at: Micros | None = None
    wait: Micros | None = None
    targets: dict[str, int] = field(default_factory=dict)
    suspect: tuple[str, ...] = ()
    given_back: int = 0
    reason: str = ""
    placed: dict[str, _ClusterReplicas] = field(default_factory=dict)


@dataclass(slots=True)
class _OnNode:
    instance_type: str = ""
    replicas: int = 0
    since: Micros = 0


@dataclass(slots=True)
class _Cluster:
    """`gone`: not in the fleet (any more). `area`, `offered`: used and allocatable times
    microseconds, up to `since`."""

    since: Micros
    gone: bool = False
    buckets: NodeBuckets = field(default_factory=NodeBuckets)
    summary: Vector | None = None
    offer: list[int] = field(default_factory=lambda: [0, 0, 0])
    offers: dict[str, Vector] = field(default_factory=dict)
    placed: list[int] = field(default_factory=lambda: [0, 0, 0])
    assigned: list[int] = field(default_factory=lambda: [0, 0, 0])
    area: list[int] = field(default_factory=lambda: [0, 0, 0])
    offered: list[int] = field(default_factory=lambda: [0, 0, 0])
    nodes: dict[str, _OnNode] = field(default_factory=dict)
    pods: dict[str, dict[str, Vector]] = field(default_factory=dict)
    """Node -> uid of an observed pod without a binding -> what it asks for."""
    replicas: set[str] = field(default_factory=set)
    """Uids of the pods that are counted as placed replicas."""
    foreign: dict[str, Vector] = field(default_factory=dict)
    """Node -> what its foreign pods ask for: the observed ones that are no replicas."""

    @property
    def by_node(self) -> bool:
        return self.buckets.complete or bool(self.nodes)

    @property
    def used(self) -> Sequence[int]:
        if self.gone:
            return NOTHING
        return self.placed if self.by_node else self.assigned

    @property
    def allocatable(self) -> Sequence[int]:
        if self.gone:
            return NOTHING
        return self.offer if self.by_node or self.summary is None else self.summary

    def count_foreign(self, node: str) -> None:
        """Brings the sum of the node's foreign pods up to date."""
        observed = self.pods.get(node, {})
        vectors = [vector for uid, vector in observed.items() if uid not in self.replicas]
        now = (sum(v[0] for v in vectors), sum(v[1] for v in vectors), sum(v[2] for v in vectors))
        _add(self.placed, self.foreign.pop(node, NOTHING), -1)
        _add(self.placed, now, 1)
        if any(now):
            self.foreign[node] = now

    def advance(self, at: Micros) -> None:
        passed = at - self.since
        if passed > 0:
            for r, (used, there) in enumerate(zip(self.used, self.allocatable, strict=True)):
                self.area[r] += used * passed
                self.offered[r] += there * passed
            self.since = at


class RunMetrics:
    """The metrics of one run, from `begin` to `end`, with `samples` samples over that time.

    Call `advance` with the time, then `fact` with each fact that the plane received and `decided`
    with each decision.
    """

    def __init__(
        self,
        begin: Micros,
        end: Micros,
        samples: int,
        tenant_of: TenantOf,
        prices: PriceList | None = None,
    ) -> None:
        self.at = begin
        self.samples: list[Sample] = []
        self._moments = _moments(begin, end, samples)
        self._tenant_of = tenant_of
        self._prices = prices
        self._clusters: dict[str, _Cluster] = {}
        self._bindings: dict[str, _Bound] = {}
        self._left: dict[str, _Bound] = {}
        self._tenants: dict[str, list[int]] = {}
        self._waits = array("q")
        self._decisions = self._moves = self._refusals = 0
        self._node_us = self._cost = 0
        self._unpriced: set[str] = set()
        self._nodes = self._price_micro = 0

    # --- beginning somewhere

    def adopt(self, world: World) -> None:
        """What stands already when the run begins, as the states of a world have it."""
        for fleet in world.fleet_states():
            self._adopt_fleet(fleet)
        for cluster in world.cluster_states():
            self._adopt_cluster(cluster)

    def _adopt_fleet(self, state: FleetState) -> None:
        for name, cluster in sorted(state.clusters.items()):
            if cluster.facts is not None:
                self._observe_cluster(name, cluster.facts)
        for name, record in sorted(state.bindings.items()):
            bound = self._bindings[name] = self._bound(record.spec)
            bound.suspect, bound.reason = record.suspect, record.refused
            if record.asked or record.refused or record.shrunk:
                bound.asked_at = self.at  # how long it had waited before is not known
            self._assign(bound, record.targets)

    def _adopt_cluster(self, state: ClusterStageState) -> None:
        name, book = state.cluster, state.book
        for bucket, nodes in sorted(book.buckets.items()):
            self.fact(NodesObserved(name, bucket, book.bucket_count, tuple(nodes.values())))
        for node, pods in sorted(book.pods.items()):
            self.fact(PodsObserved(name, node, pods))
        for binding, held in sorted(book.held.items()):
            for ordinal, replica in sorted(held.placed.items()):
                uids = (replica.pod,) if replica.pod else ()
                share = NodeShare(replica.node, (ordinal,), pods=uids)
                self._place(binding, name, [share], replica.cls.requirements)

    # --- passing time

    def advance(self, at: Micros) -> None:
        while self._moments and self._moments[-1] < at:
            self.samples.append(self._sample(self._moments.pop()))
        self.at = max(self.at, at)

    def finish(self, at: Micros) -> Totals:
        """Close the book at `at`."""
        self.advance(at)
        while self._moments:
            self.samples.append(self._sample(self._moments.pop()))
        for cluster in self._clusters.values():
            cluster.advance(self.at)
            for node in cluster.nodes.values():
                self._rest_node(node)
        waiting = [
            b for b in self._bindings.values() if b.asked_at is not None and not b.spec.suspended
        ]
        waits = sorted(
            [*self._waits, *(self.at - b.asked_at for b in waiting if b.asked_at is not None)]
        )
        return Totals(
            decisions=self._decisions,
            moves=self._moves,
            refusals=self._refusals,
            unplaced=sum(self._missing(b) for b in self._bindings.values()),
            waiting=len(waiting),
            wait_p50=_percentile(waits, 50),
            wait_p99=_percentile(waits, 99),
            used=self._mean_used(),
            deviation=_means([s.deviation for s in self.samples]),
            shares=_mean_shares(self.samples),
            node_us=self._node_us,
            core_us=sum(c.area[0] for c in self._clusters.values()) // 1000,
            cost_micro=None if self._prices is None else self._cost // HOUR,
            unpriced=tuple(sorted(self._unpriced)),
        )

    def final(self, binding: str) -> Final | None:
        """Where a binding is; None: it is not there."""
        bound = self._bindings.get(binding)
        if bound is None:
            return None
        nodes: dict[tuple[str, str], int] = {}
        for cluster, placed in sorted(bound.placed.items()):
            for _, (node, *_) in sorted(placed.replicas.items()):
                nodes[cluster, node] = nodes.get((cluster, node), 0) + 1
        return Final(dict(sorted(bound.targets.items())), nodes, bound.reason, bound.wait)

    @property
    def bindings(self) -> list[str]:
        return sorted(self._bindings)

    # --- facts

    def fact(self, data: Value) -> None:
        match data:
            case ClusterObserved(cluster=facts):
                self._observe_cluster(facts.name, facts)
            case ClusterForgotten(name=name):
                self._forget_cluster(name)
            case NodesObserved():
                self._observe_nodes(data)
            case PodsObserved():
                self._observe_pods(data)
            case BindingRequested(binding=spec):
                self._request(spec)
            case BindingWithdrawn(name=name):
                bound = self._bindings.get(name)
                if bound is not None:
                    bound.asked_at = None
            case _:
                pass  # policies and proposals change no figure by themselves

    def _cluster(self, name: str) -> _Cluster:
        found = self._clusters.get(name)
        if found is None:
            found = self._clusters[name] = _Cluster(self.at)
        found.advance(self.at)
        return found

    def _observe_cluster(self, name: str, facts: Cluster) -> None:
        cluster = self._cluster(name)
        cluster.gone = False
        summary = facts.summary
        if summary is not None:
            there = summary.allocatable
            cluster.summary = (
                there.get("cpu", 0),
                there.get("memory", 0),
                DEVICE_MILLI * there.get(GPU, 0),
            )

    def _forget_cluster(self, name: str) -> None:
        """It is out of the fleet. What it has is kept: its own stream lets it go, and it may join
        again with it."""
        cluster = self._cluster(name)
        cluster.gone, cluster.summary = True, None

    def _observe_nodes(self, observed: NodesObserved) -> None:
        cluster = self._cluster(observed.cluster)
        change = cluster.buckets.fold(observed)
        for name in change.gone:
            _add(cluster.offer, cluster.offers.pop(name, NOTHING), -1)
        for node in change.seen:
            _add(cluster.offer, cluster.offers.get(node.name, NOTHING), -1)
            cluster.offers[node.name] = _offer(node)
            _add(cluster.offer, cluster.offers[node.name], 1)
            kind = node.labels.get(INSTANCE_TYPE, "")
            entry = cluster.nodes.setdefault(node.name, _OnNode(kind))
            if entry.instance_type != kind:
                self._renamed(entry, kind)

    def _renamed(self, entry: _OnNode, kind: str) -> None:
        replicas = entry.replicas
        self._rest_node(entry)
        entry.instance_type = kind
        if replicas:
            entry.replicas = 0
            self._occupy(entry, replicas)

    def _observe_pods(self, observed: PodsObserved) -> None:
        cluster = self._cluster(observed.cluster)
        found = {pod.uid: vector_of(pod.requirements) for pod in observed.pods if not pod.binding}
        cluster.pods.pop(observed.node, None)
        if found:
            cluster.pods[observed.node] = found
        cluster.count_foreign(observed.node)

    def _bound(self, spec: Binding) -> _Bound:
        return _Bound(spec, vector_of(spec.requirements), self._tenant_of(spec))

    def _request(self, spec: Binding) -> None:
        bound = self._bindings.get(spec.name)
        if bound is None:
            bound = self._bindings[spec.name] = self._bound(spec)
            bound.asked_at = self.at
            return
        old, bound.spec = bound.spec, spec
        vector = vector_of(spec.requirements)
        if vector != bound.vector:
            self._reshape(bound, vector)
        if _asks_otherwise(old, spec):
            bound.asked_at = self.at

    def restate(self, spec: Binding) -> None:
        """The same request under another policy. This starts no new wait."""
        self._bindings[spec.name].spec = spec

    def _reshape(self, bound: _Bound, vector: Vector) -> None:
        for name, n in bound.targets.items():
            cluster = self._clusters.get(name)
            if cluster is not None:
                cluster.advance(self.at)
                _add(cluster.assigned, bound.vector, -n)
                _add(cluster.assigned, vector, n)
        bound.vector = vector
        for placed in bound.placed.values():
            placed.right = sum(1 for r in placed.replicas.values() if r.vector == vector)

    # --- decisions

    def decided(self, data: Value, *, counted: bool = True) -> None:
        """`counted`: whether it is among the decisions, moves and refusals that are asked about."""
        self._decisions += counted
        if isinstance(data, ScheduleAnswer):
            self._schedule(data, counted=counted)
            return
        match effect_of(data):
            case BindingEnd(binding=name):
                self._end(name)
            case ReplicaChange() as change:
                self._refusals += counted and change.returned > 0
                self._change(change)
            case (
                HeartbeatEnd()
                | NodeRemoval()
                | NodeClaim()
                | NodeClaimResult()
                | DisruptionCommand()
                | DisruptionResult()
                | SelectionPart()
                | SelectionEnd()
                | ProposalEnd()
                | PlanEnd()
                | TimeCorrection()
                | None
            ):
                pass  # nodes are counted as they are observed
            case other:
                assert_never(other)

    def _end(self, name: str) -> None:
        bound = self._bindings.pop(name, None)
        if bound is not None:
            self._assign(bound, {})
            if bound.placed:
                # what it has on nodes is let go by decisions of the clusters
                self._left[name] = bound

    def _change(self, change: ReplicaChange) -> None:
        if change.released:
            self._take_back(change.binding, change.cluster, change.released)
        if change.placed:
            self._place(change.binding, change.cluster, change.placed, change.requirements)
            self._settled(change.binding)
        bound = self._bindings.get(change.binding)
        if bound is not None:
            bound.given_back += change.returned

    def _schedule(self, data: ScheduleAnswer, *, counted: bool) -> None:
        bound = self._bindings.get(data.binding)
        if bound is None:  # asked for before the run began, and known by its decisions only
            spec = Binding(
                data.binding,
                data.uid,
                ObjectRef("", "", data.binding),
                data.replicas,
                data.requirements,
            )
            bound = self._bindings[data.binding] = self._bound(spec)
        reason = data.refusal()
        suspect = bound.suspect if reason else data.suspect
        self._refusals += counted and bool(reason)
        self._moves += counted * _moved(data.targets, data.previous, suspect, bound)
        bound.reason, bound.suspect, bound.given_back = reason, suspect, 0
        self._assign(bound, {t.cluster: t.replicas for t in data.targets})
        self._settled(data.binding)

    def _assign(self, bound: _Bound, targets: Mapping[str, int]) -> None:
        for name in {**bound.targets, **targets}:
            change = targets.get(name, 0) - bound.targets.get(name, 0)
            if change:
                _add(self._cluster(name).assigned, bound.vector, change)
        bound.targets = dict(targets)

    def _place(
        self, binding: str, name: str, shares: Iterable[NodeShare], requirements: Requirements
    ) -> None:
        bound = self._bindings.get(binding)
        if bound is None:
            return
        cluster, vector = self._cluster(name), vector_of(requirements)
        placed = bound.placed.setdefault(name, _ClusterReplicas())
        for share in shares:
            node = cluster.nodes.setdefault(share.node, _OnNode())
            pods = share.pods or ("",) * len(share.ordinals)
            for ordinal, pod in zip(share.ordinals, pods, strict=True):
                if ordinal in placed.replicas:
                    continue  # it stood already when the run began
                placed.replicas[ordinal] = _PlacedReplica(share.node, vector, pod)
                placed.right += vector == bound.vector
                _add(cluster.placed, vector, 1)
                self._charge_tenant(bound, vector, 1)
                self._occupy(node, 1)
                if pod:
                    cluster.replicas.add(pod)
            if share.pods:
                cluster.count_foreign(share.node)

    def _take_back(self, binding: str, name: str, shares: Iterable[NodeShare]) -> None:
        bound = self._found(binding, name)
        placed = None if bound is None else bound.placed.get(name)
        if bound is None or placed is None:
            return
        cluster = self._cluster(name)
        for share in shares:
            for ordinal in share.ordinals:
                replica = placed.replicas.pop(ordinal, None)
                if replica is None:
                    continue
                placed.right -= replica.vector == bound.vector
                _add(cluster.placed, replica.vector, -1)
                self._charge_tenant(bound, replica.vector, -1)
                self._occupy(cluster.nodes.setdefault(replica.node, _OnNode()), -1)
                if replica.pod:
                    cluster.replicas.discard(replica.pod)
                    cluster.count_foreign(replica.node)
        if not placed.replicas:
            del bound.placed[name]
            if not bound.placed and self._left.get(binding) is bound:
                del self._left[binding]

    def _found(self, binding: str, cluster: str) -> _Bound | None:
        """The binding, or the one of that name that was withdrawn and still has something there."""
        left = self._left.get(binding)
        if left is not None and cluster in left.placed:
            return left
        return self._bindings.get(binding)

    def _charge_tenant(self, bound: _Bound, vector: Vector, times: int) -> None:
        _add(self._tenants.setdefault(bound.tenant, [0, 0, 0]), vector, times)

    # --- nodes in use

    def _occupy(self, node: _OnNode, replicas: int) -> None:
        if not node.replicas:
            node.since = self.at
            self._nodes += 1
            self._price_micro += self._price(node)
        node.replicas += replicas
        if not node.replicas:
            self._rest_node(node, again=True)

    def _rest_node(self, node: _OnNode, *, again: bool = False) -> None:
        """Account for the time that a node was in use until now."""
        if node.replicas or again:
            self._node_us += self.at - node.since
            self._cost += (self.at - node.since) * self._price(node)
            if self._prices is not None and node.instance_type not in self._prices.of_type:
                self._unpriced.add(node.instance_type)
            self._nodes -= 1
            self._price_micro -= self._price(node)
            node.replicas = 0

    def _price(self, node: _OnNode) -> int:
        return 0 if self._prices is None else self._prices.of_type.get(node.instance_type, 0)

    # --- is it in place?

    def _settled(self, binding: str) -> None:
        bound = self._bindings.get(binding)
        if (
            bound is not None
            and bound.asked_at is not None
            and not bound.reason
            and not self._missing(bound)
        ):
            bound.wait = self.at - bound.asked_at
            self._waits.append(bound.wait)
            bound.asked_at = None

    def _missing(self, bound: _Bound) -> int:
        """Replicas asked for and not in place."""
        if bound.spec.suspended:
            return 0
        live = {c: n for c, n in bound.targets.items() if c not in bound.suspect} or bound.targets
        duplicated = bound.spec.placement.replicas.type == "Duplicated"
        wanted = bound.spec.replicas if not duplicated or not live else 0
        there = 0
        for name, n in live.items():
            cluster, placed = self._clusters.get(name), bound.placed.get(name)
            in_place = (
                n
                if cluster is None or not cluster.by_node
                else min(n, placed.right if placed else 0)
            )
            there += in_place
            if duplicated:
                wanted += max(n, bound.spec.replicas)
        return max(0, wanted - there)

    # --- looking

    def _sample(self, at: Micros) -> Sample:
        used: dict[str, tuple[int | None, ...]] = {}
        sums, offers = [0, 0, 0], [0, 0, 0]
        for name, cluster in sorted(self._clusters.items()):
            if cluster.gone:
                continue
            there = cluster.allocatable
            used[name] = tuple(_thousandths(u, a) for u, a in zip(cluster.used, there, strict=True))
            for r in range(len(RESOURCES)):
                sums[r] += cluster.used[r]
                offers[r] += there[r]
        return Sample(
            at,
            used,
            tuple(_thousandths(u, a) for u, a in zip(sums, offers, strict=True)),
            tuple(_deviation([u[r] for u in used.values()]) for r in range(len(RESOURCES))),
            {
                t: share
                for t, held in sorted(self._tenants.items())
                if (share := _dominant(held, offers))
            },
            self._moves,
            self._refusals,
            self._nodes,
            self._price_micro,
        )

    def _mean_used(self) -> tuple[int | None, ...]:
        clusters = self._clusters.values()
        return tuple(
            _thousandths(sum(c.area[r] for c in clusters), sum(c.offered[r] for c in clusters))
            for r in range(len(RESOURCES))
        )


def tenant_by(label: str) -> TenantOf:
    """Whose a binding is: the value of a label, or its namespace where no label is named."""
    if label:
        return lambda spec: spec.labels.get(label, "none")
    return lambda spec: spec.resource.namespace or spec.name.rpartition("/")[0] or "none"


def vector_of(requirements: Requirements) -> Vector:
    requests = requirements.requests
    devices = sum(d.count * d.milli for d in requirements.devices)
    return (requests.get("cpu", 0), requests.get("memory", 0), devices)


def _offer(node: Node) -> Vector:
    there = node.allocatable
    return (there.get("cpu", 0), there.get("memory", 0), DEVICE_MILLI * len(node.devices))


def _add(to: list[int], vector: Sequence[int], times: int) -> None:
    for r, amount in enumerate(vector):
        to[r] += times * amount


def _asks_otherwise(old: Binding, new: Binding) -> bool:
    return (
        old.replicas,
        old.requirements,
        old.components,
        old.placement,
        old.reschedule,
        old.suspended,
    ) != (
        new.replicas,
        new.requirements,
        new.components,
        new.placement,
        new.reschedule,
        new.suspended,
    )


def _moved(
    targets: Sequence[TargetCluster],
    previous: Sequence[TargetCluster],
    suspect: Sequence[str],
    bound: _Bound,
) -> int:
    """Replicas that got another cluster. Growth is none: neither replicas asked for again nor what
    a cluster had given back, for that never ran. A failover counts when the substitute is placed,
    not again when the lost cluster is let go."""
    if not previous:
        return 0
    before = {t.cluster: t.replicas for t in previous}
    gained = sum(max(0, t.replicas - before.get(t.cluster, 0)) for t in targets)
    live = sum(t.replicas for t in targets if t.cluster not in suspect)
    held = sum(n for c, n in before.items() if c not in bound.suspect) - bound.given_back
    return max(0, gained - max(0, live - held))


def _moments(begin: Micros, end: Micros, samples: int) -> list[Micros]:
    """Evenly spread, both ends included, the last first."""
    steps = max(1, samples - 1)
    return [begin + (end - begin) * k // steps for k in range(steps, -1, -1)]


def _thousandths(part: int, whole: int) -> int | None:
    return None if whole <= 0 else (1000 * part + whole // 2) // whole


def _deviation(shares: Iterable[int | None]) -> int | None:
    known = [s for s in shares if s is not None]
    if not known:
        return None
    n = len(known)
    return isqrt(max(0, n * sum(s * s for s in known) - sum(known) ** 2)) // n


def _dominant(held: Sequence[int], offers: Sequence[int]) -> int:
    return max(
        (1000 * h // offer for h, offer in zip(held, offers, strict=True) if offer > 0), default=0
    )


def _percentile(ascending: Sequence[int], percent: int) -> int:
    return ascending[max(0, -(-percent * len(ascending) // 100) - 1)] if ascending else 0


def _means(rows: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    means: list[int | None] = []
    for r in range(len(RESOURCES)):
        known = [row[r] for row in rows]
        numbers = [n for n in known if n is not None]
        means.append(sum(numbers) // len(numbers) if numbers else None)
    return tuple(means)


def _mean_shares(samples: Sequence[Sample]) -> dict[str, int]:
    """The tenants that held most over time, largest first."""
    sums: dict[str, int] = {}
    for sample in samples:
        for tenant, share in sample.shares.items():
            sums[tenant] = sums.get(tenant, 0) + share
    largest = sorted(sums, key=lambda t: (-sums[t], t))[:TENANTS_SHOWN]
    return {tenant: sums[tenant] // len(samples) for tenant in largest}
