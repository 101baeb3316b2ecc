"""Kubernetes' own kinds: workloads with a pod template, nodes, and objects that go to clusters as
they are.

A workload becomes replicas with `Requirements`; a Node becomes `domain.node.Node`. What the pod
runs is `Carried`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import msgspec

from wharfinger.domain import node as domain
from wharfinger.domain import selectors
from wharfinger.domain.actuation import CLOSED_BY
from wharfinger.domain.cluster_objects import DaemonPods, NamespaceLabels, PodSelecting
from wharfinger.domain.pod_traits import NO_TRAITS
from wharfinger.domain.quota import Quota, limited_resource
from wharfinger.domain.resources import GPU, Device
from wharfinger.domain.workload import Requirements
from wharfinger.manifests import crane
from wharfinger.manifests.amounts import DEVICES_MAX, amounts, quota_amounts, split_devices
from wharfinger.manifests.cluster_fact import (
    DEFAULT_NAMESPACE,
    ClusterFact,
    cluster_of,
    required_cluster,
)
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes.pod import (
    DAEMON_SET,
    PodSpec,
    PodTemplate,
    Source,
    Whose,
    tagged,
)
from wharfinger.manifests.kubernetes.pod_upkeep import UpkeepStatus, upkeep_of
from wharfinger.manifests.kubernetes.waiting_pod import waiting
from wharfinger.manifests.model import (
    Amounts,
    Count,
    ExpectedError,
    Int,
    Labels,
    Metadata,
    Model,
    Object,
    Time,
    micros,
)
from wharfinger.manifests.selectors import LabelSelectorManifest, TaintManifest

NAME_LABEL = "kubernetes.io/metadata.name"
"""Label of a Namespace: its name."""
GPU_PRODUCT = "nvidia.com/gpu.product"
"""Label of a Node: the model of its GPUs."""
KARPENTER = "karpenter.sh/"
"""How annotations begin by which Karpenter keeps what it knows of a node."""

# Workloads.


class Workload(Object):
    """A kind with replicas of one pod template: what the fleet stage divides and the cluster stage
    places."""

    @property
    def replicas(self) -> int:
        raise NotImplementedError

    @property
    def template(self) -> PodTemplate:
        raise NotImplementedError

    def requirements(self) -> Requirements:
        """Raises ExpectedError for annotations that say nothing sensible."""
        return self.template.requirements(self.whose)

    @property
    def whose(self) -> Whose:
        return Whose(self.metadata, self.metadata.namespace or DEFAULT_NAMESPACE, self.owner)

    @property
    def owner(self) -> str:
        """The kind of the object that makes the pods and looks after them."""
        return self.kind

    @property
    def priority(self) -> int:
        return self.template.spec.priority or 0

    @property
    def priority_class(self) -> str:
        return self.template.spec.priority_class_name


class DeploymentSpec(
    Model, carried="minReadySeconds paused progressDeadlineSeconds revisionHistoryLimit strategy"
):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: LabelSelectorManifest | None = None


class Deployment(Workload):
    spec: DeploymentSpec

    @property
    def owner(self) -> str:
        return "ReplicaSet"

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class ReplicaSetSpec(Model, carried="minReadySeconds"):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: LabelSelectorManifest | None = None


class ReplicaSet(Workload, ClusterFact):
    """As a fact of a member cluster: it selects its pods there."""

    spec: ReplicaSetSpec = ReplicaSetSpec()

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template

    def to_domain(self) -> PodSelecting:
        return _selecting(self, self.spec.selector)


def _selecting(owner: ClusterFact, selector: LabelSelectorManifest | None) -> PodSelecting:
    """Raises ExpectedError without a selector, which these kinds must have."""
    if selector is None:
        raise ExpectedError("a selector", "spec", "selector")
    return PodSelecting(owner.kind, owner.namespace, owner.name, selector.to_domain())


class StatefulSetSpec(
    Model,
    unacted="volumeClaimTemplates",
    carried="minReadySeconds ordinals persistentVolumeClaimRetentionPolicy podManagementPolicy "
    "revisionHistoryLimit serviceName updateStrategy",
):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: LabelSelectorManifest | None = None


class StatefulSet(Workload, ClusterFact):
    """As a fact of a member cluster: it selects its pods there."""

    spec: StatefulSetSpec

    def to_domain(self) -> PodSelecting:
        return _selecting(self, self.spec.selector)

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class JobSpec(
    Model,
    unacted="suspend",
    carried="selector activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode "
    "managedBy manualSelector maxFailedIndexes podFailurePolicy podReplacementPolicy "
    "successPolicy ttlSecondsAfterFinished",
):
    parallelism: Count = 1
    completions: Count | None = None
    template: PodTemplate = PodTemplate()


class Job(Workload):
    """Its replicas are the pods that run at a time: never more than are to complete."""

    spec: JobSpec

    @property
    def replicas(self) -> int:
        wanted, complete = self.spec.parallelism, self.spec.completions
        return wanted if complete is None else min(wanted, complete)

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class ClaimStatus(Source):
    name: str
    resource_claim_name: str = ""


class PodStatus(UpkeepStatus):
    start_time: Time | None = None
    resource_claim_statuses: list[ClaimStatus] = []
    nominated_node_name: str = ""


class PodManifest(Workload):
    """A replica of its own, or, with a node, one that is seen there (`pod_of`)."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def replicas(self) -> int:
        return 1

    @property
    def template(self) -> PodTemplate:
        return PodTemplate.model_construct(metadata=self.metadata, spec=self.spec)

    @property
    def owner(self) -> str:
        return self.metadata.controller

    @property
    def whose(self) -> Whose:
        claims = {c.name: c.resource_claim_name for c in self.status.resource_claim_statuses}
        namespace = self.metadata.namespace or DEFAULT_NAMESPACE
        return Whose(self.metadata, namespace, self.owner, self.name, claims=claims)

    @property
    def finished(self) -> bool:
        """It takes nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def pending(self) -> bool:
        """A cluster has it, and it has no node yet."""
        return (
            not self.spec.node_name
            and not self.finished
            and (self.metadata.uid is not None or self.status.phase == "Pending")
        )

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """A pod has its name, and by it the claims that were made for it."""
        named = {c.name for c in self.status.resource_claim_statuses}
        for found in super().unacted(path):
            match found[len(path) :]:
                case ("spec", "volumes", int(), "ephemeral"):
                    continue
                case ("spec", "resourceClaims", int(i), _) if (
                    self.spec.resource_claims[i].name in named
                ):
                    continue
            yield found


def pod_of(model: PodManifest, pending: bool = False) -> domain.Pod:
    """A pod as a cluster has it, on its node. `pending`: as one that is to be placed; its node's
    name is then what it asks for.

    Its traits are always there, for others may look for it; its upkeep is once it runs. Raises
    ExpectedError."""
    running = bool(model.spec.node_name) and not pending
    requirements = model.template.requirements(replace(model.whose, running=running))
    namespace = model.metadata.namespace or DEFAULT_NAMESPACE
    if requirements.pod is None:
        traits = msgspec.structs.replace(NO_TRAITS, namespace=namespace, owner=model.owner)
        requirements = msgspec.structs.replace(requirements, pod=traits)
    return domain.Pod(
        model.metadata.uid or f"{namespace}/{model.name}",
        model.name,
        requirements,
        "" if pending else model.spec.node_name,
        priority=model.priority,
        started_us=micros(model.status.start_time) if model.status.start_time else 0,
        terminating=model.metadata.deletion_timestamp is not None,
        upkeep=upkeep_of(model.metadata, model.spec, model.status, requirements.traits.images)
        if running
        else None,
    )


def waiting_of(model: PodManifest) -> domain.WaitingPod:
    """A pod that a cluster has and that has no node yet. Raises ExpectedError."""
    meta = model.metadata
    owners = [(owner.kind, owner.name) for owner in meta.owner_references if owner.controller]
    return waiting(
        pod_of(model),
        owners[0] if owners else ("", ""),
        model.status.nominated_node_name,
        [condition.to_domain() for condition in model.status.conditions],
        micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
    )


# Objects without replicas of their own: each chosen cluster gets the object as it is.


class JobTemplate(Model):
    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()


class CronJobSpec(
    Model,
    carried="concurrencyPolicy failedJobsHistoryLimit startingDeadlineSeconds "
    "successfulJobsHistoryLimit suspend timeZone",
):
    schedule: str
    job_template: JobTemplate = JobTemplate()


class CronJob(Object):
    spec: CronJobSpec


class DaemonSetSpec(Model, carried="minReadySeconds revisionHistoryLimit updateStrategy"):
    template: PodTemplate = PodTemplate()
    selector: LabelSelectorManifest | None = None


class DaemonSet(ClusterFact):
    """As a fact of a member cluster: the pods that each of its nodes runs before any other."""

    spec: DaemonSetSpec

    def to_domain(self) -> DaemonPods:
        """Its priority as far as it says a number. Raises ExpectedError for annotations that say
        nothing sensible."""
        whose = Whose(self.metadata, self.namespace, DAEMON_SET)
        requirements = self.spec.template.requirements(whose)
        return DaemonPods(
            self.namespace, self.name, requirements, self.spec.template.spec.priority or 0
        )

    @property
    def priority_class(self) -> str:
        return self.spec.template.spec.priority_class_name


class ConfigMap(Object, carried="binaryData immutable"):
    data: Labels = {}


class NamespaceSpec(Model, carried="finalizers"):
    """What a namespace asks of placement: nothing."""


class Namespace(ClusterFact):
    spec: NamespaceSpec | None = None

    def to_domain(self) -> NamespaceLabels:
        """Every namespace is labelled with its name, as Kubernetes sees to it."""
        return NamespaceLabels(self.name, {**self.metadata.labels, NAME_LABEL: self.name})


# The quota of a namespace: of a member cluster, or an object that goes to clusters as it is.


class ScopeExpression(Model):
    scope_name: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    def to_domain(self) -> selectors.Requirement:
        return selectors.Requirement(self.scope_name, self.operator, tuple(self.values))


class ScopeSelector(Model):
    match_expressions: list[ScopeExpression] = []


class ResourceQuotaSpec(Model):
    hard: Amounts = {}
    scope_selector: ScopeSelector = ScopeSelector()
    scopes: list[str] = []


class ResourceQuotaStatus(Model):
    hard: Amounts = {}
    used: Amounts = {}


class ResourceQuota(Object):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def cluster(self) -> str:
        """The member cluster it was read from; empty: it is an object to be sent to clusters."""
        return cluster_of(self)

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Of a cluster's quota: limits on what is no request of a replica."""
        yield from super().unacted(path)
        for name in self.spec.hard if self.cluster else ():
            if not limited_resource(name):
                yield (*path, "spec", "hard", name)

    def to_domain(self) -> Quota:
        """What is enforced, as far as that is reported, else what is asked for."""
        scopes = [selectors.Requirement(scope, "Exists") for scope in self.spec.scopes]
        scopes += [
            expression.to_domain() for expression in self.spec.scope_selector.match_expressions
        ]
        hard = self.status.hard or self.spec.hard
        return Quota(
            self.namespace,
            self.name,
            quota_amounts(hard),
            quota_amounts(self.status.used),
            tuple(scopes),
        )


