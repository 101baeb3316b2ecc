"""Both forms of NodeAffinity decide the same, and a node with the labels that it proposes is
allowed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import (
    AFFINITY_ARGUMENTS,
    Both,
    alone,
    refused_node,
    running,
    some_nodes,
    some_requirements,
)

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments, NodeAffinityArgs
from wharfinger.domain.workload import Requirements
from wharfinger.rules.nodes.node_affinity import NodeAffinity, allows


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), st.sampled_from(AFFINITY_ARGUMENTS), st.data())
def test_both_forms_decide_the_same(
    nodes: list[Node], arguments: NodeAffinityArgs, data: st.DataObject
) -> None:
    both = Both(nodes, ClusterObjects(), alone("NodeAffinity", Arguments(node_affinity=arguments)))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=4)
    ):
        both.agree(requirements)


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), some_requirements())
def test_a_node_with_the_proposed_labels_is_allowed(nodes: list[Node], asked: Requirements) -> None:
    rule = NodeAffinity(Arguments())
    for node in nodes:
        changes = rule.undo(refused_node(nodes, node, asked))
        assert (changes == ()) == allows(asked, node.labels, node.name)
        if changes:
            assert {change.kind for change in changes} == {"label"}
