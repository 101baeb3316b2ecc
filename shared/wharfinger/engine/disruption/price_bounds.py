"""Computes a lower bound on the price of nodes for an amount of cpu and memory, valid for any
packing of the pods. It rules out replacements before they are simulated.

Method: take a linear combination a * cpu + b * memory. Nodes that hold the pods must together have
at least the combination of the pods. Covering this one amount with whole nodes at the lowest price
is an unbounded knapsack (covering form), solved once for all amounts by dynamic programming. The
bound is the maximum over several combinations.

It can only rule out: a replacement that passes is packed and priced exactly. Integers only:
capacities are rounded up and requests down, so rounding keeps the bound valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.engine.disruption.kernels import COARSE
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.disruption.removal import KERNELS, MEBI_SHIFT, Weights
from wharfinger.engine.provisioning.catalogue import NO_PRICE, Column

CPU, MEMORY = 0, 1

MIXTURES = 8
"""The number of steps between the combination of cpu alone and that of memory alone. There is one
combination more than steps."""

STEPS = 1024
"""The number of equal steps into which the largest amount of a table is divided."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """One linear combination of cpu and memory, `cpu * milli-cores + memory * mebibytes`, with its
    knapsack table.

    `cpu`: factor per thousandth of a core. `memory`: factor per mebibyte. `unit`: the amount of one
    step, in units of the combination. `costs` int64[STEPS + 1]: entry i is the lowest price of
    nodes that cover i steps, in billionths of a dollar an hour.
    """

    cpu: int
    memory: int
    unit: int
    costs: Column

    def least(self, cpu_milli: int, memory_mebi: int) -> int:
        """Returns the lower bound of this combination for an amount, in billionths of a dollar an
        hour. An amount beyond the table gets its last entry. That is still a lower bound, because a
        larger amount never costs less."""
        steps = (self.cpu * cpu_milli + self.memory * memory_mebi) // self.unit
        return int(self.costs[min(steps, len(self.costs) - 1)])


class PriceLowerBounds:
    """The instance types that the pools of a snapshot can buy. Gives a lower bound (`least`) and an
    estimate (`about`) of the price of nodes for given requests.

    - `sizes` int64[types, 2]: thousandths of a core and mebibytes of each type. Dominated types are
      removed.
    - `costs` int64[types]: lowest price of each type, billionths of a dollar an hour.
    - `most`: thousandths of a core and mebibytes of the largest amount in the tables. A larger
      amount gets the bound of the largest.
    - `total`: cpu (thousandths of a core) and memory (bytes) of all pods together.
    - `weights`: the value of cpu and memory at these prices (`_weights`).
    """

    def __init__(
        self, sizes: Column, costs: Column, most: tuple[int, int], total: tuple[int, int]
    ) -> None:
        self._most = most
        # A mixture's parts are weighed by what one has to pay for cpu, or memory, at least: so they
        # are of one size.
        self._parts = (_unit_price(sizes[:, 0], costs), _unit_price(sizes[:, 1], costs))
        self.sizes, self.costs = _unbeaten(sizes, costs)
        self.weights = _weights(self.sizes, self.costs, self._parts, total)
        self._mixtures: tuple[Mixture, ...] | None = None

    @property
    def nothing(self) -> bool:
        """Returns whether there is no instance type that can be bought."""
        return not len(self.costs)

    def least(self, cpu_milli: int, memory_bytes: int) -> int:
        """Returns the lower bound on the price of nodes for this amount, in billionths of a dollar
        an hour. It is the maximum over all linear combinations of cpu and memory. 0 for an amount
        of 0; `NO_PRICE` if no type can be bought."""
        if self._mixtures is None:
            self._mixtures = tuple(self._made())
        mebi = memory_bytes >> MEBI_SHIFT
        return max(
            (m.least(cpu_milli, mebi) for m in self._mixtures),
            default=NO_PRICE if self.nothing else 0,
        )

    def _made(self) -> Iterator[Mixture]:
        cpu, memory = self._parts
        for step in range(MIXTURES + 1):
            by_cpu, by_memory = cpu * (MIXTURES - step), memory * step
            amount = by_cpu * self.sizes[:, 0] + by_memory * self.sizes[:, 1]
            largest = by_cpu * self._most[0] + by_memory * self._most[1]
            if not amount.any() or not largest:
                continue
            unit = -(-largest // STEPS)
            caps, kept = _useful(-(-amount // unit), self.costs)
            table = np.zeros(STEPS + 1, dtype=np.int64)
            KERNELS.cover(caps, kept, table)
            yield Mixture(by_cpu, by_memory, unit, table)

    def about(self, asks: Sequence[Mapping[str, int]]) -> int:
        """Computes an approximate price of new nodes that hold all given pods, by a greedy packing
        on cpu and memory alone. Returns billionths of a dollar an hour; `NO_PRICE`: some pod fits
        on no instance type, or no instance type can be bought.

        `asks`: for each pod, resource -> requested amount.

        The result is not a bound: an exact packing may cost less or more. Each node's price is
        rounded up to a multiple of 2**COARSE.

        Example: the only type has 4 cores and costs $0.20 an hour. Two pods of 3 cores each give
        about $0.40.
        """
        if self.nothing:
            return NO_PRICE
        rows = [(ask.get("cpu", 0), ask.get("memory", 0) >> MEBI_SHIFT) for ask in asks]
        rows.sort(key=lambda row: (-self._worth(row), row))
        worths = np.array([max(1, self._worth(row) >> COARSE) for row in rows], dtype=np.int64)
        order, (open, placed, best) = np.arange(len(rows)), np.zeros((3, len(rows)), dtype=np.int64)
        prices = -(-self.costs >> COARSE)
        amounts = np.array(rows, dtype=np.int64).reshape(len(rows), 2)
        cost = KERNELS.pack(amounts, worths, self.sizes, prices, order, open, placed, best)
        return NO_PRICE if cost < 0 else int(cost) << COARSE

    def _worth(self, row: tuple[int, int]) -> int:
        return row[0] * self.weights.cpu + row[1] * self.weights.memory


def floors(
    pools: Iterable[NodePoolPolicy],
    prices: NodePrices,
    most: tuple[int, int],
    total: tuple[int, int],
) -> PriceLowerBounds:
    """Builds the object that computes lower bounds on the price of new nodes, over all instance
    types that these pools can buy.

    `most`: the largest amount for which a bound will be needed. `total`: the sum of the requests of
      all pods; its ratio of cpu to memory decides the value of a core relative to the value of
      memory. Both are (thousandths of a core, bytes).
    """
    sizes, costs = _offered(pools, prices)
    sizes[:, 1] = -(-sizes[:, 1] >> MEBI_SHIFT)
    return PriceLowerBounds(sizes, costs, (most[0], -(-most[1] >> MEBI_SHIFT)), total)


def _offered(pools: Iterable[NodePoolPolicy], prices: NodePrices) -> tuple[Column, Column]:
    """Returns all instance types that some pool can buy. Two arrays: int64[types, 2], the
    allocatable cpu (thousandths of a core) and memory (bytes) of each less its daemons; and
    int64[types], the lowest price of each in billionths of a dollar an hour."""
    sizes, costs = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for pool in pools:
        template = prices.template(pool)
        if len(template.types):
            sizes.append(template.room[template.able][:, (CPU, MEMORY)])
            costs.append(template.types.cheapest(template.labels)[template.able])
    return np.concatenate(sizes), np.concatenate(costs)


def _unit_price(amounts: Column, costs: Column) -> int:
    """Returns the lowest price of one unit of a resource, over all types that have it, in
    billionths of a dollar an hour, rounded down, but at least 1. 0: no type has the resource.
    `amounts` int64[types]: what each type has of it."""
    there = amounts > 0
    return max(1, int((costs[there] // np.maximum(amounts[there], 1)).min())) if there.any() else 0


def _useful(caps: Column, costs: Column) -> tuple[Column, Column]:
    """Removes dominated instance types: a type is dominated if another type has at least the same
    capacity at the same or a lower price. Returns the capacities and the prices of the remaining
    types, the largest capacity first.

    `caps` int64[types]: capacity of each type, in steps (equal parts of the largest amount needed).
      Capacities above `STEPS` are lowered to `STEPS` first, because no larger amount is needed.
      Types of capacity 0 are removed.
    `costs` int64[types]: price of each type.

    Example: capacities 4, 4 and 2 at prices 3, 5 and 1. The second type is removed; the result is
    capacities 4 and 2 at prices 3 and 1.
    """
    caps = np.minimum(caps, STEPS)
    order = np.lexsort((costs, -caps))
    kept, cheapest = [], NO_PRICE
    for at in order.tolist():
        if costs[at] < cheapest and caps[at] > 0:
            kept.append(at)
            cheapest = int(costs[at])
    return caps[kept], costs[kept]


def _unbeaten(sizes: Column, costs: Column) -> tuple[Column, Column]:
    """Removes dominated types: a type for which another has at least as much cpu and memory at no
    higher price. Returns the sizes and prices of the others, the cheapest first. Of equal types the
    first is kept."""
    kept: list[int] = []
    for at in np.lexsort((-sizes[:, 1], -sizes[:, 0], costs)).tolist():
        if not len(kept) or not (sizes[kept] >= sizes[at]).all(axis=1).any():
            kept.append(at)
    return sizes[kept], costs[kept]


def _weights(
    sizes: Column, costs: Column, parts: tuple[int, int], total: tuple[int, int]
) -> Weights:
    """Chooses a value for a thousandth of a core and a value for a mebibyte, so that no instance
    type is worth more than its price. In linear programming these are feasible dual prices. The
    values under which all pods together are worth the most are returned.

    `MIXTURES` - 1 ratios of cpu to memory are tried. For each ratio both values are scaled up until
    one type is worth its price; the first ratio wins on ties. If no type can be bought, the default
    values are returned.

    `sizes` int64[types, 2]: thousandths of a core and mebibytes of each type.
    `costs` int64[types]: price of each type, in billionths of a dollar an hour.
    `parts`: the lowest price of a thousandth of a core and of a mebibyte, from which the ratios are
      formed.
    `total`: requests of all pods together: (thousandths of a core, bytes).

    Example: the only type has 4 cores and 16 GiB at $0.20. With the values returned, 4 cores and 16
    GiB together are worth at most $0.20.
    """
    best, found = -1, Weights()
    for step in range(1, MIXTURES):
        by_cpu, by_memory = parts[0] * (MIXTURES - step), parts[1] * step
        amounts = by_cpu * sizes[:, 0] + by_memory * sizes[:, 1]
        there = amounts > 0
        if not there.any():
            continue
        scale = int((costs[there] * 2**20 // np.maximum(amounts[there], 1)).min())
        weights = Weights((by_cpu * scale) >> 20, (by_memory * scale) >> 20)
        worth = weights.of(*total)
        if worth > best:
            best, found = worth, weights
    return found
