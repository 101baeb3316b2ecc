"""VolumeBinding: the volumes of the pod's claims must be accessible from the node, or it must be
possible to provision them there. [kube-scheduler]

- Bound claim: its volume must be accessible from the node.
- Unbound claim with WaitForFirstConsumer: it takes the smallest free volume of its class that is
  accessible. Otherwise a new one is provisioned, where the class allows it and enough storage is
  left.
- Unbound claim with immediate binding: the pod is unschedulable on every node.

All claims of a pod are matched together, so that no two claims use the same volume. Volumes that
earlier pods will bind are excluded too (`volumes.promised`).

The rule only finds where volumes are available; the cluster binds and provisions them. The score
exists only where the profile has a shape for it: how full the storage of each class would be, with
existing volumes before new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.storage import (
    NO_PROVISIONER,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
)
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
    uses_volumes,
    waits,
)

REASON_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
REASON_NONE_FREE = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

SHAPE_UNIT = 10
"""The scores of a shape are 0..10; this factor scales them to 0..100."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Holds the claims of one pod. `bound`: claims with a volume. `waiting`: unbound claims,
    smallest request first, so that small claims do not take large volumes. `shelves`: the existing
    volumes, indexed. `promises`: what placed pods reserve."""

    bound: tuple[PersistentVolumeClaim, ...]
    waiting: tuple[PersistentVolumeClaim, ...]
    shelves: Shelves
    promises: Promises


@dataclass(slots=True)
class VolumePlan:
    """Plans how the waiting claims of a pod would get volumes on one node. `taken`: claims with the
    existing volume that each would take. `made`: claims with the storage capacity from which a
    volume would be provisioned; None: the driver does not report capacity. `reasons`: why a claim
    cannot get a volume; empty: all can."""

    taken: list[tuple[PersistentVolumeClaim, PersistentVolume]] = field(default_factory=list)
    made: list[tuple[PersistentVolumeClaim, CSIStorageCapacity | None]] = field(
        default_factory=list
    )
    reasons: list[str] = field(default_factory=list)


class VolumeBinding:
    name = "VolumeBinding"
    reason: NodeReason = "Volumes"
    concerns = staticmethod(uses_volumes)

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
        """Score how full the storage for the pod's unbound claims would be on the node: the mean of
        the scores of the storage classes, rounded. The score of a class is the value of the
        profile's shape at the class's utilization in percent.
        The utilization is the requested bytes divided by the capacity of the existing volumes (or
        by the free storage, if all volumes would be provisioned).
        Example: a claim of 30 GiB would get a volume of 50 GiB. The utilization is 60 %. With a
        shape from score 0 at 0 % to score 100 at 100 %, the score is 60."""
        by_class: dict[str, tuple[int, int]] = {}
        for name, asked, size in _sizes(
            plan(cycle.snapshot.objects, cycle.data[self.name], node.node)
        ):
            before_asked, before_size = by_class.get(name, (0, 0))
            by_class[name] = before_asked + asked, before_size + size
        heights = [
            shaped(asked, size, self._utilizations, self._scores)
            for asked, size in by_class.values()
        ]
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
        return (
            f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume '
            f'"{claim.volume}"'
        )
    if claim.deleting:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    return None


def _bound(
    objects: ClusterObjects, claims: Sequence[PersistentVolumeClaim], node: Node
) -> tuple[bool, bool]:
    """Check the volumes of bound claims. Return (whether the volumes are accessible from the node,
    whether a volume does not exist). The first claim that fails decides the result."""
    for claim in claims:
        volume = objects.volume(claim.volume)
        if volume is None:
            return True, True
        if not volume.reached_from(node.labels):
            return False, False
    return True, False


# What waits.


def plan(objects: ClusterObjects, claims: Claims, node: Node) -> VolumePlan:
    """Plan which volumes the pod's unbound claims (WaitForFirstConsumer) would get on the node.
    Return the plan; its `reasons` say why a claim cannot get a volume, and are empty if all claims
    can.
    First, each claim is matched with an existing volume. Then a volume is provisioned for each
    claim that matched none. The plan stops at the first claim that cannot get a volume. If the
    cluster or a placed pod chose another node for one of the claims, the plan has only a reason."""
    found = VolumePlan()
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
    """Return the node that the cluster or a placed pod has already chosen for the claim. Empty:
    none."""
    return claim.selected_node or promises.nodes.get(key_of(claim), "")


def _volume(
    claims: Claims, claim: PersistentVolumeClaim, node: Node, taken: set[str]
) -> PersistentVolume | None:
    """Return the existing volume for the claim. None: a volume must be provisioned. A claim that a
    placed pod shares gets the volume that is reserved for that pod. `taken`: names of volumes that
    other claims use."""
    if claim.selected_node:
        return None
    if key_of(claim) in claims.promises.nodes:
        return claims.promises.volumes.get(key_of(claim))
    return matching_volume(claims.shelves, claim, node.labels, taken)


def _made(
    objects: ClusterObjects, claim: PersistentVolumeClaim, node: Node, found: VolumePlan
) -> str | None:
    """Plan to provision a volume for the claim on the node, and record this in the plan `found`.
    Return the reason why no volume can be provisioned. None: it can.
    The storage class must have a provisioner and allow the node's topology. If the CSI driver
    reports its storage capacity, one reported capacity for the node must have enough space for the
    claim."""
    storage_class = objects.storage_class(claim.storage_class)
    assert storage_class is not None, "only claims of a class that waits get here"
    if storage_class.provisioner in ("", NO_PROVISIONER) or not storage_class.can_be_made_at(
        node.labels
    ):
        return REASON_NONE_FREE
    driver = objects.csi_driver(storage_class.provisioner)
    if driver is None or not driver.tells_capacity or not claim.requested:
        found.made.append((claim, None))
        return None
    for capacity in objects.capacities:
        if capacity.storage_class == claim.storage_class and capacity.serves(
            claim.requested, node.labels
        ):
            found.made.append((claim, capacity))
            return None
    return REASON_NO_SPACE


def _sizes(found: VolumePlan) -> list[tuple[str, int, int]]:
    """Return (storage class, requested bytes, capacity in bytes) for the volumes in the plan
    `found`. If the plan uses existing volumes, these are the existing volumes only. Otherwise they
    are the volumes to provision, as far as the free storage is known, and the capacity is this free
    storage."""
    if found.taken:
        return [
            (claim.storage_class, claim.requested, volume.capacity) for claim, volume in found.taken
        ]
    return [
        (claim.storage_class, claim.requested, free.free)
        for claim, free in found.made
        if free is not None
    ]
