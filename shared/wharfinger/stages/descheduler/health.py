"""How bindings fare where they run, as clusters tell it, and what is remembered of that.

Facts carry since when something has been so, where whoever told them knows; else it counts from when it was first heard here
without a break. The rules over it are `unhealthy`, `unschedulable` and `rebalancing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.node import Pod
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import Health, PodsObserved, WorkloadObserved
from wharfinger.kernel.decider import Micros


@dataclass(frozen=True, slots=True)
class Since:
    """When it began, and the id of the event that showed it first."""

    at: Micros
    by: str


@dataclass(slots=True)
class Fares:
    """Of a binding in a cluster. `ill`: since when it is unhealthy; `stranded`: since when replicas have found no node; None: it is
    not so. `pending`: of those among the pods that were seen, uid -> since when."""

    health: Health = "Unknown"
    ready: int = 0
    unschedulable: int = 0
    ill: Since | None = None
    stranded: Since | None = None
    pending: dict[str, Since] = field(default_factory=dict)

    def see(self, seen: WorkloadObserved, at: Micros, by: str) -> None:
        self.health, self.ready, self.unschedulable = seen.health, seen.ready, seen.unschedulable
        self.ill = _since(self.ill, seen.health == "Unhealthy", seen.ill_since_us, at, by)
        self.stranded = _since(self.stranded, seen.unschedulable > 0, seen.unschedulable_since_us, at, by)

    @property
    def waiting(self) -> tuple[int, Since] | None:
        """How many replicas have no node, and since when the first of them; None: all have one."""
        told = [(self.unschedulable, self.stranded)] if self.stranded is not None else []
        seen = [(len(self.pending), min(self.pending.values(), key=lambda s: (s.at, s.by)))] if self.pending else []
        return max([*told, *seen], key=lambda found: (found[0], -found[1].at), default=None)


def _since(before: Since | None, so: bool, told: Micros, at: Micros, by: str) -> Since | None:
    if not so:
        return None
    if told:
        return Since(told, by if before is None or before.at != told else before.by)
    return before or Since(at, by)


@dataclass(frozen=True, slots=True)
class Tried:
    """The same (`origin`: of its cause) was proposed so many `times`, and when it was last."""

    origin: str
    times: int
    last: Micros


@dataclass(frozen=True, slots=True)
class Asked:
    """A move was proposed, `times` in a row without anything coming of it, when the binding had what it `held`."""

    at: Micros
    times: int
    held: Mapping[str, int]


@dataclass(slots=True)
class Upkeep:
    """`fares`: cluster -> binding. `pods`: cluster -> the berth that pods without a node are told under -> bindings of such pods.
    `careful`: bindings whose policy lets them leave gracefully, or leave what is ill. `rebalancing`: by key of the policy.
    `capacity`: cluster -> its last count. `runs`: policy -> when it is looked at next; `after`: policy -> the last binding
    looked at in order of name, where a look did not reach all. `proposed`: cluster -> when it was proposed that how many leave
    it; `moved`: binding -> when its move was proposed. `tried`: kind, cluster and
    binding of a cause -> how often it was proposed."""

    fares: dict[str, dict[str, Fares]] = field(default_factory=dict)
    pods: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    careful: dict[str, None] = field(default_factory=dict)
    rebalancing: dict[str, RebalancePolicy] = field(default_factory=dict)
    capacity: dict[str, CapacityEstimated] = field(default_factory=dict)
    runs: dict[str, Micros] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    proposed: dict[str, list[tuple[Micros, int]]] = field(default_factory=dict)
    moved: dict[str, Asked] = field(default_factory=dict)
    tried: dict[tuple[str, str, str], Tried] = field(default_factory=dict)

    def of(self, cluster: str, binding: str) -> Fares:
        return self.fares.setdefault(cluster, {}).setdefault(binding, Fares())

    def known(self, cluster: str, binding: str) -> Fares | None:
        return self.fares.get(cluster, {}).get(binding)

    def see_pods(self, seen: PodsObserved, at: Micros, by: str) -> list[str]:
        """Pods of one berth. The bindings for which anything has changed, in order of name."""
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

    def _see_pending(self, fares: Fares, pods: Mapping[str, Micros], at: Micros, by: str) -> None:
        fares.pending = {
            uid: fares.pending.get(uid) or Since(since or at, by) for uid, since in sorted(pods.items())
        }  # fmt: skip

    def asked(self, binding: str, held: Mapping[str, int], at: Micros) -> Asked:
        before = self.moved.get(binding)
        return Asked(at, before.times + 1 if before is not None and before.held == held else 1, held)

    def forget(self, cluster: str, binding: str) -> None:
        for kind in ("unhealthy", "unschedulable", "replaced"):
            self.tried.pop((kind, cluster, binding), None)
        of_cluster = self.fares.get(cluster)
        if of_cluster is not None and of_cluster.pop(binding, None) is not None and not of_cluster:
            del self.fares[cluster]


def without_a_node(pod: Pod) -> Micros | None:
    """Since when the pod has been found to fit nowhere (0: it is not said); None: it has a node, or nobody has said so."""
    if pod.node or pod.terminating or pod.upkeep is None:
        return None
    for condition in pod.upkeep.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.since_us
    return None
