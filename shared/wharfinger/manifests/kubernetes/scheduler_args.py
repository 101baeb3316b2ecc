"""The arguments of each plugin as `pluginConfig` spells them, with kube-scheduler's defaults and
checks.

Two plugins are not kube-scheduler's: `Dynamic` (crane's, and more) and `Devices`; and
NodeResourcesBalancedAllocation has a `formula`, since what it computes changed with Kubernetes
1.36."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import AfterValidator, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from wharfinger.domain.pod_traits import TopologySpread
from wharfinger.domain.scheduler import (
    BalancedArgs,
    DevicesArgs,
    DynamicArgs,
    DynamicResourcesArgs,
    FitArgs,
    InterPodArgs,
    NodeAffinityArgs,
    PluginArgs,
    PreemptionArgs,
    ScoringType,
    ShapePoint,
    SpreadArgs,
    VolumeBindingArgs,
    WeightedResource,
)
from wharfinger.manifests.crane import DURATION, SECOND_NS, Duration
from wharfinger.manifests.kubernetes.pod import NodeAffinityManifest, TopologySpreadConstraint
from wharfinger.manifests.model import Count, ExpectedError, Int32, Model, NotEmpty, within

Percent = Annotated[Int32, within(0, 100)]


class Args(Model):
    """`KIND`: of the arguments, which may be written beside them."""

    KIND: ClassVar[str]

    api_version: Literal[
        "kubescheduler.config.k8s.io/v1",
        "kubescheduler.config.k8s.io/v1beta3",
        "kubescheduler.config.k8s.io/v1beta2",
    ] = "kubescheduler.config.k8s.io/v1"
    kind: str = ""

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Args:
        if self.kind not in ("", self.KIND):
            raise ExpectedError(self.KIND, "kind")
        return self

    def to_domain(self) -> PluginArgs:
        raise NotImplementedError


A = TypeVar("A", bound=Args)

# Resources.


class Resource(Model):
    name: NotEmpty
    weight: Annotated[Int32, within(0, 100)] = 0

    def to_domain(self) -> WeightedResource:
        return WeightedResource(self.name, self.weight or 1)


class Point(Model):
    utilization: Percent
    score: Annotated[Int32, within(0, 10)]

    def to_domain(self) -> ShapePoint:
        return ShapePoint(self.utilization, self.score)


def _rising(points: list[Point]) -> list[Point]:
    for i, (before, after) in enumerate(pairwise(points), 1):
        if after.utilization <= before.utilization:
            raise ExpectedError(
                f"a utilization above {before.utilization}, the one before", i, "utilization"
            )
    return points


Shape = Annotated[list[Point], AfterValidator(_rising)]


class Ratio(Model):
    shape: Shape = []


class Strategy(Model):
    type: ScoringType = "LeastAllocated"
    resources: list[Resource] = []
    requested_to_capacity_ratio: Ratio | None = None

    @model_validator(mode="after")
    def _ratio_has_a_shape(self) -> Strategy:
        if self.type == "RequestedToCapacityRatio" and not self.shape:
            raise ExpectedError("a shape of at least one point", "requestedToCapacityRatio")
        return self

    @property
    def shape(self) -> list[Point]:
        return self.requested_to_capacity_ratio.shape if self.requested_to_capacity_ratio else []


def _group_names(names: list[str]) -> list[str]:
    for i, name in enumerate(names):
        if "/" in name:
            raise ExpectedError("the group of a resource, the part before the '/'", i)
    return names


class NodeResourcesFitArgs(Args):
    KIND = "NodeResourcesFitArgs"

    ignored_resources: list[NotEmpty] = []
    ignored_resource_groups: Annotated[list[NotEmpty], AfterValidator(_group_names)] = []
    scoring_strategy: Strategy = Strategy()

    def to_domain(self) -> FitArgs:
        strategy = self.scoring_strategy
        return FitArgs(
            strategy.type,
            _resources(strategy.resources),
            tuple(p.to_domain() for p in strategy.shape)
            if strategy.type == "RequestedToCapacityRatio"
            else (),
            tuple(self.ignored_resources),
            tuple(self.ignored_resource_groups),
        )


def _resources(said: Sequence[Resource]) -> tuple[WeightedResource, ...]:
    """cpu and memory, where nothing is said."""
    return tuple(r.to_domain() for r in said) or FitArgs().resources


def _equal_and_once(said: list[Resource]) -> list[Resource]:
    for i, resource in enumerate(said):
        if resource.name in [r.name for r in said[:i]]:
            raise ExpectedError("each resource once", i, "name")
        if resource.weight not in (0, 1):
            raise ExpectedError("a weight of 1: balance knows no weights", i, "weight")
    return said


class NodeResourcesBalancedAllocationArgs(Args):
    """`formula`: Balance (as up to Kubernetes 1.35), how balanced a node is with the pod; ByChange,
    what the pod changes."""

    KIND = "NodeResourcesBalancedAllocationArgs"

    resources: Annotated[list[Resource], AfterValidator(_equal_and_once)] = []
    formula: Literal["Balance", "ByChange"] = "Balance"

    def to_domain(self) -> BalancedArgs:
        return BalancedArgs(_resources(self.resources), self.formula == "ByChange")


# Pods and nodes.


class InterPodAffinityArgs(Args):
    KIND = "InterPodAffinityArgs"

    hard_pod_affinity_weight: Percent = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def to_domain(self) -> InterPodArgs:
        return InterPodArgs(
            self.hard_pod_affinity_weight, self.ignore_preferred_terms_of_existing_pods
        )


class DefaultConstraint(TopologySpreadConstraint):
    """A default constraint has no selector: each pod's is found by what selects the pod."""

    @model_validator(mode="after")
    def _selects_by_the_pod(self) -> DefaultConstraint:
        if self.label_selector is not None:
            raise ExpectedError("no labelSelector: each pod has its own", "labelSelector")
        return self


