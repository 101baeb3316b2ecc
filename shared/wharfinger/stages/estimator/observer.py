"""Routes events to clusters, and decides when a cluster's estimates are published.

A class is *live* while some binding requests it, and is then counted in every cluster. A binding
with components requests a class of whole sets. Nothing is stored: after a restart the facts are
folded from the beginning, and current assignments come from the ledger as the same events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding, Component, set_key
from wharfinger.domain.policy import Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import QuotaRoom
from wharfinger.events.cluster_state import (
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.envelope import Event
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.stages.estimator.cluster import ClusterEstimate, EstimatedClasses, KnownDemands
from wharfinger.stages.estimator.provisioning import next_return
from wharfinger.stages.pools import PoolPolicies


@dataclass(slots=True)
class _Live:
    """A class of equal replicas, or, with components, of equal sets of replicas."""

    requirements: Requirements
    components: tuple[Component, ...] = ()
    bindings: int = 0


@dataclass(slots=True)
class EstimatorState:
    """Holds all clusters and the classes that are counted in them.

    `bindings`: name -> key of its class. `live`: key -> class with the number of its bindings.
    `asking`: the classes in the form in which they are counted; rebuilt if `classes_stale`.
    `priority_classes`: binding -> its priority class. `allotted`: policy -> cluster -> the quota
    that the policy gives the cluster. `changed`: clusters to estimate again; `decided`: those of
    which decisions about bindings are new. `quoted`: clusters whose published estimate has quotas.
    `removed`: clusters that left and did not join again; nothing is published for them.
    `policies`: pools and prices. `returns`: cluster -> time at which a sold-out offering may be
    requested again. `demands`: what replicas of the classes take.
    """

    clusters: dict[str, ClusterEstimate] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)
    live: dict[str, _Live] = field(default_factory=dict)
    asking: EstimatedClasses = field(default_factory=lambda: EstimatedClasses({}, 0))
    classes_stale: bool = False
    priority_classes: dict[str, str] = field(default_factory=dict)
    allotted: dict[str, dict[str, Quota]] = field(default_factory=dict)
    quoted: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    returns: dict[str, Micros] = field(default_factory=dict)
    demands: KnownDemands = field(default_factory=KnownDemands)

    def cluster(self, name: str) -> ClusterEstimate:
        found = self.clusters.get(name)
        if found is None:
            found = self.clusters[name] = ClusterEstimate(name, self.demands)
        return found

    def adopt_quotas(self, name: str, rooms: Iterable[QuotaRoom]) -> None:
        """Sets the cluster's quotas from an older estimate (`ClusterQuotas.adopt`)."""
        cluster = self.cluster(name)
        cluster.quotas.adopt(rooms, cluster.book)
        self.changed.add(name)


