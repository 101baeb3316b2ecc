"""WorkloadAffinity (Karmada): a binding of an affinity group goes to clusters that hold the other
bindings of its namespace and group.

The caller passes these clusters (`ClusterQuery.together`), because a filter gets one binding only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, NameCondition, Undone


class WorkloadAffinityFilter:
    reason = FleetReason("WorkloadAffinity")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or query.together is None or cluster.name in query.together

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return () if query.together is None else (NameCondition(query.together, listed=True),)

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "ResourceBinding with the same affinity group does not target this cluster"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        together = (*(query.together or ()), cluster.name)
        change = Change("state", cluster.name, "the others of its affinity group being there")
        yield change, replace(query, together=together), cluster


def peers(targets: Iterable[Collection[str]]) -> set[str] | None:
    """Intersect the clusters of a group's members. Members without clusters are ignored. None: no
    member has clusters."""
    together: set[str] | None = None
    for clusters in targets:
        if clusters:
            together = set(clusters) if together is None else together & set(clusters)
    return together
