"""Both forms of NodeName decide the same, and nothing undoes its refusal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import Both, alone, refused_node, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.workload import Requirements
from wharfinger.rules.nodes.node_name import NodeName


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_both_forms_decide_the_same(nodes: list[Node], data: st.DataObject) -> None:
    both = Both(nodes, ClusterObjects(), alone("NodeName"))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=6)
    ):
        both.agree(requirements)


@settings(max_examples=examples(20), deadline=None)
@given(some_nodes(), some_requirements())
def test_nothing_undoes_it(nodes: list[Node], asked: Requirements) -> None:
    rule = NodeName(Arguments())
    for node in nodes:
        named = asked.traits.node_name in ("", node.name)
        assert rule.undo(refused_node(nodes, node, asked)) == (() if named else None)
