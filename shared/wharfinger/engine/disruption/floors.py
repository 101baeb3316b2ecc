"""What nodes for an amount of cpu and memory cost at least, whatever pods it is made of: a screen before anything is
solved.

Nodes that hold both together hold, of each mixture of the two, as much as their types have of that mixture. Covering
one mixture with whole nodes is a small exact problem, solved once for all amounts; the greatest answer over some
mixtures is a bound for any pods. So it can only rule out: a replacement that the floor lets through is solved and
priced exactly. All in integers; what nodes hold is rounded up, what is asked for down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node_pool import NodePoolPolicy
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


@dataclass(frozen=True, slots=True)
class Floors:
    """`weights`: what cpu and memory are worth at these prices. No mixtures where nothing can be bought."""

    weights: Weights
    mixtures: tuple[Mixture, ...]

    def least(self, cpu_milli: int, memory_bytes: int) -> int:
        """Billionths of a dollar an hour; nothing for nothing."""
        mebi = memory_bytes >> MEBI_SHIFT
        return max((m.least(cpu_milli, mebi) for m in self.mixtures), default=NO_PRICE)


def floors(pools: Iterable[NodePoolPolicy], prices: Prices, most: tuple[int, int], total: tuple[int, int]) -> Floors:
    """`most`: cpu and memory (bytes) of the largest amount that will be asked about; beyond it the floor is that of the
    largest. `total`: of all pods, by whose mixture cpu and memory are weighed."""
    sizes, costs = _offered(pools, prices)
    if not len(costs):
        return Floors(Weights(), ())
    sizes[:, 1] = -(-sizes[:, 1] >> MEBI_SHIFT)
    # A mixture's parts are weighed by what one has to pay for cpu, or memory, at least: so they are of one size.
    cpu, memory = (_unit_price(sizes[:, i], costs) for i in (0, 1))
    kernels = COMPILER.kernels(STEPS * len(costs) // 64)
    found = []
    for step in range(MIXTURES + 1):
        by_cpu, by_memory = cpu * (MIXTURES - step), memory * step
        amount = by_cpu * sizes[:, 0] + by_memory * sizes[:, 1]
        largest = by_cpu * most[0] + by_memory * (most[1] >> MEBI_SHIFT)
        if not amount.any() or not largest:
            continue
        unit = -(-largest // STEPS)
        caps, kept = _useful(-(-amount // unit), costs)
        table = np.zeros(STEPS + 1, dtype=np.int64)
        kernels.cover(caps, kept, table)
        found.append(Mixture(by_cpu, by_memory, unit, table))
    return Floors(_weights(sizes, costs, cpu, memory, total), tuple(found))


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


def _weights(sizes: Column, costs: Column, cpu: int, memory: int, total: tuple[int, int]) -> Weights:
    """Prices of cpu and memory that make no type worth more than it costs, and of those the ones by which all pods
    are worth the most."""
    best, found = -1, Weights()
    for step in range(1, MIXTURES):
        by_cpu, by_memory = cpu * (MIXTURES - step), memory * step
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
