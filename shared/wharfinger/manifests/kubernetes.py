"""Kubernetes' own kinds: workloads with a pod template, nodes, and objects that go to clusters as they are.

A workload becomes replicas with `Requirements`; a Node becomes `domain.node.Node`. What the pod runs is `Carried`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from wharfinger.domain import node as domain
from wharfinger.domain import selectors, taints
from wharfinger.domain.quantities import LIMIT, parse_milli, parse_units
from wharfinger.domain.quota import Quota, in_milli, limited_resource
from wharfinger.domain.resources import DEVICE_MILLI, GPU, Device, DeviceRequest, add
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import (
    Amounts,
    Carried,
    Count,
    ExpectedError,
    Int,
    Int32,
    Labels,
    Metadata,
    Model,
    Object,
    Unacted,
)

CLUSTER = "wharfinger.io/cluster"
"""Label or annotation of a Node or a ResourceQuota: the member cluster it belongs to."""
GPU_MILLI = "wharfinger.io/gpu-milli"
"""Annotation of a pod template: thousandths of one GPU that a replica shares, instead of a whole one."""
GPU_MODELS = "wharfinger.io/gpu-models"
"""Annotation of a pod template: the GPU models it may run on, separated by commas."""
GPU_PRODUCT = "nvidia.com/gpu.product"
"""Label of a Node: the model of its GPUs."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


# Selectors, taints, tolerations: shared with the other systems' kinds.


class Expression(Model):
    """One `matchExpressions` entry of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    def to_domain(self) -> selectors.Requirement:
        return selectors.Requirement(self.key, self.operator, tuple(self.values))


class LabelSelector(Model):
    match_labels: Labels = {}
    match_expressions: list[Expression] = []

    def to_domain(self) -> selectors.LabelSelector:
        return selectors.LabelSelector(dict(self.match_labels), tuple(e.to_domain() for e in self.match_expressions))


class Taint(Model):
    key: str
    effect: Effect
    value: str = ""
    time_added: Carried = None

    def to_domain(self) -> taints.Taint:
        return taints.Taint(self.key, self.effect, self.value)


class Toleration(Model):
    key: str = ""
    operator: Literal["Equal", "Exists", ""] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute", ""] = ""
    toleration_seconds: Int | None = None

    def to_domain(self) -> taints.Toleration:
        return taints.Toleration(self.key, self.operator or "Equal", self.value, self.effect, self.toleration_seconds)


# The pod.


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
            tuple(e.to_domain() for e in self.match_expressions), tuple(e.to_domain() for e in self.match_fields)
        )


class NodeSelector(Model):
    """Terms are alternatives."""

    node_selector_terms: list[NodeSelectorTerm]

    def to_domain(self) -> tuple[selectors.NodeTerm, ...]:
        return tuple(term.to_domain() for term in self.node_selector_terms)


class NodeAffinity(Model):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Unacted = None


class Affinity(Model):
    node_affinity: NodeAffinity | None = None
    pod_affinity: Unacted = None
    pod_anti_affinity: Unacted = None


class Resources(Model):
    requests: Amounts = {}
    limits: Amounts = {}
    claims: Unacted = None

    def asked(self) -> dict[str, int]:
        """What is requested; a limit without a request is its own request, as the API server defaults it."""
        return amounts({**self.limits, **self.requests})


class Port(Model):
    container_port: Int32
    host_port: Unacted = None
    host_ip: Carried = None
    name: Carried = None
    protocol: Carried = None


class Container(Model):
    name: str = ""
    resources: Resources = Resources()
    ports: list[Port] = []
    restart_policy: str = ""
    args: Carried = None
    command: Carried = None
    env: Carried = None
    env_from: Carried = None
    image: Carried = None
    image_pull_policy: Carried = None
    lifecycle: Carried = None
    liveness_probe: Carried = None
    readiness_probe: Carried = None
    resize_policy: Carried = None
    restart_policy_rules: Carried = None
    security_context: Carried = None
    startup_probe: Carried = None
    stdin: Carried = None
    stdin_once: Carried = None
    termination_message_path: Carried = None
    termination_message_policy: Carried = None
    tty: Carried = None
    volume_devices: Carried = None
    volume_mounts: Carried = None
    working_dir: Carried = None


class Volume(Model):
    """Any kind of volume source is known; those that bind a pod to a place are not acted on."""

    model_config = {"extra": "ignore"}

    name: str
    persistent_volume_claim: Unacted = None
    ephemeral: Unacted = None


class PodSpec(Model):
    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: Resources = Resources()
    overhead: Amounts = {}
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    priority: Int32 | None = None
    volumes: list[Volume] = []
    node_name: Unacted = None
    priority_class_name: str = ""
    preemption_policy: Unacted = None
    resource_claims: Unacted = None
    scheduler_name: Unacted = None
    scheduling_gates: Unacted = None
    scheduling_group: Unacted = None
    topology_spread_constraints: Unacted = None
    workload_ref: Unacted = None
    active_deadline_seconds: Carried = None
    automount_service_account_token: Carried = None
    dns_config: Carried = None
    dns_policy: Carried = None
    enable_service_links: Carried = None
    ephemeral_containers: Carried = None
    host_aliases: Carried = None
    host_ipc: Carried = None
    host_network: Carried = None
    host_pid: Carried = None
    host_users: Carried = None
    hostname: Carried = None
    hostname_override: Carried = None
    image_pull_secrets: Carried = None
    os: Carried = None
    readiness_gates: Carried = None
    restart_policy: Carried = None
    runtime_class_name: Carried = None
    security_context: Carried = None
    service_account: Carried = None
    service_account_name: Carried = None
    set_hostname_as_fqdn: Carried = None
    share_process_namespace: Carried = None
    subdomain: Carried = None
    termination_grace_period_seconds: Carried = None

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Besides single fields: a priority class whose number was not filled in, for classes are not known here. Quotas
        go by its name all the same."""
        yield from super().unacted(path)
        if self.priority_class_name and self.priority is None:
            yield (*path, "priorityClassName")

    def asked(self) -> dict[str, int]:
        """What one pod takes, as the kube-scheduler counts it.

        Containers and sidecars (init containers that restart always) run together and add up; each plain init container
        runs alone beside the sidecars started before it, so only the largest counts. Requests of the pod as a whole replace the
        sum of its containers'. Overhead comes on top.
        """
        together: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        largest: dict[str, int] = {}
        for container in self.containers:
            together = add(together, container.resources.asked())
        for container in self.init_containers:
            if container.restart_policy == "Always":
                sidecars = add(sidecars, container.resources.asked())
                largest = _larger(largest, sidecars)
            else:
                largest = _larger(largest, add(sidecars, container.resources.asked()))
        total = _larger(add(together, sidecars), largest) | self.resources.asked()
        return add(total, amounts(self.overhead))


