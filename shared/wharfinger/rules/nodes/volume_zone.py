"""VolumeZone: a volume with zone or region labels is accessible only from nodes in one of these
zones or regions. [kube-scheduler]

The rule is older than the node affinity of volumes, and still applies to labels that were set by
hand. A node without any such label is assumed to be in a cluster with a single zone.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.storage import PersistentVolume, PersistentVolumeClaim
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable
from wharfinger.engine.framework.volumes import MissingClaimError, claims_of, uses_volumes

REASON = "node(s) had no available volume zone"

TODAY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Each zone or region label, also the former ones -> its present name."""

BETWEEN = "__"
"""Separates the zones in the label value of a volume with several zones."""


@dataclass(frozen=True, slots=True)
class ZoneLabel:
    label: str
    values: frozenset[str]

    def holds(self, node: Node) -> bool:
        return node.labels.get(self.label, node.labels.get(TODAY[self.label])) in self.values


class _UnfitError(ValueError):
    """The pod cannot be placed on any node; the text is kube-scheduler's message."""


class VolumeZone:
    name = "VolumeZone"
    reason: NodeReason = "Volumes"
    concerns = staticmethod(uses_volumes)

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
        return (
            None
            if all(place.holds(node.node) for place in cycle.data[self.name])
            else unresolvable(REASON)
        )

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("storage-class"),
            Hint("node/add"),
            Hint("node/label"),
            Hint("claim"),
            Hint("volume"),
        )


def _places(cycle: Cycle, claim: PersistentVolumeClaim) -> list[ZoneLabel]:
    """Return the zone and region labels of the claim's volume. Empty for an unbound claim of a
    storage class with WaitForFirstConsumer, because its volume will be created for the node of the
    pod.
    Raise _UnfitError, with kube-scheduler's message, in all other cases: the volume or the storage
    class does not exist, or the unbound claim has no storage class or one without
    WaitForFirstConsumer."""
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


def places_of(volume: PersistentVolume) -> list[ZoneLabel]:
    """Return the zone and region labels of a volume, each with the values it allows. A label with
    an empty value, also as one of several values, is ignored."""
    places = [
        (label, [v.strip() for v in volume.labels[label].split(BETWEEN)])
        for label in TODAY
        if label in volume.labels
    ]
    return [ZoneLabel(label, frozenset(values)) for label, values in places if all(values)]
