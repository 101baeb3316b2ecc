"""Where descheduling differs from the descheduler unless the policy is strict, each difference by
the pod that shows it."""

from __future__ import annotations

from wharfinger.domain import descheduling as d
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits, WeightedNodeTerm
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.policy import LoadPolicy, SyncPeriod
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.descheduling.evictor import EVICT
from wharfinger.engine.descheduling.run import passed, run
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.usage import NodesUsage, bounds
from wharfinger.engine.descheduling.view import ClusterView
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.events.node_load import NodeLoadObserved

MINUTE_US = 60_000_000
AT = 1000 * MINUTE_US
METRIC = "cpu_usage_avg_5m"
TAINTED = (Taint("k", "NoSchedule"),)
ADVICE = "preferredDuringSchedulingIgnoredDuringExecution"


def a_node(name: str, **facts: object) -> Node:
    return Node(name, {"cpu": 4000, "memory": 2**33, "pods": 10}, **facts)  # type: ignore[arg-type]


def a_pod(
    name: str,
    node: str,
    cpu: int = 500,
    annotations: dict[str, str] | None = None,
    traits: PodTraits | None = None,
) -> Pod:
    upkeep = PodUpkeep(owners=(Owner("ReplicaSet", name, name),), annotations=annotations or {})
    return Pod(name, name, Requirements({"cpu": cpu}, pod=traits), node, upkeep=upkeep)


def a_policy(*strategies: d.Strategy, strict: bool = False, **said: object) -> d.DeschedulingPolicy:
    profile = d.DeschedulerProfile("p", balance=strategies)
    return d.DeschedulingPolicy((profile,), strict=strict, **said)  # type: ignore[arg-type]


def named(
    policy: d.DeschedulingPolicy, nodes: list[Node], pods: list[Pod], load: LoadBook | None = None
) -> list[str]:
    return [e.pod for e in run(policy, ClusterView(AT, nodes, pods, load=load))]


def test_a_pod_without_another_place_stays() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b", unschedulable=True)]
    assert named(a_policy(d.NodeTaints()), nodes, [a_pod("x", "a")]) == []
    assert named(a_policy(d.NodeTaints(), strict=True), nodes, [a_pod("x", "a")]) == ["x"]


def test_two_pods_are_not_sent_into_one_gap() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b")]
    pods = [a_pod("x", "a", 1500), a_pod("y", "a", 1500), a_pod("there", "b", 1500)]
    assert named(a_policy(d.NodeTaints()), nodes, pods) == ["x"]
    assert named(a_policy(d.NodeTaints(), strict=True), nodes, pods) == ["x", "y"]


def test_evict_false_means_no() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b")]
    critical = Pod("x", "x", Requirements({"cpu": 1}), "a", priority=2_000_000_000)
    told = PodUpkeep(owners=(Owner("ReplicaSet", "x", "x"),), annotations={EVICT: "false"})
    pod = Pod("x", "x", critical.requirements, "a", priority=critical.priority, upkeep=told)
    assert named(a_policy(d.NodeTaints()), nodes, [pod]) == []
    assert named(a_policy(d.NodeTaints(), strict=True), nodes, [pod]) == ["x"]


def test_a_preference_for_a_cordoned_node_moves_nobody() -> None:
    term = NodeTerm((Requirement("disk", "In", ("ssd",)),))
    traits = PodTraits(preferences=(WeightedNodeTerm(5, term),))
    nodes = [a_node("a"), a_node("b", labels={"disk": "ssd"}, unschedulable=True), a_node("c")]
    pods = [a_pod("x", "a", traits=traits)]
    assert named(a_policy(d.NodeAffinity((ADVICE,))), nodes, pods) == []
    assert named(a_policy(d.NodeAffinity((ADVICE,)), strict=True), nodes, pods) == ["x"]


def test_a_replica_of_ours_is_nobodys_bare_pod() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b")]
    pod = Pod("u", "web-0", Requirements({"cpu": 100}), "a", binding="web", ordinal=0)
    (found,) = run(a_policy(d.NodeTaints()), ClusterView(AT, nodes, [pod]))
    assert (found.binding, found.ordinal, found.node, found.target) == ("web", 0, "a", "b")
    assert found.reason == "taint k:NoSchedule on a is not tolerated"


def test_of_a_pod_of_which_nothing_is_known_nothing_is_done() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b")]
    assert (
        named(a_policy(d.NodeTaints()), nodes, [Pod("u", "x", Requirements({"cpu": 100}), "a")])
        == []
    )


