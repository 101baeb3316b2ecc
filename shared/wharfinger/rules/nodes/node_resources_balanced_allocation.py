"""NodeResourcesBalancedAllocation: scores a node higher where cpu and memory are used in equal
shares with the pod on the node, so that neither is left over. [kube-scheduler]

It uses the real requests, without the default requests that other scores assume. A pod without
requests gets no scores. The profile selects one of two formulas: how balanced the node is with the
pod, or, as since Kubernetes 1.36, by how much the pod changes the balance.

Example: with the pod, 50 % of cpu and 30 % of memory are requested. The standard deviation of the
two shares is 0.1, so the score is 90.

In arrays each resource is a row: column of the table and requested amount
(`engine.nodes.resources`).
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
from wharfinger.engine.nodes.forms import AmountBalance


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
        whole = [
            self._allocatable(name, amount, node)
            for name, amount in zip(self._resources, asked, strict=True)
        ]
        before = [node.requested.get(name, 0) for name in self._resources]
        after = [used + amount for used, amount in zip(before, asked, strict=True)]
        score = balanced(after, whole)
        return balance_change(score, balanced(before, whole)) if self._by_change else score

    def form(self) -> AmountBalance:
        return AmountBalance(self._resources, self._by_change)

    def _allocatable(self, name: str, asked: int, node: NodeInfo) -> int:
        """Return the node's allocatable amount of the resource, or 0, which leaves the resource out
        of the score. Left out are `pods`, resources that nodes do not have, and extended resources
        that the pod does not request. `asked`: the pod's request."""
        if name == "pods" or not is_of_nodes(name):
            return 0
        if not asked and name not in ("cpu", "memory", "ephemeral-storage"):
            return 0
        return node.allocatable.get(name, 0)
