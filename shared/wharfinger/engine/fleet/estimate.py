"""How many more replicas fit into a cluster, from totals: used where nobody has counted node by node, and to deduct what
was decided since somebody did.

A quotient of totals is an upper bound, because what is free may lie scattered. That is why it is marked as what it is
(`totals`, `summary`) in every explanation, and why the cluster stage has the last word.

This is asked more often than anything else in a fleet decision, so a class's demand is read once (`Demand`) and a cluster's
room keeps what is left, not what was free and what was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import NodeGrade, ResourceSummary
from wharfinger.domain.resources import DEVICE_MILLI, Amounts, is_of_nodes
from wharfinger.domain.workload import Requirements
from wharfinger.events.capacity import DeviceTotals

PODS = "pods"

NODE_PODS = 110
"""How many pods a node takes where only its grade is known: what the kubelet takes unless it is told otherwise."""

NO_BOUND = 2**63 - 1
"""What fits when nothing that is asked for is limited."""

Pool = tuple[str, tuple[str, ...]]
"""Devices of a kind, of these models; no models: any."""


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    pool: Pool
    count: int
    milli: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What one replica takes, or one set of several kinds of pods. Where a cluster counts pods, it is `pods` of them, unless it
    says so itself (`is_pod` False)."""

    amounts: tuple[tuple[str, int], ...]
    devices: tuple[DeviceDemand, ...]
    is_pod: bool
    pods: int = 1


def demand_of(requirements: Requirements, *, of_nodes: bool = True) -> Demand:
    """Requests of nothing, or less, are no demand, nor is, `of_nodes`, what no node has."""
    return Demand(
        tuple(
            [
                (name, amount)
                for name, amount in sorted(requirements.requests.items())
                if amount > 0 and (not of_nodes or is_of_nodes(name))
            ]
        ),
        tuple(
            [
                DeviceDemand((d.kind, d.models), d.count, d.milli)
                for d in requirements.devices
                if d.count > 0 and d.milli > 0
            ]
        ),
        requirements.requests.get(PODS, 0) <= 0,
    )


def demand_of_set(components: Sequence[Component], *, of_nodes: bool = True) -> Demand:
    """What one whole set takes: the sum over its components. Negative replicas are none."""
    amounts: dict[str, int] = {}
    devices: dict[tuple[Pool, int], int] = {}
    pods = 0
    for component in components:
        replicas = component.replicas
        if replicas <= 0:
            continue
        one = demand_of(component.requirements, of_nodes=of_nodes)
        pods += replicas * one.pods if one.is_pod else 0
        for name, amount in one.amounts:
            amounts[name] = amounts.get(name, 0) + replicas * amount
        for d in one.devices:
            devices[d.pool, d.milli] = devices.get((d.pool, d.milli), 0) + replicas * d.count
    if amounts.get(PODS):
        amounts[PODS] += pods
    return Demand(
        tuple([(name, amount) for name, amount in sorted(amounts.items()) if amount > 0]),
        tuple([DeviceDemand(pool, count, milli) for (pool, milli), count in sorted(devices.items()) if count]),
        PODS not in amounts and pods > 0,
        pods,
    )


@dataclass(slots=True)
class Room:
    """`left`: resource -> what is free less what was taken. `taken_milli`: thousandths of devices taken, by kind: on which
    models they lie is unknown here, so they are taken from whichever models the next one asks for. `whole_only`: devices
    are known by number alone, without models, and stand in `left` under their kind."""

    left: dict[str, int]
    devices: Sequence[DeviceTotals] = ()
    whole_only: bool = False
    taken_milli: dict[str, int] = field(default_factory=dict)
    _pools: dict[Pool, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Room:
        return Room(dict(self.left), self.devices, self.whole_only, dict(self.taken_milli))

    def take(self, demand: Demand, times: int) -> None:
        """`times` replicas more (negative: less) are taken; none: nothing is changed, not even which resources are known."""
        if not times:
            return
        left = self.left
        for name, amount in demand.amounts:
            left[name] = left.get(name, 0) - times * amount
        if demand.is_pod and PODS in left:
            left[PODS] -= times * demand.pods
        for device in demand.devices:
            kind = device.pool[0]
            self.taken_milli[kind] = self.taken_milli.get(kind, 0) + times * device.count * device.milli

    def fits(self, demand: Demand, most: int = NO_BOUND) -> int:
        """The least of `most` and the quotients of everything asked for: `most` when nothing limits it, below zero when
        over-used."""
        left = self.left
        fits = most
        for name, amount in demand.amounts:
            n = left.get(name, 0) // amount
            if n < fits:
                fits = n
        if demand.is_pod and PODS in left and left[PODS] // demand.pods < fits:
            fits = left[PODS] // demand.pods
        for device in demand.devices:
            n = self._device_fits(device)
            if n < fits:
                fits = n
        return fits

    def _device_fits(self, device: DeviceDemand) -> int:
        pool = self._pools.get(device.pool)
        if pool is None:
            pool = self._pools[device.pool] = self._free_in(device.pool)
        whole, milli = pool
        taken = self.taken_milli.get(device.pool[0], 0)
        if device.milli < DEVICE_MILLI:
            return (milli - taken) // (device.milli * device.count)
        return (whole - -(-taken // DEVICE_MILLI)) // device.count

    def _free_in(self, pool: Pool) -> tuple[int, int]:
        """Entirely free devices and free thousandths. Unknown models are taken for the right ones: the cluster stage refuses
        where that was wrong."""
        kind, models = pool
        if self.whole_only:
            return self.left.get(kind, 0), DEVICE_MILLI * self.left.get(kind, 0)
        fitting = [d for d in self.devices if d.kind == kind and (not models or d.model in models)]
        return sum([d.whole for d in fitting]), sum([d.milli for d in fitting])


def room_of_summary(summary: ResourceSummary) -> Room:
    """What a cluster's own summary leaves: allocatable less allocated and allocating. Over-used is nothing, not debt."""
    free = {
        name: max(0, amount - summary.allocated.get(name, 0) - summary.allocating.get(name, 0))
        for name, amount in summary.allocatable.items()
    }
    return Room(free, whole_only=True)


def room_of_count(free: Amounts, devices: Sequence[DeviceTotals]) -> Room:
    return Room(dict(free), devices)


def room_of_grade(grade: NodeGrade) -> Room:
    """One node of a grade: it has at least the minimum, and room for as many pods as a node usually has."""
    return Room({PODS: NODE_PODS, **grade.minimum}, whole_only=True)


def scattered(grades: Sequence[NodeGrade], demand: Demand, most: int = NO_BOUND) -> int:
    """How many fit node by node, each node as small as its grade allows, at most `most`; `most` where no grades are told. What the
    grades do not speak of does not count against anything here: the totals bound it."""
    if not grades:
        return most
    fits = 0
    for grade in grades:
        known = {PODS: NODE_PODS, **grade.minimum}
        each = NODE_PODS
        for name, amount in demand.amounts:
            if name in known:
                each = min(each, known[name] // amount)
        if demand.is_pod:
            each = min(each, known[PODS] // demand.pods)
        for device in demand.devices:
            if device.pool[0] in known:
                each = min(each, _on_whole_devices(known[device.pool[0]], device))
        fits += max(0, grade.count) * max(0, each)
        if fits >= most:
            return most
    return fits


def _on_whole_devices(free: int, device: DeviceDemand) -> int:
    if device.milli < DEVICE_MILLI:
        return free * DEVICE_MILLI // (device.milli * device.count)
    return free // device.count
