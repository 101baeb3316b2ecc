"""TaintToleration (Karmada): a cluster with a NoSchedule or NoExecute taint that the placement does
not tolerate gets no new replicas.

For replicas that such a cluster already holds, `stages.fleet.failover` decides. It counts the
seconds of a NoExecute toleration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.taints import Effect, Taint, first_untolerated
from wharfinger.rules.changes import taint_text, tolerating, toleration
from wharfinger.rules.clusters.rule import ClusterQuery, ClusterTest, Undone

EFFECTS: tuple[Effect, ...] = ("NoSchedule", "NoExecute")


class TaintFilter:
    reason = FleetReason("TaintToleration")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return (
            existing
            or first_untolerated(cluster.taints, query.placement.tolerations, EFFECTS) is None
        )

    def newcomers(self, query: ClusterQuery) -> ClusterTest | None:
        """Return `passes` as a function of the cluster, with a cache keyed by the set of taints.
        Most clusters have no taints, and many of the others have the same ones."""
        answers: dict[tuple[Taint, ...], bool] = {(): True}

        def passes(cluster: Cluster) -> bool:
            known = answers.get(cluster.taints)
            if known is None:
                known = answers[cluster.taints] = self.passes(query, cluster, False)
            return known

        return passes

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        taint = first_untolerated(cluster.taints, query.placement.tolerations, EFFECTS)
        return f"cluster(s) had untolerated taint {{{taint_text(taint)}}}" if taint else ""

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        for taint in cluster.taints:
            placement = query.placement
            if first_untolerated((taint,), placement.tolerations, EFFECTS) is None:
                continue
            tolerations = (*placement.tolerations, tolerating(taint))
            query = replace(
                query, placement=msgspec.structs.replace(placement, tolerations=tolerations)
            )
            yield toleration(taint), query, cluster