class PodTemplate(Model):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class Workload(Object):
    """A kind with replicas of one pod template: what the fleet stage divides and the cluster stage places."""

    @property
    def replicas(self) -> int:
        raise NotImplementedError

    @property
    def template(self) -> PodTemplate:
        raise NotImplementedError

    def requirements(self) -> Requirements:
        """Raises ExpectedError for annotations that say nothing sensible."""
        template = self.template
        spec = template.spec
        requests, devices = split_devices(spec.asked())
        if any(amount > LIMIT for amount in requests.values()):
            raise ExpectedError("requests whose sum is below 2^63", "spec")
        required = spec.affinity.node_affinity if spec.affinity else None
        terms = required.required_during_scheduling_ignored_during_execution if required else None
        return Requirements(
            {name: amount for name, amount in requests.items() if amount},
            _shared(devices, _Said(self.metadata, template.metadata)),
            dict(spec.node_selector),
            terms.to_domain() if terms else (),
            tuple(t.to_domain() for t in spec.tolerations),
        )

    @property
    def priority(self) -> int:
        return self.template.spec.priority or 0

    @property
    def priority_class(self) -> str:
        return self.template.spec.priority_class_name


class DeploymentSpec(Model):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: LabelSelector | None = None
    min_ready_seconds: Carried = None
    paused: Carried = None
    progress_deadline_seconds: Carried = None
    revision_history_limit: Carried = None
    strategy: Carried = None


class Deployment(Workload):
    spec: DeploymentSpec

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class StatefulSetSpec(Model):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()
    selector: LabelSelector | None = None
    volume_claim_templates: Unacted = None
    min_ready_seconds: Carried = None
    ordinals: Carried = None
    persistent_volume_claim_retention_policy: Carried = None
    pod_management_policy: Carried = None
    revision_history_limit: Carried = None
    service_name: Carried = None
    update_strategy: Carried = None


class StatefulSet(Workload):
    spec: StatefulSetSpec

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.spec.template


class JobSpec(Model):
    parallelism: Count = 1
    completions: Count | None = None
    template: PodTemplate = PodTemplate()
    suspend: Unacted = None
    selector: Carried = None
    active_deadline_seconds: Carried = None
    backoff_limit: Carried = None
    backoff_limit_per_index: Carried = None
    completion_mode: Carried = None
    managed_by: Carried = None
    manual_selector: Carried = None
    max_failed_indexes: Carried = None
    pod_failure_policy: Carried = None
    pod_replacement_policy: Carried = None
    success_policy: Carried = None
    ttl_seconds_after_finished: Carried = None


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


class Pod(Workload):
    spec: PodSpec = PodSpec()

    @property
    def replicas(self) -> int:
        return 1

    @property
    def template(self) -> PodTemplate:
        return PodTemplate.model_construct(metadata=self.metadata, spec=self.spec)


# Objects without replicas of their own: each chosen cluster gets the object as it is.


class JobTemplate(Model):
    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()


class CronJobSpec(Model):
    schedule: str
    job_template: JobTemplate = JobTemplate()
    concurrency_policy: Carried = None
    failed_jobs_history_limit: Carried = None
    starting_deadline_seconds: Carried = None
    successful_jobs_history_limit: Carried = None
    suspend: Carried = None
    time_zone: Carried = None


class CronJob(Object):
    spec: CronJobSpec


