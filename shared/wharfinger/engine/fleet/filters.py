"""Which clusters a binding may go to. One plugin a question, asked in the order of `FILTERS`; the first no is the reason.

A cluster that holds replicas of the binding already (`existing`) is asked less: what blocks only newcomers must not
throw out what runs. Whether it should leave is said by failover and eviction, not by a filter.

Workload affinity is compared within a namespace with bindings that have targets; what those are is asked of the caller
(`Question.together`, `Question.apart`, made by `peers`), since a filter knows one binding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.taints import Taint, first_untolerated


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every cluster for one binding. `affinity`: the term of the placement in force.

    `silent` and `evicted`: clusters beyond their lease, and clusters this binding was just evicted from. `together`: the clusters
    that all others of its affinity group are in (None: there are none, or they have no targets yet). `apart`: the clusters that
    some other of its anti-affinity group is in.
    """

    placement: Placement
    affinity: ClusterAffinity
    gvk: str
    silent: Collection[str] = ()
    evicted: Collection[str] = ()
    together: Collection[str] | None = None
    apart: Collection[str] = ()


Filter = Callable[[Question, Cluster, bool], bool]
"""Whether the cluster passes; the last argument says that it holds replicas of the binding already."""


def not_deleting(question: Question, cluster: Cluster, existing: bool) -> bool:
    return not cluster.deleting


