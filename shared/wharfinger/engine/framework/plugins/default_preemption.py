"""DefaultPreemption: where no node is feasible for a pod, finds the node on which eviction costs
least (`preemption`).

The result is a nomination: the caller evicts the victims and tries the pod again.
"""

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

    def post_filter(
        self, cycle: Cycle, pod: Pod, refused: Mapping[str, Status]
    ) -> Nominated | Status:
        found = find(cycle, pod, refused, self._arguments)
        if found.chosen is None:
            return unschedulable(f"preemption: {found.text}")
        return Nominated(found.chosen.node, found.chosen.victims)

    def hints(self) -> tuple[Hint, ...]:
        """Return the event after which the pod is tried again: the removal of a pod, such as a
        victim."""
        return (Hint("pod/remove"),)
