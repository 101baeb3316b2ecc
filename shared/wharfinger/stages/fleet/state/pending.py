"""Holds the pending replicas of all clusters as one matrix, to bound how many places they take.

A replica is pending while it is decided and no count of its cluster includes it. It may run on any
node, so it may take the place of replicas of other classes (see `engine.fleet.displacement`, which
defines the bound). The matrix has a row for each cluster and a column for each class with pending
replicas. The bound for a class is one product of the matrix with the shares of a place that each
class takes.

Cost: a question about n clusters reads n numbers of pending entries in Python, then n * classes
numbers in arrays. Each pending entry is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wharfinger.engine.fleet.displacement import WHOLE, proportion
from wharfinger.engine.fleet.estimate import Demand, demand_of
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending

COLUMNS = 16
"""The least number of columns."""

SHARES_KEPT = 1 << 20
"""So many numbers are remembered in the shares of all classes. Then they are computed again."""

SAFE = 2**62
"""Numbers that may reach this are computed as Python integers instead of int64."""

SAME, OTHERS, ROUNDED, MILLIONTHS = range(4)
"""The columns of shares: places of the class itself; replicas of other classes; places that these
take if each is rounded up; millionths of a place that these use. See `Displaced`."""

Numbers = NDArray[Any]
"""int64, or Python integers where int64 does not suffice."""

Positions = list[int] | NDArray[np.int64]
"""Of clusters, in order of name."""

NO_SHARES: Numbers = np.zeros((0, 4), np.int64)


@dataclass(slots=True)
class PendingMatrix:
    """The pending replicas of the clusters in `order`.

    `columns`: class -> its column. `examples`: an entry of each class, in order of column.
    `replicas`: (clusters, columns), how many replicas of a class are pending in a cluster. It may
    have more columns than `columns`; these are 0.
    `read`: how many entries of a cluster's `pending` are in its row. `generations`: the generation
    of the cluster when its row was read. `totals`: the sum of each row. `nodes`: (clusters,), how
    many nodes a cluster had in its last count.
    """

    order: Sequence[ClusterState]
    columns: dict[str, int] = field(default_factory=dict)
    examples: list[Pending] = field(default_factory=list)
    replicas: Numbers = field(init=False)
    nodes: NDArray[np.int64] = field(init=False)
    read: list[int] = field(init=False)
    generations: list[int] = field(init=False)
    totals: list[int] = field(init=False)
    _largest: int = 0
    """The largest total so far."""
    _shares: dict[str, tuple[Numbers, int, int]] = field(default_factory=dict)
    """Class -> (its shares, how many columns they have, the largest of them)."""

    def __post_init__(self) -> None:
        self._clear(COLUMNS)

    def _clear(self, columns: int) -> None:
        clusters = len(self.order)
        self.replicas = np.zeros((clusters, columns), np.int64)
        self.nodes = np.array([_nodes(cluster) for cluster in self.order], np.int64)
        self.read, self.totals = [0] * clusters, [0] * clusters
        self.generations = [cluster.generation for cluster in self.order]
        self._largest = 0

    def places_taken(
        self, class_key: str, demand: Demand, at: Positions
    ) -> list[int] | NDArray[np.int64]:
        """Return an upper bound of how many replicas of a class no longer fit because of pending
        replicas of all classes, for the clusters at the positions `at`: a list for a list; an array
        for an array, with numbers of at most `SAFE`. `demand`: what one replica of the class takes.
        Example: one replica of the class takes 2 CPUs. Pending are 3 replicas of the class, and 4
        replicas of another class with 500m CPU each. On 10 nodes the bound is 3 + 4 = 7, because
        each of the 4 may run on another node, where then one replica fewer fits. On 1 node it is
        3 + 2 = 5."""
        self._catch_up(at)
        classes = len(self.examples)
        rows, nodes = self.replicas[:, :classes], self.nodes
        if len(at) != len(self.order):
            rows, nodes = rows[at], nodes[at]
        sums: Numbers = rows @ self._shares_of(class_key, demand)[:classes]
        if isinstance(at, list):
            return [
                same + min(rounded, -(-millionths // WHOLE) + min(others, n))
                for (same, others, rounded, millionths), n in zip(
                    sums.tolist(), nodes.tolist(), strict=True
                )
            ]
        most = np.minimum(sums[:, OTHERS], nodes) - (-sums[:, MILLIONTHS] // WHOLE)
        taken: Numbers = sums[:, SAME] + np.minimum(sums[:, ROUNDED], most)
        return taken if taken.dtype == np.int64 else np.minimum(taken, SAFE).astype(np.int64)

    # Rows

    def _catch_up(self, at: Positions) -> None:
        """Read the entries of these clusters that are not in their rows yet."""
        order, read, generations = self.order, self.read, self.generations
        for position in at if isinstance(at, list) else at.tolist():
            cluster = order[position]
            if (
                len(cluster.pending) != read[position]
                or cluster.generation != generations[position]
            ) and not self._read(position, cluster):
                self._widen()
                return

    def _read(self, position: int, cluster: ClusterState) -> bool:
        """Read the new entries of one cluster, or all after a new count. Return False, with some of
        them read, where a class has no column and there is none left."""
        pending, first = cluster.pending, self.read[position]
        if cluster.generation != self.generations[position]:
            first = 0
            self.generations[position] = cluster.generation
            self.nodes[position] = _nodes(cluster)
            if self.totals[position]:
                self.replicas[position] = 0
                self.totals[position] = 0
        # by index: near its end a deque finds an entry faster than an iterator passes the others
        new = [pending[i] for i in range(first, len(pending))] if first else pending
        for entry in new:
            column = self.columns.get(entry.class_key)
            if column is None:
                column = len(self.examples)
                if column == self.replicas.shape[1]:
                    return False
                self.columns[entry.class_key] = column
                self.examples.append(entry)
            total = self.totals[position] = self.totals[position] + entry.replicas
            if total > self._largest:
                self._largest = total
                if total >= SAFE and self.replicas.dtype == np.int64:
                    self.replicas = self.replicas.astype(object)
            self.replicas[position, column] += entry.replicas
        self.read[position] = len(pending)
        return True

    def _widen(self) -> None:
        """Read all clusters again, with columns for twice as many classes as are pending now. The
        columns of classes that are pending nowhere are given up, if they are more than half."""
        pending = {e.class_key: e for c in self.order for e in c.pending}
        if 2 * len(pending) < len(self.examples):
            self.examples.clear()
            self._shares.clear()
        known = {e.class_key for e in self.examples}
        self.examples += [e for key, e in pending.items() if key not in known]
        self.columns = {entry.class_key: i for i, entry in enumerate(self.examples)}
        self._clear(max(COLUMNS, 2 * len(self.examples)))
        for position, cluster in enumerate(self.order):
            self._read(position, cluster)

    # Shares

    def _shares_of(self, class_key: str, demand: Demand) -> Numbers:
        """Return what one replica of each class takes from the places of this class: (columns, 4),
        as Python integers where a product with a row may be too large."""
        shares, known, largest = self._shares.get(class_key) or (NO_SHARES, 0, 0)
        width, classes = self.replicas.shape[1], len(self.examples)
        if known < classes:
            if len(shares) < classes:
                if 4 * width * len(self._shares) >= SHARES_KEPT:
                    self._shares.clear()
                shares = np.concatenate([shares, np.zeros((width - len(shares), 4), np.int64)])
            for column in range(known, classes):
                one = _share(self.examples[column], class_key, demand)
                largest = max(largest, *one)
                if largest >= SAFE and shares.dtype == np.int64:
                    shares = shares.astype(object)
                shares[column] = one
            self._shares[class_key] = shares, classes, largest
        return shares.astype(object) if largest * self._largest >= SAFE else shares


def _nodes(cluster: ClusterState) -> int:
    return 0 if cluster.capacity is None else min(cluster.capacity.nodes, SAFE)


def _share(entry: Pending, class_key: str, demand: Demand) -> tuple[int, int, int, int]:
    """Return what one replica, or one set, of the class of `entry` takes from the places of the
    class `class_key`, as a row of shares. `demand`: what one replica of `class_key` takes."""
    if entry.class_key == class_key:
        return 1, 0, 0, 0
    parts = (
        [(demand_of(c.requirements), c.replicas) for c in entry.components if c.replicas > 0]
        if entry.components
        else [(entry.demand, 1)]
    )
    others = rounded = millionths = 0
    for taken, times in parts:
        share = proportion(taken, demand)
        if share > 0:
            others += times
            rounded += times * -(-share // WHOLE)
            millionths += times * share
    return 0, others, rounded, millionths
