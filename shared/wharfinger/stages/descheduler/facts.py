"""What the descheduler knows, indexed by what its rules ask: bindings by cluster, nodes by pool, the book of each cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.domain.binding import Binding
from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.policy import LoadPolicy
from wharfinger.domain.taints import Taint
from wharfinger.engine.descheduling.evictor import Eviction
from wharfinger.engine.disruption.scene import Scene, Survey
from wharfinger.engine.fleet.taints import Tainting
from wharfinger.engine.load.book import LoadBook
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.envelope import event_id
from wharfinger.kernel.decider import Micros
from wharfinger.stages.agenda import Agenda
from wharfinger.stages.cluster.objects import Objects
from wharfinger.stages.descheduler.causes import Causes
from wharfinger.stages.descheduler.health import Upkeep
from wharfinger.stages.descheduler.watches import DuePass, Passes, Watch
from wharfinger.stages.pools import PoolFacts, PoolPolicies

Named = tuple[Eviction, tuple[str, ...]]
"""Who should leave, and nodes it shall not go to."""

SECOND: Micros = 1_000_000

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
    """`taints`: the NoExecute ones. `silenced`: fleet stream -> the decision that silenced the cluster. `shares`: by
    binding. `through`: stream -> highest seq folded. `book`: its nodes, and what is on them; `objects`: what else it
    has; `load`: of its nodes. `pools`: nodes on their way, and about to go. `pool_of`: the nodes that belong to a
    pool. `empty`: since when each node of a pool holds nothing. `parts`: of a binding with several components, what
    each has here. `heard`: when it last said anything; `lease_s`: how soon it promised to say something again (None:
    it promised nothing)."""

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
    heard: Micros = 0
    lease_s: int | None = None

    def holds_something(self, node: str) -> bool:
        return node in self.book.on_node or node in self.book.pods


@dataclass(slots=True)
class Spread:
    """Where a binding has replicas: its clusters in order of arrival, and how many replicas are in live ones."""

    clusters: dict[str, None] = field(default_factory=dict)
    live: int = 0


@dataclass(slots=True)
class DeschedulerState:
    """`causes`: what is to be proposed. `stale_after_s`: see `held`. `spreads`: by binding. `pools`: pool -> policy
    key -> policy. `pool_nodes`: pool -> (cluster, node), in order of arrival. `tainting`: the taints that policies
    give to clusters by their conditions. `policies`: pools and what their nodes cost. `watches`: by cluster, what is
    remembered of looking at it as a whole; `looks`: when it is to be looked at, `surveys`: what looks found that
    nobody has taken up yet. `descheduling`, `load_policies`, `priority_classes` (name and value): by policy key.
    `passes`: by cluster and descheduling policy; `passing`: when the next is due, `named`: what passes named that
    nobody has taken up yet. `upkeep`: how bindings fare in clusters, and what is remembered of moving them between
    these."""

    causes: Causes
    stale_after_s: int = 300
    clusters: dict[str, ClusterFacts] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    pools: dict[str, dict[str, NodePoolPolicy]] = field(default_factory=dict)
    pool_of_policy: dict[str, str] = field(default_factory=dict)
    pool_nodes: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    tainting: Tainting = field(default_factory=Tainting)
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    watches: dict[str, Watch] = field(default_factory=dict)
    looks: Agenda[tuple[str]] = field(default_factory=Agenda)
    surveys: dict[str, tuple[Scene, Survey]] = field(default_factory=dict)
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
        """Somebody minds what moves on nodes."""
        return bool(self.descheduling) or not self.policies.idle

    def passes_over(self, name: str) -> list[Passes]:
        return [self.passes[name, key] for key in self.descheduling if (name, key) in self.passes]

    def watch(self, name: str) -> Watch:
        found = self.watches.get(name)
        if found is None:
            found = self.watches[name] = Watch()
        return found

    def clusters_of(self, binding: str) -> list[str]:
        spread = self.spreads.get(binding)
        return list(spread.clusters) if spread is not None else []

    def empty_after_s(self, pool: str, name: str) -> int | None:
        """How long a node of the pool may be empty in the cluster; None: for ever. Of several policies for a pool the
        most patient counts. A pool whose prices are known is looked at as a whole instead."""
        now = self.policies.of(name).get(pool)
        if now is not None and now.catalogue in self.policies.types:
            return None
        policies = [policy for policy in self.pools.get(pool, {}).values() if policy.is_of(name)]
        known = [max(0, policy.empty_after_s) for policy in policies if policy.empty_after_s is not None]
        return max(known) if known and len(known) == len(policies) else None

    def held(self, name: str, at: Micros) -> str:
        """Why nothing is proposed that moves replicas of this cluster because of what it looked like; empty: nothing
        is against it.

        A silent cluster may look otherwise by now, and so may one that promised to speak and has said nothing for
        `stale_after_s`, even if no lease has ended yet. Who promised nothing says something only when it changes."""
        cluster = self.clusters.get(name)
        if cluster is None:
            return f"nothing is known of cluster {name}"
        if cluster.silenced:
            return f"cluster {name} is silent"
        if (until := self.fresh_until(cluster)) is not None and at >= until:
            return f"cluster {name} has said nothing for {(at - cluster.heard) // SECOND} s"
        return ""

    def fresh_until(self, cluster: ClusterFacts) -> Micros | None:
        """When what is known of it is too old, if it goes on saying nothing; None: never."""
        return None if cluster.lease_s is None else cluster.heard + self.stale_after_s * SECOND


def as_id(text: str) -> UUID:
    """The id that `text` names, as the rest of the plane knows it."""
    return event_id("", text)
