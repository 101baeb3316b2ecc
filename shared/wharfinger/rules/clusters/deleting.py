"""A cluster that is being deleted gets no replicas, and the replicas it has must leave."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, not_

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition, Undone


class DeletingFilter:
    reason = FleetReason("ClusterDeleting")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return not cluster.deleting

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (PropertyCondition(("deleting",), attrgetter("deleting"), not_),)

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) is being deleted"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        change = Change("state", cluster.name, "not being deleted")
        yield change, query, msgspec.structs.replace(cluster, deleting=False)
