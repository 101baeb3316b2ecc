"""Laws of preemption: who goes is less important, is enough, and is no more than is needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.framework_world import (
    a_law,
    a_pod,
    only,
    pod_labels,
    some_nodes,
    some_pods,
    spread_lists,
    term_lists,
    uids,
)

from wharfinger.domain.cluster_objects import ClusterObjects, DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import PreemptionArgs
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.budgets import covers
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.preemption import (
    Preemption,
    PreemptionCandidate,
    curable,
    find,
    survey,
)
from wharfinger.engine.framework.snapshot import Snapshot

RESOURCES = only("NodeResourcesFit")
ALL = only("NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")
BUDGETS = ClusterObjects.of(
    [
        DisruptionBudget("default", "a", LabelSelector({"app": "a"}), allowed=1),
        DisruptionBudget("default", "b", LabelSelector({"app": "b"}), max_unavailable="50%"),
    ]
)


def sought(
    plugins: Framework,
    snapshot: Snapshot,
    pod: Pod,
    arguments: PreemptionArgs | None = None,
    **more: object,
) -> Preemption:
    outcome = plugins.run(snapshot, pod)
    refused = plugins.refused(outcome)
    return find(outcome.cycle, pod, refused, arguments or PreemptionArgs(), **more)  # type: ignore[arg-type]


def without(snapshot: Snapshot, victims: tuple[Pod, ...]) -> Snapshot:
    gone = uids(victims)
    pods = [p for info in snapshot.nodes.values() for p in info.pods if p.uid not in gone]
    return Snapshot.of([info.node for info in snapshot.nodes.values()], pods, snapshot.objects)


@st.composite
def a_crowd(draw: st.DrawFn, between: bool = True) -> tuple[list[Node], list[Pod], Pod]:
    """Small nodes full of pods, and one more that is fairly important."""
    nodes = draw(some_nodes(most=4, cpu=2000))
    pods = draw(some_pods(nodes, most=8))
    pod = a_pod(
        "new",
        cpu=draw(st.integers(1, 4)) * 500,
        priority=draw(st.integers(1, 3)),
        labels=draw(pod_labels),
        affinity=draw(term_lists) if between else (),
        anti_affinity=draw(term_lists) if between else (),
        spread=draw(spread_lists) if between else (),
    )
    return nodes, pods, pod


options = st.builds(PreemptionArgs, whole_groups=st.booleans(), across_nodes=st.booleans())


@a_law(100)
@given(a_crowd(), options)
def test_victims_are_less_important_and_enough(
    crowd: tuple[list[Node], list[Pod], Pod], args: PreemptionArgs
) -> None:
    nodes, pods, pod = crowd
    snapshot = Snapshot.of(nodes, pods, BUDGETS)
    for candidate in sought(ALL, snapshot, pod, args).candidates:
        assert candidate.victims
        assert all(victim.priority < pod.priority for victim in candidate.victims)
        assert args.across_nodes or all(
            victim.node == candidate.node for victim in candidate.victims
        )
        assert candidate.node in ALL.run(without(snapshot, candidate.victims), pod).feasible


@a_law(60)
@given(a_crowd(between=False))
def test_nobody_goes_who_could_stay(crowd: tuple[list[Node], list[Pod], Pod]) -> None:
    nodes, pods, pod = crowd
    snapshot = Snapshot.of(nodes, pods, BUDGETS)
    for candidate in sought(RESOURCES, snapshot, pod).candidates:
        for victim in candidate.victims:
            others = tuple(v for v in candidate.victims if v.uid != victim.uid)
            assert candidate.node not in RESOURCES.run(without(snapshot, others), pod).feasible


@a_law(60)
@given(a_crowd(between=False))
def test_a_node_is_found_wherever_one_could_be_freed(
    crowd: tuple[list[Node], list[Pod], Pod],
) -> None:
    """And on no other: freeing a node of all that is less important is the most that can be done
    for a pod on it."""
    nodes, pods, pod = crowd
    snapshot = Snapshot.of(nodes, pods)
    outcome = RESOURCES.run(snapshot, pod)
    if outcome.feasible:
        return
    could = set()
    for node in nodes:
        lower = tuple(p for p in pods if p.node == node.name and p.priority < pod.priority)
        if node.name in RESOURCES.run(without(snapshot, lower), pod).feasible:
            could.add(node.name)
    found = sought(RESOURCES, snapshot, pod)
    assert {candidate.node for candidate in found.candidates} == could
    assert (found.chosen is None) == (not could)
    assert bool(found.text) == (not could)


@a_law(100)
@given(a_crowd(), options, st.data())
def test_the_answer_is_one_and_asking_changes_nothing(
    crowd: tuple[list[Node], list[Pod], Pod], args: PreemptionArgs, data: st.DataObject
) -> None:
    nodes, pods, pod = crowd
    snapshot = Snapshot.of(nodes, pods, BUDGETS)
    outcome = ALL.run(snapshot, pod)
    before = repr((outcome.cycle.data, snapshot.nodes))
    first = find(outcome.cycle, pod, ALL.refused(outcome), args)
    assert repr((outcome.cycle.data, snapshot.nodes)) == before
    again = Snapshot.of(
        data.draw(st.permutations(nodes)), data.draw(st.permutations(pods)), BUDGETS
    )
    assert sought(ALL, again, pod, args) == first


@a_law(100)
@given(a_crowd(), options, st.integers(0, 7))
def test_who_must_not_go_stays(
    crowd: tuple[list[Node], list[Pod], Pod], args: PreemptionArgs, spared: int
) -> None:
    nodes, pods, pod = crowd
    snapshot = Snapshot.of(nodes, pods, BUDGETS)
    found = sought(ALL, snapshot, pod, args, may_go=lambda other: other.uid != f"p{spared}")
    assert all(f"p{spared}" not in uids(candidate.victims) for candidate in found.candidates)


@a_law(100)
@given(a_crowd(), st.data())
def test_a_group_goes_whole_or_stays(
    crowd: tuple[list[Node], list[Pod], Pod], data: st.DataObject
) -> None:
    nodes, pods, pod = crowd
    groups = {p.uid: data.draw(st.sampled_from(("", "g", "h"))) for p in pods}
    grouped = [
        a_pod(
            p.uid,
            p.node,
            p.requirements.requests.get("cpu", 0),
            p.priority,
            group=groups[p.uid],
            min_count=2,
        )
        for p in pods
    ]
    found = sought(ALL, Snapshot.of(nodes, grouped), pod, PreemptionArgs(whole_groups=True))
    for candidate in found.candidates:
        gone = uids(candidate.victims)
        for name in ("g", "h"):
            members = {uid for uid, group in groups.items() if group == name}
            assert members <= gone or not members & gone


@a_law(100)
@given(a_crowd(between=False))
def test_budgets_are_broken_only_where_that_frees_a_node(
    crowd: tuple[list[Node], list[Pod], Pod],
) -> None:
    """What is reported as going against a budget does: of a budget that lets one go, the second one
    on a node."""
    nodes, pods, pod = crowd
    one = DisruptionBudget("default", "all", LabelSelector(), allowed=1)
    snapshot = Snapshot.of(nodes, pods, ClusterObjects.of([one]))
    outcome = RESOURCES.run(snapshot, pod)
    names = curable(RESOURCES.refused(outcome))
    for found in survey(outcome.cycle, pod, names, PreemptionArgs()).values():
        if isinstance(found, PreemptionCandidate):
            covered = sum(covers(one, victim) for victim in found.victims)
            assert found.violations >= covered - 1
            assert found.violations <= covered
