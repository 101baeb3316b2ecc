"""PrioritySort: the higher priority goes first, then who came first. [kube-scheduler]"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments


class PrioritySort:
    name = "PrioritySort"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def order(self, pod: Pod, queued_at_us: int) -> tuple[int, int, str]:
        """By uid where all else is equal, so that the order is one."""
        return -pod.priority, queued_at_us, pod.uid
