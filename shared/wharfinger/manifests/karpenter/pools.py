"""Karpenter's NodePool and NodeOverlay: which nodes may be made, and when they may go again.

Read as Karpenter's API server would take them, defaults included (a pool that says nothing has one
budget of 10 %, and its nodes expire after 720 hours). Which labels are kept for the system is left
to that server, but for the two that would contradict the pool itself. Annotations of ours say from
which catalogue of instance types a pool takes, in which clusters (one that was read from a member
cluster is that cluster's own), and what Karpenter has as options of its whole process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from pydantic import AfterValidator, BeforeValidator, model_validator

from wharfinger.domain import node_pool as domain
from wharfinger.domain.instance_types import PRICE_UNIT
from wharfinger.domain.node_pool import (
    LEAST_SAVING,
    OUR_DIGEST,
    POOL_HASH,
    POOL_LABEL,
    NodePoolPolicy,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import canonical, digest
from wharfinger.manifests.amounts import amounts
from wharfinger.manifests.cluster_fact import CLUSTER, cluster_of
from wharfinger.manifests.errors import Path
from wharfinger.manifests.karpenter.cron import schedule
from wharfinger.manifests.model import (
    Amounts,
    Count,
    ExpectedError,
    Int32,
    Labels,
    Model,
    Object,
    within,
)
from wharfinger.manifests.selectors import TaintManifest
from wharfinger.manifests.wharfinger import options

T = TypeVar("T")

NEVER = "Never"
HOSTNAME = "kubernetes.io/hostname"
NODES = "nodes"
"""In a pool's limits: the number of its nodes."""

LISTED_MAX = 100
BUDGETS_MAX = 50
MIN_VALUES_MAX = 50
SPAN_MAX_S = 2**63 // 10**9
"""What a duration of Go can hold, some 292 years."""

OF_POOLS = (
    options.INSTANCE_TYPES,
    options.CLUSTERS,
    CLUSTER,
    options.MIN_VALUES,
    options.PREFERENCES,
    options.RESERVED,
    options.SPOT_TO_SPOT,
    options.PACKING,
    options.LEAST_SAVING,
)
NOT_ADDED = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""What an overlay may not add: instance types have it by themselves."""

# Times.

_SPAN = re.compile(r"([0-9]+[smh])+")
_WINDOW = re.compile(r"([0-9]+[hm]|[0-9]+h[0-9]+m)(0s)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int | None:
    """Of a duration such as `1h30m`; None: never."""
    if text == NEVER:
        return None
    return sum(
        int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([smh])", text)
    )


def _span(text: str, expected: str = "a duration such as 30s, 10m or 1h30m") -> str:
    if len(text) > 64 or _SPAN.fullmatch(text) is None:
        raise ExpectedError(expected)
    if (seconds(text) or 0) > SPAN_MAX_S:
        raise ExpectedError("a duration below 292 years")
    return text


def _duration(text: str) -> str:
    return (
        text if text == NEVER else _span(text, f"a duration such as 30s, 10m or 1h30m, or {NEVER}")
    )


def _window(text: str) -> str:
    if _WINDOW.fullmatch(text) is None:
        raise ExpectedError("hours and minutes such as 8h, 30m or 1h30m")
    return _span(text)


Duration = Annotated[str, AfterValidator(_duration)]
Span = Annotated[str, AfterValidator(_span)]
Window = Annotated[str, AfterValidator(_window)]
Schedule = Annotated[str, AfterValidator(schedule)]


def at_most(count: int) -> AfterValidator:
    def check(found: list[T]) -> list[T]:
        if len(found) > count:
            raise ExpectedError(f"at most {count} entries")
        return found

    return AfterValidator(check)


# Which nodes.


class RequirementManifest(Model):
    key: str
    operator: domain.PoolOperator
    values: list[str] = []
    min_values: Annotated[Int32, within(1, MIN_VALUES_MAX)] | None = None

    @model_validator(mode="after")
    def _can_be_met(self) -> RequirementManifest:
        if self.key in (POOL_LABEL, HOSTNAME):
            raise ExpectedError(
                f"another label than {self.key}, which nodes get by themselves", "key"
            )
        match self.operator:
            case "In":
                if not self.values:
                    raise ExpectedError("at least one value", "values")
                if self.min_values is not None and len(self.values) < self.min_values:
                    raise ExpectedError(
                        f"at least the {self.min_values} values that minValues asks for", "values"
                    )
            case "Gt" | "Lt" | "Gte" | "Lte":
                number = self.values[0] if len(self.values) == 1 else ""
                if not (number.isascii() and number.isdigit() and len(number) <= 18):
                    raise ExpectedError(
                        f"one value for {self.operator}, an integer that is not negative", "values"
                    )
        return self

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Values of an operator that has none."""
        if self.values and self.operator in ("Exists", "DoesNotExist"):
            yield (*path, "values")

    def to_domain(self) -> domain.PoolRequirement:
        values = () if self.operator in ("Exists", "DoesNotExist") else tuple(self.values)
        return domain.PoolRequirement(self.key, self.operator, values, self.min_values or 0)


