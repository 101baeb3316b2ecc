"""Newcomers keep away from where another of their group is."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike
from tests.hunting import examples

from wharfinger.rules.clusters.workload_anti_affinity import WorkloadAntiAffinityFilter


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_a_cluster_with_another_of_the_group_is_refused_to_newcomers_only(random: Random) -> None:
    rule, query = WorkloadAntiAffinityFilter(), a_query(random)
    clusters = [a_cluster(random, name) for name in NAMES]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        refused = cluster.name in query.apart
        assert rule.passes(query, cluster, True)
        assert rule.passes(query, cluster, False) == (not refused)
        if not refused:
            continue
        assert pass_once_undone(rule, query, cluster)
