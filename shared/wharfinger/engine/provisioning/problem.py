"""The input (`Problem`) and the output (`Solution`) of provisioning, as plain values.

Names are opaque: `WantedPods.name` is a binding or a pod, and the result says how many of it went
where. Everything is in a fixed order, so that the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodeOverlay, NodePoolPolicy, PoolRequirement
from wharfinger.domain.workload import Requirements


@dataclass(frozen=True, slots=True)
class WantedPods:
    """`count` equal pods. `created_us`: age decides among equals, then the name."""

    name: str
    requirements: Requirements
    count: int = 1
    priority: int = 0
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class InFlight:
    """A claim that was asked for and is no node yet: what it could become, and what shall go there.
    `initialized` and on are of the node once there is one."""

    claim: str
    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    pods: tuple[tuple[Requirements, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """`min_values`: Strict refuses what BestEffort lowers. `preferences`: whether preferred
    affinities and soft spread are tried to be kept. `reserved_strict`: a pod waits rather than to
    go where reserved capacity could have been used and is all taken. `spot_to_spot`: whether spot
    nodes may be replaced by spot. `packing`: `first-fit` is Karpenter's; `priced` looks ahead."""

    min_values: Literal["Strict", "BestEffort"] = "Strict"
    preferences: Literal["Respect", "Ignore"] = "Respect"
    reserved_strict: bool = True
    spot_to_spot: bool = False
    packing: Literal["first-fit", "priced"] = "priced"


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of one provisioning run: the pods that need a place, and the state of the cluster.

    `nodes` with their `pods`: possible targets, and input of topology counts. `avoid`: nodes that
    take no pods and count as removed, with their pods. `not_initialized`: nodes that are not ready
    yet, tried after the others. `in_flight`: claims without a node yet. `pools`: those of the
    cluster. `types`: catalogue -> its instance types. `used`: pool -> resource -> capacity of its
    nodes and claims, with `nodes` for their number. `sold_out`: (instance type, zone, capacity
    type) not available now.
    """

    wanted: Sequence[WantedPods]
    pools: Sequence[NodePoolPolicy]
    types: Mapping[str, Sequence[InstanceType]]
    overlays: Sequence[NodeOverlay] = ()
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    in_flight: Sequence[InFlight] = ()
    avoid: frozenset[str] = frozenset()
    not_initialized: frozenset[str] = frozenset()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sold_out: frozenset[tuple[str, str, str]] = frozenset()
    options: SolveOptions = SolveOptions()


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A node to be made. `instance_types`: that could hold it, the cheapest first, at most 600.
    `price`: of the cheapest offering (billionths of a dollar an hour); `worst_price`: of the
    dearest it may become when launched, in the preferred capacity type. `requests`: of its pods and
    daemons. `pods`: name -> how many."""

    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    price: int
    worst_price: int
    requests: Mapping[str, int]
    pods: Mapping[str, int]
    reserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplaced:
    """`count` pods for which there is no place, and why: one clause a pool, as its users know
    it."""

    name: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Solution:
    """`placed`: node -> name -> how many; `joined`: claim on its way -> name -> how many.
    `relaxed`: name -> preferences given up, in order. The same problem gives the same solution,
    everywhere."""

    placed: Mapping[str, Mapping[str, int]]
    joined: Mapping[str, Mapping[str, int]]
    claims: tuple[NewClaim, ...]
    unplaced: tuple[Unplaced, ...] = ()
    relaxed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def price(self) -> int:
        return sum(claim.price for claim in self.claims)
