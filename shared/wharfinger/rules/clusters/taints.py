"""TaintToleration (Karmada): a cluster with a NoSchedule or NoExecute taint that the placement does
not tolerate gets no new replicas.

For replicas that such a cluster already holds, `stages.fleet.failover` decides. It counts the
seconds of a NoExecute toleration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.taints import Effect, first_untolerated
from wharfinger.rules.changes import taint_text, tolerating, toleration
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition, Undone

EFFECTS: tuple[Effect, ...] = ("NoSchedule", "NoExecute")


class TaintFilter:
    reason = FleetReason("TaintToleration")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return (
            existing
            or first_untolerated(cluster.taints, query.placement.tolerations, EFFECTS) is None
        )

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        tolerations = query.placement.tolerations
        return (
            PropertyCondition(
                ("taints",),
                attrgetter("taints"),
                lambda taints: first_untolerated(taints, tolerations, EFFECTS) is None,
            ),
        )

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
