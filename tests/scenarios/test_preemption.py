"""A pod that fits nowhere takes the place of less important ones."""

from __future__ import annotations

import pytest
from tests.framework_world import HOST, ZONE, a_node, a_pod, only, selecting

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects, DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, TopologySpread
from wharfinger.domain.scheduler import Arguments, PreemptionArgs
from wharfinger.engine.framework.budgets import allowed
from wharfinger.engine.framework.preemption import OBSTACLES_MAX, Preemption, find
from wharfinger.engine.framework.protocols import Nominated
from wharfinger.engine.framework.snapshot import Snapshot

PLUGINS = only(
    "NodeUnschedulable",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DefaultPreemption",
)


def preempted(
    nodes: list[Node],
    pods: list[Pod],
    pod: Pod,
    *objects: ClusterObject,
    args: PreemptionArgs | None = None,
    nominated: str = "",
) -> Preemption:
    outcome = PLUGINS.run(Snapshot.of(nodes, pods, ClusterObjects.of(objects)), pod)
    assert not outcome.feasible
    return find(outcome.cycle, pod, PLUGINS.refused(outcome), args or PreemptionArgs(), nominated)


def victims(found: Preemption) -> tuple[str, ...]:
    assert found.chosen is not None, found.text
    return tuple(v.name for v in found.chosen.victims)


def test_the_least_important_go_and_no_more_than_needed() -> None:
    pods = [a_pod("low", "n", 1000, 1), a_pod("lower", "n", 1000, 0), a_pod("mid", "n", 2000, 5)]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9))
    assert victims(found) == ("low", "lower")


def test_of_equals_the_younger_goes() -> None:
    pods = [a_pod("old", "n", 2000, 1, started_s=10), a_pod("young", "n", 2000, 1, started_s=20)]
    assert victims(preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9))) == ("young",)


def test_a_pod_that_has_not_started_is_the_youngest() -> None:
    pods = [a_pod("running", "n", 2000, 1, started_s=10), a_pod("starting", "n", 2000, 1)]
    assert victims(preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9))) == (
        "starting",
    )


def chosen(*pods: Pod, budget: DisruptionBudget | None = None) -> str:
    """Of the nodes n and o, full of these, for a pod that needs one of them whole."""
    nodes = [a_node("n"), a_node("o")]
    found = preempted(
        nodes, list(pods), a_pod("new", cpu=4000, priority=9), *([budget] if budget else [])
    )
    assert found.chosen is not None
    return found.chosen.node


def test_which_node_costs_least() -> None:
    """In this order: budgets, the most important victim, all victims' priorities, how many they
    are, how long they have run."""
    guarded = DisruptionBudget("default", "g", selecting(app="g"), allowed=0)
    important = a_pod("a", "o", 4000, 8)
    assert chosen(a_pod("b", "n", 4000, 1, labels={"app": "g"}), important, budget=guarded) == "o"
    assert chosen(a_pod("b", "n", 4000, 1), important) == "n"
    assert (
        chosen(
            a_pod("b", "n", 2000, 2),
            a_pod("c", "n", 2000, 1),
            a_pod("d", "o", 2000, 2),
            a_pod("e", "o", 2000),
        )
        == "o"
    )
    assert (
        chosen(a_pod("b", "n", 2000, 2), a_pod("c", "n", 2000, 2), a_pod("d", "o", 4000, 2)) == "o"
    )
    assert (
        chosen(a_pod("b", "n", 4000, 2, started_s=5), a_pod("d", "o", 4000, 2, started_s=6)) == "o"
    )
    assert (
        chosen(a_pod("b", "n", 4000, 2, started_s=6), a_pod("d", "o", 4000, 2, started_s=5)) == "n"
    )
    assert chosen(a_pod("b", "n", 4000, 2, started_s=5), a_pod("d", "o", 4000, 2)) == "o"


def test_equal_priority_is_nobodys_victim() -> None:
    found = preempted(
        [a_node("n")], [a_pod("there", "n", 4000, 9)], a_pod("new", cpu=2000, priority=9)
    )
    assert found.chosen is None
    assert found.text == "0/1 nodes are available: 1 No preemption victims found for incoming pod."


def test_a_node_that_would_not_do_empty_is_not_emptied() -> None:
    found = preempted(
        [a_node("n", cpu=1000)], [a_pod("there", "n", 1000)], a_pod("new", cpu=2000, priority=9)
    )
    assert found.text == "0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def test_who_never_preempts_waits() -> None:
    pod = a_pod("new", cpu=2000, priority=9, never_preempts=True)
    found = preempted([a_node("n")], [a_pod("there", "n", 4000)], pod)
    assert found.text == "not eligible due to preemptionPolicy=Never."


