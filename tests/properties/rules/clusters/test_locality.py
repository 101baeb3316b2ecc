"""A cluster that holds some is ranked before every cluster that holds none, however much fits
there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster_queries import NAMES

from wharfinger.engine.fleet.candidates import ClusterCandidate, rank
from wharfinger.rules.clusters.locality import LOCALITY, locality


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 100)), st.sets(st.sampled_from(NAMES))
)
def test_what_holds_some_is_ranked_first(fits: dict[str, int], held: set[str]) -> None:
    ranked = [
        c.name
        for c in rank([ClusterCandidate(name, locality(name, held), n) for name, n in fits.items()])
    ]
    assert [name in held for name in ranked] == sorted(
        [name in held for name in ranked], reverse=True
    )
    assert all(locality(name, held) in (0, LOCALITY) for name in ranked)
