"""Taints that are not tolerated keep newcomers away; PreferNoSchedule refuses no workload."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike
from tests.hunting import examples

from wharfinger.rules.clusters.taints import TaintFilter


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_a_taint_that_is_not_tolerated_refuses_newcomers_only(random: Random) -> None:
    rule, query = TaintFilter(), a_query(random)
    clusters = [a_cluster(random, name) for name in NAMES]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        tolerated = query.placement.tolerations
        refused = any(
            not any(t.tolerates(taint) for t in tolerated)
            for taint in cluster.taints
            if taint.effect != "PreferNoSchedule"
        )
        assert rule.passes(query, cluster, True)
        assert rule.passes(query, cluster, False) == (not refused)
        if not refused:
            continue
        assert pass_once_undone(rule, query, cluster)
