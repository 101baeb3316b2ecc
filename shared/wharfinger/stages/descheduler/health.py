"""The health of bindings in each cluster, as reported.

A fact has the time since when it holds, where the source reports that; otherwise the time counts
from when it was first received without interruption. The rules on it are `unhealthy`,
`unschedulable` and `rebalancing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.node import Pod
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.engine.nodes.occupancy import WaitingPods
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import (
    Health,
    PodsObserved,
    WaitingPodsObserved,
    WorkloadObserved,
)
from wharfinger.kernel.decider import Micros

UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled of a pod that fits on no node."""


@dataclass(frozen=True, slots=True)
class Since:
    """Records when a condition began, and the id of the event that showed it first."""

    at: Micros
    by: str


@dataclass(slots=True)
class Fares:
    """Holds the reported health of one binding in one cluster.

    `ill`: since when it is unhealthy; None: it is not. `stranded`: since when it reports replicas
    that fit on no node; None: it reports none. `pending`: observed pods that fit on no node, uid ->
    since when.
    """

    health: Health = "Unknown"
    ready: int = 0
    unschedulable: int = 0
    ill: Since | None = None
    stranded: Since | None = None
    pending: dict[str, Since] = field(default_factory=dict)

    def see(self, seen: WorkloadObserved, at: Micros, by: str) -> None:
        self.health, self.ready, self.unschedulable = seen.health, seen.ready, seen.unschedulable
        self.ill = _since(self.ill, seen.health == "Unhealthy", seen.ill_since_us, at, by)
        self.stranded = _since(
            self.stranded, seen.unschedulable > 0, seen.unschedulable_since_us, at, by
        )

    @property
    def waiting(self) -> tuple[int, Since] | None:
        """Returns the number of replicas without a node, and since when the first of them waits;
        None if all have a node. Of reported replicas and observed pods the larger number counts."""
        told = [(self.unschedulable, self.stranded)] if self.stranded is not None else []
        seen = (
            [(len(self.pending), min(self.pending.values(), key=lambda s: (s.at, s.by)))]
            if self.pending
            else []
        )
        return max([*told, *seen], key=lambda found: (found[0], -found[1].at), default=None)


def _since(before: Since | None, so: bool, told: Micros, at: Micros, by: str) -> Since | None:
    if not so:
        return None
    if told:
        return Since(told, by if before is None or before.at != told else before.by)
    return before or Since(at, by)


@dataclass(frozen=True, slots=True)
class MoveAttempts:
    """Records how often in a row the same cause was proposed: `times`, and the time of the last
    proposal. `origin`: identifies the cause."""

    origin: str
    times: int
    last: Micros


@dataclass(frozen=True, slots=True)
class ProposedMove:
    """Records the last proposed move of a binding: its time, and `times`, the number of proposals
    in a row without effect. `held`: cluster -> replicas of the binding at that time."""

    at: Micros
    times: int
    held: Mapping[str, int]


