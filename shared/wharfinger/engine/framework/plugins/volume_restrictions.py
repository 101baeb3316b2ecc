"""VolumeRestrictions: a disk that one node at a time may hold, and a claim that one pod at a time may use.

Such a disk may be used by two pods of a node only when both read it. A claim with the access mode ReadWriteOncePod
that a pod uses anywhere keeps the others away from all nodes, until that pod is gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.framework.volumes import MissingClaimError, claim_names, claims_of

REASON_DISK = "node(s) had no available disk"
REASON_CLAIM = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

ONE_POD = "ReadWriteOncePod"


@dataclass(slots=True)
class Exclusive:
    """`claims`: those of the pod that one pod at a time may use. `uses`: how often other pods do."""

    claims: frozenset[str]
    uses: int = 0

    def copy(self) -> Exclusive:
        return replace(self)


class VolumeRestrictions:
    name = "VolumeRestrictions"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        try:
            claims = claims_of(cycle.snapshot.objects, pod)
            exclusive = Exclusive(frozenset(claim.name for claim in claims if ONE_POD in claim.access_modes))
        except MissingClaimError as missing:
            return unresolvable(str(missing))
        if exclusive.claims:
            exclusive.uses = sum(
                _uses(exclusive, pod, other) for node in cycle.snapshot.nodes.values() for other in node.pods
            )
        cycle.data[self.name] = exclusive
        return None if exclusive.uses or any(use.disk for use in pod.requirements.traits.volumes) else SKIP

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
    """Whether the two cannot run on one node because of a disk."""
    return any(
        x.disk and x.disk == y.disk and not (x.read_only and y.read_only)
        for x in a.requirements.traits.volumes
        for y in b.requirements.traits.volumes
    )


def _uses(exclusive: Exclusive, pod: Pod, other: Pod) -> int:
    """How many of the exclusive claims of `pod` the other one uses."""
    if not other.requirements.traits.volumes or other.requirements.traits.home != pod.requirements.traits.home:
        return 0
    return sum(name in exclusive.claims for name in claim_names(other))


def _shared_a_volume(pod: Pod, old: object, new: object) -> bool:
    if not isinstance(old, Pod):
        return True
    same_namespace = old.requirements.traits.home == pod.requirements.traits.home
    return disks_clash(pod, old) or (same_namespace and not set(claim_names(old)).isdisjoint(claim_names(pod)))
