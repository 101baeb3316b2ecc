"""Other objects of a cluster that matter for placing pods: what selects pods, how many may be
disrupted, their priority, which belong together. Volumes and device claims are in `storage` and
`device_claims`.

PriorityClass and PodGroup belong to the whole plane: they are looked up when a workload is applied,
and its binding carries their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, model_validator

from wharfinger.domain.cluster_objects import DisruptionBudget, PodSelecting
from wharfinger.domain.policy import PodGroups, Policy, PriorityLevel
from wharfinger.domain.selectors import LabelSelector as Selector
from wharfinger.domain.selectors import Requirement
from wharfinger.manifests.cluster_fact import CLUSTER, DEFAULT_NAMESPACE, ClusterFact, cluster_of
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes.core import Workload
from wharfinger.manifests.kubernetes.pod import PodTemplate
from wharfinger.manifests.model import (
    Count,
    ExpectedError,
    Int32,
    Labels,
    Model,
    NotEmpty,
    Object,
    Time,
    within,
)
from wharfinger.manifests.selectors import LabelSelectorManifest

# Who selects pods.


class ServiceSpec(Model):
    """Of a Service only matters which pods it selects; how it is reached is `Carried`."""

    model_config = {"extra": "ignore"}

    selector: Labels = {}


class ServiceManifest(ClusterFact):
    spec: ServiceSpec = ServiceSpec()

    def to_domain(self) -> PodSelecting:
        return PodSelecting(self.kind, self.namespace, self.name, exactly(self.spec.selector))


class ReplicationControllerSpec(Model, carried="minReadySeconds"):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: Labels = {}


class ReplicationController(Workload, ClusterFact):
    """As a fact of a member cluster: it selects its pods there."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template

    def to_domain(self) -> PodSelecting:
        return PodSelecting(self.kind, self.namespace, self.name, exactly(self.spec.selector))


def exactly(labels: Labels) -> Selector:
    """A plain map of labels as a selector. An empty one selects nothing: its owner has no pods by
    it."""
    return (
        Selector(dict(labels)) if labels else Selector(match_expressions=(Requirement("", "In"),))
    )


# How many may be disrupted.


def _count_or_percentage(value: object) -> str:
    """`IntOrString`: kept as text, as the plane has it."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if (
        isinstance(value, str)
        and value.endswith("%")
        and value[:-1].isascii()
        and value[:-1].isdigit()
    ):
        return value
    raise ExpectedError("a number of pods that is not negative, or a percentage such as 30%")


class PodDisruptionBudgetSpec(Model, carried="unhealthyPodEvictionPolicy"):
    min_available: Annotated[str, BeforeValidator(_count_or_percentage)] = ""
    max_unavailable: Annotated[str, BeforeValidator(_count_or_percentage)] = ""
    selector: LabelSelectorManifest | None = None

    @model_validator(mode="after")
    def _says_one_of_them(self) -> PodDisruptionBudgetSpec:
        if self.min_available and self.max_unavailable:
            raise ExpectedError("either minAvailable or maxUnavailable", "maxUnavailable")
        return self


class PodDisruptionBudgetStatus(
    Model, carried="conditions currentHealthy desiredHealthy expectedPods observedGeneration"
):
    disruptions_allowed: Int32 | None = None
    disrupted_pods: dict[str, Time] = {}


class PodDisruptionBudget(ClusterFact):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

    def to_domain(self) -> DisruptionBudget:
        selector = self.spec.selector
        return DisruptionBudget(
            self.namespace,
            self.name,
            None if selector is None else selector.to_domain(),
            self.status.disruptions_allowed,
            self.spec.min_available,
            self.spec.max_unavailable,
            tuple(sorted(self.status.disrupted_pods)),
        )


# Priorities of pods.

PRIORITY_MAX = 10**9
"""The highest priority of a user's class; above are the system's own classes (Kubernetes)."""

SYSTEM_CLASSES = {
    "system-cluster-critical": PriorityLevel(2 * 10**9),
    "system-node-critical": PriorityLevel(2 * 10**9 + 1000),
}
"""Every cluster has them."""


class PriorityClass(Object, carried="description"):
    """Belongs to no cluster: a class has one value for the whole plane, otherwise priorities of
    bindings could not be compared."""

    value: Annotated[Int32, within(-(2**31), PRIORITY_MAX)]
    global_default: bool = False
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"

    @model_validator(mode="after")
    def _is_not_of_the_system(self) -> PriorityClass:
        if self.name.startswith("system-"):
            raise ExpectedError(
                "a name that does not begin with 'system-', which is kept for built-in classes",
                "metadata",
                "name",
            )
        return self

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from _whose(self, path)

    def to_domain(self, manifest: str) -> Policy:
        level = PriorityLevel(self.value, self.global_default, self.preemption_policy == "Never")
        return Policy(self.kind, self.name, priority_level=level, manifest=manifest)


# Which belong together.


class Gang(Model):
    min_count: Annotated[Count, within(1, 2**31 - 1)]


class SchedulingPolicy(Model, carried="basic"):
    """Exactly one: `basic` places each pod by itself."""

    gang: Gang | None = None


class PodGroupSpec(
    Model,
    unacted="minResources scheduleTimeoutSeconds schedulingConstraints resourceClaims "
    "disruptionMode priorityClassName priority queue",
    carried="podGroupTemplateRef",
):
    """As the coscheduling plugin writes it (`minMember`), and as Kubernetes does
    (`schedulingPolicy.gang.minCount`)."""

    min_member: Annotated[Count, within(1, 2**31 - 1)] | None = None
    scheduling_policy: SchedulingPolicy | None = None

    @model_validator(mode="after")
    def _says_how_many(self) -> PodGroupSpec:
        if self.min_member is None and self.scheduling_policy is None:
            raise ExpectedError("minMember, or a schedulingPolicy")
        return self

    @property
    def min_count(self) -> int:
        """How many go together or not at all; 0: each by itself."""
        gang = self.scheduling_policy.gang if self.scheduling_policy else None
        return gang.min_count if gang else self.min_member or 0


class _Grouping(Object):
    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from _whose(self, path)


class PodGroup(_Grouping):
    spec: PodGroupSpec

    def to_domain(self, manifest: str) -> Policy:
        groups = PodGroups({self.name: self.spec.min_count})
        return Policy(self.kind, self.name, self.namespace, pod_groups=groups, manifest=manifest)


class PodGroupTemplate(Model):
    name: NotEmpty
    policy: SchedulingPolicy = SchedulingPolicy()


class GangWorkloadSpec(Model, carried="controllerRef"):
    pod_groups: list[PodGroupTemplate]


class GangWorkload(_Grouping):
    """The kind `Workload` of scheduling.k8s.io: groups before they were objects of their own."""

    spec: GangWorkloadSpec

    def to_domain(self, manifest: str) -> Policy:
        """Its groups under the names by which pods refer to them."""
        counts = {
            f"{self.name}/{g.name}": g.policy.gang.min_count if g.policy.gang else 0
            for g in self.spec.pod_groups
        }
        return Policy(
            self.kind, self.name, self.namespace, pod_groups=PodGroups(counts), manifest=manifest
        )


def _whose(found: Object, path: Path) -> Iterator[Path]:
    """The path of the cluster that the object names. It is not acted on: the object belongs to the
    whole plane."""
    if cluster_of(found):
        where = "labels" if CLUSTER in found.metadata.labels else "annotations"
        yield (*path, "metadata", where, CLUSTER)