class PodTopologySpreadArgs(Args):
    KIND = "PodTopologySpreadArgs"

    default_constraints: list[DefaultConstraint] = []
    defaulting_type: Literal["System", "List", ""] = ""

    @model_validator(mode="after")
    def _lists_where_it_says_so(self) -> PodTopologySpreadArgs:
        if self.default_constraints and self.defaulting_type != "List":
            raise ExpectedError(
                "defaultingType List where there are defaultConstraints", "defaultingType"
            )
        seen: list[tuple[str, str]] = []
        for i, constraint in enumerate(self.default_constraints):
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                raise ExpectedError(
                    "one constraint for a topologyKey and whenUnsatisfiable",
                    "defaultConstraints",
                    i,
                )
            seen.append(key)
        return self

    def to_domain(self) -> SpreadArgs:
        constraints: tuple[TopologySpread, ...] = tuple(
            c.to_domain() for c in self.default_constraints
        )
        return SpreadArgs(self.defaulting_type != "List", constraints)


class AddedAffinityArgs(Args):
    KIND = "NodeAffinityArgs"

    added_affinity: NodeAffinityManifest | None = None

    @model_validator(mode="after")
    def _adds_something(self) -> AddedAffinityArgs:
        if self.added_affinity == NodeAffinityManifest():
            raise ExpectedError("a required or a preferred affinity", "addedAffinity")
        return self

    def to_domain(self) -> NodeAffinityArgs:
        added = self.added_affinity or NodeAffinityManifest()
        required = added.required_during_scheduling_ignored_during_execution
        return NodeAffinityArgs(
            None if required is None else required.to_domain(),
            tuple(
                t.to_domain() for t in added.preferred_during_scheduling_ignored_during_execution
            ),
        )


