"""Karmada's placement: which clusters, how spread, how divided. Policies and bindings both have it.

Follows Karmada's API field for field. All that the API's schema accepts is read, because a binding
may contain it. What Karmada's admission refuses in a policy (two affinities at once, a spread by
two things, a negative number of groups) is refused in policies only, with its line:
`Placement.refuse`. A selector that cannot be evaluated selects nothing, as in Karmada.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

import msgspec
from pydantic import AfterValidator

from wharfinger.domain import placement as domain
from wharfinger.domain import selectors
from wharfinger.domain.selectors import Requirement
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import ExpectedError, Int, Labels, Model
from wharfinger.manifests.selectors import TolerationManifest

FIELDS = ("provider", "region", "zone")
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


class ClusterExpression(Model):
    """One `matchExpressions` entry of a selector of clusters. The schema does not list the
    operators."""

    key: str
    operator: str
    values: list[str] = []

    def nothing(self) -> Requirement:
        """A requirement that no cluster meets: an entry that cannot be evaluated selects none."""
        return Requirement(self.key, "In", ())

    def problem(self) -> tuple[str, str] | None:
        """What is wrong with the operator or its values, and in which of the two."""
        match self.operator:
            case "In" | "NotIn":
                return None if self.values else ("at least one value", "values")
            case "Exists" | "DoesNotExist":
                return ("no values", "values") if self.values else None
            case "Gt" | "Lt":
                number = self.values[0] if len(self.values) == 1 else ""
                return (
                    None if number.lstrip("+-").isdigit() else ("one value, an integer", "values")
                )
        return ("In, NotIn, Exists or DoesNotExist", "operator")


class ClusterLabelExpression(ClusterExpression):
    def problem(self) -> tuple[str, str] | None:
        if self.operator in ("Gt", "Lt"):
            return ("In, NotIn, Exists or DoesNotExist", "operator")
        return super().problem()

    def to_domain(self) -> Requirement:
        return Requirement(self.key, cast(selectors.Operator, self.operator), tuple(self.values))


class FieldExpression(ClusterExpression):
    def to_domain(self) -> Requirement:
        """A cluster has several zones, so a known operator applies to `zone` with any number of
        values."""
        zone = self.key == "zone"
        if self.operator not in _OPERATORS or (self.problem() and not zone):
            return self.nothing()
        return Requirement(self.key, cast(selectors.Operator, self.operator), tuple(self.values))

    def refuse(self, path: Path) -> None:
        if self.key not in FIELDS:
            raise ExpectedError("provider, region or zone", *path, "key")
        _refuse_expression(self, path)


def _refuse_expression(expression: ClusterExpression, path: Path) -> None:
    if (problem := expression.problem()) is not None:
        text, field = problem
        raise ExpectedError(text, *path, field)


class FieldSelector(Model):
    match_expressions: list[FieldExpression] = []


class ClusterLabelSelector(Model):
    match_labels: Labels = {}
    match_expressions: list[ClusterLabelExpression] = []

    def to_domain(self) -> selectors.LabelSelector:
        wrong = next((e for e in self.match_expressions if e.problem()), None)
        if wrong is not None:
            return selectors.LabelSelector({}, (wrong.nothing(),))
        return selectors.LabelSelector(
            dict(self.match_labels), tuple(e.to_domain() for e in self.match_expressions)
        )

    def refuse(self, path: Path) -> None:
        for i, expression in enumerate(self.match_expressions):
            _refuse_expression(expression, (*path, "matchExpressions", i))


class ClusterAffinityManifest(Model):
    label_selector: ClusterLabelSelector | None = None
    field_selector: FieldSelector | None = None
    cluster_names: list[str] = []
    exclude: list[str] = []

    def to_domain(self, name: str = "") -> domain.ClusterAffinity:
        return domain.ClusterAffinity(
            name,
            tuple(self.cluster_names),
            tuple(self.exclude),
            self.label_selector.to_domain() if self.label_selector else None,
            tuple(e.to_domain() for e in self.field_selector.match_expressions)
            if self.field_selector
            else (),
        )

    def refuse(self, path: Path) -> None:
        """What admission would. Raises ExpectedError."""
        if self.label_selector is not None:
            self.label_selector.refuse((*path, "labelSelector"))
        if self.field_selector is not None:
            for i, expression in enumerate(self.field_selector.match_expressions):
                expression.refuse((*path, "fieldSelector", "matchExpressions", i))


def _key(text: str) -> str:
    if not text:
        raise ExpectedError("the key of a label")
    return text


def _group_name(text: str) -> str:
    if not 1 <= len(text) <= 32:
        raise ExpectedError("a name of 1 to 32 characters")
    return text


class OverflowAffinity(ClusterAffinityManifest):
    affinity_name: Annotated[str, AfterValidator(_group_name)]


class ClusterAffinityTerm(OverflowAffinity):
    overflow_affinities: list[OverflowAffinity] = []

    def to_domain(self, name: str = "") -> domain.ClusterAffinity:
        groups = tuple(group.to_domain(group.affinity_name) for group in self.overflow_affinities)
        return msgspec.structs.replace(
            super().to_domain(name or self.affinity_name), overflow=groups
        )

    def refuse(self, path: Path) -> None:
        super().refuse(path)
        _refuse_twice(
            [group.affinity_name for group in self.overflow_affinities],
            (*path, "overflowAffinities"),
        )
        for i, group in enumerate(self.overflow_affinities):
            group.refuse((*path, "overflowAffinities", i))


def _refuse_twice(names: list[str], path: Path) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ExpectedError("a name that is not used twice", *path, i, "affinityName")


class SpreadConstraintManifest(Model):
    spread_by_field: Literal["cluster", "region", "zone", "provider", ""] = ""
    spread_by_label: str = ""
    max_groups: Int = 0
    min_groups: Int = 0

    def to_domain(self) -> domain.SpreadConstraint:
        """With Karmada's defaults: by cluster, over at least one group."""
        by_field = self.spread_by_field or ("" if self.spread_by_label else "cluster")
        return domain.SpreadConstraint(
            by_field, self.spread_by_label, self.min_groups or 1, self.max_groups
        )

    def refuse(self, path: Path) -> None:
        if self.spread_by_field and self.spread_by_label:
            raise ExpectedError("either spreadByField or spreadByLabel", *path)
        for groups, field in ((self.min_groups, "minGroups"), (self.max_groups, "maxGroups")):
            if groups < 0:
                raise ExpectedError("an integer that is not negative", *path, field)
        if self.max_groups and self.max_groups < self.min_groups:
            raise ExpectedError(
                f"at least minGroups, which is {self.min_groups}", *path, "maxGroups"
            )


