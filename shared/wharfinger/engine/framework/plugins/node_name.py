"""NodeName: a pod that names its node goes there or nowhere."""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable

REASON = "node(s) didn't match the requested node name"


class NodeName:
    name = "NodeName"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        wanted = pod.requirements.traits.node_name
        return None if wanted in ("", node.name) else unresolvable(REASON)

    def hints(self) -> tuple[Hint, ...]:
        return (Hint("node/add"),)
