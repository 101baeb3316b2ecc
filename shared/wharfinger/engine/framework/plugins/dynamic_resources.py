"""DynamicResources: the devices that a pod's claims name must be on the node, unclaimed, and all of them at once.

A claim that has its devices ties the pods that share it to where these can be used. One that has none gets them when its first pod
has its node; until the cluster reports that, pods that were placed here before have a promise: their claims belong to their
nodes, and what these would get is not free for others. Which devices it is to be exactly is written by the cluster's own driver
and scheduler; here it is only said where they can be had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import ResourceClaim
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.device_allocation import DeviceId, Offers, UnclearError, allocate
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable

REASON_ALLOCATE = "cannot allocate all claims"
REASON_ELSEWHERE = "resourceclaim not available on the node"
REASON_IN_USE = "resourceclaim in use"

CONSUMERS_MAX = 256
"""How many pods may share a claim, as Kubernetes has it."""

Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(slots=True)
class Claimed:
    """`ready`: the pod's claims that have their devices. `open`: those that need some. `promised`: claim -> the node of a pod that
    was placed with it; `held`: the devices that are somebody's."""

    ready: list[ResourceClaim]
    open: list[ResourceClaim]
    offers: Offers = field(default_factory=Offers)
    promised: dict[Key, str] = field(default_factory=dict)
    held: set[DeviceId] = field(default_factory=set)


class DynamicResources:
    name = "DynamicResources"

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
                return unresolvable(f'could not find ResourceClaim "{pod.requirements.traits.home}/{name}"')
            claims.append(claim)
        if (why := next((why for claim in claims if (why := _hopeless(objects, claim, pod))), None)) is not None:
            return unresolvable(why)
        claimed = Claimed([c for c in claims if c.allocated], [c for c in claims if not c.allocated])
        if claimed.open:
            claimed.offers = Offers.of(objects.slices)
            _promise(cycle.snapshot, claimed)
        cycle.data[self.name] = claimed
        return None

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        claimed: Claimed = cycle.data[self.name]
        wanted = [claim for claim in claimed.open if _key(claim) not in claimed.promised]
        try:
            if wanted and _allocate(cycle.snapshot.objects, claimed, wanted, node.node) is None:
                return unresolvable(REASON_ALLOCATE)
        except UnclearError as unclear:
            return unresolvable(str(unclear))
        elsewhere = any(not _usable(claim, node.node) for claim in claimed.ready)
        elsewhere |= any(claimed.promised.get(_key(claim), node.name) != node.name for claim in claimed.open)
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
    """Why no node will do."""
    if claim.allocated:
        shared = len(claim.reserved_for) < CONSUMERS_MAX or pod.uid in claim.reserved_for
        return None if shared else REASON_IN_USE
    for request in claim.requests:
        for option in request.alternatives or (request,):
            if objects.device_class(option.device_class) is None:
                return f"request {option.name}: device class {option.device_class} does not exist"
    return None


def _usable(claim: ResourceClaim, node: Node) -> bool:
    return claim.node_terms is None or any(term.matches(node.labels, node.name) for term in claim.node_terms)


def _allocate(
    objects: ClusterObjects, claimed: Claimed, claims: Sequence[ResourceClaim], node: Node
) -> list[DeviceId] | None:
    return allocate(objects, claimed.offers, claimed.held, claims, node)


def _promise(snapshot: Snapshot, claimed: Claimed) -> None:
    """Whose the devices are: of claims that have them, and of pods that were placed with claims that will. Node after node in
    order of name, its pods in order of arrival: the same pods have the same promises."""
    for claim in snapshot.objects.resource_claims:
        claimed.held |= {(d.driver, d.pool, d.device) for d in claim.devices if not d.monitoring}
    for node in snapshot.nodes.values():
        for pod in node.pods:
            wanted = [claim for claim in _open_claims(snapshot.objects, pod) if _key(claim) not in claimed.promised]
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
