"""The volumes of a pod: which claims it names, which volumes could be theirs, which CSI driver has them.

Shared by the plugins that look at volumes. A claim that waits for its pod (`StorageClass.waits`) gets its volume when
the pod has its node; until the cluster reports that, a pod that was placed here before has a promise: its claim
belongs to its node, and the volume that was there for it is no longer free. Without that two pods placed one after
the other would be given the same disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Pod
from wharfinger.domain.storage import PersistentVolume, PersistentVolumeClaim
from wharfinger.engine.framework.snapshot import Snapshot


def claim_names(pod: Pod) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.claim for use in pod.requirements.traits.volumes if use.claim))


class MissingClaimError(LookupError):
    """The text is what users know."""

    def __init__(self, name: str) -> None:
        super().__init__(f'persistentvolumeclaim "{name}" not found')


def claims_of(objects: ClusterObjects, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """In order of the pod's volumes. Raises MissingClaimError at the first that is not there."""
    for name in claim_names(pod):
        claim = objects.claim(pod.requirements.traits.home, name)
        if claim is None:
            raise MissingClaimError(name)
        yield claim


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.volume) and claim.bound


def waits(objects: ClusterObjects, claim: PersistentVolumeClaim) -> bool:
    """Whether an unbound claim is bound only once its pod has a node. One that is kept for a volume is the binder's
    business."""
    storage_class = objects.storage_class(claim.storage_class) if claim.storage_class else None
    return storage_class is not None and storage_class.waits and not claim.volume


def attachment(objects: ClusterObjects, claim: PersistentVolumeClaim) -> tuple[str, str] | None:
    """CSI driver and handle of the claim's volume; a volume that is yet to be made counts under its claim. None: no
    driver has it, or nothing is known of it."""
    volume = objects.volume(claim.volume) if claim.volume else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver else None
    storage_class = objects.storage_class(claim.storage_class) if claim.storage_class else None
    if storage_class is None:
        return None
    return storage_class.provisioner, f"claim {claim.namespace}/{claim.name}"


# Which of the volumes that are there could be the claim's.


def matching_volume(
    volumes: Iterable[PersistentVolume], claim: PersistentVolumeClaim, labels: dict[str, str], taken: Iterable[str]
) -> PersistentVolume | None:
    """For a node with `labels`: the one kept for the claim, else the smallest that is free, large enough, and reached
    from there; of equals the first. `taken`: names of volumes that others get."""
    smallest: PersistentVolume | None = None
    for volume in volumes:
        if volume.storage_class != claim.storage_class or volume.name in taken or not _could_serve(volume, claim):
            continue
        reached = volume.reached_from(labels)
        if volume.is_kept_for(claim):
            return volume if reached else None
        if reached and _is_free_for(volume, claim) and (smallest is None or volume.capacity < smallest.capacity):
            smallest = volume
    return smallest


def _could_serve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        (volume.claim is None or volume.is_kept_for(claim))
        and volume.capacity >= claim.requested
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


Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(slots=True)
class Promises:
    """`nodes`: claim -> the node of its pod. `volumes`: claim -> the volume that it gets; one that is not there has its volume
    made."""

    nodes: dict[Key, str] = field(default_factory=dict)
    volumes: dict[Key, PersistentVolume] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        return {volume.name for volume in self.volumes.values()}


def promised(snapshot: Snapshot) -> Promises:
    """Node after node in order of name, its pods in order of arrival: the same pods have the same promises."""
    promises = Promises()
    taken: set[str] = set()
    for node in snapshot.nodes.values():
        for pod in node.pods:
            for claim in _waiting(snapshot.objects, pod):
                if (key := key_of(claim)) in promises.nodes:
                    continue
                promises.nodes[key] = node.name
                volume = matching_volume(snapshot.objects.volumes, claim, node.node.labels, taken)
                if volume is not None and not claim.selected_node:
                    promises.volumes[key] = volume
                    taken.add(volume.name)
    return promises


def key_of(claim: PersistentVolumeClaim) -> Key:
    return claim.namespace, claim.name


def _waiting(objects: ClusterObjects, pod: Pod) -> Iterator[PersistentVolumeClaim]:
    for name in claim_names(pod):
        claim = objects.claim(pod.requirements.traits.home, name)
        if claim is not None and not is_bound(claim) and waits(objects, claim):
            yield claim