class DefaultPreemptionArgs(Args):
    """`whole_groups` and `across_nodes` are not kube-scheduler's."""

    KIND = "DefaultPreemptionArgs"

    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Count = 100
    whole_groups: bool = False
    across_nodes: bool = False

    @model_validator(mode="after")
    def _looks_somewhere(self) -> DefaultPreemptionArgs:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ExpectedError(
                "a number above 0 here or in minCandidateNodesAbsolute",
                "minCandidateNodesPercentage",
            )
        return self

    def to_domain(self) -> PreemptionArgs:
        return PreemptionArgs(
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
            self.whole_groups,
            self.across_nodes,
        )


# Volumes and devices.


def _no_shape(shape: list[Point] | None) -> None:
    if shape is not None:
        raise ExpectedError("no shape: the capacity of storage is not scored")


class VolumeArgs(Args):
    """The time-out is that of the binding, which is the API server's world. `shape` needs a feature
    that Kubernetes has off."""

    KIND = "VolumeBindingArgs"

    bind_timeout_seconds: Count = 600
    shape: Annotated[list[Point] | None, AfterValidator(_no_shape)] = None

    def to_domain(self) -> VolumeBindingArgs:
        return VolumeBindingArgs(self.bind_timeout_seconds)


class ClaimArgs(Args):
    """The time-out is of wall-clock time, by which no decision of ours goes."""

    KIND = "DynamicResourcesArgs"

    filter_timeout: Duration = 10 * SECOND_NS

    def to_domain(self) -> DynamicResourcesArgs:
        if self.filter_timeout < 0:
            raise ExpectedError(f"{DURATION}, not below 0", "filterTimeout")
        return DynamicResourcesArgs(-(-self.filter_timeout // SECOND_NS))


# Not kube-scheduler's.


class LoadArgs(Args, carried="policyConfigPath"):
    """crane's DynamicArgs and ours. The file that `policyConfigPath` names is not read: the policy
    is applied as a manifest."""

    KIND = "DynamicArgs"

    stale: Literal["crane", "open", "closed"] = "open"
    damped: bool = True

    def to_domain(self) -> DynamicArgs:
        return DynamicArgs(self.stale, self.damped)


class DeviceArgs(Args):
    """Without a strategy devices are not scored."""

    KIND = "DevicesArgs"

    strategy: Literal["", "best-fit", "fragmentation", "expected-fill"] = ""

    def to_domain(self) -> DevicesArgs:
        return DevicesArgs(self.strategy)


# As an entry of a profile's `pluginConfig`.


class PluginConfig(Model):
    """The arguments of a plugin of which we do not know what it takes stay as they are."""

    name: NotEmpty
    args: object = None


class Known(PluginConfig, Generic[A]):
    args: A | None = None


CONFIGURED: dict[str, tuple[str, type[PluginConfig]]] = {
    "NodeResourcesFit": ("fit", Known[NodeResourcesFitArgs]),
    "NodeResourcesBalancedAllocation": ("balanced", Known[NodeResourcesBalancedAllocationArgs]),
    "InterPodAffinity": ("inter_pod", Known[InterPodAffinityArgs]),
    "PodTopologySpread": ("spread", Known[PodTopologySpreadArgs]),
    "NodeAffinity": ("node_affinity", Known[AddedAffinityArgs]),
    "DefaultPreemption": ("preemption", Known[DefaultPreemptionArgs]),
    "VolumeBinding": ("volume_binding", Known[VolumeArgs]),
    "DynamicResources": ("dynamic_resources", Known[ClaimArgs]),
    "Dynamic": ("dynamic", Known[LoadArgs]),
    "Devices": ("devices", Known[DeviceArgs]),
}
"""Plugin -> its field of `domain.scheduler.Arguments`, and how it is written. The other plugins of
ours take none."""


def _by_name(data: object, read: ValidatorFunctionWrapHandler) -> PluginConfig:
    config: PluginConfig = read(data)
    return CONFIGURED[config.name][1].model_validate(data) if config.name in CONFIGURED else config


AnyPluginConfig = Annotated[PluginConfig, WrapValidator(_by_name)]
