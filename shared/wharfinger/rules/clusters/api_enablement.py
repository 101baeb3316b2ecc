"""APIEnablement (Karmada): a cluster that does not serve the binding's kind gets no new replicas.

A cluster that has never reported its kinds passes, because unknown is not missing. With
`Placement.strict`, as in Karmada, it does not pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, ClusterTest, Undone


class ApiEnablementFilter:
    reason = FleetReason("APIEnablement")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        kinds = cluster.api_kinds
        return existing or (not query.placement.strict if kinds is None else query.gvk in kinds)

    def newcomers(self, query: ClusterQuery) -> ClusterTest | None:
        """Return a function that says whether this filter passes a cluster that holds no replicas
        of the binding. The filter passes clusters that enable the API kind of the workload. A
        cluster that has not reported its kinds passes too, except where the placement is strict.
        The result is never None here.
        The function caches its answers. The key is the identity of the cluster's tuple of kinds,
        because clusters that enable the same kinds share one tuple, and comparing long tuples would
        cost more."""
        answers: dict[int, bool] = {}

        def passes(cluster: Cluster) -> bool:
            known = answers.get(id(cluster.api_kinds))
            if known is None:
                known = answers[id(cluster.api_kinds)] = self.passes(query, cluster, False)
            return known

        return passes

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) did not have the API resource"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        kinds = (*(cluster.api_kinds or ()), query.gvk)
        change = Change("kind", query.gvk, f"{query.gvk} enabled there")
        yield change, query, msgspec.structs.replace(cluster, api_kinds=kinds)
