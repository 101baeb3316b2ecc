"""Clusters that are being deleted, and nothing else, are refused, newcomers or not."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike
from tests.hunting import examples

from wharfinger.rules.clusters.deleting import DeletingFilter


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_a_cluster_that_is_being_deleted_is_refused(random: Random) -> None:
    rule, query = DeletingFilter(), a_query(random)
    clusters = [a_cluster(random, name) for name in NAMES]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        refused = cluster.deleting
        for existing in (False, True):
            assert rule.passes(query, cluster, existing) == (not refused)
        if not refused:
            continue
        assert pass_once_undone(rule, query, cluster)