Requirements = Annotated[list[RequirementManifest], at_most(LISTED_MAX)]


class NodeClassRef(Model):
    group: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.kind}/{self.name}"


class BetaNodeClassRef(Model):
    """Of v1beta1: with the version instead of the group alone."""

    api_version: str = ""
    kind: str = ""
    name: str

    def __str__(self) -> str:
        return f"{self.api_version.partition('/')[0]}/{self.kind}/{self.name}"


class TemplateMetadata(Model):
    labels: Labels = {}
    annotations: Labels = {}

    @model_validator(mode="after")
    def _leaves_the_pools_own(self) -> TemplateMetadata:
        for label in (POOL_LABEL, HOSTNAME):
            if label in self.labels:
                raise ExpectedError(
                    f"another label than {label}, which nodes get by themselves", "labels", label
                )
        return self


class _NodeSpec(Model):
    requirements: Requirements = []
    taints: list[TaintManifest] = []
    startup_taints: list[TaintManifest] = []
    termination_grace_period: Span | None = None


class NodeClaimSpec(_NodeSpec):
    node_class_ref: NodeClassRef | None = None
    expire_after: Duration = "720h"


class BetaNodeClaimSpec(_NodeSpec, unacted="kubelet", carried="resources"):
    """`resources` is written by Karpenter itself, and only into claims."""

    node_class_ref: BetaNodeClassRef | None = None


class NodeClaimTemplate(Model):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: NodeClaimSpec = NodeClaimSpec()


class BetaNodeClaimTemplate(Model):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: BetaNodeClaimSpec = BetaNodeClaimSpec()


# When they go.

_NODES = re.compile(r"(100|[0-9]{1,2})%|[0-9]{1,9}")


