"""Indexes the instance types that pools can launch, for all problems over the same catalogues.

A consolidation pass solves hundreds of small problems that differ only in their pods. What pools
can create, and which types are not dominated for which labels, is equal in all of them and cached
here. The cache never changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node_pool import NodeOverlay, NodePoolPolicy
from wharfinger.engine.provisioning import launch
from wharfinger.engine.provisioning.catalogue import PODS, Column, Mask, SoldOut, mask_of
from wharfinger.engine.provisioning.filtering import MinValues
from wharfinger.engine.provisioning.problem import Problem
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.templates import Template, in_turn, template_of

ATTACHED = "volumes of "
"""The name of a resource column that counts the volumes which a CSI driver attaches begins so. New
nodes have no known limit for it."""

SCALE_BITS = 20
"""Amounts are shifted so that the largest amount of any type has at most this many bits."""

AMPLE = 2**56
"""The amount of a resource without a known limit."""


@dataclass(frozen=True, slots=True, eq=False)
class ParetoFront:
    """The Pareto front of instance types in price and size, in order of price. A type is left out
    if a type of at most its price has at least as much of every resource. Example: of 4 cpu at $1,
    4 cpu at $2 and 8 cpu at $2, the first and the last are kept.

    `rows`: rows of the types in the catalogue. `room` int64[types, resources]: allocatable amounts
    less daemons. `prices` int64[types]: billionths of a dollar an hour.
    """

    rows: Column
    room: Column
    prices: Column


@dataclass(frozen=True, slots=True)
class Launched:
    """How a new node is requested. `instance_types`: the types it may have, the cheapest first.
    `price`: the lowest price, `worst_price`: the highest price it may have, billionths of a dollar
    an hour. `lowered`: (label, lowered minValues), where the types have fewer values than minValues
    requires."""

    instance_types: tuple[str, ...]
    price: int
    worst_price: int
    lowered: tuple[tuple[str, int], ...] = ()


class InstanceTypeIndex:
    """Caches templates, Pareto fronts, weights and launches for given catalogues, overlays, daemons
    and sold-out offerings. `template` and `templates` raise OverlayError."""

    def __init__(
        self,
        types: Mapping[str, Sequence[InstanceType]],
        overlays: Sequence[NodeOverlay] = (),
        daemons: Sequence[DaemonPods] = (),
        sold_out: SoldOut = frozenset(),
    ) -> None:
        self._given = (types, overlays, daemons, sold_out)
        self._templates: list[Template] = []
        self._rooms: dict[tuple[Template, tuple[str, ...]], Column] = {}
        self._pareto_fronts: dict[tuple[Template, tuple[str, ...], bytes, bytes], ParetoFront] = {}
        self._weights: dict[
            tuple[tuple[Template, ...], tuple[str, ...]], tuple[Column, Column]
        ] = {}
        self._launches: dict[tuple[Template, LabelSet, bytes, MinValues], Launched] = {}

    @classmethod
    def of(cls, problem: Problem) -> InstanceTypeIndex:
        return cls(problem.types, problem.overlays, problem.objects.daemons, problem.sold_out)

    def serves(self, problem: Problem) -> bool:
        """Returns whether the index was built for the catalogues, overlays, daemons and sold-out
        offerings of this problem."""
        asked = (problem.types, problem.overlays, problem.objects.daemons, problem.sold_out)
        return all(
            mine is other or mine == other for mine, other in zip(self._given, asked, strict=True)
        )

    def templates(self, pools: Sequence[NodePoolPolicy]) -> tuple[Template, ...]:
        """Returns the templates of the pools that create nodes for pods, in the order in which the
        pools are tried. Pools with a fixed number of nodes are left out."""
        return in_turn(self.template(pool) for pool in pools if pool.replicas is None)

    def template(self, pool: NodePoolPolicy) -> Template:
        """Returns the template of new nodes of this pool. It has no instance types if the pool's
        catalogue is not known."""
        for known in self._templates:
            if known.pool is pool or known.pool == pool:
                return known
        types, overlays, daemons, sold_out = self._given
        made = template_of(pool, types.get(pool.catalogue, ()), overlays, daemons, sold_out)
        self._templates.append(made)
        return made

    def room(self, template: Template, resources: tuple[str, ...]) -> Column:
        """Returns the capacity of the types of a template for pods: allocatable amounts less
        daemons, int64 [types, resources], with the columns named by `resources`. Do not write to
        it."""
        key = template, resources
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = _columns(template, resources)
        return found

    def pareto_front(
        self, template: Template, resources: tuple[str, ...], rows: Mask, labels: LabelSet
    ) -> ParetoFront:
        """Returns the Pareto front of instance types by price and size, for nodes with these
        labels. A type is left out if another type has at most its price and at least as much of
        every resource. Example: of 4 cpu at $1, 4 cpu at $2 and 8 cpu at $2, the first and the last
        are kept.

        `rows` bool[types]: the types to choose from. `template`: what the new nodes of the pool
        look like; the types are from its catalogue. `resources`: the names of the compared
        resources. `labels`: a type has the price of its cheapest offering that these labels allow.
        """
        prices = template.types.cheapest(labels)
        key = template, resources, rows.tobytes(), prices[rows].tobytes()
        found = self._pareto_fronts.get(key)
        if found is None:
            order = np.flatnonzero(rows)
            order = order[np.argsort(prices[order], kind="stable")]
            room = self.room(template, resources)[order]
            kept = _worth_having(room)
            found = self._pareto_fronts[key] = ParetoFront(
                order[kept], room[kept], prices[order][kept]
            )
        return found

    def weights(
        self, templates: tuple[Template, ...], resources: tuple[str, ...]
    ) -> tuple[Column, Column]:
        """Returns the price of one unit of each resource, as two arrays int64[resources] (weight,
        shift). A unit is 2**shift of the resource. An amount of the resource is priced at
        `weight * (amount >> shift)` billionths of a dollar an hour. Example: weight 5, shift 2 and
        amount 9: 5 * 2 = 10.

        `templates`: the new nodes of each pool; the prices are derived from their instance types
        (see `_weights`). `resources`: the names of the resources. The arrays are cached; do not
        write to them.
        """
        key = templates, resources
        found = self._weights.get(key)
        if found is None:
            rooms = [self.room(t, resources)[t.able] for t in templates]
            prices = [t.types.cheapest(t.labels)[t.able] for t in templates]
            found = self._weights[key] = _weights(rooms, prices, len(resources))
        return found

    def launched(
        self, template: Template, labels: LabelSet, rows: Mask, min_values: MinValues
    ) -> Launched:
        """Returns how a new node is requested: the requested instance types (the cheapest first),
        the lowest and the highest price of the node, and those minValues that were lowered.
        minValues is the least number of values of a label that the types must offer. The node has
        the given labels and may be any of the types at `rows` (bool[types]). At least one of these
        types must be available.

        At most 600 types are requested (see `launch.truncated`). `min_values`: `Strict`: minValues
        stay as they are; `BestEffort`: minValues are lowered where the types offer fewer values.
        `template`: what the new nodes of the pool look like.
        """
        key = template, labels, rows.tobytes(), min_values
        found = self._launches.get(key)
        if found is None:
            kept = launch.truncated(template.types, rows, labels, min_values)
            price = launch.price_of(
                template.types, mask_of(template.types, kept.instance_types), labels
            )
            assert price is not None, "a claim that nothing can be bought for"
            found = self._launches[key] = Launched(
                kept.instance_types, price.least, price.worst, kept.lowered
            )
        return found


def _weights(
    rooms: Sequence[Column], prices: Sequence[Column], resources: int
) -> tuple[Column, Column]:
    """Computes for each resource `shift`, the size of a unit, and `weight`, the price of a unit.
    Returns (weight, shift), int64[resources] each. An amount of the resource is priced at
    `weight * (amount >> shift)` billionths of a dollar an hour.

    A unit is 2**shift of the resource. `shift` is chosen so that the number of units in the largest
    amount of any type has at most `SCALE_BITS` (20) bits. Example: 64 GiB are 2**36 bytes, which
    has 37 bits: shift 17, so a unit is 128 KiB.

    Each type that has the resource gives one quotient: its price divided by its number of units.
    `weight` is half of the lowest quotient. Example: a type with 4 units for 80 and a type with 8
    units for 120: min(20, 15) / 2, rounded down: 7.

    Cpu and memory have a weight, and so has each other resource that some but not all types have.
    The remaining resources, among them the number of pods, get weight 0.

    `rooms` int64[types, resources]: the amounts of the types, one array for each template (the new
    nodes of one pool). `prices` int64[types] of each template: billionths of a dollar an hour.
    `resources`: the number of resources.
    """
    weight, shift = np.zeros(resources, dtype=np.int64), np.zeros(resources, dtype=np.int64)
    room = np.concatenate(rooms) if rooms else np.zeros((0, resources), dtype=np.int64)
    price = np.concatenate(prices) if prices else np.zeros(0, dtype=np.int64)
    for d in range(resources):
        has = room[:, d] > 0
        if d == PODS or not has.any() or (d > PODS and has.all()):
            continue
        shift[d] = max(0, int(room[:, d].max()).bit_length() - SCALE_BITS)
        units = np.maximum(room[has, d] >> shift[d], 1)
        weight[d] = int((price[has] // units).min()) // 2
    return weight, shift


def _columns(template: Template, resources: Sequence[str]) -> Column:
    types = template.types
    found = np.zeros((len(types), len(resources)), dtype=np.int64)
    for at, name in enumerate(resources):
        if name in types.resource:
            found[:, at] = template.room[:, types.resource[name]]
        elif name.startswith(ATTACHED):
            found[:, at] = AMPLE
    return found


def _worth_having(room: Column) -> Column:
    """Computes a Pareto front. Returns the rows that are not dominated: no earlier row has at least
    as much of every resource. `room` int64[types, resources]: the cheapest type first."""
    kept: list[int] = []
    held = np.zeros_like(room)
    for at, own in enumerate(room):
        if not kept or not bool((held[: len(kept)] >= own).all(axis=1).any()):
            held[len(kept)] = own
            kept.append(at)
    return np.array(kept, dtype=np.int64)
