"""Stores the clusters that pass the filters for one affinity term, cached for all bindings with the
same placement.

A change of one cluster's facts, or replicas held in a cluster, changes single verdicts. `patched`
returns a copy with these verdicts changed and leaves the original as it is, because copies of a
state share it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.engine.fleet.candidates import groups_of
from wharfinger.engine.fleet.pick import Grouping, groupings
from wharfinger.engine.fleet.properties import VERDICTS, ClusterProperties
from wharfinger.engine.fleet.select import constrained
from wharfinger.engine.fleet.webster import Array
from wharfinger.engine.fleet.weights import MAX_WEIGHT, static_weights
from wharfinger.rules.clusters.rule import ClusterQuery

FEW_PATCHES = 32
"""Up to this number of verdicts are changed one by one; for more, the result is built again."""

Verdict = FleetReason | None
"""The reason why a cluster is not feasible; None: it is feasible."""


class Known(Protocol):
    """Describes a known cluster of the caller's own type. Only `facts` is read. It is not None for
    the clusters that are passed to `build` and `patched`."""

    facts: Cluster | None


@dataclass(slots=True)
class Plain:
    """Implements `Known` with the cluster's facts only."""

    facts: Cluster | None


@dataclass(frozen=True, slots=True)
class Feasible:
    """Holds the feasible clusters of one affinity term in order of name, and how many others were
    refused for each reason. A *position* is an index into all known clusters, an *index* one into
    the feasible clusters.

    `verdicts`: one for every known cluster, by position.
    `clusters`, `names`, `positions`: one entry for each feasible cluster. `weights`: their static
      weights; None: the placement has none. In a large fleet, `positions` and `weights` are int64
      arrays.
    `refused`: reason -> number of clusters.
    `groups`: the groups under each spread constraint; None in a small fleet and where clusters are
      selected one by one.
    `facts`, `layout`: the versions of the state from which this was made.
    `choice`: an identity token. It stays the same object as long as a binding without replicas
      would get the same candidates with equal properties.
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
        """Returns the index, among the feasible clusters, of the cluster at `position` among all
        known clusters. -1: it is not feasible."""
        if position < 0 or self.verdicts[position] is not None:
            return -1
        return position if self.all_known else bisect_left(self.positions, position)

    def at(self, name: str) -> int:
        """Returns the index, among the feasible clusters, of the cluster with this name, by binary
        search. -1: it is not feasible. The clusters must be in order of name."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else -1

    def patched(
        self,
        order: Sequence[Known],
        verdicts: Mapping[int, Verdict],
        placement: Placement,
        facts: int,
    ) -> Feasible:
        """Returns a copy of the feasible clusters after the filter results of some clusters have
        changed. The original is unchanged.

        `order`: all known clusters, in order of name.
        `verdicts`: position in `order` -> new verdict: the reason why the cluster is not feasible,
          or None if it is feasible. The properties of these clusters, such as labels and region,
          are read again too.
        `placement`: gives the static weights and the spread constraints.
        `facts`: the version number of the facts about all clusters; only stored in the copy.

        Up to `FEW_PATCHES` verdicts are changed one by one, in copies of the lists. For more
        verdicts, everything is built again.

        `Feasible.choice` is a token that callers compare to see whether the candidates are the
        same. The copy keeps it, unless a cluster becomes feasible, stops being feasible, or changes
        its static weight or its group under a spread constraint. The token is also new if
        everything is built again, or if the placement has overflow groups and a feasible cluster
        changes.
        """
        merged = self.verdicts.copy()
        for position, verdict in verdicts.items():
            merged[position] = verdict
        if len(verdicts) > FEW_PATCHES:
            return build(
                order,
                merged,
                placement,
                facts,
                self.layout,
                wide=not isinstance(self.positions, list),
            )
        refused, clusters, names = dict(self.refused), self.clusters.copy(), self.names.copy()
        positions: list[int] | Array = (
            self.positions if isinstance(self.positions, np.ndarray) else self.positions.copy()
        )
        weights: list[int] | Array | None = (
            self.weights.copy() if isinstance(self.weights, list) else self.weights
        )
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
                weights = (
                    None
                    if weights is None
                    else _with(weights, at, static_weights(placement, (now,))[0])
                )
                groups = None if groups is None else _with_one(groups, at, now)
        if groups is None and isinstance(positions, np.ndarray):
            groups = _groups(placement, clusters)
        return Feasible(
            facts, self.layout, merged, clusters, names, positions, refused, weights, groups, choice
        )


