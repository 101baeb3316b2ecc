"""Karmada's kinds: member clusters, propagation policies, resource bindings.

Placement follows Karmada's API field for field; what its admission webhook would refuse (two affinities at once, a spread by two
things) is refused here too, because nothing later expects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from wharfinger.domain import cluster as cluster_domain
from wharfinger.domain import placement as domain
from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes import (
    LabelSelector,
    NodeSelector,
    Taint,
    Toleration,
    amounts,
    device_requests,
    split_devices,
)
from wharfinger.manifests.model import Amounts, Carried, Count, ExpectedError, Int32, Labels, Model, Object, Unacted

LEASE_S = "wharfinger.io/lease-s"
"""Annotation of a cluster: how many seconds of silence are normal. Without it a cluster is never called silent."""
DEFAULT_NAMESPACE = "default"


# The member cluster.


class ApiResource(Model):
    kind: str
    name: str = ""


class ApiEnablement(Model):
    group_version: str
    resources: list[ApiResource] = []


class ResourceSummary(Model):
    allocatable: Amounts = {}
    allocated: Amounts = {}
    allocating: Amounts = {}
    allocatable_modelings: Unacted = None

    def to_domain(self) -> cluster_domain.ResourceSummary:
        return cluster_domain.ResourceSummary(
            amounts(self.allocatable), amounts(self.allocated), amounts(self.allocating)
        )


class ClusterSpec(Model):
    provider: str = ""
    region: str = ""
    zone: str = ""
    zones: list[str] = []
    taints: list[Taint] = []
    resource_models: Unacted = None
    api_endpoint: Carried = None
    id: Carried = None
    impersonator_secret_ref: Carried = None
    insecure_skip_tls_verification: Carried = None
    proxy_header: Carried = None
    proxy_url: Carried = None
    secret_ref: Carried = None
    sync_mode: Carried = None


class ClusterStatus(Model):
    api_enablements: list[ApiEnablement] | None = None
    resource_summary: ResourceSummary | None = None
    conditions: Unacted = None
    remedy_actions: Unacted = None
    kubernetes_version: Carried = None
    node_summary: Carried = None


class Cluster(Object):
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()

    def to_domain(self) -> cluster_domain.Cluster:
        """Raises ExpectedError for a lease that is not a number of seconds."""
        spec, status = self.spec, self.status
        kinds = None
        if status.api_enablements is not None:
            kinds = tuple(
                sorted({f"{e.group_version}/{r.kind}" for e in status.api_enablements for r in e.resources})
            )  # fmt: skip
        return cluster_domain.Cluster(
            self.name,
            labels=dict(self.metadata.labels),
            provider=spec.provider,
            region=spec.region,
            # `zone` is the older spelling of a single zone.
            zones=tuple(spec.zones) or ((spec.zone,) if spec.zone else ()),
            taints=tuple(t.to_domain() for t in spec.taints),
            api_kinds=kinds,
            lease_s=lease_s(self),
            deleting=self.metadata.deletion_timestamp is not None,
            summary=status.resource_summary.to_domain() if status.resource_summary else None,
        )


def lease_s(cluster: Object) -> int | None:
    """The promise to be heard at least that often. Raises ExpectedError."""
    text = cluster.annotations.get(LEASE_S)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and int(text) > 0):
        raise ExpectedError("a number of seconds above 0", "metadata", "annotations", LEASE_S)
    return int(text)


# Placement.


class FieldExpression(Model):
    key: Literal["provider", "region", "zone"]
    operator: Literal["In", "NotIn"]
    values: list[str] = []

    def to_domain(self) -> Requirement:
        return Requirement(self.key, self.operator, tuple(self.values))


class FieldSelector(Model):
    match_expressions: list[FieldExpression] = []


class ClusterAffinity(Model):
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    cluster_names: list[str] = []
    exclude: list[str] = []

    def to_domain(self, name: str = "") -> domain.ClusterAffinity:
        return domain.ClusterAffinity(
            name,
            tuple(self.cluster_names),
            tuple(self.exclude),
            self.label_selector.to_domain() if self.label_selector else None,
            tuple(e.to_domain() for e in self.field_selector.match_expressions) if self.field_selector else (),
        )


class ClusterAffinityTerm(ClusterAffinity):
    affinity_name: str
    overflow_affinities: Unacted = None


class SpreadConstraint(Model):
    spread_by_field: Literal["cluster", "region", "zone", "provider", ""] = ""
    spread_by_label: str = ""
    max_groups: Count = 0
    min_groups: Count = 0

    @model_validator(mode="after")
    def _one_way(self) -> SpreadConstraint:
        if self.spread_by_field and self.spread_by_label:
            raise ExpectedError("either spreadByField or spreadByLabel")
        if self.max_groups and self.max_groups < self.min_groups:
            raise ExpectedError(f"at least minGroups, which is {self.min_groups}", "maxGroups")
        return self

    def to_domain(self) -> domain.SpreadConstraint:
        """With Karmada's defaults: by cluster, over at least one group."""
        by_field = self.spread_by_field or ("" if self.spread_by_label else "cluster")
        return domain.SpreadConstraint(by_field, self.spread_by_label, self.min_groups or 1, self.max_groups)


class StaticWeight(Model):
    target_cluster: ClusterAffinity
    weight: Count

    def to_domain(self) -> domain.StaticWeight:
        return domain.StaticWeight(self.target_cluster.to_domain(), self.weight)


