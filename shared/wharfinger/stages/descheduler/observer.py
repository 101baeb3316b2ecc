"""The descheduler: folds facts, publishes proposals.

The facts are recorded once (`shares`, `occupancies`, `loads`), and each rule is a module that reads
them. `silent_clusters`: failover of bindings in clusters that their fleet stream marked silent.
`taints`: eviction of bindings whose toleration of a cluster's NoExecute taint has expired.
`emptiness`: removal of nodes that have been empty for as long as the pool allows. `disruption`:
commands for nodes that are empty, drifted, or cheaper to do without, in pools with prices.
`strategies`: the descheduler's strategies for pods. `upkeep`: unhealthy bindings, unschedulable
replicas, and rebalancing.

Times count from when this process received a fact. After a restart that is later than before, so a
proposal may come late but never too early. The stage that owns the target has the ledger's times
and checks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.cluster import stale_kinds
from wharfinger.domain.policy import Policy
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Disrupted,
    Placed,
    Recovered,
    Released,
    Silenced,
)
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
    WorkloadObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.envelope import Event
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.stages.descheduler import (
    disruption,
    emptiness,
    loads,
    moves,
    occupancies,
    shares,
    silent_clusters,
    strategies,
    taints,
)
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.descheduler.facts import (
    NEEDED,
    ClusterFacts,
    DeschedulerState,
    ShardOf,
    Sighting,
)
from wharfinger.stages.descheduler.proposal_causes import Causes
from wharfinger.stages.descheduler.upkeep import fold_upkeep, looked_at, next_look, waits


@dataclass(frozen=True, slots=True)
class DeschedulerObserver:
    """Folds facts into a `DeschedulerState` and publishes the proposals that follow from them.

    `shard_of`: binding -> fleet shard. `repeat_after_s`: seconds before a proposal is repeated
    while its cause holds. `batch_max`: proposals in one `publish`. `stale_after_s`: seconds without
    a report after which nothing is proposed for a cluster that has a lease
    (`DeschedulerState.held`). `looking`: the settings of consolidation passes. Raises ValueError
    where one of the three numbers is not above zero.
    """

    shard_of: ShardOf
    repeat_after_s: int = 60
    batch_max: int = 500
    stale_after_s: int = 300
    looking: Looking = field(default_factory=Looking)
    failures: Failures = field(default_factory=Failures, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("repeat_after_s", "batch_max", "stale_after_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"expected {name} above zero, got {getattr(self, name)}")

    def initial(self) -> DeschedulerState:
        return DeschedulerState(Causes(self.repeat_after_s * SECOND), self.stale_after_s)

    def fold(self, state: DeschedulerState, event: Event[Value], at: Micros) -> None:
        sighting = Sighting(at, str(event.id))
        match event.data:
            case ClusterObserved(cluster):
                known = state.cluster(cluster.name)
                known.lease_s = cluster.lease_s
                known.stale = tuple(sorted(stale_kinds(cluster) & NEEDED))
                self._heard(state, cluster.name, False, at)
                taints.fold_cluster(state, cluster, sighting)
            case FleetHeard(heard=heard):
                for name in heard:
                    if name in state.clusters:
                        self._heard(state, name, False, at)
            case ClusterForgotten(name):
                shares.forget_cluster(state, name)
            case BindingRequested(binding):
                shares.fold_binding(state, binding, at)
            case BindingWithdrawn(name):
                shares.withdraw(state, name)
            case PolicyApplied(policy):
                self._fold_policy(state, policy, sighting)
            case PolicyRemoved(kind, name, namespace):
                self._fold_policy(state, Policy(kind, name, namespace), sighting)
            case NodesObserved() as nodes:
                self._heard(
                    state, nodes.cluster, occupancies.fold_nodes(state, nodes, sighting), at
                )
                if state.descheduling:
                    strategies.nodes_known(state, nodes.cluster, at)
            case PodsObserved() as pods:
                self._heard(state, pods.cluster, occupancies.fold_pods(state, pods, sighting), at)
            case WaitingPodsObserved() as waiting:
                book = state.cluster(waiting.cluster).book
                self._heard(state, waiting.cluster, book.observe_waiting(waiting), at)
            case FinishedPodsObserved() as finished:
                state.cluster(finished.cluster).finished.observe(finished.node, finished.pods)
                self._heard(state, finished.cluster, False, at)
            case ObjectsObserved() as objects:
                self._heard(state, objects.cluster, occupancies.fold_objects(state, objects), at)
            case NodeLoadObserved() | HotValueObserved() as told:
                loads.fold_load(state, told)
            case WorkloadObserved() as workload:
                self._heard(state, workload.cluster, False, at)
            case AssignmentsDecided() as decided:
                self._fold_assignments(state, decided, at)
            case _:
                pass
        fold_upkeep(state, event.data, sighting)

    def publish(self, state: DeschedulerState, at: Micros) -> list[Publication]:
        """Returns the proposals that are due, at most `batch_max`.

        First come the proposals of causes. A cause says why a proposal is made (failover, eviction,
        removal of an empty node, among others) and is active until a fact clears it. Causes about
        bindings come first, by priority; removals of nodes come last. After the causes come the
        proposals of consolidation, of descheduling strategies and of rebalancing, in this order. If
        further causes are due when `batch_max` is reached, `next_due` returns a time in the past,
        so the caller calls again at once.
        """
        proposals: list[Publication] = []
        while len(proposals) < self.batch_max and (cause := state.causes.take(at)) is not None:
            if cause.kind == "failover" and silent_clusters.made_up_for(state, cause):
                continue  # looked at again after the pause, for the substitute may be lost too
            if waits(state, cause, at):
                continue
            id, stream = state.causes.proposal_id(cause, at), cause.stream
            proposals.append(
                Publication(cause.proposal, cause.target, stream, stream, id, cause.by)
            )
        proposals += disruption.publish(state, self.looking, at, self.batch_max - len(proposals))
        proposals += strategies.publish(
            state, at, self.batch_max - len(proposals), self.looking.elsewhere
        )
        proposals += looked_at(state, at, self.batch_max - len(proposals))
        return proposals

    def next_due(self, state: DeschedulerState) -> Micros | None:
        dues = (state.causes.next_due(), state.looks.next(), state.passing.next(), next_look(state))
        return min((due for due in dues if due is not None), default=None)

    def _heard(self, state: DeschedulerState, name: str, changed: bool, at: Micros) -> None:
        """Records a report of the cluster. Schedules a consolidation pass if something `changed`,
        or if the last pass skipped the cluster because its state was not current."""
        state.cluster(name).heard = at
        if changed or ((watch := state.watches.get(name)) is not None and watch.held):
            disruption.changed(state, self.looking, name, at)

    def _fold_policy(self, state: DeschedulerState, policy: Policy, sighting: Sighting) -> None:
        """Passes a policy event to each part of the descheduler that uses policies. If the new
        version of a policy lacks the settings for a part, that part drops what the old version had
        set. A node pool has known prices if a catalogue of instance types is known for it. If the
        set of known catalogues changed, the nodes of all pools are judged again for emptiness."""
        priced = set(state.policies.types)
        of_pools = state.policies.applied(policy.key, policy)
        emptiness.fold_policy(state, policy, sighting.at)
        if priced != set(state.policies.types):
            for pool in state.pool_nodes:
                emptiness.judge_pool(state, pool, sighting.at)
        if of_pools:
            disruption.policies_changed(state, self.looking, sighting.at)
        strategies.fold_policy(state, policy, sighting.at)
        loads.fold_policy(state, policy)
        taints.fold_policy(state, policy, sighting)

    def _fold_assignments(
        self, state: DeschedulerState, decided: AssignmentsDecided, at: Micros
    ) -> None:
        """Folds the items (single decisions about one cluster) of an assignments event that were
        not folded before. An item is new if its seq is above the highest seq folded from the same
        stream. The items are in order of seq, both from the publisher and from the ledger."""
        name, stream = decided.cluster, decided.stream
        cluster, watched = state.cluster(name), state.watching
        seen = through = cluster.through.get(stream, 0)
        for item in decided.items:
            if item.seq > seen:  # else redelivered
                through = max(item.seq, through)
                if watched:
                    self._before_item(state, name, cluster, item, at)
                occupancies.fold_item(state, name, cluster, item, at)
                self._after_item(state, name, cluster, stream, item, at)
        if through > seen:
            cluster.through[stream] = through
            if watched:
                disruption.changed(state, self.looking, name, at)

    def _before_item(
        self,
        state: DeschedulerState,
        name: str,
        cluster: ClusterFacts,
        item: AssignmentItem,
        at: Micros,
    ) -> None:
        """Records what an assignment item is about to change, while the state before the change is
        still known. For a decision that puts replicas on nodes: which replicas move to another
        node. For the end of a disruption command: which pools its nodes belong to, and whether it
        was rolled back. Other items are ignored."""
        match item:
            case Placed():
                moves.before_placed(
                    state, name, cluster, item, self.looking.cool_down_s * SECOND, at
                )
            case Disrupted():
                disruption.command_ended(state, name, cluster, item, at)
            case _:
                pass

    def _after_item(
        self,
        state: DeschedulerState,
        name: str,
        cluster: ClusterFacts,
        stream: str,
        item: AssignmentItem,
        at: Micros,
    ) -> None:
        match item:
            case Assigned():
                shares.assigned(state, self.shard_of, name, cluster, item, at)
            case Placed():
                pass
            case Released():
                moves.after_released(state, name, cluster, item, at)
            case Silenced(decision=decision):
                cluster.silenced[stream] = decision
                silent_clusters.changed(state, name, cluster, stream, at)
            case Recovered():
                cluster.silenced.pop(stream, None)
                silent_clusters.changed(state, name, cluster, stream, at)
            case _:
                pass
