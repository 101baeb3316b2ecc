"""VolumeZone: a volume that is labelled with its zones or regions is reached from nodes in one of them.

Older than the node affinity of volumes, and still what labels by hand mean. A node without any such label is taken to
be in a cluster that has but one zone."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.storage import PersistentVolume, PersistentVolumeClaim
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable
from wharfinger.engine.framework.volumes import MissingClaimError, claims_of

REASON = "node(s) had no available volume zone"

TODAY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Every label that tells of zones and regions, and under which name the same is told today."""

BETWEEN = "__"
"""Between the zones of a volume that lies in several."""


@dataclass(frozen=True, slots=True)
class Place:
    label: str
    values: frozenset[str]

    def holds(self, node: Node) -> bool:
        return node.labels.get(self.label, node.labels.get(TODAY[self.label])) in self.values


class _UnfitError(ValueError):
    """The pod cannot be placed on any node; the text is what users know."""


class VolumeZone:
    name = "VolumeZone"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        try:
            claims = list(claims_of(cycle.snapshot.objects, pod))
            places = [place for claim in claims for place in _places(cycle, claim)]
        except (MissingClaimError, _UnfitError) as error:
            return unresolvable(str(error))
        cycle.data[self.name] = places
        return None if places else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        if not any(label in node.node.labels for label in TODAY):
            return None
        return None if all(place.holds(node.node) for place in cycle.data[self.name]) else unresolvable(REASON)

    def hints(self) -> tuple[Hint, ...]:
        return Hint("storage-class"), Hint("node/add"), Hint("node/label"), Hint("claim"), Hint("volume")


def _places(cycle: Cycle, claim: PersistentVolumeClaim) -> list[Place]:
    """None for a claim that waits for its pod: its volume will be where the pod is. Raises _UnfitError."""
    objects = cycle.snapshot.objects
    if claim.volume:
        volume = objects.volume(claim.volume)
        if volume is None:
            raise _UnfitError(f'persistentvolume "{claim.volume}" not found')
        return places_of(volume)
    if not claim.storage_class:
        raise _UnfitError("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = objects.storage_class(claim.storage_class)
    if storage_class is None:
        raise _UnfitError(f'storageclass.storage.k8s.io "{claim.storage_class}" not found')
    if not storage_class.waits:
        raise _UnfitError("PersistentVolume had no name")
    return []


def places_of(volume: PersistentVolume) -> list[Place]:
    """A label whose value names no zone, or an empty one among others, tells nothing."""
    told = [
        (label, [v.strip() for v in volume.labels[label].split(BETWEEN)]) for label in TODAY if label in volume.labels
    ]
    return [Place(label, frozenset(values)) for label, values in told if all(values)]