def build(
    order: Sequence[Known],
    verdicts: list[Verdict],
    placement: Placement,
    facts: int,
    layout: int,
    *,
    wide: bool,
) -> Feasible:
    """Collects the feasible clusters from the filter results of all known clusters, and counts the
    other clusters by reason. Returns both, with the static weights of the feasible clusters.

    `order`: all known clusters, in order of name.
    `verdicts`: one for each known cluster: the reason why the cluster is not feasible, or None if
      it is feasible.
    `placement`: gives the static weights and the spread constraints.
    `facts`, `layout`: version numbers, only stored in the result: `facts` of the facts about all
      clusters, `layout` of the list of known clusters.
    `wide`: for a large fleet: store positions and weights as int64 arrays, and read the groups of
      each spread constraint (such as the region of every cluster) once for all bindings.
    """
    refused: dict[str, int] = {}
    found: list[int] = []
    for position, verdict in enumerate(verdicts):
        if verdict is None:
            found.append(position)
        else:
            refused[verdict] = refused.get(verdict, 0) + 1
    clusters = [_facts(order[i]) for i in found]
    weights: list[int] | Array | None = None
    positions: list[int] | Array = np.array(found, np.int64) if wide else found
    if placement.replicas.weighed:
        own = static_weights(placement, clusters)
        weights = _as_array(own) if wide else own
    groups = _groups(placement, clusters) if wide else None
    return Feasible(
        facts,
        layout,
        verdicts,
        clusters,
        [c.name for c in clusters],
        positions,
        refused,
        weights,
        groups,
    )


def filtered(properties: ClusterProperties, query: ClusterQuery) -> Feasible:
    """Filters all clusters of a large fleet as new targets. Returns what `build` returns for the
    verdicts of each cluster, from columns that all policies share.

    `properties`: the facts of all clusters; its versions are stored in the result.
    """
    placement, verdicts = query.placement, properties.verdicts(query)
    if verdicts is None:
        refused: dict[str, int] = {}
        clusters, names = properties.clusters, properties.names
        positions: Array = np.arange(len(names))
        reasons: list[Verdict] = [None] * len(names)
    else:
        positions = (verdicts == 0).nonzero()[0]
        reasons = list(map(VERDICTS.__getitem__, verdicts.tolist()))
        found = positions.tolist()
        clusters = list(map(properties.clusters.__getitem__, found))
        names = list(map(properties.names.__getitem__, found))
        refused = _counted(verdicts)
    weights: list[int] | Array | None = None
    if placement.replicas.weighed:
        of_all = properties.weights(placement)
        weights = (
            _as_array(static_weights(placement, clusters)) if of_all is None else of_all[positions]
        )
    return Feasible(
        properties.facts,
        properties.layout,
        reasons,
        clusters,
        names,
        positions,
        refused,
        weights,
        _groups(placement, clusters),
    )


def plain(
    clusters: Sequence[Cluster], placement: Placement, verdicts: list[Verdict] | None = None
) -> Feasible:
    """Collects the feasible clusters, with their static weights, for one decision only: the result
    is not kept for other bindings and has no version numbers.

    `clusters`: all clusters that the decision considers.
    `verdicts`: one for each cluster: the reason why the cluster is not feasible, or None if it is
      feasible. `verdicts` None: all clusters are feasible.
    """
    return build(
        [Plain(c) for c in clusters],
        [None] * len(clusters) if verdicts is None else verdicts,
        placement,
        0,
        0,
        wide=False,
    )


def _alike(placement: Placement, before: Cluster, now: Cluster) -> bool:
    """Returns whether a cluster that stays feasible is equal in every property that a selection
    reads: its static weight and its spread groups. Always false if the placement has overflow
    groups."""
    if placement.replicas.weighed and static_weights(placement, (before,)) != static_weights(
        placement, (now,)
    ):
        return False
    if any(term.overflow for term in placement.affinities):
        return False
    return all(groups_of(before, c) == groups_of(now, c) for c in placement.spread)


def _groups(placement: Placement, clusters: Sequence[Cluster]) -> tuple[Grouping, ...] | None:
    """Reads the groups of all clusters under each spread constraint, once for all bindings.

    Returns None where clusters are selected one by one: without spread constraints, with `strict`,
    with replica limits, or if a cluster is not in exactly one group.
    """
    plain = constrained(placement) and not placement.strict and not placement.replicas.limits
    return groupings(placement, clusters) if plain else None


def _as_array(weights: list[int]) -> list[int] | Array:
    return weights if max(weights, default=0) > MAX_WEIGHT else np.array(weights, np.int64)


def _with_one(
    groups: tuple[Grouping, ...], at: int, cluster: Cluster
) -> tuple[Grouping, ...] | None:
    found = [g.with_one(at, cluster) for g in groups]
    return tuple([g for g in found if g is not None]) if all(found) else None


def _facts(cluster: Known) -> Cluster:
    assert cluster.facts is not None, "only known clusters are laid out"
    return cluster.facts


def _counted(verdicts: NDArray[np.int8]) -> dict[str, int]:
    """Counts the refused clusters by reason, in order of the first cluster of each."""
    counts = np.bincount(verdicts)
    numbers = [number for number in np.flatnonzero(counts).tolist() if number]
    numbers.sort(key=lambda number: int((verdicts == number).argmax()))
    return {str(VERDICTS[number]): int(counts[number]) for number in numbers}


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
