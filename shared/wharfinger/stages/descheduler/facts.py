"""The state of the descheduler, indexed for its rules: bindings by cluster, nodes by pool, the
occupancy of each cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import LoadPolicy
from wharfinger.domain.taints import Taint
from wharfinger.domain.time import SECOND
from wharfinger.domain.workload import Requirements
from wharfinger.engine.descheduling.evictor import Eviction
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot, ConsolidationResult
from wharfinger.engine.fleet.taints import Tainting
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.envelope import event_id
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.objects import Objects
from wharfinger.stages.descheduler.finished_pods import FinishedPods
from wharfinger.stages.descheduler.health import Upkeep
from wharfinger.stages.descheduler.proposal_causes import Causes
from wharfinger.stages.descheduler.watches import ClusterWatch, DuePass, Passes
from wharfinger.stages.due_times import Agenda
from wharfinger.stages.interned import Interned, itself
from wharfinger.stages.pools import PoolFacts, PoolPolicies

Named = tuple[Eviction, tuple[str, ...]]
"""A pod that should leave its node, and the nodes that it must not go to."""


NEEDED = frozenset(
    (
        # what runs where, and what may be evicted
        "Node",
        "Pod",
        "PodDisruptionBudget",
        # which nodes a pod may run on: affinity over namespaces, volumes, devices
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "CSIStorageCapacity",
        "DeviceClass",
        "ResourceSlice",
        "ResourceClaim",
    )
)
"""Kinds whose facts must be fresh before a pod is moved. The others that a collector watches
(`runtime.kube.watched`) rank nodes or size new ones: with old facts of them a proposal is less
good, and no pod loses its place."""

ShardOf = Callable[[str], int]
"""The fleet shard that owns a binding: the partition function of `wharfinger.bindings`."""


class Sighting(msgspec.Struct, frozen=True):
    """Records when something was first seen, and the id of the event or decision that showed it."""

    at: Micros
    by: str


class Share(msgspec.Struct):
    """The replicas that a fleet stream assigned to one binding in one cluster.

    `stream`: the fleet stream that owns the binding. `since`: when its first replicas there were
    seen, and by which decision they were assigned. `live`: False while that stream considers the
    cluster silent.
    """

    replicas: int
    priority: int
    stream: str
    since: Sighting
    live: bool


@dataclass(slots=True)
class ClusterFacts:
    """Holds what the descheduler knows of one cluster.

    `taints`: its NoExecute taints. `silenced`: fleet stream -> the decision that marked the cluster
    silent. `shares`: binding -> its assigned replicas. `through`: stream -> highest seq folded.
    `book`: nodes and the pods on them. `objects`: its other objects. `load`: measured load of its
    nodes. `pools`: open node claims and nodes that are being removed. `pool_of`: node -> its pool.
    `empty`: empty node of a pool -> since when it is empty. `parts`: binding with several
    components -> component -> its replicas here. `finished`: its finished pods. `heard`: when the
    cluster last reported.
    `lease_s`: duration of its lease in seconds; None: it has no lease. `stale`: kinds of `NEEDED`
    whose watch has been broken for too long, in order of name.
    """

    taints: dict[Taint, Sighting] = field(default_factory=dict)
    silenced: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    book: Occupancy = field(default_factory=Occupancy)
    objects: Objects = field(default_factory=Objects)
    load: LoadBook = field(default_factory=LoadBook)
    pools: PoolFacts = field(default_factory=PoolFacts)
    pool_of: dict[str, str] = field(default_factory=dict)
    empty: dict[str, Sighting] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    finished: FinishedPods = field(default_factory=FinishedPods)
    heard: Micros = 0
    lease_s: int | None = None
    stale: tuple[str, ...] = ()

    def holds_something(self, node: str) -> bool:
        return node in self.book.on_node or node in self.book.pods


class BindingSpread(msgspec.Struct):
    """Records where a binding has replicas: its clusters in order of arrival, and the number of its
    replicas in live clusters."""

    clusters: dict[str, None] = {}
    live: int = 0


@dataclass(slots=True)
class DeschedulerState:
    """The state that all descheduler rules read and change.

    `causes`: active causes of proposals. `stale_after_s`: see `held`. `placements`, `requirements`:
    shared by the `bindings` that have equal ones. `spreads`: binding -> where it has replicas.
    `pools`: pool -> policy key -> policy. `pool_nodes`: pool -> (cluster, node), in order of
    arrival. `tainting`: taints that policies give to clusters by their conditions. `policies`:
    pools and prices. `descheduling`, `load_policies`, `priority_classes` (name and value): by
    policy key.

    Consolidation (`disruption`): `watches`: cluster -> memory between passes. `looks`: when each
    cluster is due. `surveys`: results that `publish` has not used yet. Descheduling (`strategies`):
    `passes`: (cluster, policy) -> memory. `passing`: when each is due. `named`: evictions found
    that `publish` has not used yet. `upkeep`: workload health, and the memory of rebalancing.
    """

    causes: Causes
    stale_after_s: int = 300
    clusters: dict[str, ClusterFacts] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    placements: Interned[Placement, Placement] = field(default_factory=lambda: Interned(itself))
    requirements: Interned[Requirements, Requirements] = field(
        default_factory=lambda: Interned(itself)
    )
    spreads: dict[str, BindingSpread] = field(default_factory=dict)
    pools: dict[str, dict[str, NodePoolPolicy]] = field(default_factory=dict)
    pool_of_policy: dict[str, str] = field(default_factory=dict)
    pool_nodes: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    tainting: Tainting = field(default_factory=Tainting)
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    watches: dict[str, ClusterWatch] = field(default_factory=dict)
    looks: Agenda[tuple[str]] = field(default_factory=Agenda)
    surveys: dict[str, tuple[ClusterSnapshot, ConsolidationResult]] = field(default_factory=dict)
    descheduling: dict[str, DeschedulingPolicy] = field(default_factory=dict)
    load_policies: dict[str, LoadPolicy] = field(default_factory=dict)
    priority_classes: dict[str, tuple[str, int]] = field(default_factory=dict)
    passes: dict[tuple[str, str], Passes] = field(default_factory=dict)
    passing: Agenda[tuple[str, str]] = field(default_factory=Agenda)
    named: list[tuple[DuePass, list[Named]]] = field(default_factory=list)
    upkeep: Upkeep = field(default_factory=Upkeep)

    def cluster(self, name: str) -> ClusterFacts:
        found = self.clusters.get(name)
        if found is None:
            found = self.clusters[name] = ClusterFacts()
            for key, policy in self.load_policies.items():
                found.load.policy_applied(key, policy)
        return found

    @property
    def watching(self) -> bool:
        """Returns whether any policy needs a record of replica moves: a descheduling policy or a
        node pool."""
        return bool(self.descheduling) or not self.policies.idle

    def passes_over(self, name: str) -> list[Passes]:
        return [self.passes[name, key] for key in self.descheduling if (name, key) in self.passes]

    def watch(self, name: str) -> ClusterWatch:
        found = self.watches.get(name)
        if found is None:
            found = self.watches[name] = ClusterWatch()
        return found

    def clusters_of(self, binding: str) -> list[str]:
        spread = self.spreads.get(binding)
        return list(spread.clusters) if spread is not None else []

    def empty_after_s(self, pool: str, name: str) -> int | None:
        """Returns for how many seconds a node of the pool must be empty before its removal is
        proposed in cluster `name`. None: the check for empty nodes never proposes its removal.

        If several policies define the pool in this cluster, the longest time is returned; None if
        one of the policies sets no time. Example: 60 s and 300 s give 300. Also None if the prices
        of the pool's instance types are known: such a pool is evaluated by consolidation
        (`disruption`) instead.
        """
        now = self.policies.of(name).get(pool)
        if now is not None and now.catalogue in self.policies.types:
            return None
        policies = [policy for policy in self.pools.get(pool, {}).values() if policy.is_of(name)]
        known = [
            max(0, policy.empty_after_s) for policy in policies if policy.empty_after_s is not None
        ]
        return max(known) if known and len(known) == len(policies) else None

    def held(self, name: str, at: Micros) -> str:
        """Returns a text that says why the known state of cluster `name` is too uncertain to move
        replicas; empty if the state may be used.

        There are four such cases. The cluster is unknown. A fleet stream marked the cluster as
        silent. A watch of its collector of a kind in `NEEDED` has been broken for too long. The
        cluster has a lease and has reported nothing for `stale_after_s` seconds, even if the lease
        has not expired. A cluster without a lease reports only changes, so its state never becomes
        too old.
        """
        cluster = self.clusters.get(name)
        if cluster is None:
            return f"nothing is known of cluster {name}"
        if cluster.silenced:
            return f"cluster {name} is silent"
        if cluster.stale:
            return f"the facts of cluster {name} are not fresh: {', '.join(cluster.stale)}"
        if (until := self.fresh_until(cluster)) is not None and at >= until:
            return f"cluster {name} has said nothing for {(at - cluster.heard) // SECOND} s"
        return ""

    def fresh_until(self, cluster: ClusterFacts) -> Micros | None:
        """Returns the time at which the known state of the cluster becomes too old if no report
        arrives; None: it never does."""
        return None if cluster.lease_s is None else cluster.heard + self.stale_after_s * SECOND


def as_id(text: str) -> UUID:
    """Converts the text of an event or decision id to its UUID, as the other stages do."""
    return event_id("", text)
