"""Finds the smallest changes that would make a refused cluster feasible.

Greedy, one refusal at a time: the smallest change undoes the first filter that refuses. Then all
filters are evaluated again, in the order of `filters.FILTERS`, until none refuses.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.cluster import Cluster
from wharfinger.rules.changes import Change, ChangeSet
from wharfinger.rules.clusters.filters import FILTERS
from wharfinger.rules.clusters.rule import ClusterFilter, ClusterQuery


@dataclass(frozen=True, slots=True)
class Admission:
    """The changes that make a cluster feasible (`way`), and the query and the cluster after these
    changes, which no filter refuses."""

    way: ChangeSet
    query: ClusterQuery
    cluster: Cluster


def admission(query: ClusterQuery, cluster: Cluster, existing: bool = False) -> Admission | None:
    """Find changes with which `cluster` passes all filters, and return them with the changed query
    and cluster. The changes are empty if the cluster passes without changes. None: a filter
    refuses and no change helps, or two filters contradict each other.
    The search is greedy: it takes the first filter that refuses and makes the changes with which
    this filter passes. Then it evaluates all filters again, until none refuses. `query`: the
    binding's conditions for clusters. `existing`: the cluster holds replicas of the binding; then
    filters are less strict."""
    way: list[Change] = []
    undone: list[ClusterFilter] = []
    while (rule := _first(query, cluster, existing)) is not None:
        if rule in undone:
            # two rules that cannot both be met, such as a region that must be set and must not
            return None
        undone.append(rule)
        for change, changed_query, changed_cluster in rule.undo(query, cluster):
            query, cluster = changed_query, changed_cluster
            way.append(change)
        if not rule.passes(query, cluster, existing):
            return None
    return Admission(tuple(way), query, cluster)


def _first(query: ClusterQuery, cluster: Cluster, existing: bool) -> ClusterFilter | None:
    return next((rule for rule in FILTERS if not rule.passes(query, cluster, existing)), None)
