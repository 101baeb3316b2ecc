"""Selectors, taints and tolerations as Kubernetes writes them: shared by the kinds of all
systems."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain import selectors, taints
from wharfinger.manifests.model import Int, Labels, Model

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Expression(Model):
    """One `matchExpressions` entry of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    def to_domain(self) -> selectors.Requirement:
        return selectors.Requirement(self.key, self.operator, tuple(self.values))


class LabelSelectorManifest(Model):
    match_labels: Labels = {}
    match_expressions: list[Expression] = []

    def to_domain(self) -> selectors.LabelSelector:
        return selectors.LabelSelector(
            dict(self.match_labels), tuple(e.to_domain() for e in self.match_expressions)
        )


class TaintManifest(Model, carried="timeAdded"):
    key: str
    effect: Effect
    value: str = ""

    def to_domain(self) -> taints.Taint:
        return taints.Taint(self.key, self.effect, self.value)


class TolerationManifest(Model):
    key: str = ""
    operator: Literal["Equal", "Exists", "Gt", "Lt", ""] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute", ""] = ""
    toleration_seconds: Int | None = None

    def to_domain(self) -> taints.Toleration:
        return taints.Toleration(
            self.key, self.operator or "Equal", self.value, self.effect, self.toleration_seconds
        )


class NodeExpression(Model):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = []

    def to_domain(self) -> selectors.Requirement:
        return selectors.Requirement(self.key, self.operator, tuple(self.values))


class NodeSelectorTerm(Model):
    match_expressions: list[NodeExpression] = []
    match_fields: list[NodeExpression] = []

    def to_domain(self) -> selectors.NodeTerm:
        return selectors.NodeTerm(
            tuple(e.to_domain() for e in self.match_expressions),
            tuple(e.to_domain() for e in self.match_fields),
        )


class NodeSelector(Model):
    """Terms are alternatives."""

    node_selector_terms: list[NodeSelectorTerm]

    def to_domain(self) -> tuple[selectors.NodeTerm, ...]:
        return tuple(term.to_domain() for term in self.node_selector_terms)
