"""Both forms of InterPodAffinity decide the same, pod after pod and in a batch; what its definition
says is in `test_pods_between_pods`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.framework_world import HOST, ZONE
from tests.hunting import examples
from tests.node_rules import Both, alone, running, some_nodes, some_objects, some_requirements

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTerm, PodTraits
from wharfinger.domain.scheduler import Arguments, InterPodArgs
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements

GROUPS = st.sampled_from(
    [
        Requirements(
            {"cpu": 500},
            pod=PodTraits(
                labels={"app": app}, affinity=(PodTerm(key, LabelSelector({"app": app})),)
            ),
        )
        for app in ("a", "b")
        for key in (HOST, ZONE)
    ]
)
"""Pods that want to be with their equals: the first of them may go anywhere."""

ARGUMENTS = st.sampled_from((InterPodArgs(), InterPodArgs(0), InterPodArgs(50, True)))


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), some_objects(), ARGUMENTS, st.data())
def test_both_forms_decide_the_same(
    nodes: list[Node], objects: ClusterObjects, arguments: InterPodArgs, data: st.DataObject
) -> None:
    both = Both(nodes, objects, alone("InterPodAffinity", Arguments(inter_pod=arguments)))
    both.run(running(nodes, data))
    asked = st.one_of(some_requirements(devices=False), GROUPS)
    for requirements in data.draw(st.lists(asked, min_size=1, max_size=3)):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), some_objects(), some_requirements(devices=False), st.integers(2, 5), st.data())
def test_a_batch_sees_its_own_pods(
    nodes: list[Node], objects: ClusterObjects, asked: Requirements, count: int, data: st.DataObject
) -> None:
    both = Both(nodes, objects, alone("InterPodAffinity"))
    both.run(running(nodes, data))
    (together,) = both.placer.place_batch([(both.book.class_of(asked), count)])
    one_by_one = [name for _ in range(count) if (name := both.agree(asked)) is not None]
    assert [choice.row.name for choice in together] == one_by_one