class DaemonSetSpec(Model):
    template: PodTemplate = PodTemplate()
    selector: LabelSelector | None = None
    min_ready_seconds: Carried = None
    revision_history_limit: Carried = None
    update_strategy: Carried = None


class DaemonSet(Object):
    spec: DaemonSetSpec


class ConfigMap(Object):
    data: Labels = {}
    binary_data: Carried = None
    immutable: Carried = None


class NamespaceSpec(Model):
    finalizers: Carried = None


class Namespace(Object):
    spec: NamespaceSpec | None = None


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
        scopes += [expression.to_domain() for expression in self.spec.scope_selector.match_expressions]
        hard = self.status.hard or self.spec.hard
        return Quota(self.namespace, self.name, quota_amounts(hard), quota_amounts(self.status.used), tuple(scopes))


# The node.


class NodeSpec(Model):
    taints: list[Taint] = []
    unschedulable: bool = False
    config_source: Carried = None
    external_id: Carried = None
    pod_cidr: Carried = None
    pod_cidrs: Carried = None
    provider_id: Carried = None


class NodeStatus(Model):
    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: Unacted = None
    addresses: Carried = None
    config: Carried = None
    daemon_endpoints: Carried = None
    declared_features: Carried = None
    features: Carried = None
    images: Carried = None
    node_info: Carried = None
    phase: Carried = None
    runtime_handlers: Carried = None
    volumes_attached: Carried = None
    volumes_in_use: Carried = None


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus

    @property
    def cluster(self) -> str:
        """The member cluster it belongs to. Raises ExpectedError where it does not say."""
        cluster = cluster_of(self)
        if not cluster:
            raise ExpectedError(
                f"the label or annotation {CLUSTER} with the name of its cluster", "metadata", "labels", CLUSTER
            )
        return cluster

    def to_domain(self) -> domain.Node:
        """Raises ExpectedError where the node tells nothing of its size."""
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
        )


def cluster_of(found: Object) -> str:
    """The member cluster that an object says it was read from; empty: it says none."""
    return found.metadata.labels.get(CLUSTER) or found.annotations.get(CLUSTER) or ""


# Amounts and devices.

DEVICES_MAX = 1024
"""Of one kind on a node; above any real one, and low enough that a slip of the pen fills no memory."""

_DEVICES = frozenset({"gpu.intel.com/i915", "gpu.intel.com/xe"})


def is_device(name: str) -> bool:
    """Whether an extended resource counts GPUs: `nvidia.com/gpu`, `amd.com/gpu` and any vendor's, and Intel's by driver.

    Slices a device plugin hands out on its own (`nvidia.com/mig-1g.5gb`) stay plain counts.
    """
    return name.endswith("/gpu") or name in _DEVICES


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """cpu in milli, everything else in units."""
    return {name: parse_milli(q) if name == "cpu" else parse_units(q) for name, q in quantities.items()}


def quota_amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """As `amounts`, by the names quotas have: `requests.cpu` is in milli, too."""
    return {name: parse_milli(q) if in_milli(name) else parse_units(q) for name, q in quantities.items()}


def split_devices(all_amounts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Amounts without devices, and how many devices of each kind."""
    plain = {name: amount for name, amount in all_amounts.items() if not is_device(name)}
    return plain, {name: amount for name, amount in all_amounts.items() if is_device(name)}


def _larger(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}


def device_requests(
    devices: Mapping[str, int], milli: int = DEVICE_MILLI, models: tuple[str, ...] = ()
) -> tuple[DeviceRequest, ...]:
    """One request a kind; `milli` and `models` are for GPUs of the kind `nvidia.com/gpu`."""
    return tuple(
        DeviceRequest(count, milli, models, kind) if kind == GPU else DeviceRequest(count, kind=kind)
        for kind, count in sorted(devices.items())
        if count > 0
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """The annotations of a workload and of its pod template, which goes first."""

    own: Metadata
    template: Metadata

    def get(self, key: str) -> str | None:
        return self.template.annotations.get(key, self.own.annotations.get(key))

    def error(self, key: str, expected: str) -> ExpectedError:
        above = ("spec", "template") if self.template is not self.own and key in self.template.annotations else ()
        return ExpectedError(expected, *above, "metadata", "annotations", key)


def _shared(devices: Mapping[str, int], said: _Said) -> tuple[DeviceRequest, ...]:
    """Device requests by kind; the annotations speak of the GPUs of the kind `nvidia.com/gpu`."""
    models = tuple(sorted({m for part in (said.get(GPU_MODELS) or "").split(",") if (m := part.strip())}))
    wanted = dict(devices)
    milli = DEVICE_MILLI
    if (text := said.get(GPU_MILLI)) is not None:
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= DEVICE_MILLI):
            raise said.error(GPU_MILLI, f"an integer from 1 to {DEVICE_MILLI}")
        milli = int(text)
        wanted.setdefault(GPU, 1)
        if milli < DEVICE_MILLI and wanted[GPU] > 1:
            raise said.error(GPU_MILLI, f"at most one {GPU} where a part of one is asked")
    return device_requests(wanted, milli, models)