def heard_of(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or cluster.name not in question.silent


def in_affinity(question: Question, cluster: Cluster, existing: bool) -> bool:
    return tier_of(question.affinity, cluster) is not None


def tolerated(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or (
        first_untolerated(cluster.taints, question.placement.tolerations, ("NoSchedule", "NoExecute")) is None
    )


def api_enabled(question: Question, cluster: Cluster, existing: bool) -> bool:
    """Kinds that were never reported are unknown, and unknown passes; in Karmada (`strict`) it does not."""
    if existing:
        return True
    kinds = cluster.api_kinds
    return not question.placement.strict if kinds is None else question.gvk in kinds


def has_spread_property(question: Question, cluster: Cluster, existing: bool) -> bool:
    """A cluster without a region, zone or provider cannot be counted into a group of them, nor, unless `strict`, one without the
    label: Karmada looks at no label here and refuses the choice later."""
    return missing_property(question.placement, cluster) == ""


def with_its_group(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or question.together is None or cluster.name in question.together


def apart_from_its_group(question: Question, cluster: Cluster, existing: bool) -> bool:
    return existing or cluster.name not in question.apart


def not_evicted(question: Question, cluster: Cluster, existing: bool) -> bool:
    return cluster.name not in question.evicted


FILTERS: tuple[tuple[FleetReason, Filter], ...] = (
    ("ClusterDeleting", not_deleting),  # first: nothing else is worth asking of a cluster that goes away
    ("ClusterSilent", heard_of),  # silent is not dead, but nothing new goes there
    ("ClusterAffinity", in_affinity),  # what the user chose, before what the cluster is like
    ("TaintToleration", tolerated),  # who is kept off
    ("APIEnablement", api_enabled),  # the kind exists there
    ("SpreadConstraint", has_spread_property),  # it can be counted into a group
    ("WorkloadAffinity", with_its_group),  # where those are that it wants to be with
    ("WorkloadAntiAffinity", apart_from_its_group),  # and those it must not meet
    ("Evicted", not_evicted),  # last: a cluster that would fit, were it not for the eviction
)


def first_refusal(question: Question, cluster: Cluster, existing: bool = False) -> FleetReason | None:
    """Why `cluster` is not feasible; None: it is."""
    for reason, passes in FILTERS:
        if not passes(question, cluster, existing):
            return reason
    return None


def refusals(question: Question, clusters: Sequence[Cluster]) -> list[FleetReason | None]:
    """`first_refusal` of every cluster, where thousands are asked: filters that have nothing to ask for this question are left out,
    and what many clusters have alike, equal taints or the very same list of kinds, is asked about once."""
    asked = [(reason, passes) for reason, passes in FILTERS if not _nothing_to_ask(passes, question)]
    chosen = chooser(question.affinity)
    tolerations: dict[tuple[Taint, ...], bool] = {}
    enabled: dict[int, bool] = {}
    found: list[FleetReason | None] = []
    for cluster in clusters:
        refusal: FleetReason | None = None
        for reason, passes in asked:
            if passes is in_affinity:
                passed = chosen(cluster)
            elif passes is tolerated:
                if not cluster.taints:
                    continue
                if cluster.taints not in tolerations:
                    tolerations[cluster.taints] = tolerated(question, cluster, False)
                passed = tolerations[cluster.taints]
            elif passes is api_enabled:
                kinds = id(cluster.api_kinds)  # told apart by what is in them would cost more than asking
                if kinds not in enabled:
                    enabled[kinds] = api_enabled(question, cluster, False)
                passed = enabled[kinds]
            else:
                passed = passes(question, cluster, False)
            if not passed:
                refusal = reason
                break
        found.append(refusal)
    return found


def _nothing_to_ask(passes: Filter, question: Question) -> bool:
    """Whether every cluster passes, whatever it is like."""
    if passes is heard_of:
        return not question.silent
    if passes is has_spread_property:
        return not question.placement.spread
    if passes is with_its_group:
        return question.together is None
    if passes is apart_from_its_group:
        return not question.apart
    return passes is not_evicted and not question.evicted


def all_refusals(question: Question, cluster: Cluster, existing: bool = False) -> list[FleetReason]:
    """Every reason, for the derived explanation: `first_refusal` is the first of them."""
    return [reason for reason, passes in FILTERS if not passes(question, cluster, existing)]


def why(question: Question, cluster: Cluster, reason: FleetReason) -> str:
    """What the filter of that reason found, in the words Karmada's users know where it has a filter like it."""
    match reason:
        case "ClusterDeleting":
            return "cluster(s) is being deleted"
        case "ClusterSilent":
            return "cluster(s) was not heard of within its lease"
        case "ClusterAffinity":
            return "cluster(s) did not match the placement cluster affinity constraint"
        case "TaintToleration":
            taint = first_untolerated(cluster.taints, question.placement.tolerations, ("NoSchedule", "NoExecute"))
            return (
                f"cluster(s) had untolerated taint {{{said(taint)}}}" if taint else "cluster(s) had untolerated taint"
            )
        case "APIEnablement":
            return "cluster(s) did not have the API resource"
        case "SpreadConstraint":
            return f"cluster(s) did not have {missing_property(question.placement, cluster)} property"
        case "WorkloadAffinity":
            return "ResourceBinding with the same affinity group does not target this cluster"
        case "WorkloadAntiAffinity":
            return "cluster already has workload with the same anti-affinity group"
        case "Evicted":
            return "cluster(s) is in the process of eviction"
        case _:
            return "cluster(s) did not have the capacity"


def said(taint: Taint) -> str:
    """`key=value:effect`, or `key:effect` where there is no value."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def peers(targets: Iterable[Collection[str]]) -> set[str] | None:
    """The clusters that all of a group's members with targets are in; None: no member has any."""
    together: set[str] | None = None
    for clusters in targets:
        if clusters:
            together = set(clusters) if together is None else together & set(clusters)
    return together


def in_force(affinity: ClusterAffinity, divisible: bool) -> ClusterAffinity:
    """What is asked of an affinity: an object without replicas fills no cluster, so nothing of it goes to an overflow group."""
    return affinity if divisible or not affinity.overflow else msgspec.structs.replace(affinity, overflow=())


def tier_of(affinity: ClusterAffinity, cluster: Cluster) -> int | None:
    """0: one of the affinity's own clusters; i: one of its i-th overflow group and of none before; None: neither."""
    if matches(affinity, cluster):
        return 0
    for i, group in enumerate(affinity.overflow, start=1):
        if matches(group, cluster):
            return i
    return None


def chooser(affinity: ClusterAffinity) -> Callable[[Cluster], bool]:
    """Whether a cluster is in some tier of the affinity, for who asks about thousands."""
    labels = affinity.labels
    if affinity.exclude or affinity.cluster_names or affinity.fields or affinity.overflow:
        return lambda cluster: tier_of(affinity, cluster) is not None
    if labels is None:
        return lambda cluster: True
    if labels.match_expressions or len(labels.match_labels) != 1:
        return lambda cluster: labels.matches(cluster.labels)
    ((key, value),) = labels.match_labels.items()
    return lambda cluster: cluster.labels.get(key) == value


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


def missing_property(placement: Placement, cluster: Cluster) -> str:
    """The first property a spread constraint needs and the cluster does not have: a region, a provider, zones, or the label; empty:
    it has them all."""
    for constraint in placement.spread:
        if not has_property(cluster, constraint.field):
            return "zones" if constraint.field == "zone" else constraint.field
        if constraint.label and not placement.strict and not cluster.labels.get(constraint.label):
            return constraint.label
    return ""


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
