"""Both forms of ImageLocality score the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import Both, alone, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_both_forms_score_the_same(nodes: list[Node], data: st.DataObject) -> None:
    both = Both(nodes, ClusterObjects(), alone("ImageLocality"))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=5)
    ):
        both.agree(requirements)
