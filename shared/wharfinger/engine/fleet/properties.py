"""Holds the properties of all clusters as columns, so that policies are filtered without a call for
each cluster.

A column has the number of each cluster's value. The policies of a fleet share the columns: a
condition is evaluated once for each value, and one array operation extends the answers to all
clusters. So the first decision by a new policy costs a few array operations. A column is read from
the clusters when a condition first needs it; after that only clusters whose facts changed are read
again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.engine.fleet.webster import Array
from wharfinger.engine.fleet.weights import MAX_WEIGHT
from wharfinger.rules.clusters.affinity import conditions_of
from wharfinger.rules.clusters.filters import FILTERS
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition

Mask = NDArray[np.bool_]

COLUMNS_MAX = 64
"""The columns are emptied when there are this many."""

OUTDATED_MAX = 64
"""A column is read again when it knows so many more values than twice the number of clusters."""

VERDICTS: tuple[FleetReason | None, ...] = (None, *(rule.reason for rule in FILTERS))
"""Number of a verdict -> reason. 0: the cluster is feasible; i: the i-th filter refuses it."""


@dataclass(slots=True)
class PropertyColumn:
    """Holds one property of all clusters.

    `numbers`: int64[clusters], in order of name: the index in `values`.
    `values`: the values seen so far; a value may be that of no cluster any more.
    """

    condition: PropertyCondition
    numbers: Array
    values: list[Hashable] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, condition: PropertyCondition, clusters: Sequence[Cluster]) -> PropertyColumn:
        values = list(map(condition.read, clusters))
        keys = list(map(id, values)) if condition.shared else values
        different = dict(zip(keys, values, strict=True))
        known = {key: number for number, key in enumerate(different)}
        numbers = np.array(list(map(known.__getitem__, keys)), np.int64)
        return cls(condition, numbers, [*different.values()], known)

    def number_of(self, cluster: Cluster) -> int:
        value = self.condition.read(cluster)
        key = id(value) if self.condition.shared else value
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.values)
            self.values.append(value)  # so that its identity is that of no other
        return number


@dataclass(slots=True)
class ClusterProperties:
    """Holds the facts of all clusters, in order of name, and the columns read from them.

    `clusters`: the facts, replaced on a change. `names`: sorted.
    `facts`, `layout`: the versions of the facts and of the set of clusters.
    """

    clusters: list[Cluster]
    names: list[str]
    facts: int
    layout: int
    _columns: dict[tuple[str, ...], PropertyColumn] = field(default_factory=dict)

    def update(self, changed: Iterable[tuple[int, Cluster]], facts: int) -> None:
        """Read clusters whose facts changed, by position, again."""
        self.facts, self.clusters = facts, self.clusters.copy()
        for position, cluster in changed:
            self.clusters[position] = cluster
            for column in self._columns.values():
                column.numbers[position] = column.number_of(cluster)

    def verdicts(self, query: ClusterQuery) -> NDArray[np.int8] | None:
        """Filter all clusters as new targets. Return int8[clusters]: for each cluster 0, if it is
        feasible, or the number of the first filter that refuses it, see `VERDICTS`. None: all are
        feasible."""
        found: NDArray[np.int8] | None = None
        for number, rule in enumerate(FILTERS, start=1):
            conditions = rule.conditions(query)
            if conditions is None:
                each = [rule.passes(query, cluster, False) for cluster in self.clusters]
                passed: Mask | None = np.array(each, np.bool_)
            else:
                passed = self.all_hold(conditions)
            if passed is None:
                continue
            if found is None:
                found = np.zeros(len(self.clusters), np.int8)
            found[(found == 0) & ~passed] = number
        return found

    def weights(self, placement: Placement) -> Array | None:
        """Return `weights.static_weights` of all clusters, int64[clusters]. None: the weights do
        not allow arrays."""
        rules = placement.replicas.static
        if any(not 0 <= rule.weight <= MAX_WEIGHT for rule in rules):
            return None
        found = np.zeros(len(self.clusters), np.int64)
        for rule in rules:
            matched = self.all_hold(conditions_of(rule.target))
            at_least = rule.weight if matched is None else np.where(matched, rule.weight, 0)
            np.maximum(found, at_least, out=found)
        return found

    def all_hold(self, conditions: Sequence[Condition]) -> Mask | None:
        """Return for each cluster whether all conditions hold. None: they do for every cluster."""
        found: Mask | None = None
        for condition in conditions:
            if isinstance(condition, PropertyCondition):
                holds = self._property_holds(condition)
            else:
                holds = self._named(condition.names, condition.listed)
            if holds is not None:
                found = holds if found is None else found & holds
        return found

    def _property_holds(self, condition: PropertyCondition) -> Mask | None:
        column = self._column(condition)
        answers = [condition.holds(value) for value in column.values]
        return None if all(answers) else np.array(answers, np.bool_)[column.numbers]

    def _named(self, names: Iterable[str], listed: bool) -> Mask:
        found = np.full(len(self.names), not listed, np.bool_)
        for name in names:
            at = bisect_left(self.names, name)
            if at < len(self.names) and self.names[at] == name:
                found[at] = listed
        return found

    def _column(self, condition: PropertyCondition) -> PropertyColumn:
        column = self._columns.get(condition.key)
        if column is None or len(column.values) > 2 * len(self.clusters) + OUTDATED_MAX:
            if len(self._columns) >= COLUMNS_MAX:
                self._columns.clear()
            column = PropertyColumn.of(condition, self.clusters)
            self._columns[condition.key] = column
        return column
