"""WorkloadAntiAffinity (Karmada): a binding of an anti-affinity group does not go where another
binding of its group is.

The caller passes where they are (`ClusterQuery.apart`), because a filter sees one binding only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, NameCondition, Undone


class WorkloadAntiAffinityFilter:
    reason = FleetReason("WorkloadAntiAffinity")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or cluster.name not in query.apart

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (NameCondition(query.apart, listed=False),) if query.apart else ()

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster already has workload with the same anti-affinity group"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        apart = [name for name in query.apart if name != cluster.name]
        change = Change("state", cluster.name, "no other of its anti-affinity group being there")
        yield change, replace(query, apart=apart), cluster
