"""Open Cluster Management's kinds: managed clusters, the sets they are in, placements and what
those read and write.

Its API server accepts much that its scheduler then finds wrong (an unknown mode, a selector with an
unknown operator). So do these models: what the schema refuses is refused here, and the rest is kept
as it was written, so that the placement is reported as misconfigured. An object read with the
context `STORED` was already accepted by a server: the limits of the schema are not checked again,
because they may have been different then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictInt, StrictStr, ValidationInfo, model_validator

from wharfinger.domain import cluster as domain
from wharfinger.domain import selection, taints
from wharfinger.domain.policy import Policy
from wharfinger.domain.quantities import LIMIT, parse_quantity
from wharfinger.manifests.amounts import amounts
from wharfinger.manifests.cluster_fact import DEFAULT_NAMESPACE
from wharfinger.manifests.errors import Path
from wharfinger.manifests.karmada.objects import lease_s
from wharfinger.manifests.model import (
    ExpectedError,
    Int,
    Int32,
    Labels,
    Model,
    Object,
    SignedQuantity,
    Time,
    micros,
)
from wharfinger.manifests.wharfinger import options

REGION_CLAIM = "region.open-cluster-management.io"
PLATFORM_CLAIM = "platform.open-cluster-management.io"
DISABLED = "cluster.open-cluster-management.io/experimental-scheduling-disable"
"""Annotation of a placement: while it says true, OCM decides nothing, and we do only where our own
annotation says that we are its scheduler."""
OURS = "wharfinger"
PLACEMENT_LABEL = "cluster.open-cluster-management.io/placement"
"""Label of a PlacementDecision: the name of its placement."""

EXPIRED_SCORES = options.PREFIX + "expired-scores"
HYSTERESIS = options.PREFIX + "hysteresis"
OF_PLACEMENTS = (EXPIRED_SCORES, HYSTERESIS, options.WINDOW_S, options.COMPAT, options.SCHEDULER)
"""What a placement may be annotated with beyond its API."""
POINTS_MAX = 1_000_000

STORED = {"stored": True}
"""Context of validation for objects that a server has let in."""

Default = tuple[str, object]
"""A JSON pointer and the value that the schema puts there."""


# What the schema limits.


def _limited(pattern: str, expected: str, length_max: int = 2**31) -> AfterValidator:
    fitting = re.compile(pattern)

    def check(text: str, info: ValidationInfo) -> str:
        if not _stored(info) and (len(text) > length_max or fitting.fullmatch(text) is None):
            raise ExpectedError(expected)
        return text

    return AfterValidator(check)


def _from_to(low: int, high: int) -> AfterValidator:
    def check(value: int, info: ValidationInfo) -> int:
        if not _stored(info) and not low <= value <= high:
            raise ExpectedError(f"an integer from {low} to {high}")
        return value

    return AfterValidator(check)


def _stored(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("stored"))


_PREFIX = r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
_KEY = _limited(
    _PREFIX + r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", "a key such as example.com/name", 316
)
_VALUE = _limited(r"[\s\S]*", "at most 1024 characters", 1024)
_GROUP_NAME = _limited(
    r"[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]",
    "a name of 2 to 63 letters, digits, '-', '_' and '.'",
)
_RATE = _limited(r"[0-9]+[hms]", "a duration such as 1m")
_LOT = re.compile(r"(?:100|[1-9][0-9]?)%|[1-9][0-9]*")

Key = Annotated[str, _KEY]
Effect = Literal["NoSelect", "NoSelectIfNew", "PreferNoSelect"]


# The managed cluster.


class ManagedClusterTaint(Model):
    """NoSelectIfNew keeps new work away and leaves what is there, which is what NoSchedule means
    for a member cluster.

    Where replicas are scheduled NoSelect is the same; a placement that selects clusters acts on all
    of it.
    """

    key: Key
    effect: Effect
    value: Annotated[str, _VALUE] = ""
    time_added: Time | None = None

    def to_domain(self) -> taints.Taint:
        effect: taints.Effect = (
            "PreferNoSchedule" if self.effect == "PreferNoSelect" else "NoSchedule"
        )
        return taints.Taint(self.key, effect, self.value)

    def to_managed(self) -> domain.ManagedTaint:
        added = None if self.time_added is None else micros(self.time_added)
        return domain.ManagedTaint(self.key, self.effect, self.value, added)

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        if self.effect == "NoSelect":
            yield (*path, "effect")


class ManagedClusterSpec(
    Model, unacted="leaseDurationSeconds", carried="managedClusterClientConfigs"
):
    taints: list[ManagedClusterTaint] = []
    hub_accepts_client: bool = False


class ClusterClaim(Model, carried="reserved"):
    name: str = ""
    value: str = ""


class StatusCondition(Model, carried="reason message lastTransitionTime observedGeneration"):
    type: str = ""
    status: str = ""


class ManagedClusterStatus(Model, carried="managedNamespaces version"):
    allocatable: dict[str, SignedQuantity] = {}
    capacity: dict[str, SignedQuantity] = {}
    cluster_claims: list[ClusterClaim] = []
    conditions: list[StatusCondition] = []


class ManagedCluster(Object):
    spec: ManagedClusterSpec = ManagedClusterSpec()
    status: ManagedClusterStatus = ManagedClusterStatus()

    def to_domain(self, manifest: str = "") -> domain.Cluster:
        """Region and provider come from its claims, of which the last of a name counts. `manifest`:
        the object itself as JSON, for expressions. Raises ExpectedError."""
        claims = {c.name: c.value for c in self.status.cluster_claims}
        allocatable = amounts(_countable(self.status.allocatable))
        return domain.Cluster(
            self.name,
            labels=dict(self.metadata.labels),
            provider=claims.get(PLATFORM_CLAIM, ""),
            region=claims.get(REGION_CLAIM, ""),
            taints=tuple(t.to_domain() for t in self.spec.taints),
            lease_s=lease_s(self),
            deleting=self.metadata.deletion_timestamp is not None,
            summary=domain.ResourceSummary(allocatable) if allocatable else None,
            conditions={c.type: c.status for c in self.status.conditions},
            managed=domain.ManagedClusterFacts(
                claims,
                tuple(t.to_managed() for t in self.spec.taints),
                dict(self.status.allocatable),
                dict(self.status.capacity),
                manifest,
            ),
        )


def _countable(quantities: dict[str, str]) -> dict[str, str]:
    """Without what replicas cannot be counted in: amounts below 0 or beyond 63 bits."""
    return {
        name: text
        for name, text in quantities.items()
        if parse_quantity(text).nanos >= 0 and parse_quantity(text).milli <= LIMIT
    }


# Selectors.


class Expression(Model):
    """`operator` is any text: the schema does not list the operators."""

    key: str
    operator: str
    values: list[str] = []

    def to_domain(self) -> selection.Condition:
        return selection.Condition(self.key, self.operator, tuple(self.values))


class LooseLabelSelector(Model):
    match_labels: Labels = {}
    match_expressions: list[Expression] = []

    def to_domain(self) -> selection.Selector:
        return selection.Selector(
            dict(self.match_labels), tuple(e.to_domain() for e in self.match_expressions)
        )


class ClaimSelector(Model):
    match_expressions: list[Expression] = []

    def to_domain(self) -> selection.Selector:
        return selection.Selector(conditions=tuple(e.to_domain() for e in self.match_expressions))


class CelSelector(Model):
    cel_expressions: list[str] = []


class RequiredClusterSelector(Model):
    label_selector: LooseLabelSelector = LooseLabelSelector()
    claim_selector: ClaimSelector = ClaimSelector()
    cel_selector: CelSelector = CelSelector()


class PredicateManifest(Model):
    required_cluster_selector: RequiredClusterSelector = RequiredClusterSelector()

    def to_domain(self) -> selection.Predicate:
        required = self.required_cluster_selector
        return selection.Predicate(
            required.label_selector.to_domain(),
            required.claim_selector.to_domain(),
            tuple(required.cel_selector.cel_expressions),
        )


# The placement.


class PlacementToleration(Model):
    key: Key | None = None
    operator: str = "Equal"
    value: Annotated[str, _VALUE] = ""
    effect: Effect | None = None
    toleration_seconds: Int | None = None

    def to_domain(self) -> selection.ClusterToleration:
        return selection.ClusterToleration(
            self.key or "", self.operator, self.value, self.effect or "", self.toleration_seconds
        )


class AddOnCoordinate(Model):
    resource_name: str
    score_name: str


class ScoreCoordinate(Model):
    type: Literal["BuiltIn", "AddOn"] = "BuiltIn"
    built_in: str = ""
    add_on: AddOnCoordinate | None = None


class PrioritizerConfig(Model):
    score_coordinate: ScoreCoordinate | None = None
    weight: Annotated[Int32, _from_to(-10, 10)] = 1

    @model_validator(mode="after")
    def _has_a_coordinate(self, info: ValidationInfo) -> PrioritizerConfig:
        if self.score_coordinate is None and not _stored(info):
            raise ExpectedError("a value", "scoreCoordinate")
        return self

    def to_domain(self) -> selection.Priority:
        where = self.score_coordinate
        if where is None:
            return selection.Priority("", weight=self.weight)
        addon = (
            selection.AddOnScore(where.add_on.resource_name, where.add_on.score_name)
            if where.add_on
            else None
        )
        return selection.Priority(where.type, where.built_in, addon, self.weight)


class PrioritizerPolicy(Model):
    mode: str = "Additive"
    configurations: list[PrioritizerConfig] = []


class GroupClusterSelector(Model):
    label_selector: LooseLabelSelector = LooseLabelSelector()
    claim_selector: ClaimSelector = ClaimSelector()


class DecisionGroupManifest(Model):
    group_name: Annotated[str, _GROUP_NAME]
    group_cluster_selector: GroupClusterSelector

    def to_domain(self) -> selection.DecisionGroup:
        selector = self.group_cluster_selector
        return selection.DecisionGroup(
            self.group_name,
            selector.label_selector.to_domain(),
            selector.claim_selector.to_domain(),
        )


def _lot(value: int | str, info: ValidationInfo) -> int | str:
    """The schema's pattern binds the texts only."""
    if isinstance(value, str) and not _stored(info) and _LOT.fullmatch(value) is None:
        raise ExpectedError("a number above 0, or a percentage from 1% to 100%")
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise ExpectedError("an integer of 32 bits")
    return value


