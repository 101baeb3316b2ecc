"""CraneWatermarks: crane's limits as a reason to move what is on a node already.

crane keeps new pods off a node whose measured load is beyond a limit, and leaves those that are there. Here a node
that was beyond a high mark for several measurements in a row is relieved, one pod at a time, until its load is at the
low mark; each step waits for a measurement that was taken after the one before, since nothing shows what a move has
done until then.

How much of the load is a pod's nobody measures: it is taken to have the part of it that it has of the requests on its
node. A pod goes only to a node whose load, with that, stays at or below the low mark of every metric; between the two
marks nothing is given and nothing taken. A node of which a metric is missing or too old is held: nothing leaves it
and nothing goes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.descheduling import CraneWatermarks, Watermark
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.evictor import Answer, Evictor
from wharfinger.engine.descheduling.sorting import least_important_first
from wharfinger.engine.descheduling.steadiness import Key, Memory
from wharfinger.engine.descheduling.usage import UsageUnknownError
from wharfinger.engine.descheduling.violations import concerned
from wharfinger.engine.load.book import WHOLE, LoadBook

LOW_TENTHS = 9
"""Where only the limits of the load policy are given, the low mark is so many tenths of them."""


def resource(metric: str) -> str:
    """Of which resource a metric is: crane's names say so, as in mem_usage_avg_5m."""
    return "memory" if "mem" in metric else "cpu"


def marks_of(args: CraneWatermarks, book: LoadBook) -> tuple[Watermark, ...]:
    """Those of the strategy, or what follows from the limits of the load policy."""
    if args.watermarks:
        return args.watermarks
    return tuple(
        Watermark(limit.metric, limit.limit, limit.limit * LOW_TENTHS // 10)
        for limit in book.policy.limits
        if limit.limit > 0
    )


@dataclass(slots=True)
class Relief:
    """`loads`: node -> metric -> hundred-thousandths of the whole; a node that is held is not there. `requests`: node
    -> resource -> what its pods request together."""

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
        """What of its node's load the pod takes with it, in hundred-thousandths of the whole of that node."""
        name = resource(metric)
        whole = self.requests[pod.node].get(name, 0)
        asked = self.evictor.going.cluster.requests[pod.uid].get(name, 0)
        if not whole:  # nobody requests anything: all alike
            whole, asked = len(self.evictor.going.cluster.running[pod.node]), 1
        return self.loads[pod.node][metric] * asked // whole

    def with_it(self, node: Node, pod: Pod, metric: str, sizes: Mapping[str, Mapping[str, int]]) -> int:
        """The load of `node` with the pod there."""
        name = resource(metric)
        mine, others = sizes[pod.node].get(name, 0), sizes[node.name].get(name, 0)
        carried = self.share(pod, metric) * mine // others if others else WHOLE
        return self.loads[node.name][metric] + carried


def relieve(args: CraneWatermarks, evictor: Evictor) -> tuple[str, ...]:
    """The nodes that were held, since something of them is not known. Raises UsageUnknownError where nothing is known
    at all."""
    book = evictor.going.cluster.view.load
    if book is None:
        raise UsageUnknownError("nothing is measured in this cluster")
    marks = marks_of(args, book)
    if not marks:
        raise UsageUnknownError("there are no watermarks, and the load policy has no limits")
    relief, held = _looked(evictor, marks, book)
    for node in _hot(args, relief):
        if _relieve_one(args, relief, node) is Answer.TOTAL_LIMIT:
            break
    return held


def _looked(evictor: Evictor, marks: tuple[Watermark, ...], book: LoadBook) -> tuple[Relief, tuple[str, ...]]:
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
        n for n in cluster.nodes if n.name in loads and not n.unschedulable and relief.above_low(n.name) is None
    ]
    return relief, tuple(held)


def _when(book: LoadBook, metric: str, node: str) -> int:
    """When the newest measurement was taken."""
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
    """Nodes to be relieved, those furthest above a high mark first. Without a memory those that are too high now."""
    evictor = relief.evictor
    memory = evictor.going.memory
    nodes = [n for n in evictor.going.cluster.nodes if n.name in relief.loads]
    if memory is None:
        found = [n for n in nodes if relief.too_high(n.name) is not None]
    else:
        found = [n for n in nodes if _to_be_relieved(args, relief, memory, n.name)]
    return sorted(found, key=lambda n: -max(relief.loads[n.name][m.metric] - m.high for m in relief.marks))


def _to_be_relieved(args: CraneWatermarks, relief: Relief, memory: Memory, node: str) -> bool:
    """Every metric is counted by itself; what was measured before the last relief says nothing of it."""
    hot = False
    for mark in relief.marks:
        load, when = relief.loads[node][mark.metric], relief.measured[node, mark.metric]
        key = _key(relief.evictor, mark.metric, node)
        if memory.sample(key, when, load > mark.high, load <= mark.low, args.samples):
            hot = hot or when > memory.relieved.get(node, -1)
    return hot


def _relieve_one(args: CraneWatermarks, relief: Relief, node: Node) -> Answer:
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
        if answer in (Answer.NODE_LIMIT, Answer.TOTAL_LIMIT):
            return answer
        if answer is Answer.EVICTED:
            evicted += 1
            _carry(relief, pod, going.fit.nodes[row])
            if going.memory is not None:
                going.memory.relieved[node.name] = going.cluster.view.at
    return Answer.STAYS


def _coolest(relief: Relief, pod: Pod) -> int | None:
    """The row of the node that stays furthest below its low marks with the pod; None: all would be above."""
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
    """What the pod is taken to weigh goes with it, so that the next pod of this pass is judged after it."""
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
