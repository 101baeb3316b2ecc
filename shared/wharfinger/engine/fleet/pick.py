"""Selects clusters by spread constraints in large fleets. It does the same as `assign.selected`,
over columns of thousands of clusters and without a Python object for each.

The groups of clusters are read once for many bindings (`Grouping`). Ranking and selection are array
operations, and only the selected clusters become candidates. The selection itself is
`spread.choose`, as for small fleets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import LOCALITY, ClusterCandidate, Unselectable, groups_of
from wharfinger.engine.fleet.spread import MOST, Columns, choose

Array = NDArray[np.int64]

AVAILABLE_MAX = 2**40
"""Upper bound for the capacity of a cluster, so that no rank exceeds 64 bits."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Holds the groups of all clusters under one constraint. `numbers`: int64[clusters], the number
    of each cluster's group; groups are numbered in order of name, and a number may be unused.
    `known`: name of a group -> number."""

    constraint: SpreadConstraint
    numbers: Array
    known: dict[str, int]

    def without(self, at: int) -> Grouping:
        return Grouping(self.constraint, np.delete(self.numbers, at), self.known)

    def with_one(self, at: int, cluster: Cluster) -> Grouping | None:
        """Returns the grouping with one more cluster at index `at`. None: the cluster is in no
        group, in several, or in a group that has no number yet; then all groups must be read
        again."""
        own = groups_of(cluster, self.constraint)
        if len(own) != 1 or own[0] not in self.known:
            return None
        return Grouping(
            self.constraint, np.insert(self.numbers, at, self.known[own[0]]), self.known
        )


def groupings(placement: Placement, clusters: Sequence[Cluster]) -> tuple[Grouping, ...] | None:
    """Reads the group of every cluster (its region, its zone, its provider or its value of a
    label), for each spread constraint that is not by cluster. Returns one `Grouping` for each of
    these constraints, in which groups are numbered in order of name.

    Returns None if some cluster is in no group or in several groups of a constraint. The group that
    this cluster is assigned to depends on the other clusters of a decision, so it cannot be stored
    once for all bindings.

    Example: regions us, eu, us give the numbers [1, 0, 1].
    """
    found: list[Grouping] = []
    for constraint in placement.spread:
        if constraint.field == "cluster":
            continue
        names = [groups_of(c, constraint) for c in clusters]
        if any(len(own) != 1 for own in names):
            return None
        known = {name: i for i, name in enumerate(sorted({own[0] for own in names}))}
        found.append(
            Grouping(constraint, np.array([known[own[0]] for own in names], np.int64), known)
        )
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
) -> tuple[list[ClusterCandidate], list[int]] | Unselectable:
    """Ranks the feasible clusters of a large fleet and selects those that the replicas will be
    divided over, so that the spread constraints hold. This is the array version of
    `assign.selected`.

    Clusters that hold replicas rank first, then clusters with the largest capacity (replicas that
    still fit plus replicas held), then by name.

    `clusters`, `names`: the feasible clusters, in order of name.
    `estimates`: int64[clusters], how many more replicas fit into each.
    `held`: cluster -> replicas that the binding holds.
    `replicas`: how many replicas are wanted in all.
    `groups`: for each constraint that is not by cluster, the number of each cluster's group (such
      as its region).
    `fresh`: all replicas will be divided again, so no cluster has to be kept because it holds some.
      The ranking is not changed by it.

    Returns two parts: the selected clusters in rank order, and the indexes of these clusters in
    `names`. Returns Unselectable if no selection satisfies the constraints.
    """
    size = len(names)
    available, holds = estimates.copy(), np.zeros(size, np.bool_)
    for name, n in held.items():
        at = bisect_left(names, name)
        if at < size and names[at] == name:
            holds[at] = True
            available[at] = min(int(available[at]) + n, AVAILABLE_MAX)
    ranks = (available + np.where(holds, 2 * AVAILABLE_MAX, 0)) * size + np.arange(size - 1, -1, -1)
    order = np.argsort(-ranks)  # no two are equal, so any way of sorting them is the same
    columns = Columns(
        holds[order], np.minimum(available[order], MOST), tuple(g.numbers[order] for g in groups)
    )
    chosen = choose(columns, placement, replicas, fresh=fresh)
    if isinstance(chosen, Unselectable):
        return chosen
    indexes: list[int] = order[chosen].tolist()
    return [
        ClusterCandidate(
            names[i],
            LOCALITY if holds[i] else 0,
            int(available[i]),
            clusters[i].region,
            0,
            clusters[i],
        )
        for i in indexes
    ], indexes
