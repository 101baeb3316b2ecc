"""NodeUnschedulable: a cordoned node takes no pods, except pods that tolerate the taint
`node.kubernetes.io/unschedulable`. [kube-scheduler]

A node whose removal was decided is *closed*: it takes no pods under any profile. That is a separate
verdict (`engine.nodes.verdicts.CLOSED`), reported with the same message.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable
from wharfinger.engine.nodes.counterfactual import RefusedNode
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.verdicts import CLOSED, NodeVerdict
from wharfinger.rules.changes import Change, ChangeSet

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")

CORDONED = NodeVerdict("Unschedulable", CLOSED.text)


class NodeUnschedulable:
    name = "NodeUnschedulable"
    reason: NodeReason = "Unschedulable"
    verdicts = (CORDONED,)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if not node.node.unschedulable or tolerates_cordon(pod.requirements):
            return None
        return unresolvable(CORDONED.text)

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/taint")

    def form(self) -> FactColumn:
        return FactColumn(self.refuses)

    def refuses(self, asked: Requirements, facts: NodeFacts) -> Iterable[tuple[Bools, NodeVerdict]]:
        if not tolerates_cordon(asked):
            yield facts.cordoned, CORDONED

    def undo(self, refused: RefusedNode) -> ChangeSet | None:
        """Return the change that uncordons the node. Empty: the node is not cordoned, or the pod
        tolerates the cordon and the node is not closed."""
        if not refused.node.unschedulable or (
            tolerates_cordon(refused.asked) and not refused.row.closed
        ):
            return ()
        return (Change("state", refused.row.name, "the node being uncordoned"),)


def tolerates_cordon(asked: Requirements) -> bool:
    return any(t.tolerates(CORDON) for t in asked.tolerations)
