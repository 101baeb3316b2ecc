"""PrioritySort: orders the queue by priority, highest first, then by arrival (first in, first out).
[kube-scheduler]"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments


class PrioritySort:
    name = "PrioritySort"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def order(self, pod: Pod, queued_at_us: int) -> tuple[int, int, str]:
        """Return the pod's sort key in the queue. Ties are broken by uid, so that the order is
        total."""
        return -pod.priority, queued_at_us, pod.uid
