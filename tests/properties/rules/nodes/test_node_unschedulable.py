"""Both forms of NodeUnschedulable decide the same, and only uncordoning a node undoes its
refusal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import Both, alone, refused_node, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.rules.nodes.node_unschedulable import CORDON, NodeUnschedulable

TOLERATES_CORDON = Requirements({"cpu": 1}, tolerations=(Toleration(CORDON.key, "Exists"),))


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_both_forms_decide_the_same(nodes: list[Node], data: st.DataObject) -> None:
    both = Both(nodes, ClusterObjects(), alone("NodeUnschedulable"))
    both.run(running(nodes, data))
    asked = st.one_of(some_requirements(devices=False), st.just(TOLERATES_CORDON))
    for requirements in data.draw(st.lists(asked, min_size=1, max_size=4)):
        both.agree(requirements)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.one_of(some_requirements(), st.just(TOLERATES_CORDON)))
def test_only_uncordoning_undoes_it(nodes: list[Node], asked: Requirements) -> None:
    rule = NodeUnschedulable(Arguments())
    for node in nodes:
        changes = rule.undo(refused_node(nodes, node, asked))
        refused = node.unschedulable and not any(t.tolerates(CORDON) for t in asked.tolerations)
        assert changes is not None
        assert [change.kind for change in changes] == (["state"] if refused else [])
