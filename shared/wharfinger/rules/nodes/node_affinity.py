"""NodeAffinity: the node must match the pod's node selector and required terms; the preferred terms
are the score. [kube-scheduler]

A profile can add terms to every pod: its required terms are checked first and reported separately,
its preferred terms count like the pod's. Where every alternative term names nodes, the pre-filter
restricts the search to those nodes. Terms that contradict each other refuse the pod on all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import WeightedNodeTerm
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.formulas import normalised
from wharfinger.engine.framework.messages import narrowed_out
from wharfinger.engine.framework.protocols import Cycle, Hint, Narrowed
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable
from wharfinger.engine.nodes.columns import Column
from wharfinger.engine.nodes.counterfactual import RefusedNode
from wharfinger.engine.nodes.forms import FactColumn
from wharfinger.engine.nodes.node_facts import NODE_NAME_FIELD, Bools, NodeFacts
from wharfinger.engine.nodes.verdicts import NodeVerdict
from wharfinger.rules.changes import Change, ChangeSet, label, satisfying

NARROWED = NodeVerdict("NodeAffinity", narrowed_out(("NodeAffinity",)), before_filters=True)
CONFLICT = NodeVerdict(
    "NodeAffinity", "pod affinity terms conflict", before_filters=True, of_pod=True
)
NOT_ADDED = NodeVerdict("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity")
NOT_ALLOWED = NodeVerdict("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


class NodeAffinity:
    name = "NodeAffinity"
    reason: NodeReason = "NodeAffinity"
    verdicts = (NARROWED, CONFLICT, NOT_ADDED, NOT_ALLOWED)

    def __init__(self, arguments: Arguments) -> None:
        self._added = arguments.node_affinity

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | Narrowed | None:
        asked = pod.requirements
        if not asked.node_terms and not asked.node_selector and self._added.required is None:
            return SKIP
        named = narrowed(asked.node_terms)
        if named is None:
            return None
        return Narrowed(named) if named else unresolvable(CONFLICT.text)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if self._added.required is not None and not _any_matches(self._added.required, node.node):
            return unresolvable(NOT_ADDED.text)
        return (
            None
            if allows(pod.requirements, node.node.labels, node.name)
            else unresolvable(NOT_ALLOWED.text)
        )

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        preferred = (*self._added.preferred, *pod.requirements.traits.preferences)
        cycle.data[self.name] = preferred
        return None if preferred else SKIP

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """Return the sum of the weights of the preferred terms that the node matches."""
        preferred: Iterable[WeightedNodeTerm] = cycle.data[self.name]
        return sum(p.weight for p in preferred if p.term.matches(node.node.labels, node.name))

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        highest = max(scores.values(), default=0)
        return {node: normalised(score, highest) for node, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        return Hint("node/add"), Hint("node/label", _now_allowed)

    # The array form.

    def form(self) -> FactColumn:
        return FactColumn(self.refuses, self.scores, "toward")

    def refuses(self, asked: Requirements, facts: NodeFacts) -> Iterable[tuple[Bools, NodeVerdict]]:
        if self._added.required is not None:
            yield ~facts.meets_any(self._added.required), NOT_ADDED
        yield ~facts.allowed(asked), NOT_ALLOWED
        names = narrowed(asked.node_terms)
        if names is not None:
            yield ~facts.named(names), NARROWED if names else CONFLICT

    def scores(self, asked: Requirements, facts: NodeFacts) -> Column | None:
        preferred = (*self._added.preferred, *asked.traits.preferences)
        if not preferred:
            return None
        raw = np.zeros(facts.size, dtype=np.int64)
        for preference in preferred:
            raw += preference.weight * facts.meets_any((preference.term,))
        return raw if raw.any() else None

    # What would undo a refusal.

    def undo(self, refused: RefusedNode) -> ChangeSet | None:
        """Return the label changes of the node with which the pod's node selector and required node
        affinity would allow it. These are the labels that the node selector requires and the node
        does not have, and the changes for one required term: the term that needs the fewest
        changes.
        Empty: the node is allowed without changes. None: label changes are not sufficient, for
        example because every term requires another node name."""
        asked, row = refused.asked, refused.row
        if allows(asked, row.labels, row.name):
            return ()
        changes = [
            label(k, v) for k, v in sorted(asked.node_selector.items()) if row.labels.get(k) != v
        ]
        labels: dict[str, str] = {**row.labels, **asked.node_selector}
        best: tuple[int, list[Change], dict[str, str]] | None = None
        for term in asked.node_terms:
            found = _satisfied(term, labels, row.name)
            if found is not None and (best is None or len(found[0]) < best[0]):
                best = (len(found[0]), *found)
        if best is not None:
            changes, labels = changes + best[1], best[2]
        return tuple(changes) if allows(asked, labels, row.name) else None


def allows(asked: Requirements, labels: Mapping[str, str], name: str) -> bool:
    """Return whether the pod's node selector and required terms allow a node with this name and
    these labels. The terms that a profile adds are not checked."""
    if any(labels.get(key) != value for key, value in asked.node_selector.items()):
        return False
    return not asked.node_terms or any(term.matches(labels, name) for term in asked.node_terms)


def _any_matches(terms: Iterable[NodeTerm], node: Node) -> bool:
    return any(term.matches(node.labels, node.name) for term in terms)


def narrowed(terms: Sequence[NodeTerm]) -> frozenset[str] | None:
    """Return the names of the nodes to which the required node affinity terms restrict the pod. A
    term restricts it by a field requirement `metadata.name` with the operator In.
    None: there are no terms, or at least one term has no such requirement, so a node with any name
    is possible. Empty: no node name satisfies any term.
    Example: one term with names (a, b) and one with name (c) give a, b and c, because one matching
    term is sufficient."""
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


def _satisfied(
    term: NodeTerm, labels: dict[str, str], name: str
) -> tuple[list[Change], dict[str, str]] | None:
    """Find the label changes with which the affinity term matches the node, one for each
    requirement that the labels do not meet. Return (the changes, all labels after the changes).
    None: label changes cannot make the term match.
    `labels`: the node's labels. `name`: the node's name, which the term may also require."""
    changes: list[Change] = []
    for requirement in term.expressions:
        if requirement.holds(labels):
            continue
        found = satisfying(requirement)
        if found is None:
            return None
        change, value = found
        changes.append(change)
        labels = {k: v for k, v in labels.items() if k != requirement.key}
        if value is not None:
            labels[requirement.key] = value
    return (changes, labels) if term.matches(labels, name) else None


def _now_allowed(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(new, Node) or allows(pod.requirements, new.labels, new.name)
