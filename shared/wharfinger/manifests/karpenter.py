"""Karpenter's NodePool. Acted on: when its nodes are empty long enough to go. What nodes it would make is not, in this version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.policy import Policy
from wharfinger.manifests.crane import SECOND_NS, duration_ns
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import Amounts, Carried, Count, ExpectedError, Int32, Labels, Model, Object
from wharfinger.manifests.selectors import Taint

NEVER = "Never"

_SPAN = re.compile(r"([0-9]+(s|m|h))+")


def _duration(text: str) -> str:
    if text != NEVER and (len(text) > 64 or _SPAN.fullmatch(text) is None):
        raise ExpectedError(f"a duration such as 30s, 10m or 1h30m, or {NEVER}")
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class Requirement(Model):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
    values: list[str] = []
    min_values: Int32 | None = None


class NodeClassRef(Model):
    group: str
    kind: str
    name: str


class NodeClaimSpec(Model):
    requirements: list[Requirement] = []
    taints: list[Taint] = []
    startup_taints: list[Taint] = []
    node_class_ref: NodeClassRef | None = None
    expire_after: Duration = NEVER
    termination_grace_period: Duration = NEVER


class TemplateMetadata(Model):
    labels: Labels = {}
    annotations: Labels = {}


class NodeClaimTemplate(Model):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: NodeClaimSpec = NodeClaimSpec()

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """No node is made from it in this version."""
        if self.model_fields_set:
            yield path


def _nodes(value: object) -> object:
    """A number or a percentage."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ExpectedError("a number of nodes or a percentage")
    return str(value)


class Budget(Model):
    nodes: Annotated[str, BeforeValidator(_nodes)] = "10%"
    reasons: list[str] = []
    schedule: str = ""
    duration: str = ""


class Disruption(Model):
    consolidate_after: Duration = "0s"
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = "WhenEmptyOrUnderutilized"
    budgets: list[Budget] = []

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Of consolidation, only the removal of empty nodes is acted on."""
        if "consolidation_policy" in self.model_fields_set and self.consolidation_policy != "WhenEmpty":
            yield (*path, "consolidationPolicy")
        if self.budgets:
            yield (*path, "budgets")


class NodePoolSpec(Model):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: Amounts = {}
    weight: Int32 | None = None
    replicas: Count | None = None

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        for name in ("limits", "weight", "replicas"):
            if name in self.model_fields_set:
                yield (*path, name)


class NodePool(Object):
    spec: NodePoolSpec
    status: Carried = None

    @property
    def empty_after_s(self) -> int | None:
        """None: its empty nodes stay, because it says Never or has a fixed number of nodes."""
        after = self.spec.disruption.consolidate_after
        if after == NEVER or self.spec.replicas is not None:
            return None
        return -(-duration_ns(after) // SECOND_NS)

    def to_domain(self, manifest: str) -> Policy:
        return Policy(self.kind, self.name, node_pool=NodePoolPolicy(self.name, self.empty_after_s), manifest=manifest)
