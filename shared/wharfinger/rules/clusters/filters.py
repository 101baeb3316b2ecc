"""The cluster filters in order, and their evaluation.

A new filter is a file in this folder and a line in `FILTERS`. The first refusal is recorded as the
reason, so a filter that makes others irrelevant comes before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.clusters.affinity import AffinityFilter
from wharfinger.rules.clusters.api_enablement import ApiEnablementFilter
from wharfinger.rules.clusters.deleting import DeletingFilter
from wharfinger.rules.clusters.evicted import EvictedFilter
from wharfinger.rules.clusters.rule import (
    ClusterFilter,
    ClusterQuery,
    ClusterTest,
    NameCondition,
    PropertyCondition,
)
from wharfinger.rules.clusters.silent import SilentFilter
from wharfinger.rules.clusters.spread_property import SpreadPropertyFilter
from wharfinger.rules.clusters.taints import TaintFilter
from wharfinger.rules.clusters.workload_affinity import WorkloadAffinityFilter
from wharfinger.rules.clusters.workload_anti_affinity import WorkloadAntiAffinityFilter

FILTERS: tuple[ClusterFilter, ...] = (
    DeletingFilter(),  # first: nothing else is worth asking of a cluster that goes away
    SilentFilter(),  # a missing heartbeat is not a dead cluster, but nothing new goes there
    AffinityFilter(),  # what the user chose, before what the cluster is like
    TaintFilter(),  # workloads that the cluster's owner keeps off
    ApiEnablementFilter(),  # the kind exists there
    SpreadPropertyFilter(),  # it can be counted into a group
    WorkloadAffinityFilter(),  # the bindings that it wants to be with
    WorkloadAntiAffinityFilter(),  # and those that it must not meet
    EvictedFilter(),  # last: a cluster that would be feasible, were it not for the eviction
)


def first_refusal(
    query: ClusterQuery, cluster: Cluster, existing: bool = False
) -> FleetReason | None:
    """Return the reason of the first filter that refuses the cluster. None: the cluster is
    feasible. `existing`: the cluster holds replicas of the binding."""
    for rule in FILTERS:
        if not rule.passes(query, cluster, existing):
            return rule.reason
    return None


def all_refusals(
    query: ClusterQuery, cluster: Cluster, existing: bool = False
) -> list[FleetReason]:
    """Return the reasons of all filters that refuse the cluster, in order; `first_refusal` is the
    first of them."""
    return [rule.reason for rule in FILTERS if not rule.passes(query, cluster, existing)]


def refusals(query: ClusterQuery, clusters: Sequence[Cluster]) -> list[FleetReason | None]:
    """Filter clusters that hold no replicas of the binding. Return one entry for each cluster, in
    order: the reason of the first filter that refuses the cluster, or None if all filters pass it.
    One filter after another is evaluated, each on all clusters that the filters before it passed.
    For thousands of clusters this is faster than all filters on one cluster after another."""
    found: list[FleetReason | None] = [None] * len(clusters)
    left: Sequence[int] = range(len(clusters))
    for rule in FILTERS:
        for passes in tests_of(rule, query):
            passed: list[int] = []
            for i in left:
                if passes(clusters[i]):
                    passed.append(i)
                else:
                    found[i] = rule.reason
            left = passed
    return found


def tests_of(rule: ClusterFilter, query: ClusterQuery) -> Iterator[ClusterTest]:
    """Yield the tests that a cluster without replicas of the binding has to pass for this filter,
    as functions of the cluster."""
    conditions = rule.conditions(query)
    if conditions is None:
        yield lambda cluster: rule.passes(query, cluster, False)
        return
    for condition in conditions:
        if isinstance(condition, NameCondition):
            yield partial(_is_named, condition)
        else:
            yield _tested_once(condition)


def _is_named(condition: NameCondition, cluster: Cluster) -> bool:
    return (cluster.name in condition.names) == condition.listed


def _tested_once(condition: PropertyCondition) -> ClusterTest:
    """Return the condition as a function of the cluster that keeps its answer for each value."""
    answers: dict[object, bool] = {}
    read, holds, shared = condition.read, condition.holds, condition.shared

    def passes(cluster: Cluster) -> bool:
        value = read(cluster)
        key = id(value) if shared else value
        known = answers.get(key)
        if known is None:
            known = answers[key] = holds(value)
        return known

    return passes


def sentences(
    query: ClusterQuery, cluster: Cluster, existing: bool = False
) -> list[tuple[FleetReason, str]]:
    """Return (reason, message) of every filter that refuses the cluster, in order. `existing`: the
    cluster holds replicas of the binding."""
    return [
        (r.reason, r.sentence(query, cluster))
        for r in FILTERS
        if not r.passes(query, cluster, existing)
    ]
