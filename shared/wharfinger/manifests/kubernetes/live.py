"""Pods and nodes as an API server sends them, read fast: structs of exactly the fields that are
used, and domain values made of them.

The pods of a workload differ in a few fields only, and what they require of a node does not differ
at all. So `Requirements` are kept under the raw bytes of all that they are made of; only what has
not been seen before goes the slow way, through the models of `manifests.kubernetes`, which decide
what a pod means. What differs from pod to pod (name, node, state) is read here. A property holds
both ways equal; a contract test compares the fields with the server's own OpenAPI.

Fields that are not declared are skipped by the decoder: those of newer releases, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
from pydantic import ValidationError

from wharfinger.domain import pod_upkeep as upkeep
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.cluster_fact import DEFAULT_NAMESPACE
from wharfinger.manifests.kubernetes.core import NodeManifest, PodManifest, pod_of
from wharfinger.manifests.kubernetes.pod import GPU_MILLI, GPU_MODELS, GROUP_NAME, tagged
from wharfinger.manifests.kubernetes.pod_upkeep import USUAL, kept_annotations, static
from wharfinger.manifests.model import LIVE, ExpectedError, micros

KINDS_MAX = 20_000
"""Different requirements that are kept. Beyond it all are forgotten and made again as they come."""

NONE = msgspec.Raw(b"")
"""Of a raw field: it is not there."""

_NULL = b"null"
_READ_FROM = (GPU_MILLI, GPU_MODELS, GROUP_NAME)
"""The annotations that requirements are made of."""


class UnreadableError(ValueError):
    """The object is there, and what it says cannot be turned into a value. `name`: of the object,
    with its namespace."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name


class _LiveStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    """Lists and objects may be null: the server writes an empty one so, too."""


class LiveOwner(_LiveStruct):
    kind: str
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class LiveMeta(_LiveStruct):
    """`labels` stay raw: they are read with the requirements that they are part of."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = NONE
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[LiveOwner] | None = None


class LiveContainer(_LiveStruct):
    image: str = ""
    resources: msgspec.Raw = NONE
    ports: msgspec.Raw = NONE
    restart_policy: str | None = None


class LiveClaimSource(_LiveStruct):
    claim_name: str
    read_only: bool = False


class LiveVolume(_LiveStruct):
    """Sources that tie a pod to a place, and those of a node's own disk. Any other source, such as
    the token of a service account with its random name, does not matter."""

    name: str
    persistent_volume_claim: LiveClaimSource | None = None
    empty_dir: msgspec.Raw = NONE
    host_path: msgspec.Raw = NONE
    ephemeral: msgspec.Raw = NONE
    gce_persistent_disk: msgspec.Raw = NONE
    aws_elastic_block_store: msgspec.Raw = NONE
    iscsi: msgspec.Raw = NONE
    rbd: msgspec.Raw = NONE

    def local(self) -> bool:
        return _there(self.empty_dir) or _there(self.host_path)

    def tied(self) -> tuple[object, ...]:
        """What of it decides where the pod can be; empty: nothing."""
        claim = self.persistent_volume_claim
        disks = (self.gce_persistent_disk, self.aws_elastic_block_store, self.iscsi, self.rbd)
        if claim is None and not _there(self.ephemeral) and not any(map(_there, disks)):
            return ()
        asked = None if claim is None else (claim.claim_name, claim.read_only)
        return (asked, self.name if _there(self.ephemeral) else "", *map(bytes, disks))


class LivePodSpec(_LiveStruct):
    containers: list[LiveContainer] | None = None
    init_containers: list[LiveContainer] | None = None
    volumes: list[LiveVolume] | None = None
    node_name: str = ""
    priority: int | None = None
    host_network: bool | None = None
    scheduler_name: str = ""
    preemption_policy: str | None = None
    resources: msgspec.Raw = NONE
    overhead: msgspec.Raw = NONE
    node_selector: msgspec.Raw = NONE
    affinity: msgspec.Raw = NONE
    tolerations: msgspec.Raw = NONE
    topology_spread_constraints: msgspec.Raw = NONE
    resource_claims: msgspec.Raw = NONE
    scheduling_gates: msgspec.Raw = NONE
    scheduling_group: msgspec.Raw = NONE
    workload_ref: msgspec.Raw = NONE

    def raw(self) -> tuple[bytes, ...]:
        return (
            bytes(self.resources),
            bytes(self.overhead),
            bytes(self.node_selector),
            bytes(self.affinity),
            bytes(self.tolerations),
            bytes(self.topology_spread_constraints),
            bytes(self.resource_claims),
            bytes(self.scheduling_gates),
            bytes(self.scheduling_group),
            bytes(self.workload_ref),
        )


class LiveWaiting(_LiveStruct):
    reason: str = ""


class LiveTerminated(_LiveStruct):
    exit_code: int = 0
    reason: str = ""


class LiveRunning(_LiveStruct):
    """Nothing of it matters but that it is there."""


class LiveState(_LiveStruct):
    waiting: LiveWaiting | None = None
    running: LiveRunning | None = None
    terminated: LiveTerminated | None = None


class LiveContainerStatus(_LiveStruct):
    restart_count: int = 0
    state: LiveState | None = None


class LiveCondition(_LiveStruct):
    type: str
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class LivePodStatus(_LiveStruct):
    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    start_time: str | None = None
    conditions: list[LiveCondition] | None = None
    container_statuses: list[LiveContainerStatus] | None = None
    init_container_statuses: list[LiveContainerStatus] | None = None
    resource_claim_statuses: msgspec.Raw = NONE


class LivePod(_LiveStruct):
    metadata: LiveMeta
    spec: LivePodSpec
    status: LivePodStatus = msgspec.field(default_factory=LivePodStatus)

    @property
    def finished(self) -> bool:
        """It takes nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")


