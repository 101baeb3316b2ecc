"""Karmada's kinds: member clusters, propagation policies, resource bindings. Their placement is in
`placement`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from wharfinger.domain import cluster as cluster_domain
from wharfinger.domain.binding import Binding, Component, TargetCluster
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.quantities import parse_milli, parse_units
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.manifests.amounts import amounts, device_requests, split_devices
from wharfinger.manifests.cluster_fact import DEFAULT_NAMESPACE
from wharfinger.manifests.errors import Path
from wharfinger.manifests.karmada.failover import AggregatedStatusItem, FailoverBehavior
from wharfinger.manifests.karmada.placement import KarmadaPlacementManifest, defaulted
from wharfinger.manifests.model import (
    Amounts,
    Count,
    ExpectedError,
    Int32,
    Labels,
    Model,
    Object,
    Quantity,
)
from wharfinger.manifests.selectors import (
    LabelSelectorManifest,
    NodeSelector,
    TaintManifest,
    TolerationManifest,
)
from wharfinger.manifests.wharfinger import options

LEASE_S = "wharfinger.io/lease-s"
"""Annotation of a cluster: how many seconds of silence are normal. Without it a cluster is never
called silent."""


# The member cluster.


class ApiResource(Model):
    kind: str
    name: str = ""


class ApiEnablement(Model):
    group_version: str
    resources: list[ApiResource] = []


class ResourceRange(Model):
    """What of one resource a node of a grade has free: at least `min`, less than `max`."""

    name: str
    min: Quantity
    max: Quantity


class ResourceModel(Model):
    """A grade: the class of nodes whose free room lies within all of its ranges."""

    grade: Count
    ranges: list[ResourceRange] = []

    def minimum(self) -> dict[str, int]:
        return {
            r.name: parse_milli(r.min) if r.name == "cpu" else parse_units(r.min)
            for r in self.ranges
        }


class AllocatableModeling(Model):
    """How many nodes are of a grade."""

    grade: Count
    count: Count = 0


class ResourceSummaryManifest(Model):
    allocatable: Amounts = {}
    allocated: Amounts = {}
    allocating: Amounts = {}
    allocatable_modelings: list[AllocatableModeling] = []

    def to_domain(self, models: list[ResourceModel]) -> cluster_domain.ResourceSummary:
        """Numbers of grades that the cluster does not describe say nothing, so without models there
        are no grades (as in Karmada, which then takes the totals)."""
        counts = {modeling.grade: modeling.count for modeling in self.allocatable_modelings}
        grades = tuple(
            cluster_domain.NodeGrade(model.minimum(), counts.get(model.grade, 0))
            for model in sorted(models, key=lambda model: model.grade)
        )
        return cluster_domain.ResourceSummary(
            amounts(self.allocatable),
            amounts(self.allocated),
            amounts(self.allocating),
            grades if counts else (),
        )


class ClusterSpec(
    Model,
    carried="apiEndpoint id impersonatorSecretRef insecureSkipTLSVerification proxyHeader proxyURL "
    "secretRef syncMode",
):
    provider: str = ""
    region: str = ""
    zone: str = ""
    zones: list[str] = []
    taints: list[TaintManifest] = []
    resource_models: list[ResourceModel] = []


class KarmadaCondition(
    Model, carried="lastHeartbeatTime lastTransitionTime message observedGeneration reason"
):
    """One of an object's conditions; what is read of it is type and status."""

    type: str
    status: str


class ClusterStatus(Model, unacted="remedyActions", carried="kubernetesVersion nodeSummary"):
    api_enablements: list[ApiEnablement] | None = None
    resource_summary: ResourceSummaryManifest | None = None
    conditions: list[KarmadaCondition] = []


