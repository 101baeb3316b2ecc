"""The descheduler: facts in, proposals out.

What there is to see is written down once (`shares`, `books`, `loads`), and each rule has a module that reads it: `silence`
proposes failover of what stood in a cluster that its fleet stream holds for silent; `taints` eviction of bindings whose
toleration of a cluster's NoExecute taint has ended; `emptiness` removal of nodes of a pool that have held nothing for as long as
the pool's policy allows; `disruption` whole commands, of nodes of priced pools that are empty, drifted, or cheaper to do
without; `strategies` that pods leave nodes on which a descheduling policy does not want them;
`upkeep` has what is ill, what finds no node, and what lies better in another cluster.

What is remembered of time is when this process saw it first; after a restart that is later than it was, so a proposal
may come late but never too early. The stage that owns the target has the ledger's times and checks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.policy import Policy
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
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved, WorkloadObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.envelope import Event
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import (
    books,
    disruption,
    emptiness,
    loads,
    moves,
    shares,
    silence,
    strategies,
    taints,
)
from wharfinger.stages.descheduler.causes import Causes
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState, ShardOf, Sighting
from wharfinger.stages.descheduler.upkeep import fold_upkeep, looked_at, next_look, waits


@dataclass(frozen=True, slots=True)
class DeschedulerObserver:
    """`shard_of`: binding -> fleet shard. `repeat_after_s`: how soon a proposal is made again while its cause stands.
    `batch_max`: proposals of one `publish`. `stale_after_s`: see `DeschedulerState.held`. `looking`: at clusters as a whole."""

    shard_of: ShardOf
    repeat_after_s: int = 60
    batch_max: int = 500
    stale_after_s: int = 300
    looking: Looking = field(default_factory=Looking)

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
                state.cluster(cluster.name).lease_s = cluster.lease_s
                self._heard(state, cluster.name, False, at)
                taints.fold_cluster(state, cluster, sighting)
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
                self._heard(state, nodes.cluster, books.fold_nodes(state, nodes, sighting), at)
                if state.descheduling:
                    strategies.nodes_known(state, nodes.cluster, at)
            case PodsObserved() as pods:
                self._heard(state, pods.cluster, books.fold_pods(state, pods, sighting), at)
            case ObjectsObserved() as objects:
                self._heard(state, objects.cluster, books.fold_objects(state, objects), at)
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
        """What is due, the important first, at most `batch_max`; `next_due` says at once when more is waiting."""
        proposals: list[Publication] = []
        while len(proposals) < self.batch_max and (cause := state.causes.take(at)) is not None:
            if cause.kind == "failover" and silence.made_up_for(state, cause):
                continue  # looked at again after the pause, for the substitute may be lost too
            if waits(state, cause, at):
                continue
            id, stream = state.causes.proposal_id(cause, at), cause.stream
            proposals.append(Publication(cause.proposal, cause.target, stream, stream, id, cause.by))
        proposals += disruption.publish(state, self.looking, at, self.batch_max - len(proposals))
        proposals += strategies.publish(state, at, self.batch_max - len(proposals), self.looking.elsewhere)
        proposals += looked_at(state, at, self.batch_max - len(proposals))
        return proposals

    def next_due(self, state: DeschedulerState) -> Micros | None:
        dues = (state.causes.next_due(), state.looks.next(), state.passing.next(), next_look(state))
        return min((due for due in dues if due is not None), default=None)

    def _heard(self, state: DeschedulerState, name: str, changed: bool, at: Micros) -> None:
        """A cluster said something. One that was held because it had said nothing for long is looked at again."""
        state.cluster(name).heard = at
        if changed or ((watch := state.watches.get(name)) is not None and watch.held):
            disruption.changed(state, self.looking, name, at)

    def _fold_policy(self, state: DeschedulerState, policy: Policy, sighting: Sighting) -> None:
        """A policy without the part in question takes back what its key said before."""
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

    def _fold_assignments(self, state: DeschedulerState, decided: AssignmentsDecided, at: Micros) -> None:
        """`decided.items` stand in order of seq, as the publisher and the ledger give them."""
        name, stream = decided.cluster, decided.stream
        cluster, watched = state.cluster(name), state.watching
        seen = through = cluster.through.get(stream, 0)
        for item in decided.items:
            if item.seq > seen:  # else redelivered
                through = max(item.seq, through)
                if watched:
                    self._before_item(state, name, cluster, item, at)
                books.fold_item(state, name, cluster, item, at)
                self._after_item(state, name, cluster, stream, item, at)
        if through > seen:
            cluster.through[stream] = through
            if watched:
                disruption.changed(state, self.looking, name, at)

    def _before_item(
        self, state: DeschedulerState, name: str, cluster: ClusterFacts, item: AssignmentItem, at: Micros
    ) -> None:
        """While what stood until now is still known."""
        match item:
            case Placed():
                moves.before_placed(state, name, cluster, item, self.looking.cool_down_s * SECOND, at)
            case Disrupted():
                disruption.command_ended(state, name, cluster, item, at)
            case _:
                pass

    def _after_item(
        self, state: DeschedulerState, name: str, cluster: ClusterFacts, stream: str, item: AssignmentItem, at: Micros
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
                silence.changed(state, name, cluster, stream, at)
            case Recovered():
                cluster.silenced.pop(stream, None)
                silence.changed(state, name, cluster, stream, at)
            case _:
                pass
