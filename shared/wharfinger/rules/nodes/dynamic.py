"""Dynamic (crane-scheduler): refuses a node whose measured load is too high; of the other nodes the
less loaded ones score higher.

Without measurements, or without a policy that says which metrics count, it passes every node and
has no scores. Pods of a DaemonSet pass the filter under any load of their node. The formulas are
in `engine.load.node_loads`.

crane returns `Unschedulable`, so a scheduler tries preemption, which cannot help: the node's load
stays as measured until the next measurement. Here no preemption is tried, unless the arguments
request crane's behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.load.node_loads import LOAD_UNKNOWN, PASSES
from wharfinger.engine.nodes.forms import LoadColumn
from wharfinger.engine.nodes.verdicts import NodeVerdict, RefusedNodes

EXEMPT_OWNER = "DaemonSet"


def sentences(refused: RefusedNodes) -> dict[str, int]:
    """Return message -> number of nodes, for the nodes that are refused because of their measured
    load. crane's message contains the name of the node, so there is one message for each node, with
    the number 1. Example: "Load[cpu_usage_avg_5m] of node[n1] is too high" -> 1. `refused`: the
    refused nodes with their loads, as arrays."""
    loads = refused.loads
    assert loads is not None, "without measured load no node is refused for it"
    found: dict[str, int] = {}
    for slot in refused.slots.tolist():
        row = refused.table.by_slot[slot]
        assert row is not None, "a slot without a node is not refused"
        metric = loads.metrics[int(loads.metric[slot])]
        unknown = int(loads.verdict[slot]) == LOAD_UNKNOWN
        found[f"Load[{metric}] of node[{row.name}] is {'unknown' if unknown else 'too high'}"] = 1
    return found


LOADED = NodeVerdict("LoadTooHigh", words=sentences)


class Dynamic:
    name = "Dynamic"
    reason: NodeReason = "LoadTooHigh"
    verdicts = (LOADED,)

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments.dynamic

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        if cycle.snapshot.load is None or not cycle.snapshot.load.book.named:
            return SKIP
        return SKIP if exempt(pod.requirements.traits) else None

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        load = cycle.snapshot.load
        assert load is not None, "without load the filter is skipped"
        verdict = load.judge(node.name, self._arguments, average=0)  # no score is asked for
        if verdict.verdict == PASSES:
            return None
        message = verdict.message(node.name)
        return unschedulable(message) if self._arguments.stale == "crane" else unresolvable(message)

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        load = cycle.snapshot.load
        if load is None or load.book.idle:
            return SKIP
        cycle.data[self.name] = load.book.average_load(load.now)
        return None

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        load = cycle.snapshot.load
        assert load is not None, "without load the score is skipped"
        return load.judge(node.name, self._arguments, cycle.data[self.name]).score

    def hints(self) -> tuple[Hint, ...]:
        return Hint("load"), Hint("node/add")

    def form(self) -> LoadColumn:
        return LoadColumn(LOADED, exempt)


def exempt(traits: PodTraits) -> bool:
    return traits.owner == EXEMPT_OWNER
