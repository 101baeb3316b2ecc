"""Finds the best set of clusters under bounds on nested groups (zones in regions, regions in
providers): tree knapsack by dynamic programming. Exact.

Each level has a minimum and a maximum number of groups. The best value of a region depends only on
how many of its zones and clusters are used. So the tables of zones are merged into the table of
their region, those of regions into their provider. The last table has the largest value for every
combination of numbers of groups and clusters. The chosen clusters are found by going back through
the tables.

A level without a maximum is counted up to its minimum only, because more is always allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MAX_WORK = 30_000_000
"""Maximum number of additions for one table."""

MAX_TRAIL = 8_000_000
"""Maximum number of cells that are kept to find the chosen clusters again."""

AT_ONCE = 50_000
"""How many additions one NumPy operation does."""

NEVER = -1


@dataclass(frozen=True, slots=True)
class Field:
    """Holds one constraint with the groups it applies to.

    `groups`: int64[n], the group of each cluster, from 0 to `count` - 1; no group is empty.
    `count`: the number of groups.
    `least`, `most`: how many groups must and may be used; `most` None: no maximum.
    `what`: the plural of the field, for messages.
    """

    groups: Ints
    count: int
    least: int
    most: int | None
    what: str = ""

    def used(self, clusters: Ints) -> int:
        """Returns the number of groups that the clusters at these indexes are in."""
        return int(np.count_nonzero(np.bincount(self.groups[clusters], minlength=self.count)))


def is_nested(fields: Sequence[Field]) -> bool:
    """Returns whether the fields form a hierarchy: each group of a finer field is inside one group
    of each coarser field."""
    levels = _levels(fields)
    return all(
        len(np.unique(upper.groups * lower.count + lower.groups)) == lower.count
        for upper, lower in pairwise(levels)
    )


def _levels(fields: Sequence[Field]) -> list[Field]:
    """Sorts the fields from the coarsest (fewest groups) to the finest."""
    return sorted(fields, key=lambda f: f.count)


def _sizes(fields: Sequence[Field], least: int, most: int | None, clusters: int) -> list[int]:
    sizes = [max(f.least, 0) if f.most is None else min(f.most, f.count) for f in _levels(fields)]
    return [*sizes, least if most is None else min(most, clusters)]


def table_fits(fields: Sequence[Field], least: int, most: int | None, clusters: int) -> bool:
    """Returns whether the dynamic-programming tables for these bounds are small enough: at most
    `MAX_WORK` additions and at most `MAX_TRAIL` stored cells.

    `fields`: one per level of nested groups, such as zones in regions, with the group of each
      cluster and the minimum and maximum number of groups.
    `least`, `most`: bounds of the number of selected clusters; `most` None: no maximum.
    `clusters`: the number of clusters to select from.

    A cell is one combination of numbers: how many groups of each level, and how many clusters, are
    used. A group can be used with different numbers of the groups and clusters inside it; each
    combination of these numbers is one alternative. The estimate is additions = cells *
    alternatives, with the alternatives summed over all groups, and stored cells = cells * groups.
    """
    levels, sizes = _levels(fields), _sizes(fields, least, most, clusters)
    cells = 1
    for size in sizes:
        cells *= size + 1
    bottom = levels[-1]
    members = np.minimum(np.bincount(bottom.groups, minlength=bottom.count), sizes[-1])
    steps = int(members.sum()) if most is not None else bottom.count
    for i, upper in enumerate(levels[:-1]):
        # a group is used in as many ways as it has counts of what lies in it
        ways = np.minimum(np.bincount(upper.groups, minlength=upper.count), sizes[-1]) + 1
        for lower, size in zip(levels[i + 1 :], sizes[i + 1 :], strict=False):
            within = np.unique(upper.groups * lower.count + lower.groups) // lower.count
            ways = ways * (np.minimum(np.bincount(within, minlength=upper.count), size) + 1)
        steps += int(ways.sum())
    return cells * steps <= MAX_WORK and cells * sum(f.count for f in levels) <= MAX_TRAIL


def tables(fields: Sequence[Field], least: int, most: int | None, value: Ints) -> ClusterTables:
    """Builds the dynamic-programming tables. `value`: int64[n], the value of each cluster, at least
    0. `least` and `most` bound the number of clusters; `most` None: no maximum."""
    return ClusterTables(_levels(fields), least, most, value)


@dataclass(slots=True)
class _Sum:
    """Holds the table for several groups together. A *cell* is one combination of a number of used
    groups per level and a number of clusters.

    `best`: int64[cells], the largest value in each cell; `NEVER`: the combination is impossible.
    `trail`: for each group that was added, the way in which it is used in each cell (-1: it is not
    used), and the previous cell.
    """

    best: Ints
    trail: list[tuple[_Part, Ints, Ints]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """Holds one group and the ways to use it.

    `steps`: int64[ways, levels + 1], how much each way adds to the number of groups per level and
      to the number of clusters.
    `worth`: int64[ways], the value of each way.
    `members`, `taken`: for a group of the finest level, its clusters, best first; way `i` uses the
      first `taken[i]` of them.
    `inner`: for a group of another level, the table of the groups inside; way `i` is its cell
      `taken[i]`. None at the finest level.
    """

    steps: Ints
    worth: Ints
    members: Ints
    taken: Ints
    inner: _Sum | None = None


class ClusterTables:
    def __init__(self, levels: Sequence[Field], least: int, most: int | None, value: Ints) -> None:
        self._levels, self._value = levels, value
        self._least, self._bounded = least, most is not None
        sizes = _sizes(levels, least, most, len(value))
        self._sizes = np.array(sizes, dtype=np.int64)
        self._open = np.array([*(f.most is None for f in levels), most is None])
        self._counts = (
            np.indices(tuple(s + 1 for s in sizes)).reshape(len(sizes), -1).T.astype(np.int64)
        )
        self._strides = np.array(
            [int(np.prod(self._sizes[i + 1 :] + 1)) for i in range(len(sizes))], dtype=np.int64
        )
        self._whole = self._sum(0, np.arange(len(value)))

    def fewest(self, room: int, weight: int) -> int | None:
        """Returns the index of the best cell that satisfies all minimums, in the table for all
        clusters together. None: no cell satisfies all minimums. A cell is one combination of
        numbers: how many groups of each level, and how many clusters, are selected. The value of a
        cell is the largest sum of cluster values of a selection with these numbers.

        `weight`: the number that the caller has added to the value of every preferred cluster; 0:
          no cluster is preferred. So value // weight is the number of preferred clusters in a cell,
          and value % weight is the value without that addition.
        `room`: the minimum of the value without that addition. If the values are capacities, `room`
          is the number of replicas to place.

        Cells are compared first by the number of preferred clusters (most), then by the number of
        groups (fewest; the coarsest level first), then by the value without the addition (largest).

        Example: weight 100. Values 205 and 130 stand for 2 preferred clusters with value 5 and for
        1 with value 30. With `room` 5 the first is better; with `room` 10 only the second
        qualifies.
        """
        worth = self._whole.best
        held, left = (worth // weight, worth % weight) if weight else (np.zeros_like(worth), worth)
        found = np.flatnonzero(self._kept() & (left >= room))
        if not len(found):
            return None
        keys = [
            -left[found],
            *(self._counts[found, i] for i in reversed(range(len(self._levels)))),
            -held[found],
        ]
        return int(found[np.lexsort(keys)[0]])

    def pick(self, cell: int | None) -> Ints | None:
        """Returns the indexes of the clusters that make up a cell; None for None."""
        return None if cell is None else np.array(self._read(self._whole, cell), dtype=np.int64)

    def _kept(self) -> npt.NDArray[np.bool_]:
        kept: npt.NDArray[np.bool_] = self._whole.best != NEVER
        kept &= self._counts[:, -1] >= self._least
        for i, level in enumerate(self._levels):
            kept &= self._counts[:, i] >= level.least
        kept[0] = False
        return kept

    def _sum(self, level: int, within: Ints) -> _Sum:
        out = _Sum(np.full(len(self._counts), NEVER, dtype=np.int64))
        out.best[0] = 0
        groups = self._levels[level].groups[within]
        order = np.argsort(groups, kind="stable")
        for members in np.split(within[order], np.flatnonzero(np.diff(groups[order])) + 1):
            self._add(out, self._part(level, members))
        return out

    def _part(self, level: int, members: Ints) -> _Part:
        if level + 1 < len(self._levels):
            inner = self._sum(level + 1, members)
            cells = np.flatnonzero(inner.best != NEVER)[1:]
            steps = self._counts[cells].copy()
            steps[:, level] = 1
            return _Part(steps, inner.best[cells], members, cells, inner)
        best_first = members[np.argsort(-self._value[members], kind="stable")]
        most = min(len(members), int(self._sizes[-1])) if self._bounded else len(members)
        taken = np.arange(1, most + 1) if self._bounded else np.array([most])
        steps = np.zeros((len(taken), len(self._sizes)), dtype=np.int64)
        steps[:, level] = 1
        steps[:, -1] = taken
        return _Part(steps, np.cumsum(self._value[best_first])[taken - 1], best_first, taken)

    def _add(self, out: _Sum, part: _Part) -> None:
        """Merges one more group into the table `out`, in place. This is one step of a
        multiple-choice knapsack.

        A cell of the table is one combination of numbers: how many groups of each level, and how
        many clusters, are used. It stores the largest value of a selection with these numbers.
        `part` is the group with its alternatives: each alternative adds fixed numbers of groups and
        clusters, and a value. At most one alternative of the group is used.

        For every cell the largest value is kept. Ties: the group is not used; otherwise the first
        alternative. For each cell, `out.trail` gets the alternative that was used (-1: the group is
        not used) and the previous cell, so that `_read` can find the clusters. At most about
        `AT_ONCE` additions are done in one NumPy operation, to bound memory.

        Example: the value of the cell (1 zone, 1 cluster) is 5. A zone with one alternative, 1
        cluster of value 7, makes it 7, and the cell (2 zones, 2 clusters) gets 5 + 7 = 12.
        """
        way = np.full(len(out.best), -1, dtype=np.int64)
        before = np.arange(len(out.best))
        best = out.best.copy()
        reached = np.flatnonzero(out.best != NEVER)
        ways = max(1, AT_ONCE // len(reached))
        for first in range(0, len(part.worth), ways):
            some = slice(first, first + ways)
            then = self._counts[reached] + part.steps[some, None]
            then = np.where(self._open, np.minimum(then, self._sizes), then)
            total = out.best[reached] + part.worth[some, None]
            cell = (then * self._strides).sum(axis=2)
            cell[(then > self._sizes).any(axis=2)] = 0
            better = np.flatnonzero(total > best[cell])
            better = better[cell.flat[better] > 0]
            # Where several lead to one cell the best, and of equals the first, is written last.
            better = better[::-1][np.argsort(total.flat[better[::-1]], kind="stable")]
            to = cell.flat[better]
            best[to], way[to], before[to] = (
                total.flat[better],
                first + better // len(reached),
                reached[better % len(reached)],
            )
        out.best = best
        out.trail.append((part, way, before))

    def _read(self, total: _Sum, cell: int) -> list[int]:
        chosen: list[int] = []
        for part, way, before in reversed(total.trail):
            i = int(way[cell])
            if i < 0:
                continue
            if part.inner is None:
                chosen += part.members[: int(part.taken[i])].tolist()
            else:
                chosen += self._read(part.inner, int(part.taken[i]))
            cell = int(before[cell])
        return chosen
