"""DynamicResources: the devices that a pod's ResourceClaims request must be available on the node,
all together. [kube-scheduler]

An allocated claim restricts all pods that share it to the nodes that can use its devices. The
cluster allocates a claim when the claim's first pod has a node. Until the cluster reports the
allocation, a pod that was placed here reserves it: the claim belongs to the pod's node, and the
devices that it will get are not free for others. The cluster's own driver and scheduler choose the
exact devices; this rule only finds where they are available.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import ResourceClaim
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.device_allocation import DeviceId, Offers, UnclearError, allocate
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable

REASON_ALLOCATE = "cannot allocate all claims"
REASON_ELSEWHERE = "resourceclaim not available on the node"
REASON_IN_USE = "resourceclaim in use"

CONSUMERS_MAX = 256
"""How many pods may share a claim (the limit of Kubernetes)."""

Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(slots=True)
class PodClaims:
    """Holds the ResourceClaims of the pod, and the devices that are not free for them. `ready`:
    claims that are allocated. `open`: claims that are not. `offers`: the published devices.
    `promised`: claim -> node of a placed pod for which the claim will be allocated. `held`: devices
    of allocated claims and of claims that will be allocated for placed pods."""

    ready: list[ResourceClaim]
    open: list[ResourceClaim]
    offers: Offers = field(default_factory=Offers)
    promised: dict[Key, str] = field(default_factory=dict)
    held: set[DeviceId] = field(default_factory=set)


class DynamicResources:
    name = "DynamicResources"
    reason: NodeReason = "DynamicResources"
    concerns = staticmethod(lambda asked: bool(asked.traits.resource_claims))

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        names = dict.fromkeys(pod.requirements.traits.resource_claims)
        if not names:
            return SKIP
        objects = cycle.snapshot.objects
        claims: list[ResourceClaim] = []
        for name in names:
            claim = objects.resource_claim(pod.requirements.traits.home, name)
            if claim is None:
                return unresolvable(
                    f'could not find ResourceClaim "{pod.requirements.traits.home}/{name}"'
                )
            claims.append(claim)
        if (
            why := next((why for claim in claims if (why := _hopeless(objects, claim, pod))), None)
        ) is not None:
            return unresolvable(why)
        claimed = PodClaims(
            [c for c in claims if c.allocated], [c for c in claims if not c.allocated]
        )
        if claimed.open:
            claimed.offers = Offers.of(objects.slices)
            _promise(cycle.snapshot, claimed)
        cycle.data[self.name] = claimed
        return None

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        claimed: PodClaims = cycle.data[self.name]
        wanted = [claim for claim in claimed.open if _key(claim) not in claimed.promised]
        try:
            if wanted and _allocate(cycle.snapshot.objects, claimed, wanted, node.node) is None:
                return unresolvable(REASON_ALLOCATE)
        except UnclearError as unclear:
            return unresolvable(str(unclear))
        elsewhere = any(not _usable(claim, node.node) for claim in claimed.ready)
        elsewhere |= any(
            claimed.promised.get(_key(claim), node.name) != node.name for claim in claimed.open
        )
        return unresolvable(REASON_ELSEWHERE) if elsewhere else None

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("node/add"),
            Hint("resource-claim"),
            Hint("resource-slice"),
            Hint("device-class"),
            Hint("pod/remove", _had_claims),
        )


def _key(claim: ResourceClaim) -> Key:
    return claim.namespace, claim.name


def _hopeless(objects: ClusterObjects, claim: ResourceClaim, pod: Pod) -> str | None:
    """Return why the claim refuses the pod on all nodes: the claim is allocated and has the maximum
    number of consumers, or it names a device class that does not exist. None: it does not refuse
    the pod."""
    if claim.allocated:
        shared = len(claim.reserved_for) < CONSUMERS_MAX or pod.uid in claim.reserved_for
        return None if shared else REASON_IN_USE
    for request in claim.requests:
        for option in request.alternatives or (request,):
            if objects.device_class(option.device_class) is None:
                return f"request {option.name}: device class {option.device_class} does not exist"
    return None


def _usable(claim: ResourceClaim, node: Node) -> bool:
    return claim.node_terms is None or any(
        term.matches(node.labels, node.name) for term in claim.node_terms
    )


def _allocate(
    objects: ClusterObjects, claimed: PodClaims, claims: Sequence[ResourceClaim], node: Node
) -> list[DeviceId] | None:
    return allocate(objects, claimed.offers, claimed.held, claims, node)


def _promise(snapshot: Snapshot, claimed: PodClaims) -> None:
    """Record in `claimed` which devices are not free for the new pod (`held`), and which
    ResourceClaims belong to the node of a placed pod (`promised`). Not free are the devices of
    allocated claims, and the devices that the unallocated claims of placed pods will get on the
    nodes of these pods.

    The allocator computes which devices these claims will get. If it finds none or cannot decide,
    the claims still belong to the pod's node, but hold no devices. Nodes are visited in order of
    name and pods in order of arrival, so equal inputs give equal results.
    """
    for claim in snapshot.objects.resource_claims:
        claimed.held |= {(d.driver, d.pool, d.device) for d in claim.devices if not d.monitoring}
    for node in snapshot.nodes.values():
        for pod in node.pods:
            wanted = [
                claim
                for claim in _open_claims(snapshot.objects, pod)
                if _key(claim) not in claimed.promised
            ]
            try:
                devices = _allocate(snapshot.objects, claimed, wanted, node.node) if wanted else []
            except UnclearError:
                devices = None
            claimed.promised |= {_key(claim): node.name for claim in wanted}
            claimed.held |= set(devices or ())


def _open_claims(objects: ClusterObjects, pod: Pod) -> Iterator[ResourceClaim]:
    for name in dict.fromkeys(pod.requirements.traits.resource_claims):
        claim = objects.resource_claim(pod.requirements.traits.home, name)
        if claim is not None and not claim.allocated:
            yield claim


def _had_claims(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or bool(old.requirements.traits.resource_claims)