class ClusterManifest(Object):
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Besides single fields: how many nodes are of which grade, where no grades are
        described."""
        yield from super().unacted(path)
        summary = self.status.resource_summary
        if summary is not None and summary.allocatable_modelings and not self.spec.resource_models:
            yield (*path, "status", "resourceSummary", "allocatableModelings")

    def to_domain(self, *, admitted: bool = False) -> cluster_domain.Cluster:
        """`admitted`: as an API server holds it, which has made zones of the older `zone` where it
        was meant. Raises ExpectedError for a lease that is not a number of seconds."""
        spec, status = self.spec, self.status
        kinds = None
        if status.api_enablements is not None:
            kinds = tuple(
                sorted(
                    {
                        f"{e.group_version}/{r.kind}"
                        for e in status.api_enablements
                        for r in e.resources
                    }
                )
            )
        return cluster_domain.Cluster(
            self.name,
            labels=dict(self.metadata.labels),
            provider=spec.provider,
            region=spec.region,
            # `zone` is the older spelling of a single zone.
            zones=tuple(spec.zones) or ((spec.zone,) if spec.zone and not admitted else ()),
            taints=tuple(t.to_domain() for t in spec.taints),
            api_kinds=kinds,
            lease_s=lease_s(self),
            deleting=self.metadata.deletion_timestamp is not None,
            summary=status.resource_summary.to_domain(spec.resource_models)
            if status.resource_summary
            else None,
            conditions={c.type: c.status for c in status.conditions},
        )


def lease_s(cluster: Object) -> int | None:
    """The promise to be heard at least that often. Raises ExpectedError."""
    text = cluster.annotations.get(LEASE_S)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and int(text) > 0):
        raise ExpectedError("a number of seconds above 0", "metadata", "annotations", LEASE_S)
    return int(text)


# Policies.


class SelectorManifest(Model):
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelectorManifest | None = None

    def to_domain(self, namespace: str) -> ResourceSelector:
        labels = self.label_selector.to_domain() if self.label_selector else None
        return ResourceSelector(
            self.api_version, self.kind, self.namespace or namespace, self.name, labels
        )


class Suspension(Model, unacted="dispatching dispatchingOnClusters"):
    scheduling: bool = False


class PolicySchedulePriority(Model, unacted="preemptionPolicy"):
    """`PodPriorityClass` leaves it to the workload, which is what happens anyway. The value of a
    class is not known here."""

    priority_class_source: Literal[
        "KubePriorityClass", "PodPriorityClass", "FederatedPriorityClass"
    ]
    priority_class_name: str = ""

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        if self.priority_class_source != "PodPriorityClass" and self.priority_class_name:
            yield (*path, "priorityClassName")


class PropagationSpec(
    Model,
    unacted="association conflictResolution dependentOverrides preserveResourcesOnDeletion "
    "propagateDeps",
):
    resource_selectors: list[SelectorManifest] = []
    placement: KarmadaPlacementManifest = KarmadaPlacementManifest()
    priority: Int32 = 0
    preemption: Literal["Always", "Never"] = "Never"
    suspension: Suspension = Suspension()
    scheduler_name: str = ""
    schedule_priority: PolicySchedulePriority | None = None
    activation_preference: Literal["Lazy", ""] = ""
    failover: FailoverBehavior = FailoverBehavior()


class ClusterPropagationPolicy(Object):
    """Selects objects of any namespace, and those without one."""

    spec: PropagationSpec

    @model_validator(mode="after")
    def _admitted(self) -> ClusterPropagationPolicy:
        self.spec.placement.refuse(("spec", "placement"))
        return self

    @property
    def namespace(self) -> str:
        return ""

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from options.unknown(self.annotations, options.OF_POLICIES, path)
        yield from super().unacted(path)

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for annotations that say nothing sensible."""
        spec = self.spec
        propagation = Propagation(
            tuple(s.to_domain(self.namespace) for s in spec.resource_selectors),
            spec.failover.onto(
                options.extended(defaulted(spec.placement.to_domain()), self.annotations)
            ),
            spec.priority,
            spec.suspension.scheduling,
            spec.preemption == "Always",
            spec.activation_preference == "Lazy",
            spec.scheduler_name,
        )
        return Policy(self.kind, self.name, self.namespace, propagation, manifest=manifest)


class PropagationPolicy(ClusterPropagationPolicy):
    """Selects objects of its own namespace."""

    @model_validator(mode="after")
    def _stays_at_home(self) -> PropagationPolicy:
        for i, selector in enumerate(self.spec.resource_selectors):
            if selector.namespace not in ("", self.namespace):
                path: Path = ("spec", "resourceSelectors", i, "namespace")
                raise ExpectedError(f"the policy's own namespace '{self.namespace}'", *path)
        return self

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE


# The binding itself, for those who write it by hand or export it.


