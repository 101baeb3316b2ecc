"""Holds the pending replicas of all clusters as one matrix, to bound how many places they take.

A replica is pending while it is decided and no count of its cluster includes it. It may run on any
node, so it may take the place of replicas of other classes (see `engine.fleet.displacement`, which
defines the bound). The matrix has a row for each cluster and a column for each class with pending
replicas. The bound for a class is one product of the matrix with the shares of a place that each
class takes.

Cost: a question about n clusters compares n rows with their clusters in Python, then multiplies
n * classes numbers in arrays. A decision adds its entries to the rows; after a new count, a row is
read again from the entries that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wharfinger.engine.fleet.displacement import WHOLE, Displaced
from wharfinger.engine.fleet.estimate import Demand
from wharfinger.stages.fleet.state.clusters import PENDING, ClusterState, Pending

COLUMNS = 16
"""The least number of columns."""

MANY = 16
"""So many entries or more are added by one assignment."""

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
    `nodes`: (clusters,), how many nodes a cluster had in its last count.
    `read`: (clusters,), how many entries of `pending` are in the row. `generations`: (clusters,),
    the generation of the cluster when its row was read; -1: never. A row where one of the two
    differs from its cluster is read again before it is used.
    """

    order: Sequence[ClusterState]
    columns: dict[str, int] = field(default_factory=dict)
    examples: list[Pending] = field(default_factory=list)
    replicas: Numbers = field(init=False)
    nodes: NDArray[np.int64] = field(init=False)
    read: NDArray[np.int64] = field(init=False)
    generations: NDArray[np.int64] = field(init=False)
    _all: list[int] = field(init=False)
    """All positions."""
    _largest: int = 0
    """An upper bound of the sum of any row. It grows with each decision, and is computed again
    where it matters."""
    _shares: dict[str, tuple[Numbers, int, int]] = field(default_factory=dict)
    """Class -> (its shares, how many columns they have, the largest of them)."""

    def __post_init__(self) -> None:
        self._all = [*range(len(self.order))]
        self._clear(COLUMNS)

    def _clear(self, columns: int) -> None:
        clusters = len(self.order)
        self.replicas = np.zeros((clusters, columns), np.int64)
        self.nodes, self.read = np.zeros((2, clusters), np.int64)
        self.generations = np.full(clusters, -1, np.int64)
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
        if isinstance(at, list):
            return self._places_of_few(class_key, demand, at)
        positions = at.tolist()
        some = [i for i, position in enumerate(positions) if self.order[position].pending]
        found = np.zeros(len(positions), np.int64)
        if some:
            places = self._places(class_key, demand, [positions[i] for i in some])
            found[some] = [min(n, SAFE) for n in places]
        return found

    def _places_of_few(self, class_key: str, demand: Demand, at: list[int]) -> list[int]:
        """As `places_taken`. For few clusters a product over all of them costs less than it takes
        to choose those with pending replicas."""
        clusters = [self.order[position] for position in at]
        if not any(map(PENDING, clusters)):
            return [0] * len(at)
        self._catch_up(at, clusters)
        sums, nodes = self._sums(class_key, demand, at)
        found: list[int] = []
        for cluster, (same, others, rounded, millionths), most in zip(
            clusters, sums.tolist(), nodes.tolist(), strict=True
        ):
            # conditions, which are faster than `min`: this is done for each cluster of a decision
            bound = -(-millionths // WHOLE) + (others if others < most else most)
            taken = same + (rounded if rounded < bound else bound)
            found.append(taken if cluster.pending else 0)
        return found

    def _places(self, class_key: str, demand: Demand, at: list[int]) -> list[int]:
        """`at`: of clusters with pending replicas."""
        self._catch_up(at, [self.order[position] for position in at])
        sums, nodes = self._sums(class_key, demand, at)
        most = np.minimum(sums[:, OTHERS], nodes) - (-sums[:, MILLIONTHS] // WHOLE)
        taken = sums[:, SAME] + np.minimum(sums[:, ROUNDED], most)
        numbers: list[int] = taken.tolist()
        return numbers

    def _sums(
        self, class_key: str, demand: Demand, at: list[int]
    ) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the sums of the shares of all pending replicas, (clusters, 4), and how many nodes
        each cluster had: of the clusters at these positions, whose rows are current."""
        shares = self._shares_of(class_key, demand)[: len(self.examples)]
        rows, nodes = self.replicas, self.nodes
        if at != self._all:
            rows, nodes = rows[at], nodes[at]
        return rows[:, : len(shares)] @ shares, nodes  # any order: integers

    # Rows

    def add(self, entries: Sequence[Pending], at: Sequence[int]) -> None:
        """Add the last entry of `pending` of these clusters, which have just got it: `entries[i]`
        for the cluster at `at[i]`, all of one class. A row that is not current stays so, unless
        this is its only entry. Where the class has no column and none is left, the rows are not
        current afterwards."""
        column = self._column(entries[0])
        if column is None:
            return
        most = max([entry.replicas for entry in entries])
        self._limit(self._largest + most)
        self._largest += most
        first = [i for i in at if len(self.order[i].pending) == 1]
        if first:
            self._begin(first, [self.order[i] for i in first])
            self.read[first] = 0
        if len(at) < MANY:
            for entry, position in zip(entries, at, strict=True):
                self.replicas[position, column] += entry.replicas
                self.read[position] += 1
        else:
            grown = np.array([entry.replicas for entry in entries], self.replicas.dtype)
            self.replicas[at, column] += grown
            self.read[at] += 1

    def _begin(self, at: list[int], clusters: Sequence[ClusterState]) -> None:
        """Make these rows current and empty."""
        self.generations[at] = [cluster.generation for cluster in clusters]
        self.nodes[at] = [
            0 if c.capacity is None else min(c.capacity.nodes, SAFE) for c in clusters
        ]
        self.replicas[at] = 0

    def _catch_up(self, at: list[int], clusters: Sequence[ClusterState]) -> None:
        """Read the rows of these clusters again that are not current, where something is pending.
        `clusters[i]` is at `at[i]`."""
        reads, generations = self.read, self.generations
        if at != self._all:
            reads, generations = reads[at], generations[at]
        stale = [
            position
            for position, cluster, read, generation in zip(
                at, clusters, reads.tolist(), generations.tolist(), strict=True
            )
            if cluster.pending
            and (cluster.generation != generation or len(cluster.pending) != read)
        ]
        if stale and not self._read(stale):
            self._widen(at)

    def _read(self, at: list[int]) -> bool:
        """Read the rows of these clusters. Return False, with some of them read, where a class has
        no column and there is none left."""
        clusters = [self.order[position] for position in at]
        self._begin(at, clusters)
        self.read[at] = [len(cluster.pending) for cluster in clusters]
        for position, cluster in zip(at, clusters, strict=True):
            if not cluster.pending:
                continue
            totals: dict[int, int] = {}
            for entry in cluster.pending:
                column = self._column(entry)
                if column is None:
                    return False
                totals[column] = totals.get(column, 0) + entry.replicas
            total = sum(totals.values())
            self._limit(total)
            self._largest = max(self._largest, total)
            for column, replicas in totals.items():
                self.replicas[position, column] = replicas
        return True

    def _column(self, entry: Pending) -> int | None:
        """Return the column of the class of an entry; None: it has none and none is left."""
        column = self.columns.get(entry.class_key)
        if column is None and len(self.examples) < self.replicas.shape[1]:
            column = self.columns[entry.class_key] = len(self.examples)
            self.examples.append(entry)
        return column

    def _limit(self, total: int) -> None:
        """Use Python integers from now on, where int64 may not hold the sum of a row."""
        if total >= SAFE and self.replicas.dtype == np.int64:
            self.replicas = self.replicas.astype(object)

    def _widen(self, at: list[int]) -> None:
        """Make columns for twice as many classes, and read the rows of these clusters; the others
        are read when they are asked for. Where few of the classes are pending in these clusters,
        all columns are given up instead: most classes may be pending nowhere."""
        pending = {entry.class_key for i in at for entry in self.order[i].pending}
        width = self.replicas.shape[1]
        if 4 * len(pending) <= len(self.examples):
            self.examples.clear()
            self.columns.clear()
            self._shares.clear()
        else:
            width = 2 * max(width, len(pending))
        self._clear(width)
        self._read(at)

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
        if largest * self._largest >= SAFE:
            self._largest = int(self.replicas.sum(axis=1).max())
            if largest * self._largest >= SAFE:
                return shares.astype(object)
        return shares


def _share(entry: Pending, class_key: str, demand: Demand) -> tuple[int, int, int, int]:
    """Return what one replica, or one set, of the class of `entry` takes from the places of the
    class `class_key`, as a row of shares. `demand`: what one replica of `class_key` takes."""
    taken = Displaced()
    if entry.class_key == class_key:
        taken.same = 1
    elif entry.components:
        taken.add_sets(entry.components, demand, 1)
    else:
        taken.add(entry.demand, demand, 1)
    return taken.same, taken.others, taken.rounded, taken.millionths
