"""Which clusters spread constraints choose, of thousands that lie in columns: `assign.selected` without an object a cluster.

What groups the clusters lie in is read once for many bindings (`Grouping`); ranking them and choosing are array operations, and
only the chosen become candidates. The choice itself is `spread.choose`, as for few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import LOCALITY, Candidate, Unselectable, groups_of
from wharfinger.engine.fleet.spread import MOST, Columns, choose

Array = NDArray[np.int64]

AVAILABLE_MAX = 2**40
"""What is held on top of an estimate is not so much that a rank would leave 64 bits."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """`numbers` int64[clusters]: the group of one constraint that each cluster lies in, numbered in order of name (not every
    number need be used). `known`: the numbers of the names."""

    constraint: SpreadConstraint
    numbers: Array
    known: dict[str, int]

    def without(self, at: int) -> Grouping:
        return Grouping(self.constraint, np.delete(self.numbers, at), self.known)

    def with_one(self, at: int, cluster: Cluster) -> Grouping | None:
        """None: it is in a group that has no number yet, or in several."""
        own = groups_of(cluster, self.constraint)
        if len(own) != 1 or own[0] not in self.known:
            return None
        return Grouping(self.constraint, np.insert(self.numbers, at, self.known[own[0]]), self.known)


def groupings(placement: Placement, clusters: Sequence[Cluster]) -> tuple[Grouping, ...] | None:
    """For each constraint that is not by cluster. None: some cluster counts for one of several zones, and for which depends on the
    others."""
    found: list[Grouping] = []
    for constraint in placement.spread:
        if constraint.field == "cluster":
            continue
        names = [groups_of(c, constraint) for c in clusters]
        if any(len(own) != 1 for own in names):
            return None
        known = {name: i for i, name in enumerate(sorted({own[0] for own in names}))}
        found.append(Grouping(constraint, np.array([known[own[0]] for own in names], np.int64), known))
    return tuple(found)


def pick(
    placement: Placement,
    clusters: Sequence[Cluster],
    names: Sequence[str],
    estimates: Array,
    held: Mapping[str, int],
    replicas: int,
    groups: Sequence[Grouping],
    *,
    fresh: bool = False,
) -> tuple[list[Candidate], list[int]] | Unselectable:
    """The chosen in rank order, and which they are. `clusters`, `names`, `estimates` and `groups` in order of name."""
    size = len(names)
    available, holds = estimates.copy(), np.zeros(size, np.bool_)
    for name, n in held.items():
        at = bisect_left(names, name)
        if at < size and names[at] == name:
            holds[at] = True
            available[at] = min(int(available[at]) + n, AVAILABLE_MAX)
    ranks = (available + np.where(holds, 2 * AVAILABLE_MAX, 0)) * size + np.arange(size - 1, -1, -1)
    order = np.argsort(-ranks)  # no two are equal, so any way of sorting them is the same
    columns = Columns(holds[order], np.minimum(available[order], MOST), tuple(g.numbers[order] for g in groups))
    chosen = choose(columns, placement, replicas, fresh=fresh)
    if isinstance(chosen, Unselectable):
        return chosen
    indexes: list[int] = order[chosen].tolist()
    return [
        Candidate(names[i], LOCALITY if holds[i] else 0, int(available[i]), clusters[i].region, 0, clusters[i])
        for i in indexes
    ], indexes
