"""Both forms of NodePorts decide the same, pod after pod."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import Both, alone, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), st.data())
def test_both_forms_decide_the_same(nodes: list[Node], data: st.DataObject) -> None:
    both = Both(nodes, ClusterObjects(), alone("NodePorts"))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=3)
    ):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)