class BoundResource(Model, carried="resourceVersion"):
    """In the API's first version replicas, and what one asks for, stand here."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    replicas: Count = 0
    replica_resource_requirements: Amounts = {}


class NodeClaim(Model):
    node_selector: Labels = {}
    hard_node_affinity: NodeSelector | None = None
    tolerations: list[TolerationManifest] = []


class ReplicaRequirements(Model, carried="namespace"):
    node_claim: NodeClaim = NodeClaim()
    resource_request: Amounts = {}
    priority_class_name: str = ""

    def to_domain(self) -> Requirements:
        from_claim = self.node_claim
        requests, devices = split_devices(amounts(self.resource_request))
        return Requirements(
            {name: amount for name, amount in requests.items() if amount},
            device_requests(devices),
            dict(from_claim.node_selector),
            from_claim.hard_node_affinity.to_domain() if from_claim.hard_node_affinity else (),
            tuple(t.to_domain() for t in from_claim.tolerations),
        )


class BoundComponent(Model):
    """One kind of pod of a workload that has several."""

    name: str
    replicas: Count = 0
    replica_requirements: ReplicaRequirements | None = None

    def to_domain(self) -> Component:
        needs = self.replica_requirements
        return Component(self.name, self.replicas, needs.to_domain() if needs else Requirements())


class BoundCluster(Model, carried="components"):
    """A cluster the binding has been given, with its replicas; of components it says the same
    again."""

    name: str
    replicas: Count = 0


class EvictionTask(
    Model,
    carried="clustersBeforeFailover creationTimestamp gracePeriodSeconds message "
    "preservedLabelState purgeMode replicas suppressDeletion",
):
    from_cluster: str
    producer: str = ""
    reason: str = ""


class WorkloadAffinityGroups(Model):
    affinity_group: str = ""
    anti_affinity_group: str = ""


class SchedulePriority(Model, unacted="preemptionPolicy"):
    priority: Int32 = 0


class ResourceBindingSpec(
    Model,
    unacted="conflictResolution gracefulEvictionTasks preserveResourcesOnDeletion propagateDeps "
    "requiredBy",
):
    resource: BoundResource
    replicas: Count = 0
    replica_requirements: ReplicaRequirements | None = None
    components: list[BoundComponent] = []
    placement: KarmadaPlacementManifest = KarmadaPlacementManifest()
    clusters: list[BoundCluster] = []
    reschedule_triggered_at: str = ""
    schedule_priority: SchedulePriority = SchedulePriority()
    scheduler_name: str = ""
    suspension: Suspension = Suspension()
    workload_affinity_groups: WorkloadAffinityGroups = WorkloadAffinityGroups()
    graceful_eviction_tasks: list[EvictionTask] = []
    failover: FailoverBehavior = FailoverBehavior()

    @property
    def priority_class(self) -> str:
        """Of the replicas, or the first that a component names: quotas know one for a binding."""
        needs = [self.replica_requirements, *(c.replica_requirements for c in self.components)]
        return next(
            (n.priority_class_name for n in needs if n is not None and n.priority_class_name), ""
        )


class ResourceBindingStatus(Model, carried="conditions schedulerObservedGeneration"):
    """What another scheduler made of it, and how it fares in its clusters."""

    scheduler_observing_affinity_name: str = ""
    last_scheduled_time: str = ""
    aggregated_status: list[AggregatedStatusItem] = []


class ClusterResourceBinding(Object):
    """Of an object without a namespace."""

    spec: ResourceBindingSpec
    status: ResourceBindingStatus = ResourceBindingStatus()

    @property
    def namespace(self) -> str:
        return ""

    @property
    def binding_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from options.unknown(self.annotations, options.OF_POLICIES, path)
        yield from super().unacted(path)

    def to_domain(self) -> Binding:
        """Raises ExpectedError for annotations that say nothing sensible."""
        spec, resource, name = self.spec, self.spec.resource, self.binding_name
        needs = spec.replica_requirements or ReplicaRequirements.model_construct(
            resource_request=resource.replica_resource_requirements
        )
        return Binding(
            name,
            self.metadata.uid or resource.uid or name,
            ObjectRef(resource.api_version, resource.kind, resource.name, resource.namespace),
            spec.replicas or resource.replicas,
            needs.to_domain(),
            spec.failover.onto(options.extended(spec.placement.to_domain(), self.annotations)),
            spec.schedule_priority.priority,
            spec.suspension.scheduling,
            spec.reschedule_triggered_at,
            f"{self.kind}/{name}",
            dict(self.metadata.labels),
            tuple(c.to_domain() for c in spec.components),
            spec.scheduler_name,
            spec.workload_affinity_groups.affinity_group,
            spec.workload_affinity_groups.anti_affinity_group,
            spec.priority_class,
            tuple(TargetCluster(c.name, c.replicas) for c in spec.clusters),
        )


class ResourceBinding(ClusterResourceBinding):
    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE
