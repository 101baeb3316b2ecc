"""Capacity by the nodes of a cluster and their pods: replicas of one kind as counted by
`engine.nodes.count`, and whole sets of several kinds, packed first fit over the nodes in order of
name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wharfinger.domain.binding import Component
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.packing import Packing
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.count import Counter
from wharfinger.engine.nodes.facts import FactVerdicts
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.profile_rules import default_rules


def replicas_by_nodes(book: Occupancy, requirements: Requirements) -> int:
    """Returns how many more replicas fit into the cluster, counted node by node."""
    counter = Counter(book.table)
    counter.keep([book.class_of(requirements)])
    return counter.count()[0]


def sets_by_nodes(book: Occupancy, components: Sequence[Component], most: int) -> int:
    """Returns how many whole sets fit, at most `most` and at most `SETS_MAX`, by first-fit packing
    over the nodes in order of name."""
    return sets_beside(book, components, (), most)


def sets_beside(
    book: Occupancy,
    components: Sequence[Component],
    unbound: Iterable[tuple[PodClass, int]],
    most: int,
) -> int:
    """Returns how many whole sets of pods fit into the cluster, at most `most` and at most
    `SETS_MAX`.

    A set has all pods of all `components`. The sets are packed by first fit: every pod goes to the
    first node, in order of node name, that has room for the pod.

    `book`: the cluster's nodes with the pods on them; it is not changed.
    `unbound`: (class, number of replicas) of replicas that are assigned to the cluster but not
      bound to a node yet. They are packed before the sets. A replica in `unbound` that fits on no
      node is ignored.

    Example: two nodes have 4 free CPUs each; a set has one pod of 3 CPUs and one pod of 1 CPU. Two
    sets fit. If `unbound` has one replica of 2 CPUs, only one set fits.
    """
    table = book.table
    rows = [table.rows[name] for name in sorted(table.rows)]
    rules = default_rules()
    facts = FactVerdicts(table, rules.facts, rules.codes)
    nodes = Packing[PodClass]((NodeBin(facts, row, row.free, row.device_free), 1) for row in rows)
    for cls, replicas in unbound:
        nodes.put(cls, replicas)
    return nodes.sets([(book.class_of(c.requirements), c.replicas) for c in components], most)


@dataclass(slots=True)
class NodeBin:
    """A node as a bin of the packing: what is free after the pods packed so far. `free`: by
    resource column; `device_free`: thousandths by device."""

    facts: FactVerdicts
    row: NodeRow
    free: Sequence[int]
    device_free: Sequence[int]

    def copy(self) -> NodeBin:
        return NodeBin(self.facts, self.row, self.free, self.device_free)  # taking makes new lists

    def fits(self, demand: PodClass, most: int, /) -> int:
        if self.facts.of(demand).verdicts[self.row.slot]:
            return 0
        fits = most
        for code, amount in demand.amounts:
            fits = min(fits, self.free[code] // amount)
        return (
            self._with_devices(demand, fits, list(self.device_free))
            if demand.needs and fits > 0
            else fits
        )

    def take(self, demand: PodClass, times: int, /) -> None:
        free, devices = list(self.free), list(self.device_free)
        for code, amount in demand.amounts:
            free[code] -= times * amount
        if demand.needs:
            self._with_devices(demand, times, devices)
        self.free, self.device_free = free, devices

    def _with_devices(self, demand: PodClass, most: int, devices: list[int]) -> int:
        """Allocates devices of the node to up to `most` replicas of the class `demand`, and returns
        how many replicas got all requested devices.

        The replicas are served one after another, until the free devices do not suffice for the
        next replica.

        `devices`: free thousandths of each device of the node (1000: the device is entirely free).
          The allocated thousandths are subtracted in place.

        Example: `devices` [1000, 1000], and each replica requests one whole device. With `most` 3
        the result is 2, and `devices` becomes [0, 0].
        """
        scratch = NodeRow(self.row.slot, self.row.name)
        scratch.groups, scratch.sole_group, scratch.device_free = (
            self.row.groups,
            self.row.sole_group,
            devices,
        )
        done = 0
        while done < most and (taken := take_devices(scratch, demand.needs)) is not None:
            for index, milli in taken:
                devices[index] -= milli
            done += 1
        return done
