"""TaintToleration: a taint that the pod does not tolerate makes the rule refuse the node, or lowers
the node's score. [kube-scheduler]

Taints with the effects NoSchedule and NoExecute are a filter. PreferNoSchedule is a score: the
fewer such taints the pod does not tolerate, the higher.

In arrays every distinct set of taints is evaluated once. There, different from kube-scheduler and
from `filter`, a NoExecute toleration of zero seconds tolerates nothing, because the replica would
have to leave at once. kube-scheduler would place the pod, and the taint controller would evict it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wharfinger.domain.node import Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import Taint, Toleration, first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.formulas import normalised_reverse
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable
from wharfinger.engine.nodes.columns import Column
from wharfinger.engine.nodes.counterfactual import RefusedNode
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.verdicts import NodeVerdict, RefusedNodes
from wharfinger.rules.changes import Change, ChangeSet, tolerating, toleration


def sentence(taint: Taint) -> str:
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"


def sentences(refused: RefusedNodes) -> Counter[str]:
    """Return message -> number of nodes, for the nodes that are refused because of a taint. Each
    node is counted once, for its first taint that the pod does not tolerate; the message names this
    taint. `refused`: the refused nodes with their taints, as arrays."""
    table, tolerations = refused.table, refused.cls.requirements.tolerations
    found: Counter[str] = Counter()
    for code, count in enumerate(np.bincount(table.taint_code[refused.slots]).tolist()):
        if count:
            found[
                sentence(
                    next(t for t in table.taint_sets[code] if not tolerates((t,), tolerations))
                )
            ] += count
    return found


UNTOLERATED = NodeVerdict("TaintToleration", words=sentences)


class TaintToleration:
    name = "TaintToleration"
    reason: NodeReason = "TaintToleration"
    verdicts = (UNTOLERATED,)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        taint = first_untolerated(
            node.node.taints, pod.requirements.tolerations, ("NoSchedule", "NoExecute")
        )
        return None if taint is None else unresolvable(sentence(taint))

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        """Store the tolerations that can apply to PreferNoSchedule taints."""
        cycle.data[self.name] = _of_preferences(pod.requirements.tolerations)

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """Return the raw score: the number of PreferNoSchedule taints that the pod does not
        tolerate."""
        return unwanted(node.node.taints, cycle.data[self.name])

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        highest = max(scores.values(), default=0)
        return {node: normalised_reverse(score, highest) for node, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/taint")

    # The array form.

    def form(self) -> FactColumn:
        return FactColumn(self.refuses, self.scores, "against")

    def refuses(self, asked: Requirements, facts: NodeFacts) -> Iterable[tuple[Bools, NodeVerdict]]:
        yield ~facts.taints(lambda taints: tolerates(taints, asked.tolerations)), UNTOLERATED

    def scores(self, asked: Requirements, facts: NodeFacts) -> Column | None:
        tolerations = _of_preferences(asked.tolerations)
        return facts.taint_scores(lambda taints: unwanted(taints, tolerations))

    # What would undo a refusal.

    def undo(self, refused: RefusedNode) -> ChangeSet | None:
        """Return the tolerations to add to the pod so that it tolerates all taints of the node: one
        for each taint that it does not tolerate now. Empty: none is needed.
        The pod may have a toleration of zero seconds that matches one of these taints; the new
        toleration then replaces the old one. None: without the old toleration, the pod
        would not tolerate another taint of the node."""
        taints, tolerations = refused.taints, refused.asked.tolerations
        changes: list[Change] = []
        for taint in taints:
            if not tolerates((taint,), tolerations):
                tolerations = (
                    *[t for t in tolerations if not t.tolerates(taint)],
                    tolerating(taint),
                )
                changes.append(toleration(taint))
        return tuple(changes) if tolerates(taints, tolerations) else None


def tolerates(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Return whether a pod with these tolerations tolerates all the taints. PreferNoSchedule taints
    are ignored. A NoExecute taint is not tolerated if any toleration that matches the taint has a
    time limit of zero seconds (or less), because the pod would be evicted at once."""
    for taint in taints:
        if taint.effect == "PreferNoSchedule":
            continue
        matching = [t for t in tolerations if t.tolerates(taint)]
        if not matching:
            return False
        if taint.effect == "NoExecute" and any(
            t.seconds is not None and t.seconds <= 0 for t in matching
        ):
            return False
    return True


def unwanted(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int:
    return sum(
        t.effect == "PreferNoSchedule" and not any(o.tolerates(t) for o in tolerations)
        for t in taints
    )


def _of_preferences(tolerations: Iterable[Toleration]) -> list[Toleration]:
    return [t for t in tolerations if t.effect in ("", "PreferNoSchedule")]
