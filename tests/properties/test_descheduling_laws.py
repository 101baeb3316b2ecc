"""Laws of a pass over any cluster: nobody is named twice, everybody has a place, limits and budgets
hold, and it ends."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.hunting import examples

from wharfinger.domain import descheduling as d
from wharfinger.domain import pod_traits
from wharfinger.domain.cluster_objects import ClusterObjects, DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.descheduling.evictor import Eviction
from wharfinger.engine.descheduling.run import run
from wharfinger.engine.descheduling.view import ClusterView

CORES, SLOTS = 4000, 12
APPS = ("a", "b", "c")

STRATEGIES: tuple[d.Strategy, ...] = (
    d.NodeTaints(),
    d.InterPodAntiAffinity(),
    d.RemoveDuplicates(),
    d.TopologySpread(),
    d.LowNodeUtilization({"cpu": 30.0, "pods": 30.0}, {"cpu": 60.0, "pods": 70.0}),
    d.HighNodeUtilization({"cpu": 30.0}),
)


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(2, 6))
    tainted = draw(st.lists(st.integers(0, count - 1), max_size=1))
    cordoned = draw(st.lists(st.integers(0, count - 1), max_size=1))
    return [
        Node(
            f"n{i}",
            {"cpu": CORES, "pods": SLOTS},
            labels={"zone": f"z{i % 2}", "host": f"n{i}"},
            taints=(Taint("k", "NoSchedule"),) if i in tainted else (),
            unschedulable=i in cordoned,
        )
        for i in range(count)
    ]


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    there = draw(nodes())
    pods: list[Pod] = []
    left = {node.name: CORES for node in there}
    for i in range(draw(st.integers(0, 24))):
        app, cpu = draw(st.sampled_from(APPS)), draw(st.sampled_from([0, 200, 500, 1500]))
        node = draw(st.sampled_from(there)).name
        if left[node] < cpu or sum(pod.node == node for pod in pods) >= SLOTS:
            continue
        left[node] -= cpu
        pods.append(pod_of(f"p{i}", app, cpu, node, draw(st.integers(0, 2)), draw(st.booleans())))
    budgets = [
        DisruptionBudget("default", app, LabelSelector({"app": app}), allowed=1)
        for app in draw(some_apps())
    ]
    return ClusterView(1, there, pods, ClusterObjects.of(budgets))


def some_apps() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(APPS), unique=True, max_size=2)


def pod_of(name: str, app: str, cpu: int, node: str, priority: int, picky: bool) -> Pod:
    selector = LabelSelector({"app": app})
    traits = pod_traits.PodTraits(
        namespace="default",
        labels={"app": app},
        spread=(pod_traits.TopologySpread("zone", 1, True, selector),) if app == "a" else (),
        anti_affinity=(pod_traits.PodTerm("host", selector),) if app == "b" and picky else (),
    )
    upkeep = PodUpkeep(
        owners=(Owner("ReplicaSet", app, app),), images=(app,), quality="Burstable", phase="Running"
    )
    requests = {"cpu": cpu} if cpu else {}
    return Pod(
        name, name, Requirements(requests, pod=traits), node, priority=priority, upkeep=upkeep
    )


def policies() -> st.SearchStrategy[d.DeschedulingPolicy]:
    chosen = st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3, unique_by=d.name_of)
    limit = st.none() | st.integers(0, 3)
    return st.builds(
        lambda said, node, space, total: d.DeschedulingPolicy(
            (d.DeschedulerProfile("p", balance=tuple(said)),), node, space, total
        ),
        chosen,
        limit,
        limit,
        limit,
    )


def after(view: ClusterView, found: tuple[Eviction, ...]) -> ClusterView:
    """With everybody where it was found a place for."""
    target = {eviction.pod: eviction.target for eviction in found}
    moved = [structs.replace(pod, node=target.get(pod.uid, pod.node)) for pod in view.pods]
    return ClusterView(view.at + 1, view.nodes, moved, view.objects)


@settings(max_examples=examples(120), deadline=None)
@given(views(), policies())
def test_nobody_is_named_twice_or_beyond_a_limit_or_budget(
    view: ClusterView, policy: d.DeschedulingPolicy
) -> None:
    found = run(policy, view)
    assert len({e.pod for e in found}) == len(found)
    assert policy.total is None or len(found) <= policy.total
    by_node = Counter(e.node for e in found)
    assert policy.per_node is None or max(by_node.values(), default=0) <= policy.per_node
    assert policy.per_namespace is None or len(found) <= policy.per_namespace
    app = {pod.uid: pod.requirements.traits.labels["app"] for pod in view.pods}
    for budget in view.objects.budgets:
        assert sum(app[e.pod] == budget.name for e in found) <= 1


@settings(max_examples=examples(120), deadline=None)
@given(views(), policies())
def test_everybody_has_a_place_of_its_own(view: ClusterView, policy: d.DeschedulingPolicy) -> None:
    """All targets together hold: nobody was sent into a gap that another takes."""
    found = run(policy, view)
    then = after(view, found)
    by_name = {node.name: node for node in view.nodes}
    for e in found:
        assert e.target
        assert e.target != e.node
        assert not by_name[e.target].unschedulable
        assert not by_name[e.target].taints
    for node in view.nodes:
        here = [pod for pod in then.pods if pod.node == node.name]
        assert sum(pod.requirements.requests.get("cpu", 0) for pod in here) <= CORES
        assert len(here) <= SLOTS


@settings(max_examples=examples(60), deadline=None)
@given(views(), st.booleans())
def test_the_same_view_gives_the_same_answer(view: ClusterView, strict: bool) -> None:
    policy = d.DeschedulingPolicy((d.DeschedulerProfile("p", balance=STRATEGIES),), strict=strict)
    assert run(policy, view) == run(policy, view)


@settings(max_examples=examples(60), deadline=None)
@given(views())
def test_balancing_ends(view: ClusterView) -> None:
    """Each move lowers how far nodes are above their targets, so on a cluster where nothing else
    happens proposals end."""
    policy = d.DeschedulingPolicy((d.DeschedulerProfile("p", balance=(STRATEGIES[4],)),))
    view = ClusterView(view.at, view.nodes, view.pods)
    excess = above(view)
    for _ in range(40):
        found = run(policy, view)
        if not found:
            return
        view = after(view, found)
        assert above(view) < excess
        excess = above(view)
    raise AssertionError("it goes on and on")


def test_what_its_node_has_enough_of_is_not_moved() -> None:
    """A node above its target of cores gives away none that asks for no core, and one that does."""
    there = [
        Node(f"n{i}", {"cpu": CORES, "pods": SLOTS}, labels={"host": f"n{i}"}) for i in range(2)
    ]
    pods = [
        pod_of("idle", "c", 0, "n0", 0, False),
        *[pod_of(f"busy-{i}", "c", 1500, "n0", 1, False) for i in range(2)],
    ]
    policy = d.DeschedulingPolicy((d.DeschedulerProfile("p", balance=(STRATEGIES[4],)),))
    [found] = run(policy, ClusterView(1, there, pods))
    assert (found.pod, found.target) == ("busy-0", "n1")


def above(view: ClusterView) -> int:
    """By how much all nodes together are above 60 % of their cores and 70 % of their slots."""
    total = 0
    for node in view.nodes:
        here = [pod for pod in view.pods if pod.node == node.name]
        cpu = sum(pod.requirements.requests.get("cpu", 0) for pod in here)
        total += max(0, cpu - CORES * 60 // 100) + 1000 * max(0, len(here) - SLOTS * 70 // 100)
    return total
