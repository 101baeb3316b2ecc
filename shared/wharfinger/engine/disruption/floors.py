"""What nodes for an amount of cpu and memory cost at least, whatever pods it is made of: a screen before anything is
solved.

Nodes that hold both together hold, of each mixture of the two, as much as their types have of that mixture. Covering
one mixture with whole nodes is a small exact problem, solved once for all amounts; the greatest answer over some
mixtures is a bound for any pods. So it can only rule out: a replacement that the floor lets through is solved and
priced exactly. All in integers; what nodes hold is rounded up, what is asked for down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.engine.disruption.kernels import COARSE
from wharfinger.engine.disruption.prices import Prices
from wharfinger.engine.disruption.removal import COMPILER, MEBI_SHIFT, Weights
from wharfinger.engine.provisioning.catalogue import NO_PRICE, Column

CPU, MEMORY = 0, 1

MIXTURES = 8
"""All cpu, all memory, and what lies between in as many steps."""

STEPS = 1024
"""Into so many steps the largest amount is divided."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """`cpu` per thousandth of a core, `memory` per mebibyte; `unit` of a step. `costs` int64[STEPS + 1]: the least for so
    many steps."""

    cpu: int
    memory: int
    unit: int
    costs: Column

    def least(self, cpu_milli: int, memory_mebi: int) -> int:
        """Beyond the table its end: more costs no less."""
        steps = (self.cpu * cpu_milli + self.memory * memory_mebi) // self.unit
        return int(self.costs[min(steps, len(self.costs) - 1)])


class Floors:
    """What the pools of a scene could buy, and what that costs at least and about.

    `sizes` int64[types, 2] in thousandths of a core and mebibytes, `costs`; `most`: cpu and mebibytes of the largest amount
    that is asked about; beyond it the floor is that of the largest. `weights`: what cpu and memory are worth at these
    prices."""

    def __init__(self, sizes: Column, costs: Column, most: tuple[int, int], total: tuple[int, int]) -> None:
        self._most = most
        # A mixture's parts are weighed by what one has to pay for cpu, or memory, at least: so they are of one size.
        self._parts = (_unit_price(sizes[:, 0], costs), _unit_price(sizes[:, 1], costs))
        self.sizes, self.costs = _unbeaten(sizes, costs)
        self.weights = _weights(self.sizes, self.costs, self._parts, total)
        self._mixtures: tuple[Mixture, ...] | None = None

    @property
    def nothing(self) -> bool:
        """Nothing can be bought."""
        return not len(self.costs)

    def least(self, cpu_milli: int, memory_bytes: int) -> int:
        """Billionths of a dollar an hour; nothing for nothing."""
        if self._mixtures is None:
            self._mixtures = tuple(self._made())
        mebi = memory_bytes >> MEBI_SHIFT
        return max((m.least(cpu_milli, mebi) for m in self._mixtures), default=NO_PRICE if self.nothing else 0)

    def _made(self) -> Iterator[Mixture]:
        kernels = COMPILER.kernels(STEPS * len(self.costs) // 64)
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
            kernels.cover(caps, kept, table)
            yield Mixture(by_cpu, by_memory, unit, table)

    def about(self, asks: Sequence[Mapping[str, int]]) -> int:
        """About what nodes for these pods cost, packed one after another by cpu and memory alone: no bound, but near."""
        if self.nothing:
            return NO_PRICE
        rows = [(ask.get("cpu", 0), ask.get("memory", 0) >> MEBI_SHIFT) for ask in asks]
        rows.sort(key=lambda row: (-self._worth(row), row))
        worths = np.array([max(1, self._worth(row) >> COARSE) for row in rows], dtype=np.int64)
        order, (open, placed, best) = np.arange(len(rows)), np.zeros((3, len(rows)), dtype=np.int64)
        kernels = COMPILER.kernels(len(rows) * len(self.costs) // 8)
        prices = -(-self.costs >> COARSE)
        cost = kernels.pack(np.array(rows, dtype=np.int64), worths, self.sizes, prices, order, open, placed, best)
        return NO_PRICE if cost < 0 else int(cost) << COARSE

    def _worth(self, row: tuple[int, int]) -> int:
        return row[0] * self.weights.cpu + row[1] * self.weights.memory


def floors(pools: Iterable[NodePoolPolicy], prices: Prices, most: tuple[int, int], total: tuple[int, int]) -> Floors:
    """`most`: cpu and memory (bytes) of the largest amount that will be asked about. `total`: of all pods, by whose mixture
    cpu and memory are weighed."""
    sizes, costs = _offered(pools, prices)
    sizes[:, 1] = -(-sizes[:, 1] >> MEBI_SHIFT)
    return Floors(sizes, costs, (most[0], -(-most[1] >> MEBI_SHIFT)), total)


def _offered(pools: Iterable[NodePoolPolicy], prices: Prices) -> tuple[Column, Column]:
    """int64[types, 2] of cpu and memory, and the least price of each, of all types that some pool could buy."""
    sizes, costs = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for pool in pools:
        template = prices.template(pool)
        if len(template.types):
            sizes.append(template.room[template.able][:, (CPU, MEMORY)])
            costs.append(template.types.cheapest(template.labels)[template.able])
    return np.concatenate(sizes), np.concatenate(costs)


def _unit_price(amounts: Column, costs: Column) -> int:
    """The least price for one unit, billionths of a dollar an hour; 0: nothing has any."""
    there = amounts > 0
    return max(1, int((costs[there] // np.maximum(amounts[there], 1)).min())) if there.any() else 0


def _useful(caps: Column, costs: Column) -> tuple[Column, Column]:
    """Types than which none holds as much for as little, the largest first; those beyond the largest amount are of its size."""
    caps = np.minimum(caps, STEPS)
    order = np.lexsort((costs, -caps))
    kept, cheapest = [], NO_PRICE
    for at in order.tolist():
        if costs[at] < cheapest and caps[at] > 0:
            kept.append(at)
            cheapest = int(costs[at])
    return caps[kept], costs[kept]


def _unbeaten(sizes: Column, costs: Column) -> tuple[Column, Column]:
    """Types than which none holds as much of both for as little, the cheapest first; of equal ones the first."""
    kept: list[int] = []
    for at in np.lexsort((-sizes[:, 1], -sizes[:, 0], costs)).tolist():
        if not len(kept) or not (sizes[kept] >= sizes[at]).all(axis=1).any():
            kept.append(at)
    return sizes[kept], costs[kept]


def _weights(sizes: Column, costs: Column, parts: tuple[int, int], total: tuple[int, int]) -> Weights:
    """Prices of cpu and memory that make no type worth more than it costs, and of those the ones by which all pods
    are worth the most."""
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
