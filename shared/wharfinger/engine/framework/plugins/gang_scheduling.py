"""GangScheduling: the permit plugin of pod groups. A pod waits at permit until at least `min_count`
pods of its group have a node. [kube-scheduler]

All pods on nodes in the snapshot count, including those that wait at permit themselves.
"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.gang import WAIT_S, group_of
from wharfinger.engine.framework.protocols import Cycle, Hint, WaitFor
from wharfinger.engine.framework.status import Status


class GangScheduling:
    name = "GangScheduling"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def permit(self, cycle: Cycle, pod: Pod, node: str) -> Status | WaitFor | None:
        group = group_of(pod)
        if group is None:
            return None
        placed = {
            other.uid
            for info in cycle.snapshot.nodes.values()
            for other in info.pods
            if group_of(other) == group
        }
        whole = len(placed | {pod.uid}) >= pod.requirements.traits.min_count
        return None if whole else WaitFor(WAIT_S)

    def hints(self) -> tuple[Hint, ...]:
        """Return the events after which the pod is tried again: another pod of its group was added,
        or the group changed."""
        return Hint("pod/add", _of_its_group), Hint("group")


def _of_its_group(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is None or (group_of(new) is not None and group_of(new) == group_of(pod))
