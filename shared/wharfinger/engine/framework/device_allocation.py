"""Which devices a node can give to claims: all that is claimed together, or nothing.

`Offers` is what drivers offer in a cluster, by node. `allocate` searches the devices of one node for those that meet every request
and every constraint of the claims at once, depth first in the order things are written, and goes back where it must. Devices that
no request and no constraint can tell apart are tried once, or a search that fails would try every order of them; what is
left is bounded by a number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import Alike, OfferedDevice, ResourceClaim, ResourceSlice, WantedDevices
from wharfinger.domain.node import Node

STEPS_MAX = 20_000
"""Devices that a search may lay a hand on."""
DEVICES_MAX = 32
"""Of one claim, as Kubernetes has it."""
DEPTH_MAX = 256
"""How many devices and requests the claims of one pod may come to: so deep a search goes."""

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
Pool = tuple[str, str]
"""Driver and name."""


class UnclearError(Exception):
    """What is asked cannot be answered now; the text says why."""


@dataclass(frozen=True, slots=True)
class Offered:
    driver: str
    pool: str
    device: OfferedDevice

    @property
    def id(self) -> DeviceId:
        return self.driver, self.pool, self.device.name

    def attribute(self, name: str) -> tuple[str, object] | None:
        """Type and value of the attribute `domain/name`; None: it has none."""
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
    """`by_node`: of one node each; `elsewhere`: of several nodes or all. `incomplete`: pools of which slices are missing."""

    by_node: dict[str, list[ResourceSlice]] = field(default_factory=dict)
    elsewhere: list[ResourceSlice] = field(default_factory=list)
    incomplete: set[Pool] = field(default_factory=set)

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice]) -> Offers:
        """Of each pool its newest generation."""
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
            s for s in self.elsewhere if s.all_nodes or any(t.matches(node.labels, node.name) for t in s.node_terms)
        ]
        return [*self.by_node.get(node.name, ()), *reached]


def _pool(one: ResourceSlice) -> Pool:
    return one.driver, one.pool


# Who gets what.


def allocate(
    objects: ClusterObjects, offers: Offers, held: Iterable[DeviceId], claims: Sequence[ResourceClaim], node: Node
) -> list[DeviceId] | None:
    """The devices that the claims take on the node; None: it cannot give them. `held`: those that others have.

    Raises UnclearError where nobody can tell, or where the search takes too long."""
    slices = offers.on(node)
    devices = [Offered(s.driver, s.pool, device) for s in slices for device in s.devices]
    search = _Search(objects, devices, set(held), claims)
    if search.depth > DEPTH_MAX:
        raise UnclearError(
            f"the claims of the pod come to {search.depth} requests and devices, of which {DEPTH_MAX} can be searched"
        )
    incomplete = sorted({s.pool for s in slices if _pool(s) in offers.incomplete})
    for claim, request in search.wanted:
        if incomplete and any(option.all for option in _options(request)):
            raise UnclearError(
                f"claim {claim.namespace}/{claim.name}, request {request.name}: asks for all devices, but resource pool "
                f"{incomplete[0]} is currently being updated"
            )
    return search.run()


def _options(request: WantedDevices) -> tuple[WantedDevices, ...]:
    return request.alternatives or (request,)


class _Search:
    """`wanted`: the requests of all claims, in order. `kinds`: device -> the number of what can be told of it here."""

    def __init__(
        self, objects: ClusterObjects, devices: Sequence[Offered], held: set[DeviceId], claims: Sequence[ResourceClaim]
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
        self._candidates = {id(option): [d for d in devices if _meets(objects, option, d)] for option in options}
        self._kinds = self._told_apart(devices, options, claims)

    def _told_apart(
        self, devices: Sequence[Offered], options: Sequence[WantedDevices], claims: Sequence[ResourceClaim]
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
        """Requests, and devices: of one claim no more than it can have, and one that is too many."""
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
        """The requests from the `at`-th on."""
        if at == len(self.wanted):
            return True
        for option in _options(self.wanted[at][1]):
            candidates = self._candidates[id(option)]
            count = self._size(option)
            if count and self._pick(at, option, candidates, 0, count):
                return True
        return False

    def _pick(self, at: int, option: WantedDevices, candidates: Sequence[Offered], start: int, count: int) -> bool:
        """`count` more of the candidates from `start` on, and then the other requests."""
        if count == 0:
            return self._serve(at + 1)
        failed: set[object] = set()
        for i in range(start, len(candidates) - count + 1):
            device = candidates[i]
            kind = self._kinds[device.id], device.id in self._taken, (self._claim(at), device.id) in self._looked_at
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
        """Those that speak of this request, under its own name or that of the alternative."""
        claim, request = self.wanted[at]
        for i, constraint in enumerate(claim.constraints):
            if not constraint.requests or request.name in constraint.requests or option.name in constraint.requests:
                yield i, constraint

    def _agrees(self, claim: int, at: int, constraint: Alike, device: Offered) -> bool:
        value = device.attribute(constraint.attribute)
        before = self._values.get((claim, at))
        return value is not None and (not before or before[0] == value)


def _meets(objects: ClusterObjects, option: WantedDevices, device: Offered) -> bool:
    """Whether the device is of the class and as the request selects. Raises UnclearError for what is no expression."""
    device_class = objects.device_class(option.device_class)
    if device_class is None:
        return False
    selectors = (*device_class.selectors, *option.selectors)
    if not selectors:
        return True
    from wharfinger.engine.framework import device_expressions  # late: loads the library

    try:
        return all(device_expressions.holds(text, device.driver, device.device) for text in selectors)
    except device_expressions.ExpressionError as error:
        first = str(error).partition("\n")[0]
        raise UnclearError(f"request {option.name}: selector: compilation failed: {first}") from None
