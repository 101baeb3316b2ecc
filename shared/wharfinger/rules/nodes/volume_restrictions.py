"""VolumeRestrictions: excludes conflicting use of a disk on one node, and of a ReadWriteOncePod
claim in the cluster. [kube-scheduler]

Two pods on one node may name the same disk only if both mount it read-only. While a pod uses a
claim with the access mode ReadWriteOncePod, all other pods of the claim are refused on all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wharfinger.domain.node import Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.framework.volumes import (
    MissingClaimError,
    claim_names,
    claims_of,
    uses_volumes,
)

REASON_DISK = "node(s) had no available disk"
REASON_CLAIM = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)

ONE_POD = "ReadWriteOncePod"


@dataclass(slots=True)
class Exclusive:
    """Holds the pod's use of ReadWriteOncePod claims. `claims`: names of these claims. `uses`: how
    often other pods in the cluster use them; the pod is refused while it is above 0."""

    claims: frozenset[str]
    uses: int = 0

    def copy(self) -> Exclusive:
        return replace(self)


class VolumeRestrictions:
    name = "VolumeRestrictions"
    reason: NodeReason = "Volumes"
    concerns = staticmethod(uses_volumes)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        try:
            claims = claims_of(cycle.snapshot.objects, pod)
            exclusive = Exclusive(
                frozenset(claim.name for claim in claims if ONE_POD in claim.access_modes)
            )
        except MissingClaimError as missing:
            return unresolvable(str(missing))
        if exclusive.claims:
            exclusive.uses = sum(
                _uses(exclusive, pod, other)
                for node in cycle.snapshot.nodes.values()
                for other in node.pods
            )
        cycle.data[self.name] = exclusive
        return (
            None
            if exclusive.uses or any(use.disk for use in pod.requirements.traits.volumes)
            else SKIP
        )

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        exclusive: Exclusive = cycle.data[self.name]
        exclusive.uses += _uses(exclusive, pod, other)

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        exclusive: Exclusive = cycle.data[self.name]
        exclusive.uses -= _uses(exclusive, pod, other)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if any(disks_clash(pod, other) for other in node.pods):
            return unschedulable(REASON_DISK)
        exclusive: Exclusive = cycle.data[self.name]
        return unschedulable(REASON_CLAIM) if exclusive.uses else None

    def hints(self) -> tuple[Hint, ...]:
        return Hint("pod/remove", _shared_a_volume), Hint("node/add"), Hint("claim")


def disks_clash(a: Pod, b: Pod) -> bool:
    """Return whether the two pods cannot run on one node: they name the same disk, and at least one
    of them mounts it read-write."""
    return any(
        x.disk and x.disk == y.disk and not (x.read_only and y.read_only)
        for x in a.requirements.traits.volumes
        for y in b.requirements.traits.volumes
    )


def _uses(exclusive: Exclusive, pod: Pod, other: Pod) -> int:
    """Return how many of the ReadWriteOncePod claims of `pod` the pod `other` uses."""
    if (
        not other.requirements.traits.volumes
        or other.requirements.traits.home != pod.requirements.traits.home
    ):
        return 0
    return sum(name in exclusive.claims for name in claim_names(other))


def _shared_a_volume(pod: Pod, old: object, new: object) -> bool:
    if not isinstance(old, Pod):
        return True
    same_namespace = old.requirements.traits.home == pod.requirements.traits.home
    return disks_clash(pod, old) or (
        same_namespace and not set(claim_names(old)).isdisjoint(claim_names(pod))
    )
