"""Both forms of NodeResourcesFit decide the same under every strategy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import FIT_ARGUMENTS, Both, alone, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments, FitArgs


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), st.sampled_from(FIT_ARGUMENTS), st.data())
def test_both_forms_decide_the_same(
    nodes: list[Node], arguments: FitArgs, data: st.DataObject
) -> None:
    both = Both(nodes, ClusterObjects(), alone("NodeResourcesFit", Arguments(fit=arguments)))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=3)
    ):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)
