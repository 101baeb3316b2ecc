"""ClusterEviction (Karmada): a cluster that the binding was just evicted from, or that this
decision excludes, gets no replicas.

Karmada reads the graceful eviction tasks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, NameCondition, Undone


class EvictedFilter:
    reason = FleetReason("Evicted")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return cluster.name not in query.evicted

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (NameCondition(query.evicted, listed=False),) if query.evicted else ()

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) is in the process of eviction"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        evicted = [name for name in query.evicted if name != cluster.name]
        yield (
            Change("state", cluster.name, "the end of its exclusion"),
            replace(query, evicted=evicted),
            cluster,
        )
