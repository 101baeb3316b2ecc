"""The fleet state: the records, with the indexes and caches derived from them. Makes no decisions.

All pending work can be read from the state: an unanswered request, an open proposal, targets that
differ from the last decision, a waiting binding. Nothing is kept in local variables between rounds.
So a state that was loaded again (inputs and decisions folded, nothing decided) continues exactly
like the one that decided. `stages.fleet.fold` changes the records and updates the derived parts.
The derived parts save work and never change a result: `rebuild` computes them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.binding import set_key
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.question import Question
from wharfinger.engine.fleet.taints import Tainting
from wharfinger.events.versions import Versions
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import Incarnations
from wharfinger.stages.fleet.columns import EstimateColumn
from wharfinger.stages.fleet.moves import RebalanceState
from wharfinger.stages.fleet.quota_capacity import claim_of
from wharfinger.stages.fleet.state.bindings import (
    BindingState,
    ParsedPlacement,
    interned_placements,
    interned_requirements,
)
from wharfinger.stages.fleet.state.clusters import ClusterState
from wharfinger.stages.fleet.state.estimates import CACHED, Estimates
from wharfinger.stages.fleet.state.indexes import BindingIndex, ClusterIndex
from wharfinger.stages.fleet.state.joint_plans import JointPlans
from wharfinger.stages.fleet.state.proposals import Proposals
from wharfinger.stages.fleet.state.quotas import Quotas
from wharfinger.stages.fleet.state.selections import STREAM as SELECTING
from wharfinger.stages.fleet.state.selections import Selections
from wharfinger.stages.fleet.state.waiting import WaitingBindings
from wharfinger.stages.interned import Interned, sharing


@dataclass(slots=True)
class FleetState:
    stream: str
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    bindings: dict[str, BindingState] = field(default_factory=dict)
    proposals: Proposals = field(default_factory=Proposals)
    joint: JointPlans = field(default_factory=JointPlans)
    outcomes: dict[str, int] = field(default_factory=dict)
    """Stream -> the highest seq that it sent here: outcomes of a cluster stream, capacity taken by
    another fleet stream."""
    incarnations: Incarnations = ()
    """When the ledger was set back to an earlier state. Part of the ids of the decisions since."""
    arrivals: int = 0
    """The number of requests so far. It orders requests by arrival."""
    held: bool = False
    """Failover is paused, because most of the fleet is silent."""
    retry_cause: UUID | None = None
    """Id of the last event that may let a waiting binding be placed."""
    unfinished: bool = False
    """The last round reached its limit, so some bindings may not have been evaluated."""
    quotas: Quotas = field(default_factory=Quotas)
    moves: RebalanceState = field(default_factory=RebalanceState)
    rebalancing: dict[str, RebalancePolicy] = field(default_factory=dict)
    """By key of the policy."""
    tainting: Tainting = field(default_factory=Tainting)
    """The facts as clusters reported them. `ClusterState.facts` are the same with the taints that
    policies add."""
    versions: Versions = field(default_factory=Versions)
    selections: Selections | None = None
    """Placements of clusters; only the one stream that decides them has it."""
    # derived
    cluster_index: ClusterIndex = field(init=False)
    binding_index: BindingIndex = field(init=False)
    estimates: Estimates = field(init=False)
    waiting: WaitingBindings = field(init=False)
    parsed: Interned[Placement, ParsedPlacement] = field(default_factory=interned_placements)
    classed: Interned[Requirements, tuple[Requirements, str]] = field(
        default_factory=interned_requirements
    )
    kinds: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Interned lists of API kinds: clusters that enable the same kinds share one tuple."""
    clock: Micros = 0
    patience_us: Micros = 0
    """How long a request may wait for capacity counts, in microseconds, in the present round, see
    `FleetDecider`."""
    touched: dict[str, None] | None = None
    """Bindings that changed since this dict was last emptied, for incremental snapshots; None: not
    recorded."""
    questions: list[Question] | None = None
    """The questions of the decisions so far, to explain a decision that is computed again; None:
    not recorded."""

    def __post_init__(self) -> None:
        if self.stream == SELECTING and self.selections is None:
            self.selections = Selections()
        self.cluster_index = ClusterIndex(self.clusters)
        self.binding_index = BindingIndex(self.bindings)
        self.estimates = Estimates(self.clusters, self.cluster_index)
        self.waiting = WaitingBindings(
            self.bindings, self.binding_index, self.estimates, self.quotas, self.moves
        )

    # What changed

    def changed(self, name: str) -> None:
        """Note that the record of a binding changed."""
        self.quotas.touch(name)
        self.waiting.standing.pop(name, None)
        if self.touched is not None:
            self.touched[name] = None

    def changed_all(self, names: list[str]) -> None:
        for name in names:
            self.changed(name)

    def retry(self, cause: UUID) -> None:
        """Note an event that may allow a waiting binding to be placed. It becomes the cause of the
        decision."""
        self.retry_cause, self.waiting.retry_due = cause, True

    def touch(self, cluster: ClusterState) -> None:
        """Note that something changed that determines the cluster's estimates."""
        self.moves.stale = True
        self.estimates.changed(cluster)

    def clusters_changed(self) -> None:
        """Note that a cluster was added or removed."""
        self.moves.stale = True
        self.estimates.rebuild()

    def wait(self, record: BindingState) -> None:
        """Add a new or changed record to the lists of bindings to be evaluated."""
        self.waiting.add(record, self.cluster_index.deleting, self.clock)

    def read(self, record: BindingState) -> None:
        """Compute the derived fields of a record from its request, and let the request share what
        is equal in others."""
        spec = record.spec
        requirements, class_key = self.classed.of(spec.requirements)
        record.class_key = set_key(spec.components) if spec.components else class_key
        record.claim = (
            claim_of(spec) if spec.resource.namespace in self.cluster_index.quoted else None
        )
        record.parsed = self.parsed.of(spec.placement)
        record.spec = sharing(spec, record.parsed.placement, requirements)

    def sharing_kinds(self, told: Cluster) -> Cluster:
        """Return the facts with a shared tuple of API kinds (interning). Clusters that enable the
        same kinds then refer to one tuple, because it is long."""
        kinds = told.api_kinds
        if kinds is None:
            return told
        if len(self.kinds) >= CACHED:
            self.kinds.clear()
        known = self.kinds.setdefault(kinds, kinds)
        return told if known is kinds else msgspec.structs.replace(told, api_kinds=known)

    def end_round(self, unfinished: bool) -> None:
        """End a round, whether this process decided it or only folded it: both must give the same
        state. Update which bindings are due next. `unfinished`: the round reached its limit, so
        some bindings may not have been evaluated; all are then evaluated again."""
        unfinished, self.waiting.regrouped = unfinished or self.waiting.regrouped, False
        self.changed_all(self.waiting.end_exclusions(self.clock))
        self.changed_all(self.waiting.defer_paused(unfinished, self.clock))
        self._end_parts(unfinished)
        if self.selections is not None:
            self.selections.end_round(self.clock)

    def _end_parts(self, unfinished: bool) -> None:
        self.unfinished = unfinished
        self.quotas.end_round(self.bindings, self.estimates.facts, unfinished)
        self.waiting.end_round(unfinished, self.cluster_index.deleting)

    def rebuild(self) -> None:
        """Compute all derived parts of the state again from the records of clusters, bindings,
        policies and placements: the indexes, the estimates, the use of quotas and the lists of
        waiting bindings. The result is the same as at the end of a round. Used after a snapshot is
        loaded."""
        for cluster in self.clusters.values():
            if told := self.tainting.told.get(cluster.name):
                self.tainting.told[cluster.name] = self.sharing_kinds(told)
                cluster.facts = self.tainting.effective(cluster.name)
            cluster.refresh()
            self.clock = max(self.clock, cluster.heard_at)
        self.cluster_index.rebuild()
        self.clusters_changed()
        for record in self.bindings.values():
            self.read(record)
        self.binding_index.rebuild()
        self.moves.forget_all()
        self.quotas.forget_all()
        self.waiting.rebuild(self.cluster_index.deleting, self.clock)
        self.quotas.begin(self.bindings)
        if self.selections is not None:
            self.selections.derive(self.tainting.told.values())
        self._end_parts(self.unfinished)

    # What can be asked

    @property
    def order(self) -> list[ClusterState]:
        """Return the known clusters in order of name."""
        return self.estimates.order

    @property
    def silent(self) -> dict[str, None]:
        return self.cluster_index.silent

    @property
    def by_cluster(self) -> dict[str, dict[str, None]]:
        """Return cluster -> the bindings that have targets in it."""
        return self.binding_index.by_cluster

    def column(self, record: BindingState) -> EstimateColumn:
        return self.estimates.column(record)

    def fits(self, record: BindingState, cluster: ClusterState) -> int:
        """Return how many more of the binding's replicas fit in the cluster."""
        return self.estimates.fits(record, cluster)

    def makeable(self, record: BindingState) -> tuple[int, ...]:
        """Return how many more of the binding's replicas would fit on new nodes, one number for
        each cluster that has node pools."""
        return self.estimates.makeable(record)

    def estimated_by(self, record: BindingState, cluster: ClusterState) -> str:
        """Return the name of the source of the binding's estimate."""
        return self.estimates.estimated_by(record, cluster)

    def known(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.facts is not None

    def together(self, record: BindingState) -> set[str] | None:
        """Return the clusters that all other members of the binding's affinity group are in. None:
        there are no other members, or none is placed."""
        return self.binding_index.together(record.spec)

    def apart(self, record: BindingState) -> set[str]:
        """Return the clusters that another member of the binding's anti-affinity group is in."""
        return self.binding_index.apart(record.spec)

    def leaves(self, record: BindingState) -> list[str]:
        """Return those targets of the binding whose cluster is being deleted."""
        deleting = self.cluster_index.deleting
        return [name for name in record.targets if name in deleting] if deleting else []

    def has_no_execute_taint(self, name: str) -> bool:
        cluster = self.clusters.get(name)
        return cluster is not None and cluster.tainted

    def evicted(self, record: BindingState) -> list[str]:
        """Return the clusters that the binding must not use because it had to leave them:
        - Clusters from which the binding was evicted because of a NoExecute taint, while they have
          a NoExecute taint. Otherwise the binding could return, and a toleration with a time limit
          would start again each time.
        - Clusters where the binding was unhealthy, until the exclusion ends."""
        out = [c for c in record.evicted if self.has_no_execute_taint(c)] if record.evicted else []
        if record.excluded_until:
            out += [
                c
                for c, until in sorted(record.excluded_until.items())
                if until > self.clock and c not in out
            ]
        return out