def test_a_missing_priority_class_fails_its_strategy_alone() -> None:
    nodes = [a_node("a", taints=TAINTED), a_node("b")]
    broken = d.DeschedulerProfile("one", d.EvictorArgs(priority_class="gold"), (d.NodeTaints(),))
    whole = d.DeschedulerProfile("two", deschedule=(d.NodeTaints(),))
    done = passed(d.DeschedulingPolicy((broken, whole)), ClusterView(AT, nodes, [a_pod("x", "a")]))
    assert [(f.profile, f.why) for f in done.failures] == [
        ("one", "no priority class is called gold")
    ]
    assert [e.profile for e in done.evictions] == ["two"]


# Watermarks.


MARKS = d.CraneWatermarks((d.Watermark(METRIC, 70_000, 50_000),), samples=3)


def measured(at: int, **loads: int) -> LoadBook:
    book = LoadBook({}, LoadPolicy(sync=(SyncPeriod(METRIC, 300),)))
    book.observe(
        NodeLoadObserved("c", METRIC, 300, at, {node: load * 1000 for node, load in loads.items()})
    )
    return book


def passes(memory: Memory, *loads: dict[str, int]) -> list[list[str]]:
    """One pass for each measurement, five minutes apart; nothing is moved in between."""
    nodes, out = [a_node("a"), a_node("b")], []
    pods = [a_pod(f"p{i}", "a") for i in range(4)]
    for i, load in enumerate(loads):
        at = AT + 5 * i * MINUTE_US
        view = ClusterView(at, nodes, pods, load=measured(at, **load))
        out.append([e.pod for e in run(a_policy(MARKS), view, memory)])
    return out


def test_a_node_is_relieved_after_enough_measurements_in_a_row() -> None:
    hot, mild = {"a": 90, "b": 10}, {"a": 60, "b": 10}
    assert passes(Memory(), hot, hot, hot) == [[], [], ["p0"]]
    assert passes(Memory(), hot, hot, mild, hot, hot) == [[], [], [], [], []]


def test_it_is_relieved_until_it_is_low_and_not_only_below_the_high_mark() -> None:
    hot, mild, low = {"a": 90, "b": 10}, {"a": 60, "b": 10}, {"a": 50, "b": 10}
    assert passes(Memory(), hot, hot, hot, mild, low, mild) == [[], [], ["p0"], ["p1"], [], []]


def test_a_node_is_held_whose_load_is_too_old() -> None:
    view = ClusterView(
        AT,
        [a_node("a"), a_node("b")],
        [a_pod("x", "a")],
        load=measured(AT - 60 * MINUTE_US, a=90, b=10),
    )
    done = passed(a_policy(MARKS), view)
    assert done.evictions == ()
    assert [f.why for f in done.failures] == ["the load of 2 nodes is not known: a, b"]


def test_nothing_is_sent_to_a_node_that_it_would_lift_above_the_low_mark() -> None:
    view = ClusterView(
        AT, [a_node("a"), a_node("b")], [a_pod("x", "a")], load=measured(AT, a=90, b=10)
    )
    assert run(a_policy(MARKS), view) == ()  # the one pod is taken for all of the load
    view = ClusterView(AT, view.nodes, [a_pod("x", "a"), a_pod("y", "a", 2000)], load=view.load)
    assert [e.pod for e in run(a_policy(MARKS), view)] == ["x"]


def test_a_workload_rests_twice_as_long_after_each_bout() -> None:
    memory = Memory(cooldown_s=60, return_s=0)
    memory.moved("web", 0, "a", "b", AT)
    assert memory.resting("Binding/web", AT + MINUTE_US // 2)
    assert not memory.resting("Binding/web", AT + MINUTE_US)
    memory.moved("web", 1, "b", "a", AT + MINUTE_US)
    assert memory.resting("Binding/web", AT + MINUTE_US + 3 * MINUTE_US // 2)
    assert not memory.resting("Binding/web", AT + 3 * MINUTE_US)


def test_thresholds_that_deviate_from_the_mean_of_no_node_are_thresholds() -> None:
    """A cluster of which no node takes pods ended the descheduler by a division by zero."""
    none = NodesUsage({}, {}, {})
    found = bounds({"cpu": 10.0}, {"cpu": 20.0}, none, deviation=True)
    assert (found.low, found.high) == ({"cpu": 0.0}, {"cpu": 20.0})