# The node.


class NodeSpec(Model, carried="configSource externalID podCIDR podCIDRs providerID"):
    taints: list[TaintManifest] = []
    unschedulable: bool = False


class NodeAddress(Source):
    address: str


class ContainerImage(Source):
    names: list[str] = []
    size_bytes: Int = 0


class NodeCondition(Source):
    """Only `Ready` is looked at; what the others say of a node they say by its taints, too."""

    type: str
    status: str = ""


class NodeStatus(
    Model,
    carried="config daemonEndpoints declaredFeatures features nodeInfo phase runtimeHandlers "
    "volumesAttached volumesInUse",
):
    allocatable: Amounts = {}
    capacity: Amounts = {}
    addresses: list[NodeAddress] = []
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] = []


class NodeManifest(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus

    @property
    def cluster(self) -> str:
        """The member cluster it belongs to. Raises ExpectedError if it names none."""
        return required_cluster(self)

    def to_domain(self) -> domain.Node:
        """Raises ExpectedError if the node has neither allocatable nor capacity."""
        size = amounts(self.status.allocatable or self.status.capacity)
        if not size:
            raise ExpectedError("amounts such as cpu and memory", "status", "allocatable")
        allocatable, devices = split_devices(size)
        if max(devices.values(), default=0) > DEVICES_MAX:
            raise ExpectedError(f"at most {DEVICES_MAX} devices of a kind", "status")
        labels = self.metadata.labels
        return domain.Node(
            self.name,
            allocatable,
            tuple(
                Device(labels.get(GPU_PRODUCT, "") if kind == GPU else "", kind)
                for kind, count in sorted(devices.items())
                for _ in range(count)
            ),
            dict(labels),
            tuple(t.to_domain() for t in self.spec.taints),
            self.spec.unschedulable,
            tuple(dict.fromkeys(found.address for found in self.status.addresses if found.address)),
            {
                tagged(name): image.size_bytes
                for image in self.status.images
                for name in image.names
                if name
            },
            crane.measured(self.annotations),
            {
                key: value
                for key, value in sorted(self.annotations.items())
                if key.startswith(KARPENTER) or key == CLOSED_BY
            },
            micros(self.metadata.creation_timestamp) if self.metadata.creation_timestamp else 0,
            all(c.status == "True" for c in self.status.conditions if c.type == "Ready"),
        )
