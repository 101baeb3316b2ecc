"""VolumeBinding: the claims of a pod must have their volumes where it runs, or be able to get them there.

A bound claim's volume must be reached from the node. A claim that waits for its pod takes the smallest free volume of
its class that the node reaches, or one is made: where the class allows it, and where there is enough storage. A claim
that does not wait and has no volume yet keeps the pod from being placed at all. All volumes of a pod are looked at
together, so that no two of its claims count on the same one; nor do they on one that a pod placed before was promised
(`volumes.promised`).

It says where volumes can be had; binding and making them is the cluster's own business. The score exists only where
the profile gives a shape for it: how full the storage of each class would be, volumes that are there before those
that are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.storage import NO_PROVISIONER, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from wharfinger.engine.framework.formulas import rounded_mean, shaped
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable
from wharfinger.engine.framework.volumes import (
    MissingClaimError,
    Promises,
    Shelves,
    claims_of,
    is_bound,
    key_of,
    matching_volume,
    promised,
    shelves,
    waits,
)

REASON_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
REASON_NONE_FREE = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

SHAPE_UNIT = 10
"""A shape's scores are 0..10."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Of one pod. `bound`: with their volumes. `waiting`: in order of size, so that the small ones do not take the
    large volumes."""

    bound: tuple[PersistentVolumeClaim, ...]
    waiting: tuple[PersistentVolumeClaim, ...]
    shelves: Shelves
    promises: Promises


@dataclass(slots=True)
class Plan:
    """What the waiting claims of a pod would get on a node. `taken`: volumes that are there; `made`: where their
    capacity is told, else None. `reasons`: why they cannot."""

    taken: list[tuple[PersistentVolumeClaim, PersistentVolume]] = field(default_factory=list)
    made: list[tuple[PersistentVolumeClaim, CSIStorageCapacity | None]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class VolumeBinding:
    name = "VolumeBinding"

    def __init__(self, arguments: Arguments) -> None:
        shape = arguments.volume_binding.shape
        self._utilizations = tuple(point.utilization for point in shape)
        self._scores = tuple(point.score * SHAPE_UNIT for point in shape)

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        objects = cycle.snapshot.objects
        claims: list[PersistentVolumeClaim] = []
        try:
            for claim in claims_of(objects, pod):
                if (unusable := _unusable(claim)) is not None:
                    return unresolvable(unusable)
                claims.append(claim)
        except MissingClaimError as missing:
            return unresolvable(str(missing))
        if not claims:
            return SKIP
        unbound = [claim for claim in claims if not is_bound(claim)]
        if not all(waits(objects, claim) for claim in unbound):
            return unresolvable(REASON_IMMEDIATE)
        there = shelves(objects) if unbound else {}
        cycle.data[self.name] = Claims(
            tuple(claim for claim in claims if is_bound(claim)),
            tuple(sorted(unbound, key=lambda claim: claim.requested)),
            there,
            promised(cycle.snapshot, there) if unbound else Promises(),
        )
        return None

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        claims: Claims = cycle.data[self.name]
        objects = cycle.snapshot.objects
        reached, gone = _bound(objects, claims.bound, node.node)
        reasons = [] if reached else [REASON_CONFLICT]
        reasons += plan(objects, claims, node.node).reasons
        reasons += [REASON_GONE] if gone else []
        return unresolvable(*reasons) if reasons else None

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        claims: Claims | None = cycle.data.get(self.name)
        return None if self._scores and claims is not None and claims.waiting else SKIP

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """The mean of the classes, each by its shape."""
        by_class: dict[str, tuple[int, int]] = {}
        for name, asked, size in _sizes(plan(cycle.snapshot.objects, cycle.data[self.name], node.node)):
            before_asked, before_size = by_class.get(name, (0, 0))
            by_class[name] = before_asked + asked, before_size + size
        heights = [shaped(asked, size, self._utilizations, self._scores) for asked, size in by_class.values()]
        return rounded_mean(sum(heights), len(heights))

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("storage-class"),
            Hint("claim"),
            Hint("volume"),
            Hint("node/add"),
            Hint("node/label"),
            Hint("csi-node"),
            Hint("pod/remove"),
        )


def _unusable(claim: PersistentVolumeClaim) -> str | None:
    if claim.lost:
        return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume}"'
    if claim.deleting:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    return None


def _bound(objects: ClusterObjects, claims: Sequence[PersistentVolumeClaim], node: Node) -> tuple[bool, bool]:
    """Whether the node reaches the volumes, and whether one is gone; the first that is wrong decides."""
    for claim in claims:
        volume = objects.volume(claim.volume)
        if volume is None:
            return True, True
        if not volume.reached_from(node.labels):
            return False, False
    return True, False


# What waits.


def plan(objects: ClusterObjects, claims: Claims, node: Node) -> Plan:
    """Volumes that are there first; the rest are made."""
    found = Plan()
    if any(_chosen(claim, claims.promises) not in ("", node.name) for claim in claims.waiting):
        found.reasons.append(REASON_NONE_FREE)
        return found
    taken = claims.promises.taken
    to_make: list[PersistentVolumeClaim] = []
    for claim in claims.waiting:
        volume = _volume(claims, claim, node, taken)
        if volume is None:
            to_make.append(claim)
        else:
            taken.add(volume.name)
            found.taken.append((claim, volume))
    for claim in to_make:
        if (reason := _made(objects, claim, node, found)) is not None:
            found.reasons.append(reason)
            return found
    return found


def _chosen(claim: PersistentVolumeClaim, promises: Promises) -> str:
    """The node that the claim belongs to already; empty: none."""
    return claim.selected_node or promises.nodes.get(key_of(claim), "")


def _volume(claims: Claims, claim: PersistentVolumeClaim, node: Node, taken: set[str]) -> PersistentVolume | None:
    """What another pod with the same claim was promised is this one's, too. None: a volume is to be made."""
    if claim.selected_node:
        return None
    if key_of(claim) in claims.promises.nodes:
        return claims.promises.volumes.get(key_of(claim))
    return matching_volume(claims.shelves, claim, node.labels, taken)


def _made(objects: ClusterObjects, claim: PersistentVolumeClaim, node: Node, found: Plan) -> str | None:
    """Why no volume can be made for the claim; None: it can, and is noted."""
    storage_class = objects.storage_class(claim.storage_class)
    assert storage_class is not None, "only claims of a class that waits get here"
    if storage_class.provisioner in ("", NO_PROVISIONER) or not storage_class.can_be_made_at(node.labels):
        return REASON_NONE_FREE
    driver = objects.csi_driver(storage_class.provisioner)
    if driver is None or not driver.tells_capacity or not claim.requested:
        found.made.append((claim, None))
        return None
    for capacity in objects.capacities:
        if capacity.storage_class == claim.storage_class and capacity.serves(claim.requested, node.labels):
            found.made.append((claim, capacity))
            return None
    return REASON_NO_SPACE


def _sizes(found: Plan) -> list[tuple[str, int, int]]:
    """(class, requested, size) of each volume: of those that are there, or, where all are made, of what they are made in."""
    if found.taken:
        return [(claim.storage_class, claim.requested, volume.capacity) for claim, volume in found.taken]
    return [(claim.storage_class, claim.requested, free.free) for claim, free in found.made if free is not None]
