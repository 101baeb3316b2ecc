"""The pod: what it requests of a node, and everything else by which its node is chosen.

`PodTemplate.requirements` makes `Requirements` of it, for every kind of workload. `PodTraits` are
added only if the pod sets something that can matter, so that a plain pod stays small. What the pod
runs is `Carried`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import model_validator

from wharfinger.domain import pod_traits as domain
from wharfinger.domain import selectors
from wharfinger.domain.quantities import LIMIT
from wharfinger.domain.resources import DEVICE_MILLI, GPU, DeviceRequest, add
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.amounts import amounts, device_requests, split_devices
from wharfinger.manifests.cluster_fact import DEFAULT_NAMESPACE
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import (
    Amounts,
    ExpectedError,
    Int32,
    Labels,
    Metadata,
    Model,
    NotEmpty,
    within,
)
from wharfinger.manifests.selectors import (
    LabelSelectorManifest,
    NodeSelector,
    NodeSelectorTerm,
    TolerationManifest,
)

GPU_MILLI = "wharfinger.io/gpu-milli"
"""Annotation of a pod template: thousandths of one GPU that a replica shares, instead of a whole
one."""
GPU_MODELS = "wharfinger.io/gpu-models"
"""Annotation of a pod template: the GPU models it may run on, separated by commas."""
POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label of a pod: its PodGroup, as the coscheduling plugin reads it."""
GROUP_NAME = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup, as Volcano and kube-batch write it."""

DAEMON_SET = "DaemonSet"
"""The owner of pods that belong to their node and go where they are put."""

DEFAULT_SCHEDULER = "default-scheduler"

# Where others are.

Weight = Annotated[Int32, within(1, 100)]


class PreferredTerm(Model):
    weight: Weight
    preference: NodeSelectorTerm

    def to_domain(self) -> domain.WeightedNodeTerm:
        return domain.WeightedNodeTerm(self.weight, self.preference.to_domain())


class NodeAffinityManifest(Model):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredTerm] = []


def _selector(selector: LabelSelectorManifest | None) -> selectors.LabelSelector | None:
    return None if selector is None else selector.to_domain()


class PodTermManifest(Model):
    topology_key: NotEmpty
    label_selector: LabelSelectorManifest | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelectorManifest | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []

    def to_domain(self) -> domain.PodTerm:
        return domain.PodTerm(
            self.topology_key,
            _selector(self.label_selector),
            tuple(self.namespaces),
            _selector(self.namespace_selector),
            tuple(self.match_label_keys),
            tuple(self.mismatch_label_keys),
        )


class WeightedPodTermManifest(Model):
    weight: Weight
    pod_affinity_term: PodTermManifest

    def to_domain(self) -> domain.WeightedPodTerm:
        return domain.WeightedPodTerm(self.weight, self.pod_affinity_term.to_domain())


class PodAffinity(Model):
    """Also podAntiAffinity: the form is one."""

    required_during_scheduling_ignored_during_execution: list[PodTermManifest] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTermManifest] = []

    @property
    def required(self) -> tuple[domain.PodTerm, ...]:
        return tuple(
            t.to_domain() for t in self.required_during_scheduling_ignored_during_execution
        )

    @property
    def preferred(self) -> tuple[domain.WeightedPodTerm, ...]:
        return tuple(
            t.to_domain() for t in self.preferred_during_scheduling_ignored_during_execution
        )


class Affinity(Model):
    node_affinity: NodeAffinityManifest = NodeAffinityManifest()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpreadConstraint(Model):
    max_skew: Annotated[Int32, within(1, 2**31 - 1)]
    topology_key: NotEmpty
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelectorManifest | None = None
    min_domains: Annotated[Int32, within(1, 2**31 - 1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: list[str] = []

    @model_validator(mode="after")
    def _domains_are_asked_of_hard_ones(self) -> TopologySpreadConstraint:
        if self.min_domains is not None and self.when_unsatisfiable == "ScheduleAnyway":
            raise ExpectedError(
                "no minDomains where whenUnsatisfiable is ScheduleAnyway", "minDomains"
            )
        return self

    def to_domain(self) -> domain.TopologySpread:
        return domain.TopologySpread(
            self.topology_key,
            self.max_skew,
            self.when_unsatisfiable == "DoNotSchedule",
            _selector(self.label_selector),
            self.min_domains or 1,
            self.node_affinity_policy == "Honor",
            self.node_taints_policy == "Honor",
            tuple(self.match_label_keys),
        )


# What it runs.


class Resources(Model, carried="claims"):
    """`claims`: which of the pod's claims a container uses; the pod as a whole needs all of them
    where it runs."""

    requests: Amounts = {}
    limits: Amounts = {}

    def asked(self) -> dict[str, int]:
        """What is requested; a limit without a request is its own request, as the API server
        defaults it."""
        return amounts({**self.limits, **self.requests})


class Port(Model, carried="name"):
    container_port: Int32
    host_port: Annotated[Int32, within(0, 65535)] = 0
    host_ip: str = ""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"

    def on_the_host(self, network: bool) -> domain.HostPort | None:
        """`network`: the pod lives in the node's network, where each of its ports is a port of the
        node."""
        port = self.host_port or (self.container_port if network else 0)
        address = "" if self.host_ip == "0.0.0.0" else self.host_ip
        return domain.HostPort(port, self.protocol, address) if port > 0 else None


class Container(
    Model,
    carried="args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe "
    "resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
    "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts "
    "workingDir",
):
    name: str = ""
    resources: Resources = Resources()
    ports: list[Port] = []
    restart_policy: str = ""
    image: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: it keeps running beside the others."""
        return self.restart_policy == "Always"


