"""Newcomers go only where the others of their group are."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike
from tests.hunting import examples

from wharfinger.rules.clusters.workload_affinity import WorkloadAffinityFilter, peers


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_a_cluster_without_the_group_is_refused_to_newcomers_only(random: Random) -> None:
    rule, query = WorkloadAffinityFilter(), a_query(random)
    clusters = [a_cluster(random, name) for name in NAMES]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        refused = query.together is not None and cluster.name not in query.together
        assert rule.passes(query, cluster, True)
        assert rule.passes(query, cluster, False) == (not refused)
        if not refused:
            continue
        assert pass_once_undone(rule, query, cluster)


@given(st.lists(st.sets(st.sampled_from(NAMES))))
def test_peers_are_together_where_each_of_them_with_clusters_is(targets: list[set[str]]) -> None:
    placed = [clusters for clusters in targets if clusters]
    assert peers(targets) == (set.intersection(*placed) if placed else None)
