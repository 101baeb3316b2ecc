"""LowNodeUtilization and HighNodeUtilization: move pods from overutilised nodes to nodes with
capacity, or off nearly empty nodes.

Both classify all nodes first, then iterate over the source nodes and stop when the destinations
together have no capacity left. They differ in the sources. LowNodeUtilization: nodes above a
target, which give pods away until they are below it. HighNodeUtilization: nodes below all
thresholds, which give all pods away.

The descheduler sorts sources by the plain sum of milli-cores, bytes and pods, in which memory
dominates, and pools the capacity of all destinations. Without `strict`: sources are sorted by how
far they exceed their thresholds in percent; a pod is named only when it uses something of which its
node has too much, and when a single destination can take it without exceeding its own threshold, so
every move lowers the total excess and the process ends; and a node without a resource that the
thresholds name is no destination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wharfinger.domain.descheduling import HighNodeUtilization, LowNodeUtilization
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling import usage as measure
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.sorting import least_important_first
from wharfinger.engine.descheduling.usage import Bounds, NodesUsage, Percents, cap

WHOLE = 100.0
PARTS = 100_000

Amounts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NodeUtilisation:
    """Records how a strategy classified the nodes by utilisation. `percents`: node -> resource ->
    percent. `low`, `high`: the nodes of the two groups, in the order of the cluster. `bounds`: the
    thresholds in percent."""

    strategy: str
    percents: dict[str, Percents]
    bounds: Bounds
    low: tuple[str, ...]
    high: tuple[str, ...]


@dataclass(slots=True)
class Balancing:
    """Evicts pods from source nodes until each source is done or the destinations together have no
    capacity left. One object is one run of LowNodeUtilization or HighNodeUtilization.

    `used`: node -> resource -> usage, updated after each move. `caps`: node -> resource -> maximum
    usage. `room`: resource -> remaining capacity of all destinations together. `excluded`:
    namespaces whose pods stay. `per_node`: maximum number of evictions per source; None: no limit.
    `gives`: returns whether a source still has to give pods away. `relieves`: returns whether its
    node is better off without a pod. `wanted`: returns whether a pod may be chosen. `why`: returns
    the reason for a source. `table`: cache of `_rest`.
    """

    evictor: Evictor
    usage: NodesUsage
    used: dict[str, dict[str, int]]
    caps: dict[str, dict[str, int]]
    room: dict[str, int]
    destinations: list[Node]
    excluded: tuple[str, ...]
    per_node: int | None
    gives: Callable[[str], bool]
    relieves: Callable[[Pod], bool]
    wanted: Callable[[Pod], bool]
    why: Callable[[str], str]
    table: tuple[Amounts, Amounts, Amounts] | None = None

    @property
    def strict(self) -> bool:
        return self.evictor.going.strict

    def empty(self, sources: list[Node]) -> None:
        for node in sources:
            if self._empty_one(node) is EvictionResult.TOTAL_LIMIT:
                return

    def _empty_one(self, node: Node) -> EvictionResult:
        cluster = self.evictor.going.cluster
        pods = [pod for pod in cluster.on(node) if self.wanted(pod) and self.evictor.may(pod)]
        evicted = 0
        for pod in least_important_first(pods, self.strict):
            if not self._go_on(node.name):
                break
            if self.per_node is not None and evicted >= self.per_node:
                break
            answer = self._try(pod)
            if answer in (EvictionResult.NODE_LIMIT, EvictionResult.TOTAL_LIMIT):
                return answer
            evicted += answer is EvictionResult.EVICTED
        return EvictionResult.STAYS

    def _go_on(self, node: str) -> bool:
        return all(left > 0 for left in self.room.values()) and self.gives(node)

    def _try(self, pod: Pod) -> EvictionResult:
        taken = self.usage.taken.get(pod.uid)
        if taken is None or not self.relieves(pod):
            return EvictionResult.STAYS
        if self.strict and not any(
            as_the_descheduler_tolerates(pod, node) for node in self.destinations
        ):
            return EvictionResult.STAYS
        if pod.requirements.traits.home in self.excluded:
            return EvictionResult.STAYS
        answer = self._evict_to_room(pod) if not self.strict else self._evict(pod)
        if answer is EvictionResult.EVICTED:
            self._book(pod.node, -1, pod)
            for name in self.room:
                self.room[name] -= taken.get(name, 0)
        return answer

    def _evict(self, pod: Pod) -> EvictionResult:
        if not self.evictor.lets_go(pod):
            return EvictionResult.STAYS
        return self.evictor.evict(pod, self.why(pod.node))

    def _evict_to_room(self, pod: Pod) -> EvictionResult:
        """Chooses the destination of a pod and evicts the pod. The destinations are the nodes that
        may receive pods. The one with the largest headroom is chosen, the first listed on ties;
        this is worst fit. Returns the result of the eviction.

        Headroom is how much is left below the cap (the maximum usage of the node) with the pod on
        it, as a fraction of the node's capacity, for the scarcest resource. The pod stays if it
        would exceed a cap on every destination, or if the evictor does not allow the eviction.
        """
        fit = self.evictor.going.fit
        rows, rest = self._rest(pod)
        if self.evictor.fit_wanted:
            rest = np.where(self.evictor.places(pod)[rows], rest, -1)
        best = int(rest.argmax())
        if rest[best] < 0:
            return EvictionResult.STAYS
        row = int(rows[best])
        answer = self.evictor.evict(pod, self.why(pod.node), target=row)
        if answer is EvictionResult.EVICTED:
            self._book(fit.nodes[row].name, 1, pod)
        return answer

    def _rest(self, pod: Pod) -> tuple[Amounts, Amounts]:
        """Returns two arrays int64[destinations] over the nodes that may receive pods: the row of
        each destination, and the headroom of the destination with the pod on it.

        The headroom of one resource is (cap - usage of the node - usage of the pod), in 1/100,000
        of the node's capacity; the cap is the maximum usage of the node. The headroom of a
        destination is the smallest over all resources. A negative headroom means that the pod would
        exceed a cap.

        Example: capacity 4000m CPU, cap 3200m, usage 2000m, pod 200m: the headroom is 1000m of
        4000m, 25,000.

        The arrays of caps and usage are built once; `_book` updates them after each move.
        """
        taken = self.usage.taken[pod.uid]
        names = list(self.room)
        if self.table is None:
            rows = [self.evictor.going.fit.position[node.name] for node in self.destinations]
            rest = [[self._left(node.name, n) for n in names] for node in self.destinations]
            size = [
                [max(1, self.usage.size[node.name].get(n, 0)) for n in names]
                for node in self.destinations
            ]
            self.table = (
                np.array(rows),
                np.array(rest, dtype=np.int64),
                np.array(size, dtype=np.int64),
            )
        rows_of, left, sizes = self.table
        asked = np.array([taken.get(n, 0) for n in names], dtype=np.int64)
        return rows_of, ((left - asked) * PARTS // sizes).min(axis=1)

    def exceeded(self, node: str) -> list[str]:
        """Returns the resources of which the node uses more than its cap."""
        used = self.used[node]
        return [name for name, limit in self.caps[node].items() if used.get(name, 0) > limit]

    def _left(self, node: str, name: str) -> int:
        return self.caps[node].get(name, 0) - self.used[node].get(name, 0)

    def _book(self, node: str, sign: int, pod: Pod) -> None:
        used = self.used[node]
        for name, amount in self.usage.taken[pod.uid].items():
            if name in used:
                used[name] += sign * amount
        if self.table is not None:
            row = self.evictor.going.fit.position[node]
            at = np.nonzero(self.table[0] == row)[0]
            self.table[1][at] = [self._left(node, n) for n in self.room]


def as_the_descheduler_tolerates(pod: Pod, node: Node) -> bool:
    """Returns whether the pod tolerates the node by the descheduler's rule, which is stricter than
    the scheduler's: a pod with fewer tolerations than the node has taints does not tolerate it, and
    PreferNoSchedule taints count too."""
    tolerations = pod.requirements.tolerations
    return len(tolerations) >= len(node.taints) and all(
        any(t.tolerates(taint) for t in tolerations) for taint in node.taints
    )


# Low.


def low(args: LowNodeUtilization, evictor: Evictor) -> NodeUtilisation:
    """Runs LowNodeUtilization: evicts pods from overutilised nodes (sources) so that underutilised
    nodes (destinations) can take the pods. A source gives pods away until none of its resources is
    above its target, or the destinations together have no capacity left for some resource.

    Each resource has a low limit, its threshold, and a high limit, its target. A node is
    underutilised if it is not cordoned and no resource is above its threshold. It is overutilised
    if some resource is above its target. Nothing is evicted if all nodes are underutilised, or if
    at most `number_of_nodes` are. If earlier passes are remembered (`Memory`), a node is a source
    only after enough passes in a row found it overutilised. With Prometheus, at most one pod per
    node is evicted by default, because the usage of a pod is not known.

    Returns which nodes were found under- or overutilised; the evictions are recorded by `evictor`.
    Raises UsageUnknownError if the usage of a node is not known.
    """
    going = evictor.going
    if args.source == "requests":
        usage = measure.requested(going.cluster, args.thresholds)
    else:
        usage = measure.measured(going.cluster, args, going.strict)
    bounds = measure.bounds(args.thresholds, args.targets, usage, args.deviation)
    percents = {node.name: usage.percents(node.name) for node in going.cluster.nodes}
    under = [
        n
        for n in going.cluster.nodes
        if measure.underused(percents[n.name], bounds.low) and not n.unschedulable
    ]
    names = {n.name for n in under}
    over = [
        n
        for n in going.cluster.nodes
        if n.name not in names and measure.overused(percents[n.name], bounds.high)
    ]
    survey = _surveyed(evictor, percents, bounds, under, over)
    sources = _steady(evictor, over)
    if not _worth_it(going.cluster.nodes, under, args.number_of_nodes) or not sources:
        return survey
    run = _balancing(
        evictor,
        usage,
        bounds.high,
        _having(under, args.thresholds, usage, going.strict),
        args.excluded,
    )
    run.per_node = args.per_node
    if args.source == "Prometheus" and run.per_node is None:
        run.per_node = 1  # nothing is known of what a pod takes away
    run.gives = lambda node: bool(run.exceeded(node))
    if not going.strict and args.source != "Prometheus":  # which knows nodes, and no pods
        run.relieves = lambda pod: any(
            usage.taken[pod.uid].get(name, 0) > 0 for name in run.exceeded(pod.node)
        )
    run.why = lambda node: (
        f"{_said(percents[node], bounds.high, args.targets)} on {node}, above its target"
    )
    run.empty(_ordered(sources, usage, percents, bounds.high, going.strict, fullest_first=True))
    return survey


# High.


def high(args: HighNodeUtilization, evictor: Evictor) -> NodeUtilisation:
    """Runs HighNodeUtilization: evicts the pods of underutilised nodes, so that these nodes can be
    removed. A node is underutilised if, by the requests of its pods, no resource is above its
    threshold. All other nodes that are not cordoned are the destinations. With `only_thresholding`,
    only pods that request a resource with a threshold are evicted.

    Nothing is evicted if all nodes are underutilised, if at most `number_of_nodes` are, or if there
    is no destination. If earlier passes are remembered (`Memory`), a node is emptied only after
    enough passes in a row found it underutilised.

    Returns which nodes were found under- or overutilised; the evictions are recorded by `evictor`.
    """
    going = evictor.going
    usage = measure.requested(going.cluster, args.thresholds)
    bounds = Bounds(dict(args.thresholds), dict.fromkeys(args.thresholds, WHOLE))
    percents = {node.name: usage.percents(node.name) for node in going.cluster.nodes}
    under = [n for n in going.cluster.nodes if measure.underused(percents[n.name], bounds.low)]
    names = {n.name for n in under}
    rest = [n for n in going.cluster.nodes if n.name not in names and not n.unschedulable]
    survey = _surveyed(evictor, percents, bounds, under, rest)
    sources = _steady(evictor, under)
    if not _worth_it(going.cluster.nodes, under, args.number_of_nodes) or not rest or not sources:
        return survey
    run = _balancing(evictor, usage, {}, rest, args.excluded)
    run.why = lambda node: (
        f"{_said(percents[node], bounds.low, bounds.low)} on {node}, which could be empty"
    )
    if args.only_thresholding:
        run.wanted = lambda pod: any(name in pod.requirements.requests for name in args.thresholds)
    run.empty(_ordered(sources, usage, percents, bounds.low, going.strict, fullest_first=False))
    return survey


# What both do.


def _surveyed(
    evictor: Evictor, percents: dict[str, Percents], bounds: Bounds, a: list[Node], b: list[Node]
) -> NodeUtilisation:
    return NodeUtilisation(
        evictor.strategy, percents, bounds, tuple(n.name for n in a), tuple(n.name for n in b)
    )


def _steady(evictor: Evictor, nodes: list[Node]) -> list[Node]:
    """Returns the nodes that were also found in enough earlier passes in a row (`Memory.steadily`);
    all nodes without a memory."""
    memory = evictor.going.memory
    if memory is None:
        return nodes
    steady = set(memory.steadily(evictor.profile, evictor.strategy, [node.name for node in nodes]))
    return [node for node in nodes if node.name in steady]


def _worth_it(nodes: list[Node], under: list[Node], more_than: int) -> bool:
    return bool(under) and len(under) > more_than and len(under) < len(nodes)


def _having(
    nodes: list[Node], thresholds: dict[str, float], usage: NodesUsage, strict: bool
) -> list[Node]:
    """Returns the nodes that have all resources named by the thresholds. With `strict` all nodes:
    the descheduler counts a missing resource as unused."""
    if strict:
        return nodes
    return [node for node in nodes if all(name in usage.used[node.name] for name in thresholds)]


def _balancing(
    evictor: Evictor,
    usage: NodesUsage,
    targets: Percents,
    destinations: list[Node],
    excluded: tuple[str, ...],
) -> Balancing:
    caps = {
        name: {
            r: cap(size, targets.get(r, WHOLE)) for r, size in usage.size[name].items() if r in used
        }
        for name, used in usage.used.items()
    }
    resources = dict.fromkeys(r for node in destinations for r in caps[node.name])
    resources.update(dict.fromkeys(targets))
    room = {
        r: sum(caps[n.name].get(r, 0) - usage.used[n.name].get(r, 0) for n in destinations)
        for r in resources
    }
    return Balancing(
        evictor,
        usage,
        {name: dict(used) for name, used in usage.used.items()},
        caps,
        room,
        destinations,
        excluded,
        None,
        lambda node: True,
        lambda pod: True,
        lambda pod: True,
        lambda node: "",
    )


def _ordered(
    nodes: list[Node],
    usage: NodesUsage,
    percents: dict[str, Percents],
    by: Percents,
    strict: bool,
    fullest_first: bool,
) -> list[Node]:
    def fullness(node: Node) -> float:
        if strict:
            return sum(usage.used[node.name].values())
        return max(percents[node.name].get(name, 0.0) - bound for name, bound in by.items())

    return sorted(nodes, key=fullness, reverse=fullest_first)


def _said(percents: Percents, by: Percents, names: dict[str, float]) -> str:
    """Returns the utilisation of each named resource and its bound as text: `cpu 87.5 % (50 %)`."""
    return ", ".join(f"{name} {percents.get(name, 0.0):.4g} % ({by[name]:.4g} %)" for name in names)
