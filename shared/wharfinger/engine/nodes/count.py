"""How many more replicas of each class fit into a cluster, counted node by node and device by device.

The count of a class on a node is what could be placed there if nothing else came: the least over resources of
floor(free / request), and for devices the sum over allowed ones of floor(free / share), or floor(entirely free / count).
Where one of them keeps others off its node, by a port of the host or by its own anti-affinity, it is one a node that has none yet.
What else pods mean to each other (spread, affinity, volumes) is not looked at: no more fit than counted here, and the cluster
stage refuses what is too many.

Counts are kept as one matrix, classes by nodes; asking again recounts only the nodes touched since, all classes at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.value import canonical
from wharfinger.engine.framework.pod_terms import Term, others_term
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, DeviceView, NodeRow, NodeTable
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.tallies import ports_taken, selected_by_all

COUNT_MAX = 2**31 - 1
"""No count is reported higher, neither of a node nor of a cluster: a class that asks for nothing fits without end."""


class Counter:
    """Counts of a set of classes over one table. `touched_last`: how many nodes the last `count` had to look at again."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.classes: list[PodClass] = []
        self.touched_last = 0
        self._index: dict[str, int] = {}
        self._counts: Column = np.zeros((0, 0), dtype=np.int64)
        self._totals: Column = np.zeros(0, dtype=np.int64)
        self._facts_at = -1
        self._usage_at = -1
        self._verdicts: Column = self._counts
        self._resources: list[tuple[int, Column, Column]] = []
        self._kinds: list[tuple[int, Column, Column]] = []
        self._views: list[tuple[DeviceView, Column, Column, Column, Column]] = []
        self._slow: list[int] = []
        self._alone: list[tuple[int, PodClass]] = []

    def keep(self, classes: Iterable[PodClass]) -> None:
        """Count exactly these classes from now on."""
        classes = list(classes)
        if [c.key for c in classes] == [c.key for c in self.classes]:
            return
        self.classes = classes
        self._index = {c.key: i for i, c in enumerate(classes)}
        self._compile()
        self._facts_at = self._usage_at = -1

    def how_many(self, cls: PodClass) -> int:
        """Replicas of a class that would fit; classes not kept are counted on the spot."""
        at = self._index.get(cls.key)
        if at is not None:
            return self.count()[at]
        alone = Counter(self.table)
        alone.keep([cls])
        return alone.count()[0]

    def count(self) -> list[int]:
        """The count of each kept class, in order."""
        table = self.table
        rows = self._stale()
        self.touched_last = len(rows)
        if len(rows) and self.classes:
            fresh = self._counted(rows)
            self._totals += fresh.sum(axis=1) - self._counts[:, rows].sum(axis=1)
            self._counts[:, rows] = fresh
        self._facts_at, self._usage_at = table.facts.end, table.usage.end
        return [min(total, COUNT_MAX) for total in self._totals.tolist()]

    def _stale(self) -> Column:
        table = self.table
        usage = table.usage.since(self._usage_at) if self._usage_at >= 0 else None
        facts = table.facts.since(self._facts_at) if self._facts_at >= 0 else None
        if usage is None or facts is None or self._counts.shape[1] < table.size:
            shape = (len(self.classes), table.size)
            self._counts = np.zeros(shape, dtype=np.int64)
            self._totals = np.zeros(shape[0], dtype=np.int64)
            self._verdicts = np.zeros(shape, dtype=np.int64)
            rows = np.arange(table.size)
            changed = rows
        else:
            rows = np.unique(np.concatenate((usage, facts)))
            changed = np.unique(facts)
        if len(changed):
            for at, cls in enumerate(self.classes):
                self._verdicts[at, changed] = cls.facts(table)[changed]
        return rows

    # --- the arithmetic, classes by touched nodes

    def _compile(self) -> None:
        """Group the classes by what they ask for, so that each resource and each device view is one operation."""
        by_resource: dict[int, list[tuple[int, int]]] = {}
        by_kind: dict[int, list[tuple[int, int]]] = {}
        shares: dict[int, list[tuple[int, int]]] = {}
        wholes: dict[int, list[tuple[int, int]]] = {}
        views: dict[int, DeviceView] = {}
        self._slow = []
        self._alone = [(at, cls) for at, cls in enumerate(self.classes) if _keeps_off(cls)]
        for at, cls in enumerate(self.classes):
            for code, amount in cls.amounts:
                by_resource.setdefault(code, []).append((at, amount))
            if not cls.simple:
                self._slow.append(at)
            elif cls.needs:
                need = cls.needs[0]
                views[id(need.view)] = need.view
                asked = wholes if need.milli == DEVICE_MILLI else shares
                asked.setdefault(id(need.view), []).append(
                    (at, need.count if need.milli == DEVICE_MILLI else need.milli)
                )
            for kind, count in cls.wholes:
                by_kind.setdefault(kind, []).append((at, count))
        self._resources = [(code, *_two_columns(pairs)) for code, pairs in sorted(by_resource.items())]
        self._kinds = [(kind, *_two_columns(pairs)) for kind, pairs in sorted(by_kind.items())]
        self._views = []
        for key, view in views.items():
            share_at, share = _two_columns(shares.get(key, []))
            whole_at, whole = _two_columns(wholes.get(key, []))
            self._views.append((view, share_at, share, whole_at, whole))

    def _counted(self, rows: Column) -> Column:
        table = self.table
        counts = np.full((len(self.classes), len(rows)), COUNT_MAX, dtype=np.int64)
        for code, at, amount in self._resources:
            free = np.maximum(table.free[code].take(rows), 0)
            _lower(counts, at, free[None, :] // amount[:, None])
        for kind, at, asked in self._kinds:  # whole ones are asked for, whoever says that he holds which
            left = np.maximum(table.whole_left[kind].take(rows), 0)
            _lower(counts, at, left[None, :] // asked[:, None])
        for view, at, share, whole_at, whole in self._views:
            if len(at):
                _lower(counts, at, _shares_that_fit(table.allowed_free(view, rows), share))
            if len(whole_at):
                _lower(counts, whole_at, view.whole.take(rows)[None, :] // whole[:, None])
        counts[self._verdicts[:, rows] < 0] = 0
        for alone, cls in self._alone:
            there = _standing_in_the_way(table, cls).take(rows)
            counts[alone] = np.where(there > 0, 0, np.minimum(counts[alone], 1))
        for slow in self._slow:
            self._count_slowly(self.classes[slow], rows, counts[slow])
        return counts

    def _count_slowly(self, cls: PodClass, rows: Column, counts: Column) -> None:
        for at in np.flatnonzero(counts).tolist():
            row = self.table.by_slot[int(rows[at])]
            counts[at] = 0 if row is None else min(int(counts[at]), _placeable(row, cls))


HOSTNAME = "kubernetes.io/hostname"
"""The label by which every node is a domain of its own."""


def _keeps_off(cls: PodClass) -> bool:
    return bool(cls.traits.ports or _own_anti_affinity(cls))


def _own_anti_affinity(cls: PodClass) -> list[Term]:
    """Its terms against pods like itself on the same node."""
    traits = cls.traits
    terms = [others_term(t, traits) for t in traits.anti_affinity if t.key == HOSTNAME]
    return [term for term in terms if term is not None and term.selects(traits, {})]


def _standing_in_the_way(table: NodeTable, cls: PodClass) -> Column:
    """int64[capacity]: how many pods there are that have its ports, or that it does not want to be with."""
    ports = cls.traits.ports
    there = np.zeros(table.capacity, dtype=np.int64)
    if ports:
        there = there + table.tally(("ports", ports), ports_taken(ports)).by_slot
    for term in _own_anti_affinity(cls):
        there = there + table.tally(("alike", canonical(term)), selected_by_all((term,))).by_slot
    return there


def _two_columns(pairs: list[tuple[int, int]]) -> tuple[Column, Column]:
    both = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return both[:, 0].copy(), both[:, 1].copy()


def _lower(counts: Column, at: Column, bound: Column) -> None:
    if len(at) == len(counts):
        np.minimum(counts, bound, out=counts)
    else:
        counts[at] = np.minimum(counts[at], bound)


def _shares_that_fit(free: Column, share: Column) -> Column:
    """int64[classes, nodes]: the sum over devices of floor(free / share). Each distinct share is divided once."""
    distinct, back = np.unique(share, return_inverse=True)
    counts = np.zeros((len(distinct), len(free)), dtype=np.int64)
    for device in range(free.shape[1]):
        counts += free[:, device][None, :] // distinct[:, None]
    return counts[back]


def _placeable(row: NodeRow, cls: PodClass) -> int:
    """Place replicas of a class on a copy of the node's devices until none fits: at most 1000 a device."""
    scratch = NodeRow(row.slot, row.name)
    scratch.groups = row.groups
    scratch.device_free = list(row.device_free)
    count = 0
    while (taken := take_devices(scratch, cls.needs)) is not None:
        for index, milli in taken:
            scratch.device_free[index] -= milli
        count += 1
    return count