def test_while_victims_leave_the_node_that_was_promised_no_others_are_sought() -> None:
    nodes = [a_node("n"), a_node("o")]
    pods = [a_pod("leaving", "n", 4000, terminating=True), a_pod("there", "o", 4000)]
    pod = a_pod("new", cpu=2000, priority=9)
    waits = preempted(nodes, pods, pod, nominated="n")
    assert (waits.chosen, waits.text) == (
        None,
        "not eligible due to a terminating pod on the nominated node.",
    )
    assert preempted(nodes, pods, pod).chosen is not None


def test_a_budget_spares_a_pod_where_another_will_do() -> None:
    budget = DisruptionBudget("default", "g", selecting(app="g"), allowed=0)
    pods = [a_pod("guarded", "n", 2000, 0, labels={"app": "g"}), a_pod("free", "n", 2000, 1)]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9), budget)
    assert victims(found) == ("free",)


def test_a_budget_is_broken_where_nothing_else_will_do() -> None:
    budget = DisruptionBudget("default", "g", selecting(app="g"), allowed=0)
    pods = [a_pod("guarded", "n", 4000, 0, labels={"app": "g"})]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9), budget)
    assert found.chosen is not None
    assert found.chosen.violations == 1


def test_a_pod_whose_disruption_was_let_through_is_not_counted_twice() -> None:
    budget = DisruptionBudget("default", "g", selecting(app="g"), allowed=0, disrupted=("let-go",))
    pods = [a_pod("let-go", "n", 4000, 0, labels={"app": "g"})]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9), budget)
    assert found.chosen is not None
    assert found.chosen.violations == 0


def test_of_equally_important_victims_those_that_a_budget_protects_are_named_first() -> None:
    budget = DisruptionBudget("default", "g", selecting(app="g"), allowed=0)
    pods = [
        a_pod("a", "n", 1000, 1),
        a_pod("b", "n", 1000, 1, labels={"app": "g"}),
        a_pod("c", "n", 1000, 1),
        a_pod("d", "n", 1000, 2),
    ]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=4000, priority=9), budget)
    assert found.chosen is not None
    assert [victim.name for victim in found.chosen.victims] == ["d", "b", "a", "c"]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"allowed": 2}, 2),
        ({"min_available": "3"}, 0),
        ({"min_available": "2"}, 1),
        ({"min_available": "51%"}, 0),  # of four pods that is three
        ({"max_unavailable": "1"}, 0),  # one is about to end already
        ({"max_unavailable": "2"}, 1),
        ({"max_unavailable": "30%"}, 1),  # two of four
        ({}, 0),
    ],
)
def test_a_budget_without_a_report_is_counted_over_the_pods_that_are_there(
    said: dict[str, str], left: int
) -> None:
    budget = DisruptionBudget("default", "g", selecting(app="g"), **said)  # type: ignore[arg-type]
    pods = [a_pod(f"p{i}", "n", labels={"app": "g"}, terminating=i == 0) for i in range(4)]
    others = [
        a_pod("other", "n"),
        a_pod("elsewhere", "n", labels={"app": "g"}, namespace="elsewhere"),
    ]
    assert allowed([budget], [*pods, *others]) == {("default", "g"): left}


GROUP = {"group": "g", "min_count": 2}


def test_a_group_is_taken_apart_unless_it_was_asked_not_to() -> None:
    nodes = [a_node("n"), a_node("o")]
    pods = [
        a_pod("g0", "n", 4000, 1, **GROUP),  # type: ignore[arg-type]
        a_pod("g1", "o", 4000, 1, **GROUP),  # type: ignore[arg-type]
    ]
    pod = a_pod("new", cpu=2000, priority=9)
    assert len(victims(preempted(nodes, pods, pod))) == 1
    assert set(victims(preempted(nodes, pods, pod, args=PreemptionArgs(whole_groups=True)))) == {
        "g0",
        "g1",
    }


def test_a_single_pod_goes_rather_than_a_group() -> None:
    nodes = [a_node("n"), a_node("o")]
    pods = [
        a_pod("g0", "n", 2000, 1, **GROUP),  # type: ignore[arg-type]
        a_pod("g1", "n", 2000, 1, **GROUP),  # type: ignore[arg-type]
        a_pod("single", "o", 4000, 1),
    ]
    found = preempted(
        nodes, pods, a_pod("new", cpu=2000, priority=9), args=PreemptionArgs(whole_groups=True)
    )
    assert victims(found) == ("single",)


APART_BY_ZONE = (PodTerm(ZONE, selecting(app="web")),)