class Source(Model):
    """Of a volume's source only the fields that tie it to nodes are read. The others matter only to
    the kubelet that mounts it."""

    model_config = {"extra": "ignore"}


class ClaimSource(Source):
    claim_name: NotEmpty
    read_only: bool = False


class GceDisk(Source):
    pd_name: NotEmpty
    read_only: bool = False


class AwsDisk(Source):
    volume_id: NotEmpty


class Iscsi(Source):
    iqn: NotEmpty
    read_only: bool = False


class Rbd(Source):
    monitors: list[str]
    image: NotEmpty
    pool: str = "rbd"
    read_only: bool = False


class Volume(Source):
    """Any kind of volume source is known; read are those that bind a pod to a place."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    empty_dir: object | None = None
    host_path: object | None = None
    ephemeral: object | None = None
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None

    def uses(self, pod: str) -> Iterator[domain.VolumeUse]:
        """`pod`: the name of the pod, from which the names of its own claims are made; empty: not
        known.

        An EBS volume can be used on one node only, even for reading. Two pods use the same Ceph
        image if they have a monitor in common, so there is one use for each monitor."""
        if (claim := self.persistent_volume_claim) is not None:
            yield domain.VolumeUse(claim.claim_name, read_only=claim.read_only)
        if self.ephemeral is not None and pod:
            yield domain.VolumeUse(f"{pod}-{self.name}")
        if (gce := self.gce_persistent_disk) is not None:
            yield domain.VolumeUse(disk=f"gcePersistentDisk/{gce.pd_name}", read_only=gce.read_only)
        if (aws := self.aws_elastic_block_store) is not None:
            yield domain.VolumeUse(disk=f"awsElasticBlockStore/{aws.volume_id}")
        if (iscsi := self.iscsi) is not None:
            yield domain.VolumeUse(disk=f"iscsi/{iscsi.iqn}", read_only=iscsi.read_only)
        if (rbd := self.rbd) is not None:
            for monitor in rbd.monitors:
                yield domain.VolumeUse(
                    disk=f"rbd/{monitor}/{rbd.pool}/{rbd.image}", read_only=rbd.read_only
                )


class PodResourceClaim(Model, unacted="resourceClaimTemplateName"):
    name: str
    resource_claim_name: str = ""


class Gate(Model):
    name: NotEmpty


class GroupReference(Model):
    """`spec.schedulingGroup`."""

    pod_group_name: NotEmpty


class WorkloadReference(Model):
    """`spec.workloadRef`, as schedulingGroup was called before: a group of a Workload, or one of
    its copies."""

    name: NotEmpty
    pod_group: NotEmpty
    pod_group_replica_key: str = ""


class PodSpec(
    Model,
    carried="activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostPID hostUsers "
    "hostname hostnameOverride imagePullSecrets os readinessGates restartPolicy "
    "runtimeClassName securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds",
):
    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: Resources = Resources()
    overhead: Amounts = {}
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: list[TolerationManifest] = []
    priority: Int32 | None = None
    volumes: list[Volume] = []
    node_name: str = ""
    host_network: bool = False
    priority_class_name: str = ""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    resource_claims: list[PodResourceClaim] = []
    scheduler_name: str = ""
    scheduling_gates: list[Gate] = []
    scheduling_group: GroupReference | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    workload_ref: WorkloadReference | None = None

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Besides single fields: a priority class whose number was not filled in, for classes are
        not known here (who knows them strikes it out); a volume whose claim is named after the pod,
        for names of replicas are made in their cluster."""
        yield from super().unacted(path)
        if self.priority_class_name and self.priority is None:
            yield (*path, "priorityClassName")
        yield from (
            (*path, "volumes", i, "ephemeral")
            for i, v in enumerate(self.volumes)
            if v.ephemeral is not None
        )

    def asked(self) -> dict[str, int]:
        """What one pod takes, as the kube-scheduler counts it. Requests of the pod as a whole
        replace the sum of its containers'. Overhead comes on top."""
        return add(self._together({}) | self.resources.asked(), amounts(self.overhead))

    def scored(self, running: bool) -> dict[str, int]:
        """cpu and memory as the scoring of resources counts them: a container that asks none counts
        a little all the same, or hundreds of them would look like nothing.

        kube-scheduler 1.34 leaves what the pod as a whole requests out of it for the pod that
        comes, and counts it for those that are there. A template without containers counts as one
        that asks nothing."""
        if not self.containers:
            return dict(STAND_INS)
        whole = self.resources.asked() if running else {}
        asked = self.asked()
        stand_in = {
            name: amount for name, amount in STAND_INS.items() if not whole or name not in asked
        }
        total = add(self._together(stand_in) | whole, amounts(self.overhead))
        return {name: total.get(name, 0) for name in STAND_INS}

    def _together(self, stand_in: Mapping[str, int]) -> dict[str, int]:
        """What the containers need; `stand_in` counts for what a container does not ask.

        Containers and sidecars (init containers that restart always) run together and add up; each
        plain init container runs alone beside the sidecars started before it, so only the largest
        counts."""
        together: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        largest: dict[str, int] = {}
        for container in self.containers:
            together = add(together, {**stand_in, **container.resources.asked()})
        for container in self.init_containers:
            asked = {**stand_in, **container.resources.asked()}
            if container.is_sidecar:
                sidecars = add(sidecars, asked)
                largest = _larger(largest, sidecars)
            else:
                largest = _larger(largest, add(sidecars, asked))
        return _larger(add(together, sidecars), largest)

    @property
    def images(self) -> tuple[str, ...]:
        """One entry a container, where any has an image."""
        images = tuple(tagged(c.image) for c in (*self.init_containers, *self.containers))
        return images if any(images) else ()

    @property
    def ports(self) -> tuple[domain.HostPort, ...]:
        """Of what runs all the time; two containers may name the same one."""
        running = [*self.containers, *(c for c in self.init_containers if c.is_sidecar)]
        taken = (port.on_the_host(self.host_network) for c in running for port in c.ports)
        return tuple(dict.fromkeys(port for port in taken if port is not None))


