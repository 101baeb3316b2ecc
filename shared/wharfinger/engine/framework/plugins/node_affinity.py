"""NodeAffinity: the nodes that the pod's node selector and required terms name, and of these rather the ones it prefers.

A profile can add terms of its own to every pod: what it requires is asked first and told apart, what it prefers counts as the pod's
preferences do. Where each of the pod's alternatives names nodes, only those need be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import WeightedNodeTerm
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.selectors import NodeTerm
from wharfinger.engine.framework.formulas import normalised
from wharfinger.engine.framework.protocols import Cycle, Hint, Narrowed
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable

REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"

NODE_NAME_FIELD = "metadata.name"


class NodeAffinity:
    name = "NodeAffinity"

    def __init__(self, arguments: Arguments) -> None:
        self._added = arguments.node_affinity

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | Narrowed | None:
        asked = pod.requirements
        if not asked.node_terms and not asked.node_selector and self._added.required is None:
            return SKIP
        named = narrowed(asked.node_terms)
        if named is None:
            return None
        return Narrowed(named) if named else unresolvable(REASON_CONFLICT)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if self._added.required is not None and not _any_matches(self._added.required, node.node):
            return unresolvable(REASON_ADDED)
        return None if selects(pod, node.node) else unresolvable(REASON)

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        preferred = (*self._added.preferred, *pod.requirements.traits.preferences)
        cycle.data[self.name] = preferred
        return None if preferred else SKIP

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """The sum of the weights of the preferences that the node meets."""
        preferred: Iterable[WeightedNodeTerm] = cycle.data[self.name]
        return sum(p.weight for p in preferred if p.term.matches(node.node.labels, node.name))

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        highest = max(scores.values(), default=0)
        return {node: normalised(score, highest) for node, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/label", _now_selected)


def selects(pod: Pod, node: Node) -> bool:
    """Whether the pod's own claims, node selector and required terms, allow the node."""
    asked = pod.requirements
    if any(node.labels.get(key) != value for key, value in asked.node_selector.items()):
        return False
    return not asked.node_terms or _any_matches(asked.node_terms, node)


def _any_matches(terms: Iterable[NodeTerm], node: Node) -> bool:
    return any(term.matches(node.labels, node.name) for term in terms)


def narrowed(terms: Sequence[NodeTerm]) -> frozenset[str] | None:
    """The names that the terms allow; None: one of them names none, so that any node may do. Empty: they contradict
    each other."""
    allowed: set[str] = set()
    for term in terms:
        names: set[str] | None = None
        for field in term.fields:
            if field.key == NODE_NAME_FIELD and field.operator == "In":
                names = set(field.values) if names is None else names & set(field.values)
        if names is None:
            return None
        allowed |= names
    return frozenset(allowed) if terms else None


def _now_selected(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(new, Node) or selects(pod, new)