@dataclass(slots=True)
class Upkeep:
    """The memory of the rules that move bindings between clusters: health, failed proposals,
    rebalancing.

    `fares`: cluster -> binding -> health. `pods`: (cluster, node) -> bindings with unschedulable
    pods in the last report for that node (empty: pods without a node; `namespace/bucket`: a bucket
    of waiting pods). `careful`: bindings with an
    application policy or graceful purge. `rebalancing`: policy key -> policy. `capacity`: cluster
    -> its last estimate. `runs`: policy -> when it is evaluated next. `after`: policy -> the last
    binding evaluated, empty when the pass reached the end. `proposed`: cluster -> (time, replicas)
    of moves proposed away from it. `moved`: binding -> its last proposed move. `tried`: (kind,
    cluster, binding) of a cause -> how often it was proposed.
    """

    fares: dict[str, dict[str, Fares]] = field(default_factory=dict)
    pods: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    careful: dict[str, None] = field(default_factory=dict)
    rebalancing: dict[str, RebalancePolicy] = field(default_factory=dict)
    capacity: dict[str, CapacityEstimated] = field(default_factory=dict)
    runs: dict[str, Micros] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    proposed: dict[str, list[tuple[Micros, int]]] = field(default_factory=dict)
    moved: dict[str, ProposedMove] = field(default_factory=dict)
    tried: dict[tuple[str, str, str], MoveAttempts] = field(default_factory=dict)

    def of(self, cluster: str, binding: str) -> Fares:
        return self.fares.setdefault(cluster, {}).setdefault(binding, Fares())

    def known(self, cluster: str, binding: str) -> Fares | None:
        return self.fares.get(cluster, {}).get(binding)

    def see_pods(self, seen: PodsObserved, at: Micros, by: str) -> list[str]:
        """Records which bindings have unschedulable pods in `seen`, the report about the pods of
        one node (empty node name: the pods without a node). Returns the bindings whose
        unschedulable pods may have changed, in order of name: bindings with such pods in this
        report or in the report before it. `at`, `by`: time and id of the event."""
        berth = (seen.cluster, seen.node)
        stranded: dict[str, dict[str, Micros]] = {}
        for pod in seen.pods:
            if pod.binding and (since := without_a_node(pod)) is not None:
                stranded.setdefault(pod.binding, {})[pod.uid] = since
        touched = dict.fromkeys((*self.pods.get(berth, ()), *stranded))
        if not touched:
            return []
        self.pods[berth] = tuple(stranded)
        for binding in touched:
            self._see_pending(self.of(seen.cluster, binding), stranded.get(binding, {}), at, by)
        return sorted(touched)

    def see_waiting(
        self, seen: WaitingPodsObserved, waiting: WaitingPods, at: Micros, by: str
    ) -> list[str]:
        """Records which bindings have unschedulable pods after `seen`, the report about one bucket
        of waiting pods, was folded into `waiting`. Returns the bindings that have such pods in this
        report or in the report before it, in order of name. `at`, `by`: time and id of the
        event."""
        bucket = (seen.cluster, f"{seen.namespace}/{seen.bucket}")
        stranded = dict.fromkeys(
            pod.binding for pod in seen.pods if pod.binding and pod.condition == UNSCHEDULABLE
        )
        touched = dict.fromkeys((*self.pods.get(bucket, ()), *stranded))
        if not touched:
            return []
        self.pods[bucket] = tuple(stranded)
        for binding in touched:
            pods = waiting.by_binding.get(binding, {})
            since = {p.uid: p.since_us for p in pods.values() if p.condition == UNSCHEDULABLE}
            self._see_pending(self.of(seen.cluster, binding), since, at, by)
        return sorted(touched)

    def _see_pending(self, fares: Fares, pods: Mapping[str, Micros], at: Micros, by: str) -> None:
        fares.pending = {
            uid: fares.pending.get(uid) or Since(since or at, by)
            for uid, since in sorted(pods.items())
        }

    def asked(self, binding: str, held: Mapping[str, int], at: Micros) -> ProposedMove:
        before = self.moved.get(binding)
        return ProposedMove(
            at, before.times + 1 if before is not None and before.held == held else 1, held
        )

    def forget(self, cluster: str, binding: str) -> None:
        for kind in ("unhealthy", "unschedulable", "replaced"):
            self.tried.pop((kind, cluster, binding), None)
        of_cluster = self.fares.get(cluster)
        if of_cluster is not None and of_cluster.pop(binding, None) is not None and not of_cluster:
            del self.fares[cluster]


def without_a_node(pod: Pod) -> Micros | None:
    """Returns since when the scheduler reports the pod as unschedulable, in microseconds; 0 if the
    time is not reported. The pod counts as unschedulable if it has the condition PodScheduled with
    status `False` and reason `Unschedulable`. Returns None if the pod has no such condition, has a
    node, or is terminating."""
    if pod.node or pod.terminating or pod.upkeep is None:
        return None
    for condition in pod.upkeep.conditions:
        if (
            condition.type == "PodScheduled"
            and condition.status == "False"
            and condition.reason == UNSCHEDULABLE
        ):
            return condition.since_us
    return None