def _weight(value: int) -> int:
    if value < 1:
        raise ExpectedError("an integer from 1")
    return value


class StaticWeightManifest(Model):
    target_cluster: ClusterAffinityManifest
    weight: Annotated[Int, AfterValidator(_weight)]

    def to_domain(self) -> domain.StaticWeight:
        return domain.StaticWeight(self.target_cluster.to_domain(), self.weight)


class WeightPreference(Model):
    static_weight_list: list[StaticWeightManifest] = []
    dynamic_weight: Literal["AvailableReplicas", ""] = ""

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Static weights beside a dynamic one, which wins."""
        if self.dynamic_weight and self.static_weight_list:
            yield (*path, "staticWeightList")


class ReplicaSchedulingManifest(Model):
    replica_scheduling_type: Literal["Duplicated", "Divided"] = "Divided"
    replica_division_preference: Literal["Aggregated", "Weighted", ""] = ""
    weight_preference: WeightPreference = WeightPreference()

    def to_domain(self) -> domain.ReplicaScheduling:
        weights, divided = self.weight_preference, self.replica_scheduling_type == "Divided"
        return domain.ReplicaScheduling(
            self.replica_scheduling_type,
            self.replica_division_preference if divided else "Weighted",
            ()
            if weights.dynamic_weight
            else tuple(w.to_domain() for w in weights.static_weight_list),
            bool(weights.dynamic_weight),
        )

    @property
    def by_capacity(self) -> bool:
        """Whether clusters get as many as they hold: what a group of clusters can overflow by."""
        return self.replica_scheduling_type == "Divided" and (
            self.replica_division_preference == "Aggregated"
            or bool(self.weight_preference.dynamic_weight)
        )


class GroupByLabel(Model):
    group_by_label_key: Annotated[str, AfterValidator(_key)]


class WorkloadAffinity(Model):
    affinity: GroupByLabel | None = None
    anti_affinity: GroupByLabel | None = None


class KarmadaPlacementManifest(Model):
    cluster_affinity: ClusterAffinityManifest | None = None
    cluster_affinities: list[ClusterAffinityTerm] = []
    cluster_tolerations: list[TolerationManifest] = []
    spread_constraints: list[SpreadConstraintManifest] = []
    replica_scheduling: ReplicaSchedulingManifest | None = None
    workload_affinity: WorkloadAffinity | None = None

    def refuse(self, path: Path) -> None:
        """What admission would refuse in a policy although the schema lets it through. Raises
        ExpectedError."""
        if self.cluster_affinity is not None and self.cluster_affinities:
            raise ExpectedError("either clusterAffinity or clusterAffinities", *path)
        _refuse_twice(
            [term.affinity_name for term in self.cluster_affinities], (*path, "clusterAffinities")
        )
        if self.cluster_affinity is not None:
            self.cluster_affinity.refuse((*path, "clusterAffinity"))
        for i, term in enumerate(self.cluster_affinities):
            term.refuse((*path, "clusterAffinities", i))
            if term.overflow_affinities and not (
                self.replica_scheduling and self.replica_scheduling.by_capacity
            ):
                expected = (
                    "overflowAffinities only where replicas are Aggregated or divided by "
                    "dynamicWeight"
                )
                raise ExpectedError(expected, *path, "clusterAffinities", i, "overflowAffinities")
        for i, constraint in enumerate(self.spread_constraints):
            constraint.refuse((*path, "spreadConstraints", i))
        weights = (
            self.replica_scheduling.weight_preference.static_weight_list
            if self.replica_scheduling
            else []
        )
        for i, weight in enumerate(weights):
            where = (
                "replicaScheduling",
                "weightPreference",
                "staticWeightList",
                i,
                "targetCluster",
            )
            weight.target_cluster.refuse((*path, *where))

    def to_domain(self) -> domain.Placement:
        """Of two kinds of affinities, which a binding may hold, the named ones count."""
        single = (self.cluster_affinity.to_domain(),) if self.cluster_affinity else ()
        several = tuple(term.to_domain() for term in self.cluster_affinities)
        groups = self.workload_affinity or WorkloadAffinity()
        return domain.Placement(
            several or single,
            tuple(t.to_domain() for t in self.cluster_tolerations),
            tuple(c.to_domain() for c in self.spread_constraints),
            self.replica_scheduling.to_domain()
            if self.replica_scheduling
            else domain.ReplicaScheduling(),
            groups.affinity.group_by_label_key if groups.affinity else "",
            groups.anti_affinity.group_by_label_key if groups.anti_affinity else "",
        )


def defaulted(placement: domain.Placement) -> domain.Placement:
    """Where a policy divides and does not say how, admission writes in: by weight."""
    if placement.replicas.preference:
        return placement
    return msgspec.structs.replace(
        placement, replicas=msgspec.structs.replace(placement.replicas, preference="Weighted")
    )
