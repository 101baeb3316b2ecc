"""Pods as Solve sees them: classes of equal pods, shapes that differ in no more than amounts, and what each may give up.

A *shape* is a pod's requirements but for its amounts, with what it prefers counted as required. It has the shape that it
becomes when it gives up one preference, and so on to the bare requirements. A *need* is what a shape asks of a node by
itself: labels, taints, devices, ports that daemons could hold. Thousands of pods have a handful of needs.
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
from wharfinger.engine.provisioning.problem import Options
from wharfinger.engine.provisioning.relaxation import bare, steps
from wharfinger.engine.provisioning.requirements import NO_LABELS, LabelSet, of_requirement
from wharfinger.engine.provisioning.topology import Group, Row, Topology, in_order

ALTERNATIVES_MAX = 64
"""So many combinations of places for a pod's volumes are tried."""


@dataclass(frozen=True, slots=True)
class Need:
    labels: LabelSet
    tolerations: tuple[Toleration, ...]
    devices: tuple[DeviceRequest, ...]
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class Shape:
    """`gave_up`: what the pod has given up until here, in words. `next`: the number of the shape to try after it, -1: none."""

    requirements: Requirements
    need: int
    rows: tuple[Row, ...]
    gave_up: tuple[str, ...]
    next: int = -1
    bumps: tuple[Group, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether such pods keep each other off their nodes."""
        return any(row.itself and row.group.of_host and row.group.kind != JOIN for row in self.rows)


class VolumeError(ValueError):
    """A pod's volumes can be nowhere; the text says why."""


@dataclass(slots=True)
class Shapes:
    """`shapes`, `needs` by number. `first` gives a pod's shape, or why there can be no node for it."""

    topology: Topology
    objects: ClusterObjects
    options: Options
    tolerate_preferred: bool
    shapes: list[Shape] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    _numbers: dict[Need, int] = field(default_factory=dict)
    _known: dict[bytes, int | str] = field(default_factory=dict)

    def first(self, requirements: Requirements) -> int | str:
        key = canonical(
            (requirements.devices, requirements.node_selector, requirements.node_terms, requirements.tolerations,
             requirements.pod)
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._chain(requirements)
        return found

    def finish(self) -> None:
        """When all pods are known: who minds whom, and which groups count them."""
        by_traits: dict[bytes, tuple[tuple[Row, ...], tuple[Group, ...]]] = {}
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
        return "it asks for devices by resource claims, which are not known of nodes that are to be made"
    return ""


def places_of_volumes(objects: ClusterObjects, traits: PodTraits) -> tuple[LabelSet, ...]:
    """Where all volumes of a pod can be had, as alternatives. Raises VolumeError."""
    found: tuple[LabelSet, ...] = (NO_LABELS,)
    for name in dict.fromkeys(use.claim for use in traits.volumes if use.claim):
        terms = _terms_of(objects, traits.home, name)
        if terms is None:
            continue
        own = tuple(LabelSet(of_requirement(r) for r in term.expressions) for term in terms if term.expressions)
        if not own:
            raise VolumeError(f'the volume of persistentvolumeclaim "{name}" is reached from no node')
        both = (one.intersect(other) for one in found for other in own)
        found = tuple(dict.fromkeys(labels for labels in both if not labels.impossible))[:ALTERNATIVES_MAX]
        if not found:
            raise VolumeError(f'the volume of persistentvolumeclaim "{name}" is not where the others are')
    return found


def _terms_of(objects: ClusterObjects, namespace: str, name: str) -> Sequence[NodeTerm] | None:
    """None: everywhere."""
    claim = objects.claim(namespace, name)
    if claim is None:
        raise VolumeError(f'persistentvolumeclaim "{name}" not found')
    if claim.lost:
        raise VolumeError(f'the volume of persistentvolumeclaim "{name}" is lost')
    if claim.volume:
        volume = objects.volume(claim.volume)
        if volume is None:
            raise VolumeError(f'the volume "{claim.volume}" of persistentvolumeclaim "{name}" is not there')
        return volume.node_terms
    storage_class = objects.storage_class(claim.storage_class)
    if storage_class is None or not storage_class.waits:
        raise VolumeError(f'persistentvolumeclaim "{name}" is not bound, and is not bound by placing its pod')
    return storage_class.allowed_topologies or None
