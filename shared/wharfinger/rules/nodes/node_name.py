"""NodeName: a pod that names its node can run on no other node. [kube-scheduler]

No change of the cluster makes another node feasible, so the rule offers no undo.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable
from wharfinger.engine.nodes.counterfactual import RefusedNode
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.verdicts import NodeVerdict
from wharfinger.rules.changes import ChangeSet

ANOTHER = NodeVerdict("NodeName", "node(s) didn't match the requested node name")


class NodeName:
    name = "NodeName"
    reason: NodeReason = "NodeName"
    verdicts = (ANOTHER,)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = pod.requirements.traits.node_name
        return None if wanted in ("", node.name) else unresolvable(ANOTHER.text)

    def hints(self) -> tuple[Hint, ...]:
        return (Hint("node/add"),)

    def form(self) -> FactColumn:
        return FactColumn(self.refuses)

    def refuses(self, asked: Requirements, facts: NodeFacts) -> Iterable[tuple[Bools, NodeVerdict]]:
        if name := asked.traits.node_name:
            yield ~facts.named((name,)), ANOTHER

    def undo(self, refused: RefusedNode) -> ChangeSet | None:
        return () if refused.asked.traits.node_name in ("", refused.row.name) else None
