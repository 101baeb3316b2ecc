"""CraneWatermarks (ours): crane's load limits applied to pods that already run, with a high and a
low watermark (hysteresis).

crane keeps new pods off a node whose measured load exceeds a limit, and leaves running pods alone.
Here a node that was above a high watermark for several measurements in a row is relieved, one pod
at a time, until its load is at the low watermark. Each step waits for a measurement taken after the
step before, because only that shows the effect of the move.

The load of a single pod is not measured. It is estimated as the node's load times the pod's share
of the requests on the node. Example: load 80 %, the pod has 10 % of the requests: 8 %. A pod moves
only to a node whose load, with that estimate, stays at or below the low watermark of every metric.
Between the two watermarks a node neither gives nor takes pods. A node with a missing or outdated
metric is frozen: no pod leaves it or comes to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.descheduling import CraneWatermarks, Watermark
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.sorting import least_important_first
from wharfinger.engine.descheduling.steadiness import Key, Memory
from wharfinger.engine.descheduling.usage import UsageUnknownError
from wharfinger.engine.descheduling.violations import concerned
from wharfinger.engine.load.node_loads import WHOLE, LoadBook

LOW_TENTHS = 9
"""The low watermark in tenths of the limit, where only the load policy gives limits."""


def resource(metric: str) -> str:
    """Returns the resource that a metric measures, by crane's naming (`mem_usage_avg_5m`): memory
    if the name contains "mem", else cpu."""
    return "memory" if "mem" in metric else "cpu"


def marks_of(args: CraneWatermarks, book: LoadBook) -> tuple[Watermark, ...]:
    """Returns the watermarks of the strategy. Without any, they are derived from the limits of the
    load policy: high is the limit, low is 9/10 of it."""
    if args.watermarks:
        return args.watermarks
    return tuple(
        Watermark(limit.metric, limit.limit, limit.limit * LOW_TENTHS // 10)
        for limit in book.policy.limits
        if limit.limit > 0
    )


@dataclass(slots=True)
class Relief:
    """Tracks the estimated loads of the nodes while CraneWatermarks chooses pods to move. Frozen
    nodes are left out.

    `loads`: node -> metric -> load in 1/100,000 of the node's capacity, updated after each move.
    `requests`: node -> resource -> sum of the requests of its pods. `measured`: (node, metric) ->
    time of the newest measurement. `cold`: the nodes that may receive pods.
    """

    evictor: Evictor
    marks: tuple[Watermark, ...]
    loads: dict[str, dict[str, int]]
    requests: dict[str, dict[str, int]]
    measured: dict[tuple[str, str], int]
    cold: list[Node] = field(default_factory=list)

    def too_high(self, node: str) -> Watermark | None:
        return next((m for m in self.marks if self.loads[node][m.metric] > m.high), None)

    def above_low(self, node: str) -> Watermark | None:
        return next((m for m in self.marks if self.loads[node][m.metric] > m.low), None)

    def share(self, pod: Pod, metric: str) -> int:
        """Returns the estimated load of the pod in 1/100,000 of its node's capacity: the node's
        load times the pod's part of all requests on the node. If no pod of the node requests the
        resource, all pods have equal parts."""
        name = resource(metric)
        whole = self.requests[pod.node].get(name, 0)
        asked = self.evictor.going.cluster.requests[pod.uid].get(name, 0)
        if not whole:  # no pod requests any: equal shares
            whole, asked = len(self.evictor.going.cluster.running[pod.node]), 1
        return self.loads[pod.node][metric] * asked // whole

    def with_it(
        self, node: Node, pod: Pod, metric: str, sizes: Mapping[str, Mapping[str, int]]
    ) -> int:
        """Returns the load of `node` with the pod on it, in 1/100,000 of the node's capacity. The
        pod's estimated load is converted by the ratio of both nodes' capacities. `sizes`: node ->
        resource -> allocatable amount."""
        name = resource(metric)
        mine, others = sizes[pod.node].get(name, 0), sizes[node.name].get(name, 0)
        carried = self.share(pod, metric) * mine // others if others else WHOLE
        return self.loads[node.name][metric] + carried


def relieve(args: CraneWatermarks, evictor: Evictor) -> tuple[str, ...]:
    """Runs CraneWatermarks: evicts pods from each node that has to be relieved, until the load of
    the node, minus the estimated load of the evicted pods, is at or below the low watermark of
    every metric. A watermark is a limit of measured load. A node has to be relieved if its load is
    above a high watermark. If earlier measurements are remembered (`Memory`), several measurements
    in a row must have been above the high watermark.

    Returns the names of the nodes for which the load of some metric is not known; no pod leaves or
    enters these nodes. Raises UsageUnknownError if the cluster has no load measurements, or there
    are no watermarks.
    """
    book = evictor.going.cluster.view.load
    if book is None:
        raise UsageUnknownError("nothing is measured in this cluster")
    marks = marks_of(args, book)
    if not marks:
        raise UsageUnknownError("there are no watermarks, and the load policy has no limits")
    relief, held = _looked(evictor, marks, book)
    for node in _hot(args, relief):
        if _relieve_one(args, relief, node) is EvictionResult.TOTAL_LIMIT:
            break
    return held


def _looked(
    evictor: Evictor, marks: tuple[Watermark, ...], book: LoadBook
) -> tuple[Relief, tuple[str, ...]]:
    cluster = evictor.going.cluster
    loads: dict[str, dict[str, int]] = {}
    requests: dict[str, dict[str, int]] = {}
    measured: dict[tuple[str, str], int] = {}
    held: list[str] = []
    for node in cluster.nodes:
        known = {m.metric: book.load(m.metric, node.name, cluster.view.at) for m in marks}
        there = {metric: load for metric, load in known.items() if load is not None}
        if len(there) < len(known):
            held.append(node.name)
            _forget(evictor, marks, node.name)
            continue
        loads[node.name] = there
        for metric in there:
            measured[node.name, metric] = _when(book, metric, node.name)
        total: dict[str, int] = {}
        for pod in cluster.running[node.name]:
            for name, amount in cluster.requests[pod.uid].items():
                total[name] = total.get(name, 0) + amount
        requests[node.name] = total
    relief = Relief(evictor, marks, loads, requests, measured)
    relief.cold = [
        n
        for n in cluster.nodes
        if n.name in loads and not n.unschedulable and relief.above_low(n.name) is None
    ]
    return relief, tuple(held)


def _when(book: LoadBook, metric: str, node: str) -> int:
    """Returns the time of the newest measurement of the metric on the node, in microseconds; 0 if
    there is none."""
    told = book.measured.get(metric)
    own = book.written.get(node)
    times = [told.measured_at_us] if told is not None and node in told.loads else []
    if own is not None and metric in own.loads:
        times.append(own.loads[metric][1])
    return max(times, default=0)


def _key(evictor: Evictor, metric: str, node: str) -> Key:
    return evictor.profile, evictor.strategy, metric, node


def _forget(evictor: Evictor, marks: tuple[Watermark, ...], node: str) -> None:
    if evictor.going.memory is not None:
        for mark in marks:
            evictor.going.memory.forget(_key(evictor, mark.metric, node))


def _hot(args: CraneWatermarks, relief: Relief) -> list[Node]:
    """Returns the nodes that have to be relieved of pods, the node furthest above a high watermark
    (an upper limit of measured load) first. Nodes with a metric that is not known are left out.

    If earlier measurements are not remembered (`Memory`), these are all nodes above a high
    watermark now. Otherwise these are the nodes that were above it for `args.samples` measurements
    in a row, have not been at or below the low watermark since, and were measured after their last
    relief.

    Example: the high watermark is 80%. Nodes a, b with 85% and 90% give b, a.
    """
    evictor = relief.evictor
    memory = evictor.going.memory
    nodes = [n for n in evictor.going.cluster.nodes if n.name in relief.loads]
    if memory is None:
        found = [n for n in nodes if relief.too_high(n.name) is not None]
    else:
        found = [n for n in nodes if _to_be_relieved(args, relief, memory, n.name)]
    return sorted(
        found, key=lambda n: -max(relief.loads[n.name][m.metric] - m.high for m in relief.marks)
    )


def _to_be_relieved(args: CraneWatermarks, relief: Relief, memory: Memory, node: str) -> bool:
    """Records the newest measurements of a node in the memory and returns whether the node has to
    be relieved. Each metric is counted separately. A measurement taken before the last relief of
    the node is no reason for another relief."""
    hot = False
    for mark in relief.marks:
        load, when = relief.loads[node][mark.metric], relief.measured[node, mark.metric]
        key = _key(relief.evictor, mark.metric, node)
        if memory.sample(key, when, load > mark.high, load <= mark.low, args.samples):
            hot = hot or when > memory.relieved.get(node, -1)
    return hot


def _relieve_one(args: CraneWatermarks, relief: Relief, node: Node) -> EvictionResult:
    evictor = relief.evictor
    going = evictor.going
    pods = [p for p in concerned(going.cluster.on(node), args.namespaces, None) if evictor.may(p)]
    evicted = 0
    for pod in least_important_first(pods, going.strict):
        mark = relief.above_low(node.name)
        if mark is None or (args.per_node is not None and evicted >= args.per_node):
            break
        row = _coolest(relief, pod)
        if row is None:
            continue
        answer = evictor.evict(pod, _why(relief, node, mark), target=row)
        if answer in (EvictionResult.NODE_LIMIT, EvictionResult.TOTAL_LIMIT):
            return answer
        if answer is EvictionResult.EVICTED:
            evicted += 1
            _carry(relief, pod, going.fit.nodes[row])
            if going.memory is not None:
                going.memory.relieved[node.name] = going.cluster.view.at
    return EvictionResult.STAYS


def _coolest(relief: Relief, pod: Pod) -> int | None:
    """Chooses the destination for a pod: the node whose load stays furthest below its low
    watermarks with the pod on it (max-min over the metrics); the first listed among equals. Returns
    its row; None if every node would exceed a low watermark."""
    fit = relief.evictor.going.fit
    mask = relief.evictor.places(pod, fit.rows(n.name for n in relief.cold))
    best: tuple[int, int] | None = None
    for row in mask.nonzero()[0].tolist():
        rest = min(m.low - _then(relief, fit.nodes[row], pod, m.metric) for m in relief.marks)
        if rest >= 0 and (best is None or rest > best[0]):
            best = (rest, row)
    return None if best is None else best[1]


def _then(relief: Relief, node: Node, pod: Pod, metric: str) -> int:
    fit = relief.evictor.going.fit
    sizes = {n.name: n.allocatable for n in (node, fit.nodes[fit.position[pod.node]])}
    return relief.with_it(node, pod, metric, sizes)


def _carry(relief: Relief, pod: Pod, to: Node) -> None:
    """Moves the pod's estimated load from its node to `to`, so that the next pod of this pass is
    judged with the new loads."""
    for mark in relief.marks:
        metric = mark.metric
        after = _then(relief, to, pod, metric)
        relief.loads[pod.node][metric] -= relief.share(pod, metric)
        relief.loads[to.name][metric] = after


def _why(relief: Relief, node: Node, mark: Watermark) -> str:
    load = relief.loads[node.name][mark.metric]
    return (
        f"{mark.metric} of {node.name} is {load / 1000:.4g} %, "
        f"beyond {mark.high / 1000:.4g} % and not yet down to {mark.low / 1000:.4g} %"
    )
