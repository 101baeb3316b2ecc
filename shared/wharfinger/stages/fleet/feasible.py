"""Which clusters a placement's term admits, kept for the many bindings that share it, and mended rather than made again.

A change of one cluster's facts changes one verdict; so does holding replicas somewhere already. `patched` gives the list with a
few verdicts otherwise, and leaves the old one as it is: forks of a state share them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.stages.fleet.clusters import ClusterState
from wharfinger.stages.fleet.columns import Array

FEW_PATCHES = 32
"""More verdicts than this are put in place all at once."""

MAX_WEIGHT = 2**31
"""Weights beyond it are kept as they are, not in an array."""

Verdict = FleetReason | None
"""Why a cluster is not feasible; None: it is."""

Weigh = Callable[[Sequence[Cluster]], list[int]]
"""The static weights of some clusters."""


@dataclass(frozen=True, slots=True)
class Feasible:
    """The clusters, in order of name, that may be targets, and how many fell for which reason.

    `verdicts`: of every known cluster, by position. `clusters`, `names`, `positions` and, where the placement has static weights,
    `weights`: of the feasible ones; the last two are int64 arrays in a large fleet. `facts`, `layout`: of the state that was asked.
    """

    facts: int
    layout: int
    verdicts: list[Verdict]
    clusters: list[Cluster]
    names: list[str]
    positions: list[int] | Array
    refused: dict[str, int]
    weights: list[int] | Array | None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def all_known(self) -> bool:
        return len(self.names) == len(self.verdicts)

    def index(self, position: int) -> int:
        """Where among the feasible clusters the one at that position stands; -1: it is not feasible."""
        if position < 0 or self.verdicts[position] is not None:
            return -1
        return position if self.all_known else bisect_left(self.positions, position)

    def patched(
        self, order: Sequence[ClusterState], verdicts: Mapping[int, Verdict], weigh: Weigh | None, facts: int
    ) -> Feasible:
        """With these clusters' facts and verdicts as they are now."""
        merged = self.verdicts.copy()
        for position, verdict in verdicts.items():
            merged[position] = verdict
        if len(verdicts) > FEW_PATCHES:
            return gathered(order, merged, weigh, facts, self.layout, wide=not isinstance(self.positions, list))
        refused, clusters, names = dict(self.refused), self.clusters.copy(), self.names.copy()
        positions: list[int] | Array = (
            self.positions if isinstance(self.positions, np.ndarray) else self.positions.copy()
        )
        weights: list[int] | Array | None = self.weights.copy() if isinstance(self.weights, list) else self.weights
        for position, verdict in verdicts.items():
            before = self.verdicts[position]
            _count(refused, before, -1)
            _count(refused, verdict, 1)
            at = bisect_left(positions, position)
            if before is None:
                clusters.pop(at)
                names.pop(at)
                positions = _without(positions, at)
                weights = None if weights is None else _without(weights, at)
            if verdict is None:
                facts_now = _facts(order[position])
                clusters.insert(at, facts_now)
                names.insert(at, facts_now.name)
                positions = _with(positions, at, position)
                if weights is not None and weigh is not None:
                    weights = _with(weights, at, weigh((facts_now,))[0])
        return Feasible(facts, self.layout, merged, clusters, names, positions, refused, weights)


def gathered(
    order: Sequence[ClusterState], verdicts: list[Verdict], weigh: Weigh | None, facts: int, layout: int, *, wide: bool
) -> Feasible:
    """What the verdicts come to. `wide`: positions and weights as arrays."""
    refused: dict[str, int] = {}
    clusters: list[Cluster] = []
    found: list[int] = []
    for position, verdict in enumerate(verdicts):
        if verdict is None:
            clusters.append(_facts(order[position]))
            found.append(position)
        else:
            refused[verdict] = refused.get(verdict, 0) + 1
    weights: list[int] | Array | None = None if weigh is None else weigh(clusters)
    positions: list[int] | Array = found
    if wide:
        positions = np.array(found, np.int64)
        if weights is not None and max(weights, default=0) <= MAX_WEIGHT:
            weights = np.array(weights, np.int64)
    return Feasible(facts, layout, verdicts, clusters, [c.name for c in clusters], positions, refused, weights)


def _facts(cluster: ClusterState) -> Cluster:
    assert cluster.facts is not None, "only known clusters are laid out"
    return cluster.facts


def _count(refused: dict[str, int], verdict: Verdict, times: int) -> None:
    if verdict is not None:
        refused[verdict] = refused.get(verdict, 0) + times
        if not refused[verdict]:
            del refused[verdict]


def _without(values: list[int] | Array, at: int) -> list[int] | Array:
    if isinstance(values, list):
        values.pop(at)
        return values
    return np.delete(values, at)


def _with(values: list[int] | Array, at: int, value: int) -> list[int] | Array:
    if isinstance(values, list):
        values.insert(at, value)
        return values
    if value > MAX_WEIGHT:
        kept: list[int] = values.tolist()
        return [*kept[:at], value, *kept[at:]]
    return np.insert(values, at, value)