class LiveNodeMeta(_LiveStruct):
    name: str
    labels: msgspec.Raw = NONE
    annotations: msgspec.Raw = NONE
    creation_timestamp: str | None = None


class LiveNodeSpec(_LiveStruct):
    taints: msgspec.Raw = NONE
    unschedulable: bool | None = None


class LiveNodeCondition(_LiveStruct):
    type: str
    status: str = ""


class LiveImage(_LiveStruct):
    names: list[str] | None = None
    size_bytes: int = 0


class LiveNodeStatus(_LiveStruct):
    allocatable: msgspec.Raw = NONE
    capacity: msgspec.Raw = NONE
    addresses: msgspec.Raw = NONE
    conditions: list[LiveNodeCondition] | None = None
    images: list[LiveImage] | None = None


class LiveNode(_LiveStruct):
    metadata: LiveNodeMeta
    spec: LiveNodeSpec = msgspec.field(default_factory=LiveNodeSpec)
    status: LiveNodeStatus = msgspec.field(default_factory=LiveNodeStatus)


class LiveReader:
    """Makes domain values of what one API server sends. Used by one thread.

    `kinds`: how many different requirements are known now."""

    def __init__(self) -> None:
        self._requirements: dict[tuple[object, ...], Requirements] = {}

    @property
    def kinds(self) -> int:
        return len(self._requirements)

    def pod(self, live: LivePod, *, pending: bool = False) -> Pod:
        """As `kubernetes.pod_of`. `pending`: as one that is to be placed. UnreadableError."""
        meta, spec, status = live.metadata, live.spec, live.status
        namespace = meta.namespace or DEFAULT_NAMESPACE
        running = bool(spec.node_name) and not pending
        key = _key(live, namespace, running)
        requirements = self._requirements.get(key)
        try:
            if running and not status.qos_class:  # every server says it; else it is worked out
                return pod_of(_model(live), pending)
            if requirements is None:
                requirements = self._made(key, live, pending=pending)
            return Pod(
                meta.uid or f"{namespace}/{meta.name}",
                meta.name,
                requirements,
                spec.node_name if running else "",
                priority=spec.priority or 0,
                started_us=_micros(status.start_time) if status.start_time else 0,
                terminating=meta.deletion_timestamp is not None,
                upkeep=_upkeep(live, requirements) if running else None,
            )
        except (ValidationError, ExpectedError) as error:
            raise UnreadableError(f"{namespace}/{meta.name}", error_line(error)) from None

    def node(self, live: LiveNode) -> Node:
        """As `NodeManifest.to_domain`. A node that has not said its size yet has
        room for nothing. UnreadableError."""
        # Images are most of its bytes, and need no model.
        images, live.status.images = _images(live.status.images or ()), None
        document = cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(live)))
        status = document.setdefault("status", {})
        if not status.get("allocatable") and not status.get("capacity"):
            status["allocatable"] = {"pods": "0"}
        try:
            model = NodeManifest.model_validate(
                {"apiVersion": "v1", "kind": "Node", **document}, context=LIVE
            )
            return msgspec.structs.replace(model.to_domain(), images=images)
        except (ValidationError, ExpectedError) as error:
            raise UnreadableError(live.metadata.name, error_line(error)) from None

    def _made(self, key: tuple[object, ...], live: LivePod, *, pending: bool) -> Requirements:
        made = pod_of(_model(live), pending).requirements
        if len(self._requirements) >= KINDS_MAX:
            self._requirements.clear()
        self._requirements[key] = made
        return made


