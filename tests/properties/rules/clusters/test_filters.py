"""Laws of all cluster filters together: the prepared form, the order of reasons, and the changes
that make a cluster feasible."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import NAMES, a_cluster, a_query
from tests.hunting import examples

from wharfinger.rules.clusters.admission import admission
from wharfinger.rules.clusters.filters import (
    FILTERS,
    all_refusals,
    first_refusal,
    refusals,
    sentences,
)


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_a_cluster_with_the_changes_made_is_feasible(random: Random) -> None:
    query, cluster, existing = a_query(random), a_cluster(random), random.random() < 0.3
    found = admission(query, cluster, existing)
    if found is None:
        return
    assert first_refusal(found.query, found.cluster, existing) is None
    assert bool(found.way) == bool(all_refusals(query, cluster, existing))


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_many_newcomers_are_refused_for_the_reasons_for_which_each_is(random: Random) -> None:
    query = a_query(random)
    clusters = [a_cluster(random, random.choice(NAMES)) for _ in range(6)]
    assert refusals(query, clusters) == [first_refusal(query, c) for c in clusters]


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_every_reason_has_its_sentence_and_the_first_is_recorded(random: Random) -> None:
    query, cluster, existing = a_query(random), a_cluster(random), random.random() < 0.5
    reasons = all_refusals(query, cluster, existing)
    assert first_refusal(query, cluster, existing) == (reasons[0] if reasons else None)
    told = sentences(query, cluster, existing)
    assert [reason for reason, _ in told] == reasons
    assert all(sentence for _, sentence in told)
    order = [rule.reason for rule in FILTERS]
    assert reasons == sorted(reasons, key=order.index)
