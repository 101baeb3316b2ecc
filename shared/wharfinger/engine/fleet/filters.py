"""Which clusters a binding may go to. One plugin a question, asked in the order of `FILTERS`; the first no is the reason.

A cluster that holds replicas of the binding already (`existing`) is asked less: what blocks only newcomers must not
throw out what runs. Whether it should leave is said by failover and eviction, not by a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.taints import first_untolerated


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every cluster for one binding. `affinity`: the term of the placement in force.

    `silent` and `evicted`: clusters beyond their lease, and clusters this binding was just evicted from.
    """

    placement: Placement
    affinity: ClusterAffinity
    gvk: str
    silent: Collection[str] = ()
    evicted: Collection[str] = ()


Filter = Callable[[Question, Cluster, bool], bool]
"""Whether the cluster passes; the last argument says that it holds replicas of the binding already."""


def not_deleting(question: Question, cluster: Cluster, existing: bool) -> bool:
    return not cluster.deleting


def heard_of(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or cluster.name not in question.silent


def in_affinity(question: Question, cluster: Cluster, existing: bool) -> bool:
    return matches(question.affinity, cluster)


def tolerated(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or (
        first_untolerated(cluster.taints, question.placement.tolerations, ("NoSchedule", "NoExecute")) is None
    )


def api_enabled(question: Question, cluster: Cluster, existing: bool) -> bool:
    """Kinds that were never reported are unknown, and unknown passes."""
    return existing or cluster.api_kinds is None or question.gvk in cluster.api_kinds


def has_spread_property(question: Question, cluster: Cluster, existing: bool) -> bool:
    """A cluster without a region, zone or provider cannot be counted into a group of them."""
    return all(has_property(cluster, constraint.field) for constraint in question.placement.spread)


def not_evicted(question: Question, cluster: Cluster, existing: bool) -> bool:
    return cluster.name not in question.evicted


FILTERS: tuple[tuple[FleetReason, Filter], ...] = (
    ("ClusterDeleting", not_deleting),  # first: nothing else is worth asking of a cluster that goes away
    ("ClusterSilent", heard_of),  # silent is not dead, but nothing new goes there
    ("ClusterAffinity", in_affinity),  # what the user chose, before what the cluster is like
    ("TaintToleration", tolerated),  # who is kept off
    ("APIEnablement", api_enabled),  # the kind exists there
    ("SpreadConstraint", has_spread_property),  # it can be counted into a group
    ("Evicted", not_evicted),  # last: a cluster that would fit, were it not for the eviction
)


def first_refusal(question: Question, cluster: Cluster, existing: bool = False) -> FleetReason | None:
    """Why `cluster` is not feasible; None: it is."""
    for reason, passes in FILTERS:
        if not passes(question, cluster, existing):
            return reason
    return None


def all_refusals(question: Question, cluster: Cluster, existing: bool = False) -> list[FleetReason]:
    """Every reason, for the derived explanation: `first_refusal` is the first of them."""
    return [reason for reason, passes in FILTERS if not passes(question, cluster, existing)]


def matches(affinity: ClusterAffinity, cluster: Cluster) -> bool:
    """By exclusion, label, field and name; whatever is unset allows all."""
    if cluster.name in affinity.exclude:
        return False
    if affinity.cluster_names and cluster.name not in affinity.cluster_names:
        return False
    if affinity.labels is not None and not affinity.labels.matches(cluster.labels):
        return False
    return all(field_holds(requirement, cluster) for requirement in affinity.fields)


def field_holds(requirement: Requirement, cluster: Cluster) -> bool:
    """Fields are `provider`, `region` and `zone`; a cluster with several zones satisfies In when one of them is listed,
    NotIn when none is. An unset field does not exist. Any other key or operator matches nothing."""
    match requirement.key:
        case "provider":
            values: tuple[str, ...] = (cluster.provider,) if cluster.provider else ()
        case "region":
            values = (cluster.region,) if cluster.region else ()
        case "zone":
            values = cluster.zones
        case _:
            return False
    match requirement.operator:
        case "In":
            return any(v in requirement.values for v in values)
        case "NotIn":
            return not any(v in requirement.values for v in values)
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values
        case _:
            return False


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