class GroupStrategy(Model):
    clusters_per_decision_group: Annotated[StrictInt | StrictStr, AfterValidator(_lot)] = "100%"
    decision_groups: list[DecisionGroupManifest] = []


class DecisionStrategy(Model):
    group_strategy: GroupStrategy | None = None


class PlacementSpec(Model, unacted="spreadPolicy"):
    cluster_sets: list[str] = []
    number_of_clusters: Int32 | None = None
    predicates: list[PredicateManifest] = []
    tolerations: list[PlacementToleration] = []
    decision_strategy: DecisionStrategy = DecisionStrategy()
    prioritizer_policy: PrioritizerPolicy | None = None
    sort_by: Literal["ClusterName", "Score"] = "ClusterName"
    score_rate_limit: Annotated[str, _RATE] = "1m"

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        if self.sort_by == "Score":
            yield (*path, "sortBy")
        if "score_rate_limit" in self.model_fields_set:
            yield (*path, "scoreRateLimit")


class PlacementManifest(Object):
    spec: PlacementSpec = PlacementSpec()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def to_domain(self, manifest: str = "") -> Policy:
        """Raises ExpectedError for an annotation that says nothing sensible."""
        return Policy(
            self.kind, self.name, self.namespace, selection=self.selection(), manifest=manifest
        )

    def selection(self) -> selection.Selection:
        spec, said = self.spec, self.annotations
        policy = spec.prioritizer_policy or PrioritizerPolicy()
        groups = spec.decision_strategy.group_strategy or GroupStrategy()
        unknown = options.word(said, EXPIRED_SCORES, "zero", "unknown") == "unknown"
        return selection.Selection(
            cluster_sets=tuple(spec.cluster_sets),
            wanted=spec.number_of_clusters,
            predicates=tuple(p.to_domain() for p in spec.predicates),
            tolerations=tuple(t.to_domain() for t in spec.tolerations),
            mode=policy.mode,
            priorities=tuple(p.to_domain() for p in policy.configurations),
            per_group=groups.clusters_per_decision_group,
            groups=tuple(g.to_domain() for g in groups.decision_groups),
            disabled=said.get(DISABLED) == "true" and said.get(options.SCHEDULER) != OURS,
            deleting=self.metadata.deletion_timestamp is not None,
            expired_scores="unknown" if unknown else "zero",
            hysteresis=options.number(said, HYSTERESIS, 0, POINTS_MAX) or 0,
            window_s=options.number(said, options.WINDOW_S, 0, options.SECONDS_MAX) or 0,
            strict=options.strict(said),
        )

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from options.unknown(self.annotations, OF_PLACEMENTS, path)

    def defaults(self) -> tuple[Default, ...]:
        """What the schema fills in where nothing was written, in order of place."""
        spec = self.spec
        found: list[Default] = []
        if spec.decision_strategy.group_strategy is not None:
            lots = "/spec/decisionStrategy/groupStrategy/clustersPerDecisionGroup"
            found += _default(
                spec.decision_strategy.group_strategy, "clusters_per_decision_group", lots
            )
        if (policy := spec.prioritizer_policy) is not None:
            found += _default(policy, "mode", "/spec/prioritizerPolicy/mode")
            for i, config in enumerate(policy.configurations):
                here = f"/spec/prioritizerPolicy/configurations/{i}"
                found += _default(config, "weight", f"{here}/weight")
                if config.score_coordinate is not None:
                    found += _default(
                        config.score_coordinate, "type", f"{here}/scoreCoordinate/type"
                    )
        found += _default(spec, "score_rate_limit", "/spec/scoreRateLimit")
        found += _default(spec, "sort_by", "/spec/sortBy")
        for i, toleration in enumerate(spec.tolerations):
            found += _default(toleration, "operator", f"/spec/tolerations/{i}/operator")
        return tuple(sorted(found, key=lambda default: default[0]))