class WeightPreference(Model):
    static_weight_list: list[StaticWeight] = []
    dynamic_weight: Literal["AvailableReplicas", ""] = ""

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Static weights beside a dynamic one, which wins."""
        if self.dynamic_weight and self.static_weight_list:
            yield (*path, "staticWeightList")


class ReplicaScheduling(Model):
    replica_scheduling_type: Literal["Duplicated", "Divided"] = "Divided"
    replica_division_preference: Literal["Aggregated", "Weighted"] | None = None
    weight_preference: WeightPreference = WeightPreference()

    def to_domain(self) -> domain.ReplicaScheduling:
        weights = self.weight_preference
        return domain.ReplicaScheduling(
            self.replica_scheduling_type,
            self.replica_division_preference or "Weighted",
            () if weights.dynamic_weight else tuple(w.to_domain() for w in weights.static_weight_list),
            bool(weights.dynamic_weight),
        )


class Placement(Model):
    cluster_affinity: ClusterAffinity | None = None
    cluster_affinities: list[ClusterAffinityTerm] = []
    cluster_tolerations: list[Toleration] = []
    spread_constraints: list[SpreadConstraint] = []
    replica_scheduling: ReplicaScheduling | None = None
    workload_affinity: Unacted = None

    @model_validator(mode="after")
    def _one_affinity(self) -> Placement:
        if self.cluster_affinity is not None and self.cluster_affinities:
            raise ExpectedError("either clusterAffinity or clusterAffinities")
        names = [term.affinity_name for term in self.cluster_affinities]
        for i, name in enumerate(names):
            if not name or name in names[:i]:
                raise ExpectedError("a name that is not used twice", "clusterAffinities", i, "affinityName")
        return self

    def to_domain(self) -> domain.Placement:
        single = (self.cluster_affinity.to_domain(),) if self.cluster_affinity else ()
        several = tuple(term.to_domain(term.affinity_name) for term in self.cluster_affinities)
        return domain.Placement(
            several or single,
            tuple(t.to_domain() for t in self.cluster_tolerations),
            tuple(c.to_domain() for c in self.spread_constraints),
            self.replica_scheduling.to_domain() if self.replica_scheduling else domain.ReplicaScheduling(),
        )


# Policies.


class Selector(Model):
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelector | None = None

    def to_domain(self, namespace: str) -> ResourceSelector:
        labels = self.label_selector.to_domain() if self.label_selector else None
        return ResourceSelector(self.api_version, self.kind, self.namespace or namespace, self.name, labels)


class Suspension(Model):
    scheduling: bool = False
    dispatching: Unacted = None
    dispatching_on_clusters: Unacted = None


class PropagationSpec(Model):
    resource_selectors: list[Selector] = []
    placement: Placement = Placement()
    priority: Int32 = 0
    suspension: Suspension = Suspension()
    activation_preference: Unacted = None
    association: Unacted = None
    conflict_resolution: Unacted = None
    dependent_overrides: Unacted = None
    failover: Unacted = None
    preemption: Unacted = None
    preserve_resources_on_deletion: Unacted = None
    propagate_deps: Unacted = None
    schedule_priority: Unacted = None
    scheduler_name: Unacted = None


class ClusterPropagationPolicy(Object):
    """Selects objects of any namespace, and those without one."""

    spec: PropagationSpec

    @property
    def namespace(self) -> str:
        return ""

    def to_domain(self, manifest: str) -> Policy:
        spec = self.spec
        propagation = Propagation(
            tuple(s.to_domain(self.namespace) for s in spec.resource_selectors),
            spec.placement.to_domain(),
            spec.priority,
            spec.suspension.scheduling,
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


class BoundResource(Model):
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    replicas: Unacted = None
    replica_resource_requirements: Unacted = None
    resource_version: Carried = None


class NodeClaim(Model):
    node_selector: Labels = {}
    hard_node_affinity: NodeSelector | None = None
    tolerations: list[Toleration] = []


class ReplicaRequirements(Model):
    node_claim: NodeClaim = NodeClaim()
    resource_request: Amounts = {}
    namespace: Carried = None
    priority_class_name: Unacted = None

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


class SchedulePriority(Model):
    priority: Int32 = 0


class ResourceBindingSpec(Model):
    resource: BoundResource
    replicas: Count = 0
    replica_requirements: ReplicaRequirements | None = None
    placement: Placement = Placement()
    reschedule_triggered_at: str = ""
    schedule_priority: SchedulePriority = SchedulePriority()
    suspension: Suspension = Suspension()
    clusters: Unacted = None
    components: Unacted = None
    conflict_resolution: Unacted = None
    failover: Unacted = None
    graceful_eviction_tasks: Unacted = None
    preserve_resources_on_deletion: Unacted = None
    propagate_deps: Unacted = None
    required_by: Unacted = None
    scheduler_name: Unacted = None
    workload_affinity_groups: Unacted = None


class ResourceBinding(Object):
    spec: ResourceBindingSpec

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def to_domain(self) -> Binding:
        spec, resource = self.spec, self.spec.resource
        name = f"{self.namespace}/{self.name}"
        return Binding(
            name,
            self.metadata.uid or resource.uid or name,
            ObjectRef(resource.api_version, resource.kind, resource.name, resource.namespace),
            spec.replicas,
            spec.replica_requirements.to_domain() if spec.replica_requirements else Requirements(),
            spec.placement.to_domain(),
            spec.schedule_priority.priority,
            spec.suspension.scheduling,
            spec.reschedule_triggered_at,
            f"{self.kind}/{name}",
            dict(self.metadata.labels),
        )
