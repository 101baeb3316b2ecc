"""A cluster of any tier passes; for others the changes say what of the policy or of them would have
to change."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike
from tests.hunting import examples

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.selectors import Requirement
from wharfinger.rules.clusters.affinity import AffinityFilter, matches, tier_of


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_a_cluster_of_no_tier_is_refused(random: Random) -> None:
    rule, query = AffinityFilter(), a_query(random)
    clusters = [a_cluster(random, name) for name in NAMES]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        tiers = (query.affinity, *query.affinity.overflow)
        refused = not any(matches(tier, cluster) for tier in tiers)
        for existing in (False, True):
            assert rule.passes(query, cluster, existing) == (not refused)
        if refused and not query.affinity.overflow and satisfiable(query.affinity):
            assert pass_once_undone(rule, query, cluster)


def test_the_first_tier_that_matches_counts() -> None:
    north, south = (
        ClusterAffinity(fields=(Requirement("region", "In", (r,)),)) for r in ("north", "south")
    )
    both = msgspec.structs.replace(north, overflow=(south, ClusterAffinity()))
    assert [tier_of(both, Cluster("c", region=r)) for r in ("north", "south", "west")] == [0, 1, 2]
    assert (
        tier_of(msgspec.structs.replace(north, overflow=(south,)), Cluster("c", region="west"))
        is None
    )


def satisfiable(affinity: ClusterAffinity) -> bool:
    """Whether no two requirements of it contradict each other, and each can be met by one
    change."""
    selector, fields = affinity.labels, affinity.fields
    requirements = () if selector is None else selector.match_expressions
    keys = [r.key for r in (*requirements, *fields)]
    meant = all(r.operator not in ("Gt", "Lt") or r.values[0].isdecimal() for r in requirements)
    return meant and len(keys) == len(dict.fromkeys(keys))
