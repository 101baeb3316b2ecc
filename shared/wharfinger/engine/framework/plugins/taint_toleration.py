"""TaintToleration: a taint that the pod does not tolerate keeps it away (NoSchedule, NoExecute), or makes the node less wanted
(PreferNoSchedule): the fewer of those, the better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import first_untolerated
from wharfinger.engine.framework.formulas import normalised_reverse
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable


class TaintToleration:
    name = "TaintToleration"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        taint = first_untolerated(node.node.taints, pod.requirements.tolerations, ("NoSchedule", "NoExecute"))
        if taint is None:
            return None
        return unresolvable(f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}")

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        """The tolerations that speak of preferences at all."""
        cycle.data[self.name] = [t for t in pod.requirements.tolerations if t.effect in ("", "PreferNoSchedule")]

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        tolerations = cycle.data[self.name]
        return sum(
            taint.effect == "PreferNoSchedule" and not any(t.tolerates(taint) for t in tolerations)
            for taint in node.node.taints
        )

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        highest = max(scores.values(), default=0)
        return {node: normalised_reverse(score, highest) for node, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/taint")
