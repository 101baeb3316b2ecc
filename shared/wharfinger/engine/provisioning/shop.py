"""What can be bought, as Solve reads it, laid out once for all problems over the same catalogues.

A pass over a cluster solves hundreds of small problems that differ in their pods alone. What pools can make, and which
types are worth looking at for nodes of which labels, is the same in all of them and is kept here. Nothing that is kept
changes an answer, only how fast it comes: a problem has the same solution with a shop of its own.
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
"""Columns of volumes that a CSI driver attaches are named so; of new nodes nothing is known that bounds them."""

SCALE_BITS = 20
"""Amounts are weighed in units of which the largest type has no more than so many bits."""

AMPLE = 2**56
"""Of an amount that nothing bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """Types in order of price, without those that another one beats in both price and size. `rows`: in the catalogue;
    `room` int64[types, resources]; `prices` int64[types]."""

    rows: Column
    room: Column
    prices: Column


@dataclass(frozen=True, slots=True)
class Launched:
    """A node as it is asked for: its types, the cheapest first, and what it costs at least and at worst. `lowered`: the
    minValues that it can keep in the place of those that were asked for."""

    instance_types: tuple[str, ...]
    price: int
    worst_price: int
    lowered: tuple[tuple[str, int], ...] = ()


class Shop:
    """Of some catalogues, with what is laid on them, taken off them by daemons, and sold out. Raises OverlayError."""

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
        self._shelves: dict[tuple[Template, tuple[str, ...], bytes, bytes], Shelf] = {}
        self._weights: dict[tuple[tuple[Template, ...], tuple[str, ...]], tuple[Column, Column]] = {}
        self._launches: dict[tuple[Template, LabelSet, bytes, MinValues], Launched] = {}

    @classmethod
    def of(cls, problem: Problem) -> Shop:
        return cls(problem.types, problem.overlays, problem.objects.daemons, problem.sold_out)

    def serves(self, problem: Problem) -> bool:
        """Whether it was laid out for problems like this one."""
        asked = (problem.types, problem.overlays, problem.objects.daemons, problem.sold_out)
        return all(mine is other or mine == other for mine, other in zip(self._given, asked, strict=True))

    def templates(self, pools: Sequence[NodePoolPolicy]) -> tuple[Template, ...]:
        """Of those that make nodes for pods, in the order in which they are tried."""
        return in_turn(self.template(pool) for pool in pools if pool.replicas is None)

    def template(self, pool: NodePoolPolicy) -> Template:
        """What the pool could make; of no type where its catalogue is not known."""
        for known in self._templates:
            if known.pool is pool or known.pool == pool:
                return known
        types, overlays, daemons, sold_out = self._given
        made = template_of(pool, types.get(pool.catalogue, ()), overlays, daemons, sold_out)
        self._templates.append(made)
        return made

    def room(self, template: Template, resources: tuple[str, ...]) -> Column:
        """int64[types, resources], in columns of these names. Do not write to it."""
        key = template, resources
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = _columns(template, resources)
        return found

    def shelf(self, template: Template, resources: tuple[str, ...], rows: Mask, labels: LabelSet) -> Shelf:
        """Of the types at `rows`, for nodes of these labels."""
        prices = template.types.cheapest(labels)
        key = template, resources, rows.tobytes(), prices[rows].tobytes()
        found = self._shelves.get(key)
        if found is None:
            order = np.flatnonzero(rows)
            order = order[np.argsort(prices[order], kind="stable")]
            room = self.room(template, resources)[order]
            kept = _worth_having(room)
            found = self._shelves[key] = Shelf(order[kept], room[kept], prices[order][kept])
        return found

    def weights(self, templates: tuple[Template, ...], resources: tuple[str, ...]) -> tuple[Column, Column]:
        """int64[resources] twice: what a unit of each amount is worth (billionths of a dollar an hour), and by how many bits
        an amount is shifted to be in such units. Do not write to them."""
        key = templates, resources
        found = self._weights.get(key)
        if found is None:
            rooms = [self.room(t, resources)[t.able] for t in templates]
            prices = [t.types.cheapest(t.labels)[t.able] for t in templates]
            found = self._weights[key] = _weights(rooms, prices, len(resources))
        return found

    def launched(self, template: Template, labels: LabelSet, rows: Mask, min_values: MinValues) -> Launched:
        """A node of these labels that may be any of the types at `rows`, of which some can be bought."""
        key = template, labels, rows.tobytes(), min_values
        found = self._launches.get(key)
        if found is None:
            kept = launch.truncated(template.types, rows, labels, min_values)
            price = launch.price_of(template.types, mask_of(template.types, kept.instance_types), labels)
            assert price is not None, "a claim that nothing can be bought for"
            found = self._launches[key] = Launched(kept.instance_types, price.least, price.worst, kept.lowered)
        return found


def _weights(rooms: Sequence[Column], prices: Sequence[Column], resources: int) -> tuple[Column, Column]:
    """Of cpu, memory and what only some types have, by the type that has it cheapest."""
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
    """Of types in order of price, those that hold something that no cheaper one holds."""
    kept: list[int] = []
    held = np.zeros_like(room)
    for at, own in enumerate(room):
        if not kept or not bool((held[: len(kept)] >= own).all(axis=1).any()):
            held[len(kept)] = own
            kept.append(at)
    return np.array(kept, dtype=np.int64)
