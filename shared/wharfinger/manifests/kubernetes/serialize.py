"""Pods and nodes as Kubernetes API objects, made from domain values: the reverse of `pod` and
`core`.

For programs outside that expect an API object: an extender is asked about a pod in this form. It
has everything by which a replica is placed. It does not have the replica's own containers: a single
container has all the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread, VolumeUse
from wharfinger.domain.pod_upkeep import ContainerState, PodUpkeep
from wharfinger.domain.resources import DEVICE_MILLI, GPU, DeviceRequest, quantity_of
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.manifests.kubernetes.core import GPU_PRODUCT
from wharfinger.manifests.kubernetes.pod import DEFAULT_SCHEDULER, GPU_MILLI, GPU_MODELS, POD_GROUP
from wharfinger.manifests.kubernetes.pod_upkeep import CONFIG_MIRROR

Json = dict[str, Any]


def pod_manifest(pod: Pod) -> Json:
    """A `v1 Pod`."""
    traits = pod.requirements.traits
    metadata: Json = {"name": pod.name, "namespace": traits.home, "uid": pod.uid}
    labels = dict(traits.labels)
    if traits.group and POD_GROUP not in labels:
        labels[POD_GROUP] = traits.group
    upkeep = pod.upkeep or PodUpkeep()
    annotations = _annotations(pod.requirements.devices) | upkeep.annotations
    if upkeep.static:
        annotations[CONFIG_MIRROR] = pod.uid
    metadata |= _set(
        labels=labels,
        annotations=annotations,
        ownerReferences=_owners(pod.name, traits.owner, upkeep),
    )
    if upkeep.created_us:
        metadata["creationTimestamp"] = _time(upkeep.created_us)
    if pod.terminating:
        metadata["deletionTimestamp"] = _time(pod.started_us)
    status: Json = {"phase": upkeep.phase or ("Running" if pod.node else "Pending")} | _status(
        upkeep
    )
    if pod.started_us:
        status["startTime"] = _time(pod.started_us)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _spec(pod),
        "status": status,
    }


def _owners(pod: str, controller: str, upkeep: PodUpkeep) -> list[Json]:
    """Where nothing is known but the kind of its controller, that one is called as the pod."""
    if not upkeep.owners:
        return [{"kind": controller, "name": pod, "controller": True}] if controller else []
    return [
        {"kind": owner.kind, "name": owner.name}
        | _set(uid=owner.uid, controller=owner.kind == controller)
        for owner in upkeep.owners
    ]


def _status(upkeep: PodUpkeep) -> Json:
    return _set(
        reason=upkeep.reason,
        qosClass=upkeep.quality,
        conditions=[
            {"type": c.type, "status": c.status}
            | _set(reason=c.reason, lastTransitionTime=_time(c.since_us) if c.since_us else "")
            for c in upkeep.conditions
        ],
        initContainerStatuses=[_container_status(c) for c in upkeep.containers if c.init],
        containerStatuses=[_container_status(c) for c in upkeep.containers if not c.init],
    )


def _container_status(container: ContainerState) -> Json:
    said = _set(reason=container.reason, exitCode=container.exit_code)
    return {"restartCount": container.restarts, "state": {container.state or "waiting": said}}


def _spec(pod: Pod) -> Json:
    wants, traits = pod.requirements, pod.requirements.traits
    spec: Json = {
        "containers": _containers(wants),
        "priority": pod.priority,
        "schedulerName": traits.scheduler or DEFAULT_SCHEDULER,
    }
    return spec | _set(
        nodeName=pod.node or traits.node_name,
        nodeSelector=dict(wants.node_selector),
        affinity=_affinity(wants),
        tolerations=[_toleration(t) for t in wants.tolerations],
        topologySpreadConstraints=[_spread(s) for s in traits.spread],
        volumes=[{"name": f"volume-{i}"} | _volume(use) for i, use in enumerate(traits.volumes)]
        + [
            {"name": "local", "emptyDir": {}}
            for upkeep in [pod.upkeep]
            if upkeep is not None and upkeep.local_storage
        ],
        resourceClaims=[
            {"name": name, "resourceClaimName": name} for name in traits.resource_claims
        ],
        schedulingGates=[{"name": gate} for gate in traits.gates],
        preemptionPolicy="Never" if traits.never_preempts else "",
    )


def _containers(wants: Requirements) -> list[Json]:
    """The first asks for everything; the others are there for their images."""
    amounts = {name: quantity_of(name, amount) for name, amount in sorted(wants.requests.items())}
    for device in wants.devices:
        amounts[device.kind] = str(device.count)
    ports = [
        _set(containerPort=p.port, hostPort=p.port, protocol=p.protocol, hostIP=p.ip)
        for p in wants.traits.ports
    ]
    images = wants.traits.images or ("",)
    containers: list[Json] = [
        {"name": f"container-{i}"} | _set(image=image) for i, image in enumerate(images)
    ]
    containers[0] |= {"resources": {"requests": amounts}} | _set(ports=ports)
    return containers


def _annotations(devices: Iterable[DeviceRequest]) -> dict[str, str]:
    said: dict[str, str] = {}
    for device in devices:
        if device.kind == GPU and device.milli != DEVICE_MILLI:
            said[GPU_MILLI] = str(device.milli)
        if device.kind == GPU and device.models:
            said[GPU_MODELS] = ",".join(device.models)
    return said


# Claims on nodes and other pods.


def _affinity(wants: Requirements) -> Json:
    traits = wants.traits
    return _set(
        nodeAffinity=_set(
            **{
                REQUIRED: _set(nodeSelectorTerms=[_node_term(t) for t in wants.node_terms]),
                PREFERRED: [
                    {"weight": p.weight, "preference": _node_term(p.term)}
                    for p in traits.preferences
                ],
            }
        ),
        podAffinity=_pod_affinity(traits, lambda t: t.affinity, lambda t: t.preferred_affinity),
        podAntiAffinity=_pod_affinity(
            traits, lambda t: t.anti_affinity, lambda t: t.preferred_anti_affinity
        ),
    )


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _pod_affinity(
    traits: PodTraits,
    required: Callable[[PodTraits], Iterable[PodTerm]],
    preferred: Callable[[PodTraits], Iterable[Any]],
) -> Json:
    return _set(
        **{
            REQUIRED: [_pod_term(term) for term in required(traits)],
            PREFERRED: [
                {"weight": p.weight, "podAffinityTerm": _pod_term(p.term)}
                for p in preferred(traits)
            ],
        }
    )


def _pod_term(term: PodTerm) -> Json:
    return (
        {"topologyKey": term.key}
        | _selector("labelSelector", term.selector)
        | _selector("namespaceSelector", term.namespace_selector)
        | _set(
            namespaces=list(term.namespaces),
            matchLabelKeys=list(term.match_label_keys),
            mismatchLabelKeys=list(term.mismatch_label_keys),
        )
    )


def _spread(spread: TopologySpread) -> Json:
    said: Json = {
        "topologyKey": spread.key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": "DoNotSchedule" if spread.hard else "ScheduleAnyway",
        "nodeAffinityPolicy": "Honor" if spread.honours_affinity else "Ignore",
        "nodeTaintsPolicy": "Honor" if spread.honours_taints else "Ignore",
    }
    if spread.min_domains > 1:
        said["minDomains"] = spread.min_domains
    return (
        said
        | _selector("labelSelector", spread.selector)
        | _set(matchLabelKeys=list(spread.match_label_keys))
    )


def _selector(name: str, selector: LabelSelector | None) -> Json:
    """An empty selector is another thing than none."""
    if selector is None:
        return {}
    expressions = [_expression(e) for e in selector.match_expressions]
    return {name: _set(matchLabels=dict(selector.match_labels), matchExpressions=expressions)}


def _node_term(term: NodeTerm) -> Json:
    return _set(
        matchExpressions=[_expression(e) for e in term.expressions],
        matchFields=[_expression(e) for e in term.fields],
    )


def _expression(requirement: Requirement) -> Json:
    return {"key": requirement.key, "operator": requirement.operator} | _set(
        values=list(requirement.values)
    )


def _toleration(t: Toleration) -> Json:
    said = {"operator": t.operator} | _set(key=t.key, value=t.value, effect=t.effect)
    return said if t.seconds is None else said | {"tolerationSeconds": t.seconds}


def _volume(use: VolumeUse) -> Json:
    if use.claim:
        return {"persistentVolumeClaim": {"claimName": use.claim} | _set(readOnly=use.read_only)}
    kind, _, identity = use.disk.partition("/")
    return {kind: DISKS[kind](identity) | _set(readOnly=use.read_only)}


def _rbd(identity: str) -> Json:
    monitor, pool, image = identity.rsplit("/", 2)
    return {"monitors": [monitor], "pool": pool, "image": image}


DISKS: Mapping[str, Callable[[str], Json]] = {
    "gcePersistentDisk": lambda identity: {"pdName": identity},
    "awsElasticBlockStore": lambda identity: {"volumeID": identity},
    "iscsi": lambda identity: {"iqn": identity, "targetPortal": "", "lun": 0},
    "rbd": _rbd,
}
"""How each kind of disk says which one it is."""


# Nodes.


def node_manifest(node: Node) -> Json:
    """A `v1 Node`."""
    amounts = {name: quantity_of(name, amount) for name, amount in sorted(node.allocatable.items())}
    for device in node.devices:
        amounts[device.kind] = str(int(amounts.get(device.kind, "0")) + 1)
    labels = dict(node.labels)
    models = [device.model for device in node.devices if device.kind == GPU and device.model]
    if models and GPU_PRODUCT not in labels:
        labels[GPU_PRODUCT] = models[0]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name}
        | _set(labels=labels, annotations=dict(node.annotations))
        | _set(creationTimestamp=_time(node.created_us) if node.created_us else ""),
        "spec": _set(unschedulable=node.unschedulable, taints=[_taint(t) for t in node.taints]),
        "status": {"allocatable": amounts, "capacity": amounts}
        | _set(conditions=[] if node.ready else [{"type": "Ready", "status": "Unknown"}])
        | _set(
            images=[
                {"names": [name], "sizeBytes": size} for name, size in sorted(node.images.items())
            ]
        )
        | _set(
            addresses=[{"type": "InternalIP", "address": address} for address in node.addresses]
        ),
    }


def _taint(taint: Taint) -> Json:
    return {"key": taint.key, "effect": taint.effect} | _set(value=taint.value)


def _set(**fields: Any) -> Json:
    """What says anything: Kubernetes leaves out what does not."""
    return {name: value for name, value in fields.items() if value}


def _time(at_us: int) -> str:
    """Computed, not formatted: every microsecond count is a time."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