def _default(model: Model, field: str, pointer: str) -> list[Default]:
    return [] if field in model.model_fields_set else [(pointer, getattr(model, field))]


# What placements choose from, and by.


class ClusterSelector(Model):
    selector_type: Literal["ExclusiveClusterSetLabel", "LabelSelector"] = "ExclusiveClusterSetLabel"
    label_selector: LooseLabelSelector | None = None


class ManagedClusterSetSpec(Model, carried="managedNamespaces"):
    cluster_selector: ClusterSelector = ClusterSelector()


class ManagedClusterSet(Object):
    spec: ManagedClusterSetSpec = ManagedClusterSetSpec()

    def to_domain(self, manifest: str = "") -> Policy:
        selector = self.spec.cluster_selector
        labels = (
            selector.label_selector.to_domain() if selector.label_selector is not None else None
        )
        members = selection.ClusterSet(selector.selector_type, labels)
        return Policy(self.kind, self.name, cluster_set=members, manifest=manifest)


class ManagedClusterSetBindingSpec(Model):
    cluster_set: str


class ManagedClusterSetBinding(Object):
    spec: ManagedClusterSetBindingSpec

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def to_domain(self, manifest: str = "") -> Policy:
        bound = selection.SetBinding(self.spec.cluster_set)
        return Policy(self.kind, self.name, self.namespace, set_binding=bound, manifest=manifest)