class PodTemplate(Model):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()

    def requirements(self, whose: Whose) -> Requirements:
        """Raises ExpectedError for annotations that say nothing sensible, and for sums that are too
        large."""
        spec = self.spec
        requests, devices = split_devices(spec.asked())
        if any(amount > LIMIT for amount in requests.values()):
            raise ExpectedError("requests whose sum is below 2^63", "spec")
        affinity = spec.affinity or Affinity()
        required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
        requests = {name: amount for name, amount in requests.items() if amount}
        return Requirements(
            requests,
            _shared(devices, _Said(whose.metadata, self.metadata)),
            dict(spec.node_selector),
            required.to_domain() if required else (),
            tuple(t.to_domain() for t in spec.tolerations),
            _told(self._traits(whose, affinity, requests)),
        )

    def _traits(
        self, whose: Whose, affinity: Affinity, requests: Mapping[str, int]
    ) -> domain.PodTraits:
        spec = self.spec
        scored = spec.scored(whose.running)
        return domain.PodTraits(
            namespace=whose.namespace,
            labels=dict(self.metadata.labels),
            owner=whose.owner,
            images=spec.images,
            scored={}
            if scored == {n: requests.get(n, amount) for n, amount in STAND_INS.items()}
            else scored,
            node_name="" if whose.running else spec.node_name,
            preferences=tuple(
                t.to_domain()
                for t in affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
            ),
            ports=spec.ports,
            spread=tuple(c.to_domain() for c in spec.topology_spread_constraints),
            affinity=affinity.pod_affinity.required,
            anti_affinity=affinity.pod_anti_affinity.required,
            preferred_affinity=affinity.pod_affinity.preferred,
            preferred_anti_affinity=affinity.pod_anti_affinity.preferred,
            volumes=tuple(use for volume in spec.volumes for use in volume.uses(whose.pod)),
            resource_claims=tuple(
                name for claim in spec.resource_claims if (name := whose.claim_name(claim))
            ),
            scheduler="" if spec.scheduler_name == DEFAULT_SCHEDULER else spec.scheduler_name,
            never_preempts=spec.preemption_policy == "Never",
            gates=() if whose.running else tuple(gate.name for gate in spec.scheduling_gates),
            group=self._group(),
        )

    def _group(self) -> str:
        """The name of the PodGroup, in its namespace. A group of a Workload is called
        `workload/group`, a copy of one `workload/group/key`."""
        spec = self.spec
        if spec.scheduling_group is not None:
            return spec.scheduling_group.pod_group_name
        if (ref := spec.workload_ref) is not None:
            return "/".join(
                part for part in (ref.name, ref.pod_group, ref.pod_group_replica_key) if part
            )
        return (
            self.metadata.labels.get(POD_GROUP) or self.metadata.annotations.get(GROUP_NAME) or ""
        )


