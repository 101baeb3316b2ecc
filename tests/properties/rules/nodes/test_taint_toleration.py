"""Both forms of TaintToleration decide the same, and the tolerations it proposes make the node
feasible.

A toleration of zero seconds is left out here: arrays refuse it, kube-scheduler's filter does not
(see the rule).
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import Both, alone, refused_node, running, some_nodes, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.rules.changes import tolerating
from wharfinger.rules.nodes.taint_toleration import TaintToleration, tolerates


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.data())
def test_both_forms_decide_the_same(nodes: list[Node], data: st.DataObject) -> None:
    both = Both(nodes, ClusterObjects(), alone("TaintToleration"))
    both.run(running(nodes, data))
    for requirements in data.draw(
        st.lists(some_requirements(devices=False), min_size=1, max_size=4)
    ):
        both.agree(requirements)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), some_requirements())
def test_what_it_proposes_makes_the_node_feasible(nodes: list[Node], asked: Requirements) -> None:
    rule = TaintToleration(Arguments())
    for node in nodes:
        changes = rule.undo(refused_node(nodes, node, asked))
        assert changes is not None, "only a toleration of zero seconds cannot be helped"
        missing = [
            t
            for t in node.taints
            if t.effect != "PreferNoSchedule" and not tolerates((t,), asked.tolerations)
        ]
        assert bool(changes) == bool(missing)
        assert len(changes) <= len(missing)
        assert tolerates(node.taints, (*asked.tolerations, *map(tolerating, missing)))


def test_a_toleration_of_zero_seconds_tolerates_nothing() -> None:
    taint = Taint("a", "NoExecute")
    assert tolerates((taint,), (Toleration("a", "Exists", seconds=1),))
    assert not tolerates((taint,), (Toleration("a", "Exists", seconds=0),))
