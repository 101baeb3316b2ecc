"""Estimates capacity from totals: how many more replicas fit into a cluster. Used where no
node-by-node estimate exists, and to deduct replicas that were assigned since the last one.

The quotient of totals is an upper bound, because free resources can be scattered over nodes. So
explanations show its source (`totals`, `summary`), and the cluster stage has the final decision.

This is the most frequent operation of a fleet decision. So the requests of a class are parsed once
(`Demand`), and a cluster's `Room` stores the free amounts instead of total and used amounts.
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
"""How many pods fit on a node of which only the grade is known: the kubelet's default."""

NO_BOUND = 2**63 - 1
"""The number of replicas that fit if no requested resource is limited."""

Pool = tuple[str, tuple[str, ...]]
"""The devices of one kind (first part) and of the models in the second part. No models: any
model."""


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    pool: Pool
    count: int
    milli: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Holds the resources that one replica takes, or one set of several components.

    `amounts`: (resource, amount) pairs in order of name; each amount is positive.
    `devices`: the requested devices.
    `is_pod`: it also takes `pods` from the number of pods of a cluster. False if the requests name
      a number of pods themselves.
    """

    amounts: tuple[tuple[str, int], ...]
    devices: tuple[DeviceDemand, ...]
    is_pod: bool
    pods: int = 1


def demand_of(requirements: Requirements, *, of_nodes: bool = True) -> Demand:
    """Converts the requests of one replica to a `Demand`: the requested amount of each resource,
    the requested devices, and whether the replica counts as one pod of a cluster's number of pods.
    It counts as one pod unless the requests state an amount of `pods`.

    Requests of zero or less are dropped.

    `of_nodes`: also drop requests for resources that nodes do not provide, such as `storage`.
    """
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
    """Converts one whole set of components to a `Demand` (amounts of resources, devices and pods):
    the sum over all components of replicas * request of one replica.

    Components with zero or negative replicas are left out.

    `of_nodes`: also drop requests for resources that nodes do not provide, such as `storage`.

    Example: 2 replicas of 3 CPUs and 1 replica of 1 CPU: 7 CPUs and 3 pods.
    """
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
        tuple(
            [
                DeviceDemand(pool, count, milli)
                for (pool, milli), count in sorted(devices.items())
                if count
            ]
        ),
        PODS not in amounts and pods > 0,
        pods,
    )


@dataclass(slots=True)
class Room:
    """Holds the free capacity of a cluster, as totals. Amounts are negative if the cluster is
    over-used.

    `left`: resource -> free amount.
    `devices`: free devices by kind and model.
    `taken_milli`: device kind -> thousandths of devices that were taken since. Their models are not
      known, so they are deducted from the models that the next request allows.
    `whole_only`: only the number of devices is known, not their models; `left` then has the number
      under the device kind.
    """

    left: dict[str, int]
    devices: Sequence[DeviceTotals] = ()
    whole_only: bool = False
    taken_milli: dict[str, int] = field(default_factory=dict)
    _pools: dict[Pool, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Room:
        return Room(dict(self.left), self.devices, self.whole_only, dict(self.taken_milli))

    def take(self, demand: Demand, times: int) -> None:
        """Subtracts the resources of `times` replicas from the free amounts in `left`, in place. A
        negative `times` gives the resources back; 0 changes nothing.

        `demand`: what one replica takes. If it takes a pod, the free number of pods is reduced too,
          unless that number is not known. A requested resource that is not in `left` is added with
          a negative amount.

        Example: 7 CPUs are free; 2 replicas of 3 CPUs leave 1 CPU.
        """
        if not times:
            return
        left = self.left
        for name, amount in demand.amounts:
            left[name] = left.get(name, 0) - times * amount
        if demand.is_pod and PODS in left:
            left[PODS] -= times * demand.pods
        for device in demand.devices:
            kind = device.pool[0]
            self.taken_milli[kind] = (
                self.taken_milli.get(kind, 0) + times * device.count * device.milli
            )

    def fits(self, demand: Demand, most: int = NO_BOUND) -> int:
        """Returns how many more replicas fit into the free totals of the cluster: the minimum of
        `most` and of the quotients free amount / request, rounded down, over all requested
        resources, devices and pods.

        A requested resource that is not in `left` has the free amount 0. If `left` has no number of
        pods, pods are not limited. The result is negative if a requested resource is over-used.

        `demand`: what one replica takes.

        Example: 7 CPUs and 10 GiB are free, one replica requests 2 CPUs and 4 GiB: min(3, 2) = 2.
        """
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
        """Returns the free devices of a pool: (number of entirely free devices, sum of free
        thousandths). With `whole_only` the models are not known and any device counts; the cluster
        stage refuses the replica if that was wrong."""
        kind, models = pool
        if self.whole_only:
            return self.left.get(kind, 0), DEVICE_MILLI * self.left.get(kind, 0)
        fitting = [d for d in self.devices if d.kind == kind and (not models or d.model in models)]
        return sum([d.whole for d in fitting]), sum([d.milli for d in fitting])


def room_of_summary(summary: ResourceSummary) -> Room:
    """Returns the room by a cluster's own summary: allocatable less allocated less allocating, at
    least 0 for each resource."""
    free = {
        name: max(0, amount - summary.allocated.get(name, 0) - summary.allocating.get(name, 0))
        for name, amount in summary.allocatable.items()
    }
    return Room(free, whole_only=True)


def room_of_count(free: Amounts, devices: Sequence[DeviceTotals]) -> Room:
    return Room(dict(free), devices)


def room_of_grade(grade: NodeGrade) -> Room:
    """Returns the room of one node of a grade: the minimum amounts of the grade, and `NODE_PODS`
    pods unless the grade states a number."""
    return Room({PODS: NODE_PODS, **grade.minimum}, whole_only=True)


def scattered(grades: Sequence[NodeGrade], demand: Demand, most: int = NO_BOUND) -> int:
    """Returns how many replicas fit if each replica must fit completely on one node, at most
    `most`.

    `grades`: groups of similar nodes, each with the number of nodes and a lower bound of the free
      amounts of a node. Every node is computed with that lower bound, so the sum is a lower bound
      too. A node takes `NODE_PODS` pods unless its grade states a number.
    `demand`: what one replica takes. Resources that the grades do not name are not checked.

    Without grades the result is `most`.

    Example: 3 nodes with at least 4 CPUs free and 2 nodes with at least 1 CPU free. 2 replicas of 2
    CPUs fit on each of the 3 nodes and none on the 2 nodes, so the result is 6.
    """
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
    """Returns how many requests for a device fit on `free` entirely free devices."""
    if device.milli < DEVICE_MILLI:
        return free * DEVICE_MILLI // (device.milli * device.count)
    return free // device.count
