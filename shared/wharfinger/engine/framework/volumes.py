"""Finds the volumes of a pod: the claims that it names, the volumes that match them, and their CSI
drivers.

The volume plugins share this module. The cluster binds a claim with WaitForFirstConsumer
(`StorageClass.waits`) only when its pod has a node. Until the cluster reports that binding, a pod
that was placed reserves its volume: the claim belongs to the pod's node, and the matching existing
volume is not free any more. Without that, two pods placed one after the other could get the same
disk.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Pod
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.storage import PersistentVolume, PersistentVolumeClaim
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.snapshot import Snapshot


def uses_volumes(asked: Requirements) -> bool:
    """Return whether the volume rules concern the pod, because it names volumes."""
    return bool(asked.traits.volumes)


def claim_names(pod: Pod) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.claim for use in pod.requirements.traits.volumes if use.claim))


class MissingClaimError(LookupError):
    """The pod names a claim that does not exist. The text is kube-scheduler's."""

    def __init__(self, name: str) -> None:
        super().__init__(f'persistentvolumeclaim "{name}" not found')


def claims_of(objects: ClusterObjects, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims of the pod, in the order of its volumes. Raise MissingClaimError at the
    first claim that does not exist."""
    for name in claim_names(pod):
        claim = objects.claim(pod.requirements.traits.home, name)
        if claim is None:
            raise MissingClaimError(name)
        yield claim


Key = tuple[str, str]
"""Namespace and name of a claim."""


def key_of(claim: PersistentVolumeClaim) -> Key:
    return claim.namespace, claim.name


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.volume) and claim.bound


def waits(objects: ClusterObjects, claim: PersistentVolumeClaim) -> bool:
    """Return whether the unbound claim has binding mode WaitForFirstConsumer, so that it is bound
    only when its pod has a node. False for a claim that names a volume, because the volume
    controller completes that binding."""
    storage_class = objects.storage_class(claim.storage_class) if claim.storage_class else None
    return storage_class is not None and storage_class.waits and not claim.volume


def attachment(objects: ClusterObjects, claim: PersistentVolumeClaim) -> tuple[str, str] | None:
    """Return (CSI driver, volume handle) under which the claim's volume counts against the node's
    attach limit. For a volume that has not been provisioned yet: (provisioner, a text with the
    claim's name). None: the volume has no CSI driver, or the storage class is unknown."""
    volume = objects.volume(claim.volume) if claim.volume else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver else None
    storage_class = objects.storage_class(claim.storage_class) if claim.storage_class else None
    if storage_class is None:
        return None
    return storage_class.provisioner, f"claim {claim.namespace}/{claim.name}"


# Which of the volumes that are there could be the claim's.


@dataclass(slots=True)
class VolumeIndex:
    """Indexes the volumes of one storage class. `kept`: claim -> volumes that are pre-bound to it.
    `by_label`: node label -> label value -> volumes that only nodes with this label value can
    access, such as local disks. `anywhere`: all other volumes, whatever their node affinity."""

    kept: dict[Key, list[PersistentVolume]] = field(default_factory=dict)
    by_label: dict[str, dict[str, list[PersistentVolume]]] = field(default_factory=dict)
    anywhere: list[PersistentVolume] = field(default_factory=list)

    def put(self, volume: PersistentVolume) -> None:
        if (claim := volume.claim) is not None:
            self.kept.setdefault((claim.namespace, claim.name), []).append(volume)
        elif (one := _one_label(volume)) is None:
            self.anywhere.append(volume)
        else:
            for value in dict.fromkeys(one.values):
                self.by_label.setdefault(one.key, {}).setdefault(value, []).append(volume)

    def near(self, labels: Mapping[str, str]) -> Iterator[PersistentVolume]:
        """Yield the volumes that are pre-bound to no claim and that a node with these labels can
        perhaps access. The caller must check the full node affinity."""
        yield from self.anywhere
        for label, values in self.by_label.items():
            if label in labels:
                yield from values.get(labels[label], ())


def _one_label(volume: PersistentVolume) -> Requirement | None:
    """Return the requirement on a node label, if the node affinity of the volume is a single `In`
    requirement; None: it is empty or more complex."""
    match volume.node_terms:
        case (NodeTerm(expressions=(Requirement(operator="In") as one,), fields=()),):
            return one
    return None


Shelves = Mapping[str, VolumeIndex]
"""Storage class -> index of its volumes."""


def shelves(objects: ClusterObjects) -> Shelves:
    found: dict[str, VolumeIndex] = {}
    for volume in objects.volumes:
        found.setdefault(volume.storage_class, VolumeIndex()).put(volume)
    return found


def matching_volume(
    among: Shelves, claim: PersistentVolumeClaim, labels: dict[str, str], taken: Container[str]
) -> PersistentVolume | None:
    """Choose a volume for a claim (PersistentVolumeClaim) on a node, by best fit. Return the
    volume; None: there is none.

    First choice is a volume that is pre-bound to the claim and is large enough. If the node cannot
    access this volume, the result is None. Without a pre-bound volume, choose the smallest free
    volume that matches the claim, that is large enough and that the node can access; among equal
    sizes the first by name.

    `among`: storage class -> index of its volumes. `labels`: labels of the node. `taken`: names of
    the volumes that other claims use. Example: volumes of 10, 20 and 50 GiB are free. A claim for
    15 GiB gets the one of 20 GiB.
    """
    shelf = among.get(claim.storage_class)
    if shelf is None:
        return None
    for volume in shelf.kept.get(key_of(claim), ()):
        if volume.is_kept_for(claim) and volume.name not in taken and _could_serve(volume, claim):
            return volume if volume.reached_from(labels) else None
    fit = [
        volume
        for volume in shelf.near(labels)
        if volume.name not in taken
        and _could_serve(volume, claim)
        and _is_free_for(volume, claim)
        and volume.reached_from(labels)
    ]
    return min(fit, key=lambda volume: (volume.capacity, volume.name), default=None)


def _could_serve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.capacity >= claim.requested
        and volume.mode == claim.mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def _is_free_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.available
        and (claim.selector is None or claim.selector.matches(volume.labels))
        and set(claim.access_modes) <= set(volume.access_modes)
    )


# What was promised to pods that were placed and whose claims the cluster has not bound yet.


@dataclass(slots=True)
class Promises:
    """Holds the reservations for placed pods whose claims the cluster has not bound yet. `nodes`:
    claim -> the node of its pod. `volumes`: claim -> the existing volume that it will bind; for a
    claim without an entry, a volume will be provisioned."""

    nodes: dict[Key, str] = field(default_factory=dict)
    volumes: dict[Key, PersistentVolume] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        return {volume.name for volume in self.volumes.values()}


def promised(snapshot: Snapshot, among: Shelves) -> Promises:
    """Compute what placed pods reserve for claims (PersistentVolumeClaims) that the cluster has not
    bound yet. Return claim -> node and claim -> existing volume.

    Each claim with WaitForFirstConsumer is reserved for the node of its pod. The claim also
    reserves the volume that `matching_volume` chooses for it among the volumes not reserved so far.
    A claim reserves no volume if none matches, or if the cluster has selected a node for it (then a
    volume will be provisioned).

    `among`: storage class -> index of its volumes. Nodes are visited in order of name, and the pods
    of a node in order of arrival. So equal inputs give equal reservations.
    """
    promises = Promises()
    taken: set[str] = set()
    for node in snapshot.nodes.values():
        for pod in node.pods:
            for claim in _waiting(snapshot.objects, pod):
                if (key := key_of(claim)) in promises.nodes:
                    continue
                promises.nodes[key] = node.name
                volume = matching_volume(among, claim, node.node.labels, taken)
                if volume is not None and not claim.selected_node:
                    promises.volumes[key] = volume
                    taken.add(volume.name)
    return promises


def _waiting(objects: ClusterObjects, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    for name in claim_names(pod):
        claim = objects.claim(pod.requirements.traits.home, name)
        if claim is not None and not is_bound(claim) and waits(objects, claim):
            yield claim
