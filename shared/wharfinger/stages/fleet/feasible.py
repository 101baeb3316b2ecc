"""Which clusters a placement's term admits, kept for the many bindings that share it, and mended rather than made again.

A change of one cluster's facts changes one verdict; so does holding replicas somewhere already. `patched` gives the list with a
few verdicts otherwise, and leaves the old one as it is: forks of a state share them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.engine.fleet.assign import static_weights
from wharfinger.engine.fleet.candidates import groups_of
from wharfinger.engine.fleet.pick import Grouping, groupings
from wharfinger.engine.fleet.select import constrained
from wharfinger.stages.fleet.clusters import ClusterState
from wharfinger.stages.fleet.columns import Array

FEW_PATCHES = 32
"""More verdicts than this are put in place all at once."""

MAX_WEIGHT = 2**31
"""Weights beyond it are kept as they are, not in an array."""

Verdict = FleetReason | None
"""Why a cluster is not feasible; None: it is."""


@dataclass(frozen=True, slots=True)
class Feasible:
    """The clusters, in order of name, that may be targets, and how many fell for which reason.

    `verdicts`: of every known cluster, by position. `clusters`, `names`, `positions` and, where the placement has static weights,
    `weights`: of the feasible ones; the last two are int64 arrays in a large fleet. `groups`: there, where spread constraints
    choose. `facts`, `layout`: of the state that was asked. `choice`: stays the same object as long as whoever holds nothing is
    offered the same clusters, alike in all that a choice looks at.
    """

    facts: int
    layout: int
    verdicts: list[Verdict]
    clusters: list[Cluster]
    names: list[str]
    positions: list[int] | Array
    refused: dict[str, int]
    weights: list[int] | Array | None
    groups: tuple[Grouping, ...] | None = None
    choice: object = field(default_factory=object)

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
        self, order: Sequence[ClusterState], verdicts: Mapping[int, Verdict], placement: Placement, facts: int
    ) -> Feasible:
        """With these clusters' facts and verdicts as they are now."""
        merged = self.verdicts.copy()
        for position, verdict in verdicts.items():
            merged[position] = verdict
        if len(verdicts) > FEW_PATCHES:
            return gathered(order, merged, placement, facts, self.layout, wide=not isinstance(self.positions, list))
        refused, clusters, names = dict(self.refused), self.clusters.copy(), self.names.copy()
        positions: list[int] | Array = (
            self.positions if isinstance(self.positions, np.ndarray) else self.positions.copy()
        )
        weights: list[int] | Array | None = self.weights.copy() if isinstance(self.weights, list) else self.weights
        groups, choice = self.groups, self.choice
        for position, verdict in verdicts.items():
            before = self.verdicts[position]
            _count(refused, before, -1)
            _count(refused, verdict, 1)
            if before is not None and verdict is not None:
                continue
            at, now = bisect_left(positions, position), _facts(order[position])
            if before is None and verdict is None and _alike(placement, clusters[at], now):
                clusters[at] = now
                continue
            choice = object()
            if before is None:
                clusters.pop(at)
                names.pop(at)
                positions = _without(positions, at)
                weights = None if weights is None else _without(weights, at)
                groups = None if groups is None else tuple([g.without(at) for g in groups])
            if verdict is None:
                clusters.insert(at, now)
                names.insert(at, now.name)
                positions = _with(positions, at, position)
                weights = None if weights is None else _with(weights, at, static_weights(placement, (now,))[0])
                groups = None if groups is None else _with_one(groups, at, now)
        if groups is None and isinstance(positions, np.ndarray):
            groups = _groups(placement, clusters)
        return Feasible(facts, self.layout, merged, clusters, names, positions, refused, weights, groups, choice)


def gathered(
    order: Sequence[ClusterState],
    verdicts: list[Verdict],
    placement: Placement,
    facts: int,
    layout: int,
    *,
    wide: bool,
) -> Feasible:
    """What the verdicts come to. `wide`: positions and weights as arrays."""
    refused: dict[str, int] = {}
    found: list[int] = []
    for position, verdict in enumerate(verdicts):
        if verdict is None:
            found.append(position)
        else:
            refused[verdict] = refused.get(verdict, 0) + 1
    clusters = [_facts(order[i]) for i in found]
    weights: list[int] | Array | None = static_weights(placement, clusters) if _weighed(placement) else None
    positions: list[int] | Array = found
    if wide:
        positions = np.array(found, np.int64)
        if weights is not None and max(weights, default=0) <= MAX_WEIGHT:
            weights = np.array(weights, np.int64)
    groups = _groups(placement, clusters) if wide else None
    return Feasible(facts, layout, verdicts, clusters, [c.name for c in clusters], positions, refused, weights, groups)


def _weighed(placement: Placement) -> bool:
    scheduling = placement.replicas
    return scheduling.type == "Divided" and scheduling.preference == "Weighted" and not scheduling.dynamic


def _alike(placement: Placement, before: Cluster, now: Cluster) -> bool:
    """Whether a cluster that was feasible and is has nothing else that a choice looks at."""
    if _weighed(placement) and static_weights(placement, (before,)) != static_weights(placement, (now,)):
        return False
    if any(term.overflow for term in placement.affinities):
        return False
    return all(groups_of(before, c) == groups_of(now, c) for c in placement.spread)


def _groups(placement: Placement, clusters: Sequence[Cluster]) -> tuple[Grouping, ...] | None:
    """Where clusters are chosen by their groups, and by nothing else that looks at each."""
    plain = constrained(placement) and not placement.strict and not placement.replicas.limits
    return groupings(placement, clusters) if plain else None


def _with_one(groups: tuple[Grouping, ...], at: int, cluster: Cluster) -> tuple[Grouping, ...] | None:
    found = [g.with_one(at, cluster) for g in groups]
    return tuple([g for g in found if g is not None]) if all(found) else None


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