@dataclass(frozen=True)
class Whose:
    """What a pod template does not know of itself: the object it is in.

    `pod`: the pod's name where it is one. `running`: it is on a node already. `claims`: names of
    the claims made for it, by what they are called in its spec."""

    metadata: Metadata
    namespace: str
    owner: str = ""
    pod: str = ""
    running: bool = False
    claims: Mapping[str, str] = field(default_factory=dict)

    def claim_name(self, claim: PodResourceClaim) -> str:
        return claim.resource_claim_name or self.claims.get(claim.name, "")


def _told(traits: domain.PodTraits) -> domain.PodTraits | None:
    """None for a pod of the default namespace without traits: only a selector of all pods can
    select it, and there are very many such pods."""
    plain = domain.PodTraits(namespace=DEFAULT_NAMESPACE, owner=traits.owner)
    return None if traits == plain and traits.owner != DAEMON_SET else traits


STAND_INS = {"cpu": 100, "memory": 200 * 2**20}
"""Milli-cpu and bytes that a container counts for in scoring where it asks none
(kube-scheduler)."""


def tagged(image: str) -> str:
    """The name of an image with its tag; without one it is `latest`."""
    if not image or image.rfind(":") > image.rfind("/"):
        return image
    return f"{image}:latest"


def _larger(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}


@dataclass(frozen=True, slots=True)
class _Said:
    """The annotations of a workload and of its pod template, which goes first."""

    own: Metadata
    template: Metadata

    def get(self, key: str) -> str | None:
        return self.template.annotations.get(key, self.own.annotations.get(key))

    def error(self, key: str, expected: str) -> ExpectedError:
        above = (
            ("spec", "template")
            if self.template is not self.own and key in self.template.annotations
            else ()
        )
        return ExpectedError(expected, *above, "metadata", "annotations", key)


def _shared(devices: Mapping[str, int], said: _Said) -> tuple[DeviceRequest, ...]:
    """Device requests by kind; the annotations speak of the GPUs of the kind `nvidia.com/gpu`."""
    models = tuple(
        sorted({m for part in (said.get(GPU_MODELS) or "").split(",") if (m := part.strip())})
    )
    wanted = dict(devices)
    milli = DEVICE_MILLI
    if (text := said.get(GPU_MILLI)) is not None:
        if not (
            text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= DEVICE_MILLI
        ):
            raise said.error(GPU_MILLI, f"an integer from 1 to {DEVICE_MILLI}")
        milli = int(text)
        wanted.setdefault(GPU, 1)
        if milli < DEVICE_MILLI and wanted[GPU] > 1:
            raise said.error(GPU_MILLI, f"at most one {GPU} where a part of one is asked")
    return device_requests(wanted, milli, models)