class AddOnScoreItem(Model):
    name: str
    value: Annotated[Int32, _from_to(-100, 100)]


class AddOnPlacementScoreStatus(Model, carried="conditions"):
    scores: list[AddOnScoreItem] = []
    valid_until: Time | None = None


class AddOnPlacementScore(Object, carried="spec"):
    """Scores of the cluster whose namespace it lies in."""

    status: AddOnPlacementScoreStatus = AddOnPlacementScoreStatus()

    @property
    def namespace(self) -> str:
        if not self.metadata.namespace:
            raise ExpectedError(
                "the namespace of the cluster that the scores are of", "metadata", "namespace"
            )
        return self.metadata.namespace

    def to_domain(self, manifest: str = "") -> Policy:
        """Raises ExpectedError where it lies in no namespace."""
        status = self.status
        scores = selection.ClusterScores(
            tuple(selection.ScoreValue(s.name, s.value) for s in status.scores),
            None if status.valid_until is None else micros(status.valid_until),
        )
        return Policy(self.kind, self.name, self.namespace, scores=scores, manifest=manifest)


class ClusterDecision(Model, carried="score"):
    cluster_name: str
    reason: str = ""


class PlacementDecisionStatus(Model):
    decisions: Annotated[list[ClusterDecision], Field()] = []


class PlacementDecision(Object, carried="spec"):
    """What a placement selected, as its own plane wrote it down. Accepted without consequence:
    placements are decided here. Those of a hub are compared with what is decided here."""

    status: PlacementDecisionStatus = PlacementDecisionStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(d.cluster_name for d in self.status.decisions)

    def chosen(self) -> Policy:
        """For comparison; `placement` is empty where no label says of which placement it is."""
        placement = self.metadata.labels.get(PLACEMENT_LABEL, "")
        created = self.metadata.creation_timestamp
        chosen = selection.ChosenClusters(
            placement,
            tuple(name for name in self.clusters if name),
            0 if created is None else micros(created),
        )
        return Policy(self.kind, self.name, self.namespace, chosen=chosen)

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield (*path, "status")


def seen_by_expressions(manifest: str) -> dict[str, object]:
    """The object as CEL expressions see it: with the fields that are always present, even if the
    manifest lacks them, and with quantities in Kubernetes' canonical form."""
    found = json.loads(manifest) if manifest else {}
    spec, status = found.setdefault("spec", {}) or {}, found.setdefault("status", {}) or {}
    found["spec"], found["status"] = spec, status
    spec.setdefault("hubAcceptsClient", False)
    status.setdefault("version", {})
    for amounts_of in ("allocatable", "capacity"):
        for name, text in (status.get(amounts_of) or {}).items():
            status[amounts_of][name] = parse_quantity(
                text if isinstance(text, str) else repr(text)
            ).canonical
    return dict(found)