class EstimatorObserver:
    """Publishes the free capacity of each cluster (CapacityEstimated) when it differs from the last
    one published. A `kernel.observer.Observer`."""

    def __init__(self) -> None:
        self.failures = Failures()

    def initial(self) -> EstimatorState:
        return EstimatorState()

    def fold(self, state: EstimatorState, event: Event[Value], at: Micros) -> None:
        match event.data:
            case NodesObserved() as nodes:
                if state.cluster(nodes.cluster).book.observe_nodes(nodes, at):
                    state.changed.add(nodes.cluster)
            case PodsObserved() as pods:
                if state.cluster(pods.cluster).observe_pods(pods):
                    state.changed.add(pods.cluster)
            case QuotasObserved() as quotas:
                if state.cluster(quotas.cluster).observe_quotas(quotas):
                    state.changed.add(quotas.cluster)
            case PolicyApplied(policy=policy):
                _allot(state, policy.key, _allotted_by(policy))
                _see_pools(state, policy.key, policy)
            case PolicyRemoved(kind=kind, namespace=namespace, name=name):
                _allot(state, f"{kind}/{namespace}/{name}", {})
                _see_pools(state, f"{kind}/{namespace}/{name}", None)
            case ObjectsObserved(cluster=name, kind="DaemonSet") as told:
                state.cluster(name).makers.observe(told)
                state.changed.add(name)
            case AssignmentsDecided() as decided:
                if state.cluster(decided.cluster).take_assignments(decided, at):
                    state.decided.add(decided.cluster)
            case ClusterObserved() as observed:
                state.cluster(observed.cluster.name).summarise(observed.cluster.summary)
                state.removed.discard(observed.cluster.name)
                state.changed.add(observed.cluster.name)
            case ClusterForgotten() as forgotten:
                # Its node and pod facts stay: they are the latest of their keys, as the topics and
                # the cluster's stream keep them.
                state.removed.add(forgotten.name)
                state.quoted.discard(forgotten.name)
                if (removed := state.clusters.get(forgotten.name)) is not None:
                    removed.published = None
            case BindingRequested() as requested:
                _request(state, requested.binding)
            case BindingWithdrawn() as withdrawn:
                _withdraw(state, withdrawn.name)
            case _:
                pass  # other facts say nothing about capacity

    def publish(self, state: EstimatorState, at: Micros) -> list[Publication]:
        if state.classes_stale:
            live = sorted(state.live.items())
            state.asking = EstimatedClasses(
                {key: one.requirements for key, one in live if not one.components},
                state.asking.version + 1,
                {key: one.components for key, one in live if one.components},
                state.priority_classes,
            )
            state.classes_stale = False
            state.changed.update(state.clusters)
        for name in [name for name, until in state.returns.items() if until <= at]:
            del state.returns[name]
            if name in state.clusters:
                state.changed.add(name)
        publications: list[Publication] = []
        for name in sorted((state.changed | state.decided) - state.removed):
            with self.failures.of(name):
                publications += self._of_cluster(state, name, at)
        state.changed.clear()
        state.decided.clear()
        return publications

    def _of_cluster(self, state: EstimatorState, name: str, at: Micros) -> list[Publication]:
        """Its estimate, where it is another one than was published last."""
        cluster = state.clusters[name]
        allotted = [quotas[name] for _, quotas in sorted(state.allotted.items()) if name in quotas]
        estimate = cluster.estimate(state.asking, allotted, state.policies, at)
        if (until := next_return(cluster.pools, at)) is not None:
            state.returns[name] = until
        if estimate is None:
            return []
        if estimate.quotas:
            state.quoted.add(name)
        if estimate == cluster.published:
            return []
        cluster.published = estimate
        return [Publication(estimate, subject=name, key=name, partition_key=name)]

    def next_due(self, state: EstimatorState) -> Micros | None:
        """Returns the time at which a sold-out offering may be requested again; None if there is
        none. Nothing else changes the capacity without a fact."""
        return min(state.returns.values(), default=None)


def placements_follow(state: EstimatorState) -> bool:
    """Return whether only decisions of the plane itself are new, and one of their clusters has to
    place replicas that were assigned to it."""
    if state.changed or state.classes_stale:
        return False
    return any(state.clusters[name].book.unbound for name in state.decided - state.removed)


def _request(state: EstimatorState, binding: Binding) -> None:
    if not binding.replicas and binding.requirements.empty and not binding.components:
        _withdraw(state, binding.name)  # an object without replicas takes no room
        return
    if state.priority_classes.get(binding.name) != binding.priority_class:
        state.priority_classes[binding.name] = binding.priority_class
        state.changed.update(state.quoted)
    key = set_key(binding.components) if binding.components else binding.requirements.class_key
    before = state.bindings.get(binding.name)
    if before == key:
        return
    live = state.live.get(key)
    if live is None:
        live = state.live[key] = _Live(binding.requirements, binding.components)
        state.classes_stale = True
    live.bindings += 1
    state.bindings[binding.name] = key
    if before is not None:
        _let_go(state, before)


def _withdraw(state: EstimatorState, name: str) -> None:
    if state.priority_classes.pop(name, None) is not None:
        state.changed.update(state.quoted)
    key = state.bindings.pop(name, None)
    if key is not None:
        _let_go(state, key)


def _let_go(state: EstimatorState, key: str) -> None:
    live = state.live[key]
    live.bindings -= 1
    if not live.bindings:
        del state.live[key]
        state.classes_stale = True


def _see_pools(state: EstimatorState, key: str, policy: Policy | None) -> None:
    if state.policies.applied(key, policy):
        state.changed.update(state.clusters)


def _allotted_by(policy: Policy) -> dict[str, Quota]:
    if policy.quota is None:
        return {}
    return {
        cluster: Quota(policy.namespace, policy.name, hard)
        for cluster, hard in policy.quota.clusters.items()
        if hard
    }


def _allot(state: EstimatorState, key: str, quotas: dict[str, Quota]) -> None:
    before = state.allotted.pop(key, {})
    if quotas:
        state.allotted[key] = quotas
    if before != quotas:
        state.changed.update(name for name in {**before, **quotas} if name in state.clusters)
