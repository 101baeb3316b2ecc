"""Which event goes to which cluster, and when a cluster has something new to say.

A class is *live* while some binding asks for it; it then is counted in every cluster. After a restart the facts are folded
from the beginning and the ledger's current assignments come as the same events, so nothing here needs storing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Publication
from wharfinger.stages.estimator.cluster import ClusterEstimate


@dataclass(slots=True)
class _Live:
    requirements: Requirements
    bindings: int = 0


@dataclass(slots=True)
class EstimatorState:
    """`bindings`: name -> key of its class. `changed`: clusters to look at again, in no order that matters."""

    clusters: dict[str, ClusterEstimate] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)
    live: dict[str, _Live] = field(default_factory=dict)
    classes: dict[str, Requirements] = field(default_factory=dict)
    classes_version: int = 0
    classes_stale: bool = False
    changed: set[str] = field(default_factory=set)

    def cluster(self, name: str) -> ClusterEstimate:
        found = self.clusters.get(name)
        if found is None:
            found = self.clusters[name] = ClusterEstimate(name)
        return found


class EstimatorObserver:
    """A `kernel.observer.Observer`."""

    def initial(self) -> EstimatorState:
        return EstimatorState()

    def fold(self, state: EstimatorState, event: Event[Value], at: Micros) -> None:
        match event.data:
            case NodesObserved() as nodes:
                if state.cluster(nodes.cluster).book.observe_nodes(nodes, at):
                    state.changed.add(nodes.cluster)
            case PodsObserved() as pods:
                if state.cluster(pods.cluster).book.observe_pods(pods):
                    state.changed.add(pods.cluster)
            case AssignmentsDecided() as decided:
                if state.cluster(decided.cluster).take_assignments(decided, at):
                    state.changed.add(decided.cluster)
            case ClusterObserved() as observed:
                state.cluster(observed.cluster.name).summarise(observed.cluster.summary)
                state.changed.add(observed.cluster.name)
            case ClusterForgotten() as forgotten:
                state.clusters.pop(forgotten.name, None)
                state.changed.discard(forgotten.name)
            case BindingRequested() as requested:
                _request(state, requested.binding)
            case BindingWithdrawn() as withdrawn:
                _withdraw(state, withdrawn.name)
            case _:
                pass  # other facts say nothing about capacity

    def publish(self, state: EstimatorState, at: Micros) -> list[Publication]:
        if state.classes_stale:
            state.classes = {key: live.requirements for key, live in sorted(state.live.items())}
            state.classes_version += 1
            state.classes_stale = False
            state.changed.update(state.clusters)
        publications: list[Publication] = []
        for name in sorted(state.changed):
            cluster = state.clusters[name]
            estimate = cluster.estimate(state.classes, state.classes_version)
            if estimate is not None and estimate != cluster.published:
                cluster.published = estimate
                publications.append(Publication(estimate, subject=name, key=name, partition_key=name))
        state.changed.clear()
        return publications

    def next_due(self, state: EstimatorState) -> Micros | None:
        """Capacity changes by facts alone, never by the passing of time."""
        return None


def _request(state: EstimatorState, binding: Binding) -> None:
    if not binding.replicas and binding.requirements.empty:
        _withdraw(state, binding.name)  # an object without replicas takes no room
        return
    key = binding.requirements.class_key
    before = state.bindings.get(binding.name)
    if before == key:
        return
    live = state.live.get(key)
    if live is None:
        live = state.live[key] = _Live(binding.requirements)
        state.classes_stale = True
    live.bindings += 1
    state.bindings[binding.name] = key
    if before is not None:
        _let_go(state, before)


def _withdraw(state: EstimatorState, name: str) -> None:
    key = state.bindings.pop(name, None)
    if key is not None:
        _let_go(state, key)


def _let_go(state: EstimatorState, key: str) -> None:
    live = state.live[key]
    live.bindings -= 1
    if not live.bindings:
        del state.live[key]
        state.classes_stale = True
