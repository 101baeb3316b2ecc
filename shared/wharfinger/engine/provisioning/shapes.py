"""Compiles pods into shapes: what distinguishes them apart from their amounts, and what each shape
relaxes to.

A *shape* is a pod's requirements without its amounts, with preferences counted as required. It
links to the shape with one preference dropped, and so on down to the bare requirements. A *need* is
what a shape requires of a node itself: labels, tolerations, devices, host ports that daemons could
use. Many pods share few needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.pod_traits import HostPort, PodTraits
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.fit import asked
from wharfinger.engine.provisioning.kernels import JOIN
from wharfinger.engine.provisioning.problem import SolveOptions
from wharfinger.engine.provisioning.relaxation import bare, steps
from wharfinger.engine.provisioning.requirements import NO_LABELS, LabelSet, of_requirement
from wharfinger.engine.provisioning.topology import Topology, TopologyGroup, TopologyRow, in_order

ALTERNATIVES_MAX = 64
"""The maximum number of alternative label sets for the volumes of a pod."""


@dataclass(frozen=True, slots=True)
class Need:
    labels: LabelSet
    tolerations: tuple[Toleration, ...]
    devices: tuple[DeviceRequest, ...]
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class Shape:
    """The requirements of a pod without its amounts, at one step of its relaxation.

    `need`: the number of what it requires of a node itself. `rows`: the constraints between pods
    that restrict it. `bumps`: the topology groups that count it. `gave_up`: the preferences given
    up so far, in words. `next`: the number of the shape to try next; -1: none.
    """

    requirements: Requirements
    need: int
    rows: tuple[TopologyRow, ...]
    gave_up: tuple[str, ...]
    next: int = -1
    bumps: tuple[TopologyGroup, ...] = ()

    @property
    def apart(self) -> bool:
        """Returns whether pods of this shape exclude each other on a node, or limit how many of
        them share one."""
        return any(row.itself and row.group.of_host and row.group.kind != JOIN for row in self.rows)


class VolumeError(ValueError):
    """The volumes of a pod are accessible from no node. The message says why."""


@dataclass(slots=True)
class Shapes:
    """The shapes and needs of all pods of a problem, by number. First call `first` for each pod. It
    returns the number of the unrelaxed shape, or the reason why no node can exist for the pod. Then
    call `finish`, which adds the constraints of other pods and the groups that count the pods."""

    topology: Topology
    objects: ClusterObjects
    options: SolveOptions
    tolerate_preferred: bool
    shapes: list[Shape] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    _numbers: dict[Need, int] = field(default_factory=dict)
    _known: dict[bytes, int | str] = field(default_factory=dict)

    def first(self, requirements: Requirements) -> int | str:
        key = canonical(
            (
                requirements.devices,
                requirements.node_selector,
                requirements.node_terms,
                requirements.tolerations,
                requirements.pod,
            )
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._chain(requirements)
        return found

    def finish(self) -> None:
        """Adds to each shape the constraints that other pods put on it, and the topology groups
        that count it. A shape is the requirements of pods without amounts. Call it once, after
        `first` was called for all pods."""
        by_traits: dict[bytes, tuple[tuple[TopologyRow, ...], tuple[TopologyGroup, ...]]] = {}
        for shape in self.shapes:
            traits = shape.requirements.traits
            key = canonical((traits.home, traits.labels, traits.anti_affinity, traits.ports))
            if key not in by_traits:
                by_traits[key] = self.topology.minding(traits), self.topology.counting(traits)
            minding, shape.bumps = by_traits[key]
            shape.rows = in_order((*shape.rows, *minding))

    def _chain(self, requirements: Requirements) -> int | str:
        refusal = _never(requirements.traits)
        if refusal:
            return refusal
        try:
            places = places_of_volumes(self.objects, requirements.traits)
        except VolumeError as why:
            return str(why)
        self.topology.know(requirements.traits)
        current = requirements if self.options.preferences == "Respect" else bare(requirements)
        first = len(self.shapes)
        gave_up: tuple[str, ...] = ()
        for relaxed, said in ((current, ""), *steps(current, self.tolerate_preferred)):
            gave_up = (*gave_up, said) if said else gave_up
            rows = self.topology.rows(relaxed)
            for place in places:
                self.shapes.append(Shape(relaxed, self._need(relaxed, place), rows, gave_up))
        for number in range(first, len(self.shapes) - 1):
            self.shapes[number].next = number + 1
        return first

    def _need(self, requirements: Requirements, place: LabelSet) -> int:
        need = Need(
            LabelSet.of_pod(requirements).intersect(place),
            requirements.tolerations,
            asked(requirements.devices),
            requirements.traits.ports,
        )
        number = self._numbers.get(need)
        if number is None:
            number = self._numbers[need] = len(self.needs)
            self.needs.append(need)
        return number


def _never(traits: PodTraits) -> str:
    if traits.gates:
        return f"it waits at scheduling gates ({', '.join(traits.gates)})"
    if traits.resource_claims:
        return (
            "it asks for devices by resource claims, which are not known of nodes that are to be "
            "made"
        )
    return ""


def places_of_volumes(objects: ClusterObjects, traits: PodTraits) -> tuple[LabelSet, ...]:
    """Returns the node labels with which all volumes of a pod can be used, as alternative label
    sets. A node must match one of the sets. At most `ALTERNATIVES_MAX` (64) are returned. A pod
    without volumes gets one empty set, which every node matches.

    Each volume has alternative node terms. The function combines one term of each volume in every
    possible way, and drops combinations that contradict each other. Example: one volume in zone a
    or b and another one in zone b give zone b.

    Raises VolumeError if no combination is left, or if a persistent volume claim does not exist, is
    lost, or is unbound although its storage class does not wait for the first consumer.
    """
    found: tuple[LabelSet, ...] = (NO_LABELS,)
    for name in dict.fromkeys(use.claim for use in traits.volumes if use.claim):
        terms = _terms_of(objects, traits.home, name)
        if terms is None:
            continue
        own = tuple(
            LabelSet(of_requirement(r) for r in term.expressions)
            for term in terms
            if term.expressions
        )
        if not own:
            raise VolumeError(
                f'the volume of persistentvolumeclaim "{name}" is reached from no node'
            )
        both = (one.intersect(other) for one in found for other in own)
        found = tuple(dict.fromkeys(labels for labels in both if not labels.impossible))[
            :ALTERNATIVES_MAX
        ]
        if not found:
            raise VolumeError(
                f'the volume of persistentvolumeclaim "{name}" is not where the others are'
            )
    return found


def _terms_of(objects: ClusterObjects, namespace: str, name: str) -> Sequence[NodeTerm] | None:
    """Returns the node terms of a persistent volume claim: alternative conditions for the nodes on
    which its volume can be used. None: any node. `namespace`, `name`: those of the claim.

    A bound claim has the node terms of its volume. For an unbound claim whose storage class waits
    for the first consumer, the terms are the allowed topologies of the storage class. Raises
    VolumeError if the claim or its volume does not exist, if the claim is lost, or if it is unbound
    and its storage class does not exist or does not wait.
    """
    claim = objects.claim(namespace, name)
    if claim is None:
        raise VolumeError(f'persistentvolumeclaim "{name}" not found')
    if claim.lost:
        raise VolumeError(f'the volume of persistentvolumeclaim "{name}" is lost')
    if claim.volume:
        volume = objects.volume(claim.volume)
        if volume is None:
            raise VolumeError(
                f'the volume "{claim.volume}" of persistentvolumeclaim "{name}" is not there'
            )
        return volume.node_terms
    storage_class = objects.storage_class(claim.storage_class)
    if storage_class is None or not storage_class.waits:
        raise VolumeError(
            f'persistentvolumeclaim "{name}" is not bound, and is not bound by placing its pod'
        )
    return storage_class.allowed_topologies or None