def _nodes(value: object) -> object:
    """A number or a percentage."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or _NODES.fullmatch(text) is None:
        raise ExpectedError("a number of nodes, or a percentage from 0% to 100%")
    return text


class Budget(Model):
    nodes: Annotated[str, BeforeValidator(_nodes)] = "10%"
    reasons: Annotated[list[domain.DisruptionReason], at_most(BUDGETS_MAX)] = []
    schedule: Schedule | None = None
    duration: Window | None = None

    @model_validator(mode="after")
    def _says_for_how_long(self) -> Budget:
        if (self.schedule is None) != (self.duration is None):
            said, missing = (
                ("schedule", "duration") if self.duration is None else ("duration", "schedule")
            )
            raise ExpectedError(f"a {missing} beside the {said}", missing)
        return self

    def to_domain(self) -> domain.NodeBudget:
        for_s = seconds(self.duration) if self.duration else 0
        return domain.NodeBudget(
            self.nodes, tuple(dict.fromkeys(self.reasons)), self.schedule or "", for_s or 0
        )


Budgets = Annotated[list[Budget], at_most(BUDGETS_MAX)]


class Disruption(Model):
    consolidate_after: Duration = "0s"
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = (
        "WhenEmptyOrUnderutilized"
    )
    budgets: Budgets | None = None


class BetaDisruption(Model):
    """Of v1beta1. What is not full there is consolidated at once, so it says no time."""

    consolidate_after: Duration | None = None
    consolidation_policy: Literal["WhenEmpty", "WhenUnderutilized"] = "WhenUnderutilized"
    expire_after: Duration = "720h"
    budgets: Budgets | None = None

    @model_validator(mode="after")
    def _waits_for_empty_nodes_only(self) -> BetaDisruption:
        if self.consolidation_policy == "WhenEmpty" and self.consolidate_after is None:
            raise ExpectedError(
                "consolidateAfter beside consolidationPolicy WhenEmpty", "consolidateAfter"
            )
        if self.consolidation_policy == "WhenUnderutilized" and self.consolidate_after not in (
            None,
            NEVER,
        ):
            raise ExpectedError(
                "no consolidateAfter with consolidationPolicy WhenUnderutilized", "consolidateAfter"
            )
        return self


Weight = Annotated[Int32, within(1, 100)]


class NodePoolSpec(Model):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: Amounts = {}
    weight: Weight | None = None
    replicas: Count | None = None

    @model_validator(mode="after")
    def _is_static_or_not(self) -> NodePoolSpec:
        if self.replicas is None:
            return self
        if self.weight is not None:
            raise ExpectedError("no weight in a pool with replicas", "weight")
        for name in self.limits:
            if name != NODES:
                raise ExpectedError(f"no limit but {NODES} in a pool with replicas", "limits", name)
        return self


class BetaNodePoolSpec(Model):
    template: BetaNodeClaimTemplate = BetaNodeClaimTemplate()
    disruption: BetaDisruption = BetaDisruption()
    limits: Amounts = {}
    weight: Weight | None = None


class _Pool(Object, carried="status"):
    """What both versions of the API have in common."""

    @property
    def namespace(self) -> str:
        """Under which it is known: the cluster it was read from; empty: it is of the whole plane.
        Two clusters may each have one of the same name."""
        return cluster_of(self)

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from options.unknown(self.annotations, OF_POOLS, path)

    def _pool(
        self, spec: NodePoolSpec | BetaNodePoolSpec, expire_after_s: int | None
    ) -> NodePoolPolicy:
        """All but when its nodes may be consolidated. Raises ExpectedError."""
        template = spec.template.spec
        grace = template.termination_grace_period
        return NodePoolPolicy(
            self.name,
            requirements=tuple(r.to_domain() for r in template.requirements),
            labels=dict(spec.template.metadata.labels),
            annotations=dict(spec.template.metadata.annotations),
            taints=tuple(t.to_domain() for t in template.taints),
            startup_taints=tuple(t.to_domain() for t in template.startup_taints),
            node_class=str(template.node_class_ref or ""),
            expire_after_s=expire_after_s,
            termination_grace_s=seconds(grace) if grace else None,
            budgets=_budgets(spec.disruption.budgets),
            limits=amounts(spec.limits),
            weight=spec.weight or 0,
            catalogue=self._catalogue,
            clusters=self._clusters,
        )

    def _policy(self, pool: NodePoolPolicy, manifest: str) -> Policy:
        """Raises ExpectedError."""
        pool = with_options(with_digest(pool, self.annotations), self.annotations)
        return Policy(self.kind, self.name, self.namespace, node_pool=pool, manifest=manifest)

    @property
    def _clusters(self) -> tuple[str, ...]:
        """Raises ExpectedError."""
        said = options.names(self.annotations, options.CLUSTERS)
        own = self.namespace
        if own and said and said != (own,):
            raise ExpectedError(
                f"no other clusters than {own}, which it was read from",
                "metadata",
                "annotations",
                options.CLUSTERS,
            )
        return (own,) if own else said

    @property
    def _catalogue(self) -> str:
        """Raises ExpectedError."""
        said = options.names(self.annotations, options.INSTANCE_TYPES)
        if len(said) > 1:
            raise ExpectedError(
                "the name of one catalogue", "metadata", "annotations", options.INSTANCE_TYPES
            )
        return said[0] if said else "default"


class NodePool(_Pool):
    spec: NodePoolSpec

    @property
    def empty_after_s(self) -> int | None:
        """None: its empty nodes stay, because it says Never or has a fixed number of nodes."""
        return (
            None
            if self.spec.replicas is not None
            else seconds(self.spec.disruption.consolidate_after)
        )

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for annotations of ours that say nothing sensible."""
        spec = self.spec
        pool = self._pool(spec, seconds(spec.template.spec.expire_after))
        pool = msgspec.structs.replace(
            pool,
            empty_after_s=self.empty_after_s,
            consolidation=spec.disruption.consolidation_policy,
            replicas=spec.replicas,
        )
        return self._policy(pool, manifest)


