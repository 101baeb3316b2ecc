"""How much fits by the nodes of a cluster and the pods on them: replicas of one kind as `engine.nodes.count` counts them, and whole
sets of several kinds, packed first fit over the nodes in order of name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wharfinger.domain.binding import Component
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.packing import Packing
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow, NodeTable
from wharfinger.engine.nodes.count import Counter
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import Occupancy


def replicas_by_nodes(book: Occupancy, requirements: Requirements) -> int:
    """How many more replicas fit, counted node by node."""
    counter = Counter(book.table)
    counter.keep([book.class_of(requirements)])
    return counter.count()[0]


def sets_by_nodes(book: Occupancy, components: Sequence[Component], most: int) -> int:
    """How many whole sets fit, at most `most`, and no more than are ever counted."""
    return sets_beside(book, components, (), most)


def sets_beside(
    book: Occupancy, components: Sequence[Component], unbound: Iterable[tuple[PodClass, int]], most: int
) -> int:
    """As `sets_by_nodes`, when replicas that are on no node yet have taken their room."""
    table = book.table
    rows = [table.rows[name] for name in sorted(table.rows)]
    nodes = Packing[PodClass]((NodeBin(table, row, row.free, row.device_free), 1) for row in rows)
    for cls, replicas in unbound:
        nodes.put(cls, replicas)
    return nodes.sets([(book.class_of(c.requirements), c.replicas) for c in components], most)


@dataclass(slots=True)
class NodeBin:
    """A node as it would be with some more pods on it. `free` by column, `device_free` in thousandths."""

    table: NodeTable
    row: NodeRow
    free: Sequence[int]
    device_free: Sequence[int]

    def copy(self) -> NodeBin:
        return NodeBin(self.table, self.row, self.free, self.device_free)  # taking makes new lists

    def fits(self, demand: PodClass, most: int, /) -> int:
        if demand.verdict(self.table, self.row) < 0:
            return 0
        fits = most
        for code, amount in demand.amounts:
            fits = min(fits, self.free[code] // amount)
        return self._with_devices(demand, fits, list(self.device_free)) if demand.needs and fits > 0 else fits

    def take(self, demand: PodClass, times: int, /) -> None:
        free, devices = list(self.free), list(self.device_free)
        for code, amount in demand.amounts:
            free[code] -= times * amount
        if demand.needs:
            self._with_devices(demand, times, devices)
        self.free, self.device_free = free, devices

    def _with_devices(self, demand: PodClass, most: int, devices: list[int]) -> int:
        """How many get their devices out of `devices`, which are given out: at most 1000 a device, so this ends."""
        scratch = NodeRow(self.row.slot, self.row.name)
        scratch.groups, scratch.sole_group, scratch.device_free = self.row.groups, self.row.sole_group, devices
        done = 0
        while done < most and (taken := take_devices(scratch, demand.needs)) is not None:
            for index, milli in taken:
                devices[index] -= milli
            done += 1
        return done
