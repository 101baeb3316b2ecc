"""The volumes of a pod: which claims it names, which volumes could be theirs, which CSI driver has them.

Shared by the plugins that look at volumes. A claim that waits for its pod (`StorageClass.waits`) gets its volume when
the pod has its node; until the cluster reports that, a pod that was placed here before has a promise: its claim
belongs to its node, and the volume that was there for it is no longer free. Without that two pods placed one after
the other would be given the same disk."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Pod
from wharfinger.domain.selectors import NodeTerm, Requirement
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


Key = tuple[str, str]
"""Namespace and name of a claim."""


def key_of(claim: PersistentVolumeClaim) -> Key:
    return claim.namespace, claim.name


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


@dataclass(slots=True)
class Shelf:
    """The volumes of one class, so laid out that a node finds those it may reach without looking at all. `kept`: claim ->
    those kept for it. Of the others, `by_label`: label -> value -> those that nodes with it reach, as local disks are;
    `anywhere`: the rest."""

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
        """Nobody's volumes that a node with these labels may reach."""
        yield from self.anywhere
        for label, values in self.by_label.items():
            if label in labels:
                yield from values.get(labels[label], ())


def _one_label(volume: PersistentVolume) -> Requirement | None:
    """The one label by whose values the volume is reached; None: it is not as simple as that."""
    match volume.node_terms:
        case (NodeTerm(expressions=(Requirement(operator="In") as one,), fields=()),):
            return one
    return None


Shelves = Mapping[str, Shelf]
"""By storage class."""


def shelves(objects: ClusterObjects) -> Shelves:
    found: dict[str, Shelf] = {}
    for volume in objects.volumes:
        found.setdefault(volume.storage_class, Shelf()).put(volume)
    return found


def matching_volume(
    among: Shelves, claim: PersistentVolumeClaim, labels: dict[str, str], taken: Container[str]
) -> PersistentVolume | None:
    """For a node with `labels`: the one kept for the claim, else the smallest that is free, large enough, and reached from
    there; of equals the first by name. `taken`: names of volumes that others get."""
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
    """`nodes`: claim -> the node of its pod. `volumes`: claim -> the volume that it gets; one that is not there has its volume
    made."""

    nodes: dict[Key, str] = field(default_factory=dict)
    volumes: dict[Key, PersistentVolume] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        return {volume.name for volume in self.volumes.values()}


def promised(snapshot: Snapshot, among: Shelves) -> Promises:
    """Node after node in order of name, its pods in order of arrival: the same pods have the same promises."""
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
