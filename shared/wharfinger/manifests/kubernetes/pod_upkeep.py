"""The fields of a running pod that decide whether it may be evicted from its node.

`kubernetes.pod_of` adds them to pods that are seen on a node; they do not matter for where a pod is
placed. There are very many pods, so usual values are left out: a container that simply runs,
conditions that are true of every running pod, images that its traits list already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from wharfinger.domain import pod_upkeep as domain
from wharfinger.domain.node_pool import DO_NOT_DISRUPT
from wharfinger.manifests.amounts import amounts
from wharfinger.manifests.kubernetes.pod import PodSpec, Resources, Source
from wharfinger.manifests.model import Int, Metadata, Time, micros

DESCHEDULER = "descheduler.alpha.kubernetes.io/"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
CONFIG_SOURCE = "kubernetes.io/config.source"

USUAL = frozenset({"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady"})
"""Conditions that are true of every pod that runs; kept only if they are not true, or have a
reason."""

Quality = Literal["BestEffort", "Burstable", "Guaranteed"]


class Waiting(Source):
    reason: str = ""


class Terminated(Source):
    reason: str = ""
    exit_code: Int = 0


class State(Source):
    """At most one; with none of them the container waits to be started."""

    waiting: Waiting | None = None
    running: Source | None = None
    terminated: Terminated | None = None


class ContainerStatus(Source):
    restart_count: Int = 0
    state: State = State()

    def to_domain(self, init: bool) -> domain.ContainerState:
        match self.state:
            case State(terminated=Terminated() as ended):
                said = "terminated", ended.reason, ended.exit_code
            case State(running=Source()):
                said = "running", "", 0
            case State(waiting=Waiting() as waiting):
                said = "waiting", waiting.reason, 0
            case _:
                said = "waiting", "", 0
        return domain.ContainerState(*said, self.restart_count, init)


class PodConditionManifest(Source):
    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: Time | None = None

    def to_domain(self) -> domain.PodCondition:
        since = micros(self.last_transition_time) if self.last_transition_time else 0
        return domain.PodCondition(self.type, self.status, self.reason, since)

    @property
    def usual(self) -> bool:
        return self.type in USUAL and self.status == "True" and not self.reason


class UpkeepStatus(Source):
    """The part of a pod's status that is about this."""

    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown", ""] = ""
    reason: str = ""
    qos_class: Quality | Literal[""] = ""
    conditions: list[PodConditionManifest] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


def upkeep_of(
    metadata: Metadata, spec: PodSpec, status: UpkeepStatus, listed: tuple[str, ...]
) -> domain.PodUpkeep:
    """`listed`: the images its traits list."""
    images = tuple(container.image for container in spec.containers)
    return domain.PodUpkeep(
        owners=tuple(
            domain.Owner(owner.kind, owner.name, owner.uid) for owner in metadata.owner_references
        ),
        images=() if images == listed or not any(images) else images,
        quality=status.qos_class or quality_of(spec),
        local_storage=any(v.empty_dir is not None or v.host_path is not None for v in spec.volumes),
        static=static(metadata.annotations),
        claims=tuple(
            sorted(
                {
                    v.persistent_volume_claim.claim_name
                    for v in spec.volumes
                    if v.persistent_volume_claim
                }
            )
        ),
        phase=status.phase,
        reason=status.reason,
        containers=tuple(_containers(status)),
        conditions=tuple(
            condition.to_domain() for condition in status.conditions if not condition.usual
        ),
        annotations=kept_annotations(metadata.annotations),
        created_us=micros(metadata.creation_timestamp) if metadata.creation_timestamp else 0,
    )


def quality_of(spec: PodSpec) -> Quality:
    """As the kubelet does it: by cpu and memory of all containers, or of the pod as a whole where
    that says any."""
    parts: list[Resources] = [spec.resources]
    if not spec.resources.requests and not spec.resources.limits:
        parts = [container.resources for container in (*spec.containers, *spec.init_containers)]
    asked = [_counted(part.asked()) for part in parts]
    limits = [_counted(amounts(part.limits)) for part in parts]
    if not any((*asked, *limits)):
        return "BestEffort"
    sure = all(
        len(limit) == 2 and limit == request for limit, request in zip(limits, asked, strict=True)
    )
    return "Guaranteed" if sure else "Burstable"


def _counted(found: Mapping[str, int]) -> dict[str, int]:
    return {name: found[name] for name in ("cpu", "memory") if found.get(name)}


def _containers(status: UpkeepStatus) -> Iterable[domain.ContainerState]:
    for container in status.init_container_statuses:
        if (found := container.to_domain(init=True)) != domain.ContainerState("running", init=True):
            yield found
    for container in status.container_statuses:
        if (found := container.to_domain(init=False)) != domain.ContainerState("running"):
            yield found


def static(annotations: Mapping[str, str]) -> bool:
    """A mirror of what the kubelet read from a file or a server of its own."""
    return CONFIG_MIRROR in annotations or annotations.get(CONFIG_SOURCE, "api") != "api"


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Those of descheduler and Karpenter, and the deletion cost."""
    return {
        key: value
        for key, value in sorted(annotations.items())
        if key.startswith(DESCHEDULER) or key in (DO_NOT_DISRUPT, DELETION_COST)
    }
