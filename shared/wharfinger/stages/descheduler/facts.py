"""What the descheduler knows, indexed by what its rules ask: bindings by cluster, nodes by pool, replicas by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.domain.binding import Binding
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.taints import Taint
from wharfinger.engine.fleet.taints import Tainting
from wharfinger.events.envelope import event_id
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Causes
from wharfinger.stages.node_buckets import NodeBuckets

SECOND: Micros = 1_000_000

POOL_LABEL = "karpenter.sh/nodepool"

Replica = tuple[str, int]
"""Binding and ordinal."""

ShardOf = Callable[[str], int]
"""The fleet shard that owns a binding: the partition function of `wharfinger.bindings`."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """When something was first seen, and the id of the event or decision that showed it."""

    at: Micros
    by: str


@dataclass(slots=True)
class Share:
    """What a binding has in a cluster. `stream`: the fleet stream that owns the binding. `since`: when it first had anything
    there, and by which decision, as far as is known here. `live`: its owner does not hold the cluster for silent."""

    replicas: int
    priority: int
    stream: str
    since: Sighting
    live: bool


@dataclass(slots=True)
class ClusterFacts:
    """`taints`: the NoExecute ones. `silenced`: fleet stream -> the decision that silenced the cluster. `shares`: by binding.
    `through`: stream -> highest seq folded. `pool_of`: the nodes that belong to a pool. `replicas` and `where`: placed
    replicas by node, and the node of each. `pods`: nodes with pods seen on them. `empty`: since when each node of a pool
    holds nothing. `closed`: nodes already decided to go. `parts`: of a binding with several components, what each has here."""

    taints: dict[Taint, Sighting] = field(default_factory=dict)
    silenced: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    nodes: NodeBuckets = field(default_factory=NodeBuckets)
    pool_of: dict[str, str] = field(default_factory=dict)
    replicas: dict[str, set[Replica]] = field(default_factory=dict)
    where: dict[Replica, str] = field(default_factory=dict)
    pods: set[str] = field(default_factory=set)
    empty: dict[str, Sighting] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)

    def holds_something(self, node: str) -> bool:
        return node in self.replicas or node in self.pods


@dataclass(slots=True)
class Spread:
    """Where a binding has replicas: its clusters in order of arrival, and how many replicas are in live ones."""

    clusters: dict[str, None] = field(default_factory=dict)
    live: int = 0


@dataclass(slots=True)
class DeschedulerState:
    """`causes`: what is to be proposed. `spreads`: by binding. `pools`: pool -> policy key -> policy. `pool_nodes`: pool ->
    (cluster, node), in order of arrival. `tainting`: the taints that policies give to clusters by their conditions."""

    causes: Causes
    clusters: dict[str, ClusterFacts] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    pools: dict[str, dict[str, NodePoolPolicy]] = field(default_factory=dict)
    pool_of_policy: dict[str, str] = field(default_factory=dict)
    pool_nodes: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    tainting: Tainting = field(default_factory=Tainting)

    def cluster(self, name: str) -> ClusterFacts:
        return self.clusters.setdefault(name, ClusterFacts())

    def clusters_of(self, binding: str) -> list[str]:
        spread = self.spreads.get(binding)
        return list(spread.clusters) if spread is not None else []

    def empty_after_s(self, pool: str) -> int | None:
        """How long a node of the pool may be empty; None: for ever. Of several policies for a pool the most patient counts."""
        policies = self.pools.get(pool, {}).values()
        known = [max(0, policy.empty_after_s) for policy in policies if policy.empty_after_s is not None]
        return max(known) if known and len(known) == len(policies) else None


def as_id(text: str) -> UUID:
    """The id that `text` names, as the rest of the plane knows it."""
    return event_id("", text)
