"""A cluster whose heartbeat is missing for longer than its lease gets no new replicas.

Its replicas may still run, so they stay until failover decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, NameCondition, Undone


class SilentFilter:
    reason = FleetReason("ClusterSilent")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or cluster.name not in query.silent

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (NameCondition(query.silent, listed=False),) if query.silent else ()

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) sent no heartbeat within its lease"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        silent = [name for name in query.silent if name != cluster.name]
        yield (
            Change("state", cluster.name, "a new heartbeat"),
            replace(query, silent=silent),
            cluster,
        )
