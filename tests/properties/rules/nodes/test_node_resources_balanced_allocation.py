"""Both forms of NodeResourcesBalancedAllocation score the same, by either formula."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import RESOURCES, Both, alone, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments, BalancedArgs, WeightedResource


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), st.sampled_from(RESOURCES), st.booleans(), st.data())
def test_both_forms_score_the_same(
    nodes: list[Node], resources: tuple[WeightedResource, ...], by_change: bool, data: st.DataObject
) -> None:
    arguments = Arguments(balanced=BalancedArgs(resources, by_change))
    both = Both(nodes, ClusterObjects(), alone("NodeResourcesBalancedAllocation", arguments))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=3)
    ):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)