class BetaNodePool(_Pool):
    """v1beta1: nodes expire by what the pool says of disruption, and what is not full goes at once
    or not at all."""

    spec: BetaNodePoolSpec

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for annotations of ours that say nothing sensible."""
        disruption = self.spec.disruption
        pool = msgspec.structs.replace(
            self._pool(self.spec, seconds(disruption.expire_after)),
            empty_after_s=seconds(disruption.consolidate_after or "0s"),
            consolidation="WhenEmpty"
            if disruption.consolidation_policy == "WhenEmpty"
            else "WhenEmptyOrUnderutilized",
        )
        return self._policy(pool, manifest)


def _budgets(said: list[Budget] | None) -> tuple[domain.NodeBudget, ...]:
    """None said is one of 10 %; an empty list is none, and all nodes may go at once."""
    return (domain.NodeBudget(),) if said is None else tuple(budget.to_domain() for budget in said)


def with_digest(pool: NodePoolPolicy, annotations: Mapping[str, str]) -> NodePoolPolicy:
    """The pool with the digest of what its nodes are made by. Karpenter's own is taken where it has
    written one: its nodes have it from there. Ours is of the same things: not of the requirements,
    for whether a node still meets them is asked of the node."""
    made_by = annotations.get(POOL_HASH) or OUR_DIGEST + digest(
        [
            pool.labels,
            pool.annotations,
            sorted(map(canonical, pool.taints)),
            sorted(map(canonical, pool.startup_taints)),
            pool.node_class,
            pool.expire_after_s,
            pool.termination_grace_s,
        ]
    )
    return msgspec.structs.replace(pool, digest=made_by)


def with_options(pool: NodePoolPolicy, said: Mapping[str, str]) -> NodePoolPolicy:
    """The pool with what its annotations say of how its nodes are asked for and consolidated. They
    are no part of the digest, for no node is made by them. Raises ExpectedError."""
    return msgspec.structs.replace(
        pool,
        min_values="BestEffort"
        if _other(said, options.MIN_VALUES, "Strict", "BestEffort")
        else "Strict",
        preferences="Ignore"
        if _other(said, options.PREFERENCES, "Respect", "Ignore")
        else "Respect",
        reserved="Fallback" if _other(said, options.RESERVED, "Strict", "Fallback") else "Strict",
        spot_to_spot=_other(said, options.SPOT_TO_SPOT, "false", "true"),
        packing="first-fit" if _other(said, options.PACKING, "priced", "first-fit") else "priced",
        least_saving=_least_saving(said),
    )


def _other(said: Mapping[str, str], key: str, usual: str, other: str) -> bool:
    return options.word(said, key, usual, other) == other


_SAVING = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


def _least_saving(said: Mapping[str, str]) -> int:
    """Billionths of a dollar. Nothing at all is no saving: nodes would be exchanged for others at
    the same price forever."""
    text = said.get(options.LEAST_SAVING)
    if text is None:
        return LEAST_SAVING
    if _SAVING.fullmatch(text) is None or not text.strip("0."):
        raise ExpectedError(
            "dollars an hour above 0 such as 0.001, with at most 9 places",
            "metadata",
            "annotations",
            options.LEAST_SAVING,
        )
    whole, _, part = text.partition(".")
    return int(whole) * PRICE_UNIT + int(part.ljust(9, "0"))


# What instance types cost and hold otherwise.

_PRICE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?")
_ADJUSTMENT = re.compile(r"[+-]([0-9]{1,9}(\.[0-9]{1,18})?|\.[0-9]{1,18})%?")


def _price(text: str) -> str:
    if _PRICE.fullmatch(text) is None:
        raise ExpectedError("a price in dollars an hour such as 0.096")
    return text


def _adjustment(text: str) -> str:
    if _ADJUSTMENT.fullmatch(text) is None:
        raise ExpectedError("an adjustment such as +0.05, -0.01, +10% or -5%")
    if (
        text.startswith("-")
        and text.endswith("%")
        and int(text[1:-1].partition(".")[0] or "0") >= 100
        and text != "-100%"
    ):
        raise ExpectedError("at most -100%")
    return text


class NodeOverlaySpec(Model):
    requirements: Requirements
    price: Annotated[str, AfterValidator(_price)] | None = None
    price_adjustment: Annotated[str, AfterValidator(_adjustment)] | None = None
    capacity: Amounts = {}
    weight: Annotated[Int32, within(1, 10_000)] | None = None

    @model_validator(mode="after")
    def _says_one_price(self) -> NodeOverlaySpec:
        if self.price is not None and self.price_adjustment is not None:
            raise ExpectedError("either price or priceAdjustment", "priceAdjustment")
        for name in self.capacity:
            if name in NOT_ADDED:
                raise ExpectedError(
                    f"a resource that instance types do not have by themselves, unlike {name}",
                    "capacity",
                    name,
                )
        for i, requirement in enumerate(self.requirements):
            if requirement.min_values is not None:
                raise ExpectedError(
                    "no minValues, which are a pool's", "requirements", i, "minValues"
                )
        return self


class NodeOverlayManifest(Object, carried="status"):
    """v1alpha1. Of the whole plane, wherever it was read."""

    spec: NodeOverlaySpec

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from options.unknown(self.annotations, (), path)
        if CLUSTER in self.metadata.labels:
            yield (*path, "metadata", "labels", CLUSTER)

    def to_domain(self, manifest: str) -> Policy:
        spec = self.spec
        overlay = domain.NodeOverlay(
            self.name,
            tuple(r.to_domain() for r in spec.requirements),
            spec.weight or 0,
            spec.price or "",
            spec.price_adjustment or "",
            amounts(spec.capacity),
        )
        return Policy(self.kind, self.name, overlay=overlay, manifest=manifest)
