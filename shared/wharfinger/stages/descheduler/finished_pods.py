"""The finished pods of one cluster, as it reports them, and whose removal is already decided.

Only the strategies read them. They are in no occupancy, because they use nothing of their node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.node import Pod
from wharfinger.kernel.decider import Micros


@dataclass(slots=True)
class FinishedPods:
    """Holds the finished pods of a cluster. `by_node`: node -> its finished pods. `removals`: uid
    of a pod whose removal was decided -> until when that stands. It is not proposed again before.
    """

    by_node: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    removals: dict[str, Micros] = field(default_factory=dict)

    def observe(self, node: str, pods: tuple[Pod, ...]) -> None:
        """Replaces the finished pods of a node. The removal of a pod that is gone is done."""
        there = {pod.uid for pod in pods}
        for pod in self.by_node.pop(node, ()):
            if pod.uid not in there:
                self.removals.pop(pod.uid, None)
        if pods:
            self.by_node[node] = pods

    def removal_decided(self, uids: Iterable[str], until: Micros) -> None:
        self.removals.update(dict.fromkeys(uids, until))

    def all(self) -> tuple[Pod, ...]:
        """Returns the finished pods in order of node, each with the name of its node."""
        return tuple([pod for _, pods in sorted(self.by_node.items()) for pod in pods])

    def held(self, at: Micros) -> dict[str, str]:
        """Returns pod uid -> why it may not be named at `at`. Deletes expired removals."""
        self.removals = {uid: until for uid, until in self.removals.items() if until > at}
        return dict.fromkeys(self.removals, "its removal was decided")
