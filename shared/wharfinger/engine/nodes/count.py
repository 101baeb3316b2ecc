"""Remaining capacity: how many more replicas of each class fit into a cluster, counted node by node
and device by device.

On one node the count is the minimum over resources of floor(free / request), and for devices the
sum over the allowed ones of floor(free / share), or floor(number of free devices / count). A class
whose replicas exclude each other on a node, by a host port or by anti-affinity, gets at most one
per node. Other constraints between pods (spread, affinity, volumes) are ignored: the result is an
upper bound. `engine.estimators.trial` lowers it for classes with such constraints.

Example: 4000 milli-cores and 6 GiB free, request 1000 milli-cores and 2 GiB: min(4, 3) = 3.

Counts are a matrix, classes by nodes; an update recounts only the nodes that changed, for all
classes at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, DeviceView, NodeRow, NodeTable
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.profile_rules import default_rules
from wharfinger.engine.nodes.tallies import TopologyTally

COUNT_MAX = 2**31 - 1
"""Upper bound of every count of a node or a cluster: a class that requests nothing fits without
limit."""


class Counter:
    """Counts how many more replicas of each class fit, for a set of classes over one table. Counts
    are cached by class and node; only nodes that changed are recounted.

    `touched_last`: number of nodes that the last `count` recounted.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.classes: list[PodClass] = []
        self.touched_last = 0
        self._index: dict[str, int] = {}
        self._counts: Column = np.zeros((0, 0), dtype=np.int64)
        self._totals: Column = np.zeros(0, dtype=np.int64)
        self._facts_at = -1
        self._usage_at = -1
        self._refused: Bools = np.zeros((0, 0), dtype=np.bool_)
        self._resources: list[tuple[int, Column, Column]] = []
        self._kinds: list[tuple[int, Column, Column]] = []
        self._views: list[tuple[DeviceView, Column, Column, Column, Column]] = []
        self._slow: list[int] = []
        self._alone: list[tuple[int, PodClass]] = []

    def keep(self, classes: Iterable[PodClass]) -> None:
        """Sets the classes to count. If their keys or their order differ from before, all cached
        counts are dropped."""
        classes = list(classes)
        if [c.key for c in classes] == [c.key for c in self.classes]:
            return
        self.classes = classes
        self._index = {c.key: i for i, c in enumerate(classes)}
        self._compile()
        self._facts_at = self._usage_at = -1

    def how_many(self, cls: PodClass) -> int:
        """Returns how many more replicas of a class fit. A class that is not kept is counted over
        all nodes at each call."""
        at = self._index.get(cls.key)
        if at is not None:
            return self.count()[at]
        alone = Counter(self.table)
        alone.keep([cls])
        return alone.count()[0]

    def count(self) -> list[int]:
        """Returns the number of replicas that fit for each kept class, in order, each at most
        `COUNT_MAX`."""
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
            self._refused = np.zeros(shape, dtype=np.bool_)
            rows = np.arange(table.size)
            changed = rows
        else:
            rows = np.unique(np.concatenate((usage, facts)))
            changed = np.unique(facts)
        if len(changed):
            self._judge_facts(changed)
        return rows

    def _judge_facts(self, changed: Column) -> None:
        """Evaluates which classes of pods are refused by properties of nodes (labels, taints,
        cordons). Writes the result into the columns `changed` of `_refused`, bool[classes, slots].

        `changed`: int64, the slots (array positions) of the nodes whose properties changed. Nodes
        that take no new replicas, and slots without a node, are refused for all classes. Classes
        with equal node selectors, tolerations and node preferences are evaluated once.
        """
        table, rules = self.table, default_rules()
        closed = table.closed[changed] | ~table.present[changed]
        known: dict[Hashable, Bools] = {}
        for at, cls in enumerate(self.classes):
            key = rules.facts.key(cls)
            refused = known.get(key)
            if refused is None:
                facts = NodeFacts(table, changed)
                refused = known[key] = closed | rules.facts.any_refuses(cls.requirements, facts)
            self._refused[at, changed] = refused

    # --- the arithmetic, classes by touched nodes

    def _compile(self) -> None:
        """Prepares counting how many replicas of each class fit on each node. Groups the classes by
        what they request: a resource, a kind of whole device, or a set of allowed devices. So
        `_counted` needs one array operation per resource for all classes, instead of one per class.

        Two more lists are filled. `_slow`: classes whose device requests cannot be compared in one
        step, such as two device requests; these classes are counted node by node. `_alone`: classes
        of which one node takes at most one replica, for example because of a host port.

        Example: 3 classes request cpu and 2 of these also request memory. Cpu is computed in one
        operation for 3 classes, memory in one for 2.
        """
        by_resource: dict[int, list[tuple[int, int]]] = {}
        by_kind: dict[int, list[tuple[int, int]]] = {}
        shares: dict[int, list[tuple[int, int]]] = {}
        wholes: dict[int, list[tuple[int, int]]] = {}
        views: dict[int, DeviceView] = {}
        self._slow = []
        self._alone = [
            (at, cls) for at, cls in enumerate(self.classes) if _kept_apart(self.table, cls)
        ]
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
        self._resources = [
            (code, *_two_columns(pairs)) for code, pairs in sorted(by_resource.items())
        ]
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
        for kind, at, asked in self._kinds:  # whole devices, regardless of which pods hold them
            left = np.maximum(table.whole_left[kind].take(rows), 0)
            _lower(counts, at, left[None, :] // asked[:, None])
        for view, at, share, whole_at, whole in self._views:
            if len(at):
                _lower(counts, at, _shares_that_fit(table.allowed_free(view, rows), share))
            if len(whole_at):
                _lower(counts, whole_at, view.whole.take(rows)[None, :] // whole[:, None])
        counts[self._refused[:, rows]] = 0
        for alone, cls in self._alone:
            there = np.sum([tally.by_slot for tally in _kept_apart(table, cls)], axis=0).take(rows)
            counts[alone] = np.where(there > 0, 0, np.minimum(counts[alone], 1))
        for slow in self._slow:
            self._count_slowly(self.classes[slow], rows, counts[slow])
        return counts

    def _count_slowly(self, cls: PodClass, rows: Column, counts: Column) -> None:
        for at in np.flatnonzero(counts).tolist():
            row = self.table.by_slot[int(rows[at])]
            counts[at] = 0 if row is None else min(int(counts[at]), _placeable(row, cls))


def _kept_apart(table: NodeTable, cls: PodClass) -> list[TopologyTally]:
    """Returns the tallies of pods that exclude a pod of the class from their node and are excluded
    by it; empty if its replicas may share a node."""
    found: list[TopologyTally] = []
    for _, counter in default_rules().counters:
        if counter.apart is not None:
            found += counter.apart(cls, table)
    return found


def _two_columns(pairs: list[tuple[int, int]]) -> tuple[Column, Column]:
    both = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return both[:, 0].copy(), both[:, 1].copy()


def _lower(counts: Column, at: Column, bound: Column) -> None:
    if len(at) == len(counts):
        np.minimum(counts, bound, out=counts)
    else:
        counts[at] = np.minimum(counts[at], bound)


def _shares_that_fit(free: Column, share: Column) -> Column:
    """Returns int64[classes, nodes]: how many shares fit, the sum over devices of floor(free /
    share). `free` [nodes, devices]: free thousandths; `share` [classes]: requested thousandths.
    Each distinct share is divided once."""
    distinct, back = np.unique(share, return_inverse=True)
    counts = np.zeros((len(distinct), len(free)), dtype=np.int64)
    for device in range(free.shape[1]):
        counts += free[:, device][None, :] // distinct[:, None]
    return counts[back]


def _placeable(row: NodeRow, cls: PodClass) -> int:
    """Returns how many replicas fit on the node's devices, by allocating them one by one on a copy
    until none fits."""
    scratch = NodeRow(row.slot, row.name)
    scratch.groups = row.groups
    scratch.device_free = list(row.device_free)
    count = 0
    while (taken := take_devices(scratch, cls.needs)) is not None:
        for index, milli in taken:
            scratch.device_free[index] -= milli
        count += 1
    return count
