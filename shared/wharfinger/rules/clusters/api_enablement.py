"""APIEnablement (Karmada): a cluster that does not serve the binding's kind gets no new replicas.

A cluster that has never reported its kinds passes, because unknown is not missing. With
`Placement.strict`, as in Karmada, it does not pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from operator import attrgetter

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition, Undone


class ApiEnablementFilter:
    reason = FleetReason("APIEnablement")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or _enabled(query, cluster.api_kinds)

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (
            PropertyCondition(
                ("api_kinds",), attrgetter("api_kinds"), partial(_enabled, query), shared=True
            ),
        )

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) did not have the API resource"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        kinds = (*(cluster.api_kinds or ()), query.gvk)
        change = Change("kind", query.gvk, f"{query.gvk} enabled there")
        yield change, query, msgspec.structs.replace(cluster, api_kinds=kinds)


def _enabled(query: ClusterQuery, kinds: Collection[str] | None) -> bool:
    """Return whether a cluster with these kinds passes. `kinds` None: it has not reported its
    kinds; it passes, except where the placement is strict."""
    return not query.placement.strict if kinds is None else query.gvk in kinds