def test_an_obstacle_on_another_node_of_the_zone_stays_unless_asked() -> None:
    nodes = [a_node("n", "x"), a_node("o", "x", cpu=100)]
    pods = [a_pod("web", "o", 100, 1, labels={"app": "web"})]
    pod = a_pod("new", cpu=2000, priority=9, anti_affinity=APART_BY_ZONE)
    assert preempted(nodes, pods, pod).chosen is None
    found = preempted(nodes, pods, pod, args=PreemptionArgs(across_nodes=True))
    assert (found.chosen and found.chosen.node, victims(found)) == ("n", ("web",))


def test_who_minds_the_newcomer_from_another_node_is_an_obstacle_too() -> None:
    nodes = [a_node("n", "x"), a_node("o", "x", cpu=100)]
    pods = [a_pod("shy", "o", 100, 1, anti_affinity=APART_BY_ZONE)]
    pod = a_pod("new", cpu=2000, priority=9, labels={"app": "web"})
    found = preempted(nodes, pods, pod, args=PreemptionArgs(across_nodes=True))
    assert (found.chosen and found.chosen.node, victims(found)) == ("n", ("shy",))


def test_a_zone_that_is_too_full_is_thinned() -> None:
    """Two more stand in zone x than in y, where there is no room: one of x goes, though it stands
    on another node."""
    nodes = [a_node("n", "x"), a_node("o", "x", cpu=100), a_node("p", "y", cpu=100)]
    web = {"app": "web"}
    pods = [
        a_pod("w0", "o", 50, 1, labels=web, started_s=1),
        a_pod("w1", "o", 50, 1, labels=web, started_s=2),
    ]
    spread = (TopologySpread(ZONE, 2, selector=selecting(app="web")),)
    pod = a_pod("new", cpu=2000, priority=9, labels=web, spread=spread)
    assert preempted(nodes, pods, pod).chosen is None
    found = preempted(nodes, pods, pod, args=PreemptionArgs(across_nodes=True))
    assert (found.chosen and found.chosen.node, victims(found)) == ("n", ("w1",))


def test_the_search_across_nodes_gives_up_where_too_many_are_in_the_way() -> None:
    nodes = [a_node("n", "x"), a_node("o", "x", cpu=100)]
    pods = [a_pod(f"web{i}", "o", 1, 1, labels={"app": "web"}) for i in range(OBSTACLES_MAX + 1)]
    pod = a_pod("new", cpu=4000, priority=9, anti_affinity=APART_BY_ZONE)
    found = preempted(nodes, pods[1:], pod, args=PreemptionArgs(across_nodes=True))
    assert len(victims(found)) == OBSTACLES_MAX
    found = preempted(nodes, pods, pod, args=PreemptionArgs(across_nodes=True))
    assert found.chosen is None
    assert "1 too many pods on other nodes stand in the way of incoming pod" in found.text


def test_enough_candidates_are_enough_if_one_breaks_no_budget() -> None:
    """On a hundred full nodes ten are looked at, and more only as long as each breaks a budget."""
    nodes = [a_node(f"n{i:03}") for i in range(100)]
    args = PreemptionArgs(min_candidates_percent=10, min_candidates=1)
    pods = [a_pod(f"p{i:03}", f"n{i:03}", 4000, labels={"app": "g"}) for i in range(100)]
    pod = a_pod("new", cpu=2000, priority=9)
    assert len(preempted(nodes, pods, pod, args=args).candidates) == 10
    budget = DisruptionBudget("default", "g", selecting(app="g"), allowed=0)
    assert len(preempted(nodes, pods, pod, budget, args=args).candidates) == 100


def test_the_plugin_nominates_and_says_why_not() -> None:
    plugins = only("NodeResourcesFit", "DefaultPreemption", arguments=Arguments())
    snapshot = Snapshot.of([a_node("n")], [a_pod("there", "n", 4000, 1)])
    high, low = a_pod("high", cpu=2000, priority=9), a_pod("low", cpu=2000)
    nominated, _ = plugins.post_filter(plugins.run(snapshot, high), high)
    assert nominated == Nominated("n", (snapshot.nodes["n"].pods[0],))
    assert plugins.post_filter(plugins.run(snapshot, low), low) == (
        None,
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
    )


def test_a_host_is_a_domain_like_any_other() -> None:
    """Anti-affinity by host is cured on the node itself, without looking across."""
    apart = (PodTerm(HOST, selecting(app="web")),)
    pods = [a_pod("web", "n", 100, 1, labels={"app": "web"})]
    found = preempted([a_node("n")], pods, a_pod("new", cpu=2000, priority=9, anti_affinity=apart))
    assert victims(found) == ("web",)
