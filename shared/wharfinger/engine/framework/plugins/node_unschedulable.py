"""NodeUnschedulable: cordoned nodes take no pods, but those that tolerate the taint by which a node controller says the same."""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import Taint
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable

CORDONED = Taint("node.kubernetes.io/unschedulable", "NoSchedule")

REASON = "node(s) were unschedulable"


class NodeUnschedulable:
    name = "NodeUnschedulable"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if not node.node.unschedulable or any(t.tolerates(CORDONED) for t in pod.requirements.tolerations):
            return None
        return unresolvable(REASON)

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/taint")
