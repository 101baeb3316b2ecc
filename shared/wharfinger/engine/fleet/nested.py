"""The best choice of clusters within bounds on groups that lie within each other, by table.

Zones lie in regions, regions in providers, and each level says how many of its groups may and must be used. What a region can
give depends on nothing but how many of its zones and clusters are used, so the tables of its zones are added up to one of the
region, those of the regions to one of the provider, and in the last one stands, for every number of groups of every level and
of clusters, the most that they can be worth. The clusters are read back from it. This is the knapsack over a tree, and exact.

A level without an upper bound is counted up to its lower one only: more of it does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MAX_WORK = 30_000_000
"""Additions that a table may cost."""

MAX_TRAIL = 8_000_000
"""Cells that are remembered to read the clusters back."""

AT_ONCE = 50_000
"""Additions made in one row of NumPy."""

NEVER = -1


@dataclass(frozen=True, slots=True)
class Field:
    """A constraint: `groups` int64[n] is the group of each cluster, of `count` in all, each with a cluster; `least` to `most`
    of them are to be used, None: any number."""

    groups: Ints
    count: int
    least: int
    most: int | None
    what: str = ""

    def used(self, clusters: Ints) -> int:
        """In how many groups these clusters are."""
        return int(np.count_nonzero(np.bincount(self.groups[clusters], minlength=self.count)))


def is_nested(fields: Sequence[Field]) -> bool:
    """Whether each group of a finer field lies in one group of each coarser one."""
    levels = _levels(fields)
    return all(
        len(np.unique(upper.groups * lower.count + lower.groups)) == lower.count for upper, lower in pairwise(levels)
    )


def _levels(fields: Sequence[Field]) -> list[Field]:
    """From the coarsest to the finest."""
    return sorted(fields, key=lambda f: f.count)


def _sizes(fields: Sequence[Field], least: int, most: int | None, clusters: int) -> list[int]:
    sizes = [max(f.least, 0) if f.most is None else min(f.most, f.count) for f in _levels(fields)]
    return [*sizes, least if most is None else min(most, clusters)]


def table_fits(fields: Sequence[Field], least: int, most: int | None, clusters: int) -> bool:
    """Whether the tables are small enough to be made."""
    levels, sizes = _levels(fields), _sizes(fields, least, most, clusters)
    cells = 1
    for size in sizes:
        cells *= size + 1
    bottom = levels[-1]
    members = np.minimum(np.bincount(bottom.groups, minlength=bottom.count), sizes[-1])
    steps = int(members.sum()) if most is not None else bottom.count
    for i, upper in enumerate(levels[:-1]):  # a group is used in as many ways as it has counts of what lies in it
        ways = np.minimum(np.bincount(upper.groups, minlength=upper.count), sizes[-1]) + 1
        for lower, size in zip(levels[i + 1 :], sizes[i + 1 :], strict=False):
            within = np.unique(upper.groups * lower.count + lower.groups) // lower.count
            ways = ways * (np.minimum(np.bincount(within, minlength=upper.count), size) + 1)
        steps += int(ways.sum())
    return cells * steps <= MAX_WORK and cells * sum(f.count for f in levels) <= MAX_TRAIL


def tables(fields: Sequence[Field], least: int, most: int | None, value: Ints) -> Tables:
    """`value` int64[n]: what each cluster is worth, not negative. `least` and `most`: of clusters."""
    return Tables(_levels(fields), least, most, value)


@dataclass(slots=True)
class _Sum:
    """Groups added up: `best` int64[cells] is the most that so many groups and clusters are worth, `NEVER` where there are
    not so many. `trail`: for each group added, in which way it is used in each cell (-1: not at all), and the cell before
    it."""

    best: Ints
    trail: list[tuple[_Part, Ints, Ints]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """One group and the ways to use it: `steps` int64[ways, levels + 1] is what each adds to the counts, `worth` int64[ways].
    Of a finest group the members, the best first, of which way `i` uses the first `taken[i]`; of another the sum it is made
    of, and its cells."""

    steps: Ints
    worth: Ints
    members: Ints
    taken: Ints
    inner: _Sum | None = None


class Tables:
    def __init__(self, levels: Sequence[Field], least: int, most: int | None, value: Ints) -> None:
        self._levels, self._value = levels, value
        self._least, self._bounded = least, most is not None
        sizes = _sizes(levels, least, most, len(value))
        self._sizes = np.array(sizes, dtype=np.int64)
        self._open = np.array([*(f.most is None for f in levels), most is None])
        self._counts = np.indices(tuple(s + 1 for s in sizes)).reshape(len(sizes), -1).T.astype(np.int64)
        self._strides = np.array([int(np.prod(self._sizes[i + 1 :] + 1)) for i in range(len(sizes))], dtype=np.int64)
        self._whole = self._sum(0, np.arange(len(value)))

    def fewest(self, room: int, weight: int) -> int | None:
        """The cell that is worth `room` beside its multiples of `weight`: most of these, then the fewest groups, the coarsest
        first, then the most room."""
        worth = self._whole.best
        held, left = (worth // weight, worth % weight) if weight else (np.zeros_like(worth), worth)
        found = np.flatnonzero(self._kept() & (left >= room))
        if not len(found):
            return None
        keys = [-left[found], *(self._counts[found, i] for i in reversed(range(len(self._levels)))), -held[found]]
        return int(found[np.lexsort(keys)[0]])

    def pick(self, cell: int | None) -> Ints | None:
        """The clusters that a cell counts."""
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
        """One group more, used in any one way or not at all. Ties: not at all, then the first way."""
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