def _key(live: LivePod, namespace: str, running: bool) -> tuple[object, ...]:
    """All that requirements are made of, and nothing by which equal pods differ."""
    meta, spec = live.metadata, live.spec
    owner = next((o.kind for o in meta.owner_references or () if o.controller), "")
    said = meta.annotations or {}
    volumes = tuple([tied for volume in spec.volumes or () if (tied := volume.tied())])
    named = any(tied[1] for tied in volumes)
    return (
        namespace,
        owner,
        running,
        bytes(meta.labels),
        tuple([said.get(name) for name in _READ_FROM]) if said else None,
        tuple([_container(c) for c in spec.containers or ()]),
        tuple([_container(c) for c in spec.init_containers or ()]),
        volumes,
        meta.name if named else "",
        "" if running else spec.node_name,
        spec.host_network or False,
        spec.scheduler_name,
        spec.preemption_policy,
        spec.raw(),
        bytes(live.status.resource_claim_statuses),
    )


def _container(container: LiveContainer) -> tuple[object, ...]:
    return (
        container.image,
        bytes(container.resources),
        bytes(container.ports),
        container.restart_policy,
    )


def _upkeep(live: LivePod, requirements: Requirements) -> upkeep.PodUpkeep:
    meta, spec, status = live.metadata, live.spec, live.status
    images = tuple([container.image for container in spec.containers or ()])
    volumes = spec.volumes or ()
    claims = {
        claim.claim_name
        for volume in volumes
        if (claim := volume.persistent_volume_claim) is not None
    }
    said = meta.annotations or {}
    containers = [
        found
        for container in status.init_container_statuses or ()
        if (found := _state(container, True)) != _RUNNING_INIT
    ]
    containers += [
        found
        for container in status.container_statuses or ()
        if (found := _state(container, False)) != _RUNNING
    ]
    return upkeep.PodUpkeep(
        owners=tuple([upkeep.Owner(o.kind, o.name, o.uid) for o in meta.owner_references or ()]),
        images=() if images == requirements.traits.images or not any(images) else images,
        quality=status.qos_class,
        local_storage=any(volume.local() for volume in volumes),
        static=static(said),
        claims=tuple(sorted(claims)),
        phase=status.phase,
        reason=status.reason,
        containers=tuple(containers),
        conditions=tuple(
            [
                upkeep.PodCondition(
                    c.type,
                    c.status,
                    c.reason or "",
                    _micros(c.last_transition_time) if c.last_transition_time else 0,
                )
                for c in status.conditions or ()
                if c.reason or c.status != "True" or c.type not in USUAL
            ]
        ),
        annotations=kept_annotations(said) if said else {},
        created_us=_micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
    )


_RUNNING = upkeep.ContainerState("running")
_RUNNING_INIT = upkeep.ContainerState("running", init=True)


def _state(status: LiveContainerStatus, init: bool) -> upkeep.ContainerState:
    state = status.state
    if state is None:
        return upkeep.ContainerState("waiting", "", 0, status.restart_count, init)
    if (ended := state.terminated) is not None:
        return upkeep.ContainerState(
            "terminated", ended.reason, ended.exit_code, status.restart_count, init
        )
    if state.running is not None:
        if not status.restart_count:
            return _RUNNING_INIT if init else _RUNNING
        return upkeep.ContainerState("running", "", 0, status.restart_count, init)
    reason = "" if state.waiting is None else state.waiting.reason
    return upkeep.ContainerState("waiting", reason, 0, status.restart_count, init)


_micros = lru_cache(maxsize=65_536)(micros)
"""Pods that were made together have their times in common."""


def _model(live: LivePod) -> PodManifest:
    document = cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(live)))
    return PodManifest.model_validate({"apiVersion": "v1", "kind": "Pod", **document}, context=LIVE)


def _images(found: Sequence[LiveImage]) -> dict[str, int]:
    return {tagged(name): image.size_bytes for image in found for name in image.names or () if name}


def _there(raw: msgspec.Raw) -> bool:
    return len(memoryview(raw)) > 0 and bytes(raw) != _NULL


def error_line(error: ValidationError | ExpectedError) -> str:
    """The first of what is wrong, with its path and without the value: a value may be anything."""
    if isinstance(error, ExpectedError):
        return f"{'.'.join(map(str, error.field))}: expected {error}".removeprefix(": ")
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
