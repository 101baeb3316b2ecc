"""SpreadConstraint (Karmada): a cluster without the region, zone, provider or label of a spread
constraint belongs to none of its groups and is refused.

With `Placement.strict`, as in Karmada, labels are not checked here; the selection is refused later
instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import ANYTHING, Change
from wharfinger.rules.clusters.edits import labelled, with_property
from wharfinger.rules.clusters.properties import FIELDS, on_field, on_label
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition, Undone


class SpreadPropertyFilter:
    reason = FleetReason("SpreadConstraint")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return _missing(query.placement, cluster) is None

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        found: list[PropertyCondition] = []
        for constraint in query.placement.spread:
            if constraint.field in FIELDS:
                found.append(on_field(constraint.field, bool))
            if constraint.label and not query.placement.strict:
                found.append(on_label(constraint.label, bool))
        return tuple(found)

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        missing = _missing(query.placement, cluster)
        return f"cluster(s) did not have {'zones' if missing == 'zone' else missing} property"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        for constraint in query.placement.spread:
            if not has_property(cluster, constraint.field):
                cluster = with_property(cluster, constraint.field, ANYTHING)
                yield (
                    Change("property", constraint.field, f"a {constraint.field} set on it"),
                    query,
                    cluster,
                )
            if _label_missing(query.placement, constraint, cluster):
                cluster = labelled(cluster, constraint.label, ANYTHING)
                yield Change("label", constraint.label, f"label {constraint.label}"), query, cluster


def _missing(placement: Placement, cluster: Cluster) -> str | None:
    """Return the first field or label that a spread constraint needs and the cluster does not have.
    None: it has all of them."""
    for constraint in placement.spread:
        if not has_property(cluster, constraint.field):
            return constraint.field
        if _label_missing(placement, constraint, cluster):
            return constraint.label
    return None


def _label_missing(placement: Placement, constraint: SpreadConstraint, cluster: Cluster) -> bool:
    return (
        bool(constraint.label) and not placement.strict and not cluster.labels.get(constraint.label)
    )


def has_property(cluster: Cluster, field: str) -> bool:
    match field:
        case "provider":
            return bool(cluster.provider)
        case "region":
            return bool(cluster.region)
        case "zone":
            return bool(cluster.zones)
        case _:
            return True
