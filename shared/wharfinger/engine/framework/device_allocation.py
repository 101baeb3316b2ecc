"""Allocation of devices to ResourceClaims: which devices of a node satisfy all claims together.
Backtracking search with symmetry breaking.

`Offers` indexes the devices that drivers publish, by node. `allocate` searches depth first, in the
order of the requests, for devices that satisfy every request and every constraint of the claims.
Devices that no request and no constraint can distinguish are tried once, otherwise a failing search
would try all permutations of them. The search has a maximum number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import (
    Alike,
    OfferedDevice,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from wharfinger.domain.node import Node

STEPS_MAX = 20_000
"""How many times a search may try to take a device, before it gives up."""
DEVICES_MAX = 32
"""How many devices one claim may have (the limit of Kubernetes)."""
DEPTH_MAX = 256
"""How many devices and requests the claims of one pod may have together: the maximum depth of the
recursion."""

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
Pool = tuple[str, str]
"""Driver and pool name."""


class UnclearError(Exception):
    """The allocator cannot decide the request now; the text says why."""


@dataclass(frozen=True, slots=True)
class Offered:
    driver: str
    pool: str
    device: OfferedDevice

    @property
    def id(self) -> DeviceId:
        return self.driver, self.pool, self.device.name

    def attribute(self, name: str) -> tuple[str, object] | None:
        """Return (type, value) of the device attribute `domain/name`. None: the device has no such
        attribute. The driver's own domain may be left out in the device's attributes."""
        domain, _, short = name.partition("/")
        names = (name, short) if domain == self.driver else (name,)
        for known in names:
            if known in self.device.versions:
                return "version", self.device.versions[known]
            if known in self.device.attributes:
                value = self.device.attributes[known]
                return type(value).__name__, value
        return None


# What is offered.


@dataclass(slots=True)
class Offers:
    """Indexes the ResourceSlices by node; `on` returns the slices that a node can use. `by_node`:
    node name -> slices of that node alone. `elsewhere`: slices for several or for all nodes.
    `incomplete`: pools of which some ResourceSlices are missing."""

    by_node: dict[str, list[ResourceSlice]] = field(default_factory=dict)
    elsewhere: list[ResourceSlice] = field(default_factory=list)
    incomplete: set[Pool] = field(default_factory=set)

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice]) -> Offers:
        """Build the index of the published devices by node. Of each resource pool, only the
        ResourceSlices of the newest generation are used.

        A pool is stored as incomplete if the number of its slices in that generation is not the
        number of slices that the driver announces in each slice.

        Example: a pool has one slice of generation 1 and one of generation 2, and the latter
        announces 2 slices. The slice of generation 1 is ignored, and the pool is incomplete.
        """
        newest: dict[Pool, int] = {}
        for one in slices:
            newest[_pool(one)] = max(one.generation, newest.get(_pool(one), one.generation))
        current = [one for one in slices if one.generation == newest[_pool(one)]]
        offers = cls()
        seen: dict[Pool, int] = {}
        for one in current:
            seen[_pool(one)] = seen.get(_pool(one), 0) + 1
            (offers.by_node.setdefault(one.node, []) if one.node else offers.elsewhere).append(one)
        offers.incomplete = {_pool(one) for one in current if seen[_pool(one)] != one.slices}
        return offers

    def on(self, node: Node) -> list[ResourceSlice]:
        reached = [
            s
            for s in self.elsewhere
            if s.all_nodes or any(t.matches(node.labels, node.name) for t in s.node_terms)
        ]
        return [*self.by_node.get(node.name, ()), *reached]


def _pool(one: ResourceSlice) -> Pool:
    return one.driver, one.pool


# Who gets what.


def allocate(
    objects: ClusterObjects,
    offers: Offers,
    held: Iterable[DeviceId],
    claims: Sequence[ResourceClaim],
    node: Node,
) -> list[DeviceId] | None:
    """Find devices on the node that satisfy all ResourceClaims together, and return the ids
    (driver, pool, device) of these devices. None: there is no such allocation. The method is
    backtracking search, depth first, in the order of the device requests in the claims.

    `objects`: gives the DeviceClasses.
    `offers`: the devices that drivers publish.
    `held`: ids of the devices that are allocated to other claims.

    Devices that a claim only monitors (admin access) are not in the result.

    Raise UnclearError where no decision is possible: the number of requests plus the number of
    requested devices is above `DEPTH_MAX`, a request for all devices meets a pool of which some
    ResourceSlices are missing, a selector is invalid, or the search tries more than `STEPS_MAX`
    devices.

    Example: the first claim requests any GPU, the second a GPU of model X; the node has one GPU of
    model X and one of model Y. If the first claim takes X, nothing is left for the second. So X is
    released, and the first claim takes Y.
    """
    slices = offers.on(node)
    devices = [Offered(s.driver, s.pool, device) for s in slices for device in s.devices]
    search = _AllocationSearch(objects, devices, set(held), claims)
    if search.depth > DEPTH_MAX:
        raise UnclearError(
            f"the claims of the pod come to {search.depth} requests and devices, "
            f"of which {DEPTH_MAX} can be searched"
        )
    incomplete = sorted({s.pool for s in slices if _pool(s) in offers.incomplete})
    for claim, request in search.wanted:
        if incomplete and any(option.all for option in _options(request)):
            raise UnclearError(
                f"claim {claim.namespace}/{claim.name}, request {request.name}: "
                "asks for all devices, but resource pool "
                f"{incomplete[0]} is currently being updated"
            )
    return search.run()


def _options(request: WantedDevices) -> tuple[WantedDevices, ...]:
    return request.alternatives or (request,)


class _AllocationSearch:
    """Runs the backtracking search of `allocate` on one node. `wanted`: the (claim, request) pairs
    of all claims, in order.

    `_kinds` maps a device to its equivalence class, for symmetry breaking. Two devices are
    equivalent if both are free or both are allocated, they match the same requests, and they have
    equal values of the constrained attributes. Where one device of a class fails, the search does
    not try the others.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        devices: Sequence[Offered],
        held: set[DeviceId],
        claims: Sequence[ResourceClaim],
    ) -> None:
        self.wanted = [(claim, request) for claim in claims for request in claim.requests]
        self._held = held
        self._taken: dict[DeviceId, None] = {}
        self._looked_at: set[tuple[int, DeviceId]] = set()
        self._counts = [0] * len(claims)
        self._claim_at = {id(claim): i for i, claim in enumerate(claims)}
        self._values: dict[tuple[int, int], list[tuple[str, object]]] = {}
        self._steps = 0
        options = [option for _, request in self.wanted for option in _options(request)]
        self._candidates = {
            id(option): [d for d in devices if _meets(objects, option, d)] for option in options
        }
        self._kinds = self._told_apart(devices, options, claims)

    def _told_apart(
        self,
        devices: Sequence[Offered],
        options: Sequence[WantedDevices],
        claims: Sequence[ResourceClaim],
    ) -> Mapping[DeviceId, object]:
        suits = [{device.id for device in self._candidates[id(option)]} for option in options]
        attributes = [constraint.attribute for claim in claims for constraint in claim.constraints]
        return {
            device.id: (
                device.id in self._held,
                tuple(device.id in suited for suited in suits),
                tuple(device.attribute(name) for name in attributes),
            )
            for device in devices
        }

    @property
    def depth(self) -> int:
        """Return an upper bound of the recursion depth: the number of requests plus the number of
        devices they take. A claim contributes at most `DEVICES_MAX` + 1 devices, because a larger
        claim fails anyway."""
        most = 0
        for claim in self._claim_at:
            sizes = [max(map(self._size, _options(r))) for c, r in self.wanted if id(c) == claim]
            most += len(sizes) + min(sum(sizes), DEVICES_MAX + 1)
        return most

    def _size(self, option: WantedDevices) -> int:
        return len(self._candidates[id(option)]) if option.all else option.count

    def run(self) -> list[DeviceId] | None:
        return list(self._taken) if self._serve(0) else None

    def _serve(self, at: int) -> bool:
        """Allocate devices to request `at` and to all requests after it. Try the alternatives of
        the request in order and take the first that works. Return False where it is not possible;
        no device stays taken then."""
        if at == len(self.wanted):
            return True
        for option in _options(self.wanted[at][1]):
            candidates = self._candidates[id(option)]
            count = self._size(option)
            if count and self._pick(at, option, candidates, 0, count):
                return True
        return False

    def _pick(
        self, at: int, option: WantedDevices, candidates: Sequence[Offered], start: int, count: int
    ) -> bool:
        """Take `count` more devices out of `candidates[start:]` for the request number `at`, then
        serve all requests after it. Return whether a solution was found. If not, the devices taken
        here are released.

        This is one step of the backtracking search. If a device leads to no solution, it is
        released and the next device is tried. A device that is equivalent to one that failed is
        skipped: it matches the same requests and has the same values of the constrained attributes,
        so it would fail too.

        `option`: the alternative of the request that is tried (a request may have several,
          `firstAvailable`).
        `candidates`: the devices that match the alternative.

        Raise UnclearError where the search tries more than `STEPS_MAX` devices.

        Example: `count` 2 and candidates a, b, c. It tries a and b, then a and c, then b and c.
        """
        if count == 0:
            return self._serve(at + 1)
        failed: set[object] = set()
        for i in range(start, len(candidates) - count + 1):
            device = candidates[i]
            kind = (
                self._kinds[device.id],
                device.id in self._taken,
                (self._claim(at), device.id) in self._looked_at,
            )
            if kind in failed or not self._take(at, option, device):
                continue
            if self._pick(at, option, candidates, i + 1, count - 1):
                return True
            self._give_back(at, option, device)
            failed.add(kind)
        return False

    def _take(self, at: int, option: WantedDevices, device: Offered) -> bool:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise UnclearError("timed out trying to allocate devices")
        claim = self._claim(at)
        if self._counts[claim] == DEVICES_MAX or not self._is_free(claim, option, device):
            return False
        if not all(self._agrees(claim, i, c, device) for i, c in self._constraints(at, option)):
            return False
        for i, constraint in self._constraints(at, option):
            value = device.attribute(constraint.attribute)
            assert value is not None, "it agrees"
            self._values.setdefault((claim, i), []).append(value)
        self._counts[claim] += 1
        if option.monitoring:
            self._looked_at.add((claim, device.id))
        else:
            self._taken[device.id] = None
        return True

    def _give_back(self, at: int, option: WantedDevices, device: Offered) -> None:
        claim = self._claim(at)
        for i, _ in self._constraints(at, option):
            self._values[claim, i].pop()
        self._counts[claim] -= 1
        if option.monitoring:
            self._looked_at.remove((claim, device.id))
        else:
            del self._taken[device.id]

    def _claim(self, at: int) -> int:
        return self._claim_at[id(self.wanted[at][0])]

    def _is_free(self, claim: int, option: WantedDevices, device: Offered) -> bool:
        if option.monitoring:
            return (claim, device.id) not in self._looked_at
        return device.id not in self._held and device.id not in self._taken

    def _constraints(self, at: int, option: WantedDevices) -> Iterator[tuple[int, Alike]]:
        """Yield (index, constraint) for each constraint of the claim that applies to request `at`.
        A constraint without a list of requests applies to all of them; otherwise its list must name
        the request or the alternative `option`."""
        claim, request = self.wanted[at]
        for i, constraint in enumerate(claim.constraints):
            if (
                not constraint.requests
                or request.name in constraint.requests
                or option.name in constraint.requests
            ):
                yield i, constraint

    def _agrees(self, claim: int, at: int, constraint: Alike, device: Offered) -> bool:
        value = device.attribute(constraint.attribute)
        before = self._values.get((claim, at))
        return value is not None and (not before or before[0] == value)


def _meets(objects: ClusterObjects, option: WantedDevices, device: Offered) -> bool:
    """Return whether the device matches all CEL selectors of the device request (`option`) and of
    the DeviceClass that the request names. False where the class does not exist. Without selectors
    every device matches.

    `objects`: gives the DeviceClasses.

    Raise UnclearError where an expression is invalid.
    """
    device_class = objects.device_class(option.device_class)
    if device_class is None:
        return False
    selectors = (*device_class.selectors, *option.selectors)
    if not selectors:
        return True
    from wharfinger.engine.framework import device_expressions  # late: loads the library

    try:
        return all(
            device_expressions.holds(text, device.driver, device.device) for text in selectors
        )
    except device_expressions.ExpressionError as error:
        first = str(error).partition("\n")[0]
        raise UnclearError(
            f"request {option.name}: selector: compilation failed: {first}"
        ) from None
