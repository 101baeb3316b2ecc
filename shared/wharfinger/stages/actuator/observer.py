"""The actuator: folds decisions and facts of the clusters that may be written to.

It publishes nothing: what is open is read from its state (`plan.open_effects`), and what was done
comes back as facts of the collector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.ids import ClusterName, NodeName, StreamName
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided, Released
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.stages.actuator.state import ClusterWork


class StandingRelease(Value, frozen=True):
    """A release of the last hour, from the ledger: its pods may still be there."""

    cluster: ClusterName
    stream: StreamName
    item: Released


class StandingClosures(Value, frozen=True):
    """Nodes that decisions of the last days have closed, from the ledger: where no decision closes
    them any more, they are opened again."""

    cluster: ClusterName
    nodes: tuple[NodeName, ...]


ActuatorState = dict[str, ClusterWork]
"""By name of the cluster."""


@dataclass(frozen=True, slots=True)
class ActuatorObserver:
    """`clusters`: those that may be written to; facts of others are not kept."""

    clusters: frozenset[str]
    failures: Failures = field(default_factory=Failures, compare=False, repr=False)

    def initial(self) -> ActuatorState:
        return {name: ClusterWork(name) for name in sorted(self.clusters)}

    def fold(self, state: ActuatorState, event: Event[Value], at: Micros) -> None:
        match event.data:
            case FleetHeard(heard=heard):
                for name in heard:
                    if name in state:
                        state[name].heard = at
            case ClusterForgotten(name=name) if name in state:
                state[name] = ClusterWork(name)
            case ClusterObserved() as told if told.cluster.name in state:
                state[told.cluster.name].observe_cluster(told)
            case AssignmentsDecided() as decided if decided.cluster in state:
                state[decided.cluster].take(decided, at)
            case NodesObserved() as nodes if nodes.cluster in state:
                state[nodes.cluster].observe_nodes(nodes)
                state[nodes.cluster].heard = at
            case FinishedPodsObserved() as finished if finished.cluster in state:
                state[finished.cluster].observe_finished(finished)
                state[finished.cluster].heard = at
            case PodsObserved() as pods if pods.cluster in state:
                state[pods.cluster].observe_pods(pods)
                state[pods.cluster].heard = at
            case WaitingPodsObserved() as waiting if waiting.cluster in state:
                state[waiting.cluster].observe_waiting(waiting)
                state[waiting.cluster].heard = at
            case StandingRelease() as released if released.cluster in state:
                work = state[released.cluster]
                work.release(released.stream, released.item, at)
            case StandingClosures() as closures if closures.cluster in state:
                state[closures.cluster].ours.update(closures.nodes)
            case ObjectsObserved(cluster=name) | QuotasObserved(cluster=name) if name in state:
                state[name].heard = at
            case _:
                pass

    def publish(self, state: ActuatorState, at: Micros) -> list[Publication]:
        return []

    def next_due(self, state: ActuatorState) -> Micros | None:
        return None
