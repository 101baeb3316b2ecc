"""NodeResourcesBalancedAllocation: rather where the pod leaves cpu and memory taken in equal shares, so that neither is stranded.

It goes by what is really requested, without stand-ins, and has nothing to say about a pod that requests none of it. Which of two
formulas counts is the profile's business: how balanced the node is with the pod, or, as since Kubernetes 1.36, how much the pod
changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.formulas import balance_change, balanced
from wharfinger.engine.framework.protocols import Cycle
from wharfinger.engine.framework.snapshot import NodeInfo, requested
from wharfinger.engine.framework.status import SKIP, Status


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"

    def __init__(self, arguments: Arguments) -> None:
        self._resources = tuple(resource.name for resource in arguments.balanced.resources)
        self._by_change = arguments.balanced.by_change

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        taken = requested(pod.requirements)
        asked = [taken.get(name, 0) if name != "pods" else 0 for name in self._resources]
        cycle.data[self.name] = asked
        return None if any(asked) else SKIP

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        asked: list[int] = cycle.data[self.name]
        whole = [self._allocatable(name, amount, node) for name, amount in zip(self._resources, asked, strict=True)]
        before = [node.requested.get(name, 0) for name in self._resources]
        after = [used + amount for used, amount in zip(before, asked, strict=True)]
        score = balanced(after, whole)
        return balance_change(score, balanced(before, whole)) if self._by_change else score

    def _allocatable(self, name: str, asked: int, node: NodeInfo) -> int:
        """0: the resource is left out: the node has none, or it is beyond the common ones and the pod does not ask for it."""
        if name == "pods" or not is_of_nodes(name):
            return 0
        if not asked and name not in ("cpu", "memory", "ephemeral-storage"):
            return 0
        return node.allocatable.get(name, 0)
