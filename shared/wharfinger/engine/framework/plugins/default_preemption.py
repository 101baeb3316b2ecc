"""DefaultPreemption: where a pod fits nowhere, the node on which the least has to go for it. How is told in `preemption`.

What it finds is a nomination: the victims are evicted by whoever runs the cycle, and the pod is tried again."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.preemption import find
from wharfinger.engine.framework.protocols import Cycle, Hint, Nominated
from wharfinger.engine.framework.status import Status, unschedulable


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments.preemption

    def post_filter(self, cycle: Cycle, pod: Pod, refused: Mapping[str, Status]) -> Nominated | Status:
        found = find(cycle, pod, refused, self._arguments)
        if found.chosen is None:
            return unschedulable(f"preemption: {found.text}")
        return Nominated(found.chosen.node, found.chosen.victims)

    def hints(self) -> tuple[Hint, ...]:
        """When a victim has gone."""
        return (Hint("pod/remove"),)
