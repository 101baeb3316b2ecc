"""How the cluster stage places by profiles, objects, load, priorities, groups and gates, in the
words of those who run it."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import ref

import msgspec
import pytest
from tests.cluster_world import CLUSTER, GIB, STREAM, Harness, a_node, needs, outcomes, replicas_in

from wharfinger.domain.cluster_objects import DisruptionBudget, NamespaceLabels
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.domain.scheduler import Arguments, FitArgs, Profile, SchedulerConfig
from wharfinger.domain.scheduler_points import default_points
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved
from wharfinger.events.decisions import (
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved, concerns_nodes
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile
from wharfinger.stages.cluster.profile import Window

WEB = {"app": "web"}
ITSELF = LabelSelector(WEB)
SECOND = 1_000_000


@pytest.fixture
def plane() -> Iterable[Harness]:
    """After each story: it is decided again with the same bytes, a stored state is the same state,
    and a state that is dropped is freed without the collector, which looks at old states seldom."""
    harness = Harness()
    yield harness
    decider = harness.decider
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), harness.rounds).divergences
        == []
    )
    live = decider.dump(harness.state)
    assert decider.dump(recover(decider, decider.initial(STREAM), harness.rounds)) == live
    assert decider.dump(decider.load(STREAM, live)) == live
    known = ref(harness.state)
    del harness.state
    assert known() is None


def pod_of(cpu: int = 1000, memory: int = GIB, **traits: object) -> Requirements:
    return msgspec.structs.replace(needs(cpu, memory), pod=PodTraits(**traits))  # type: ignore[arg-type]


def refusal(decisions: Iterable[Decision]) -> ReplicasRefused:
    (found,) = [d.data for d in decisions if isinstance(d.data, ReplicasRefused)]
    return found


def configured(*profiles: Profile, name: str = "ours") -> PolicyApplied:
    return PolicyApplied(
        Policy("KubeSchedulerConfiguration", name, scheduler=SchedulerConfig(profiles))
    )


def packing(name: str) -> Profile:
    return Profile(name, default_points(), Arguments(fit=FitArgs(strategy="MostAllocated")))


def nodes_of(plane: Harness, binding: str) -> list[str]:
    return sorted(plane.where(binding).values())


# --- profiles


def test_a_pod_is_placed_by_the_profile_it_names(plane: Harness) -> None:
    plane.nodes(a_node("a"), a_node("b"), a_node("c"))
    packer = packing("packer")
    points = {
        point: tuple(use for use in uses if use.name != "NodeResourcesBalancedAllocation")
        for point, uses in packer.points.items()
    }
    plane.feed(configured(msgspec.structs.replace(packer, points=points)))
    plane.assign("spread", 3, needs(cpu=500, memory=2 * GIB))
    plane.assign("packed", 3, pod_of(500, 2 * GIB, scheduler="packer"))
    assert nodes_of(plane, "spread") == ["a", "b", "c"]
    assert len(set(nodes_of(plane, "packed"))) == 1


def test_a_scheduler_that_nobody_has_configured_is_refused_by_name(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    no = refusal(plane.assign("web", 2, pod_of(scheduler="volcano")))
    assert (no.count, no.reason) == (2, "UnknownScheduler")
    assert no.explanation.note == "no profile of a scheduler is called volcano"
    plane.feed(configured(packing("volcano")))
    assert outcomes(plane.assign("web", 2, pod_of(scheduler="volcano"))) == [("placed", "web")]


def test_the_default_scheduler_stays_where_a_configuration_does_not_name_it(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.feed(configured(packing("packer")))
    assert outcomes(plane.assign("web", 1, needs(cpu=1))) == [("placed", "web")]
    plane.feed(PolicyRemoved("KubeSchedulerConfiguration", "ours"))
    assert (
        refusal(plane.assign("batch", 1, pod_of(scheduler="packer"))).reason == "UnknownScheduler"
    )


def test_policies_about_clusters_and_loads_without_a_policy_change_nothing_here(
    plane: Harness,
) -> None:
    assert not concerns_nodes(PolicyApplied(Policy("PropagationPolicy", "web")))
    assert concerns_nodes(configured(packing("packer")))
    before = plane.decider.dump(plane.state)
    assert outcomes(plane.feed(NodeLoadObserved(CLUSTER, "cpu", 15, 1, {}))) == []
    assert plane.decider.dump(plane.state) == before


# --- other pods and objects


def test_foreign_pods_are_seen_with_their_labels_and_ports(plane: Harness) -> None:
    plane.nodes(a_node("a", labels={"host": "a"}), a_node("b", labels={"host": "b"}))
    foreign = pod_of(1, 1, labels=WEB, ports=(HostPort(80),))
    plane.pods("a", Pod("u", "u", foreign, "a"))
    plane.assign("apart", 1, pod_of(1, 1, anti_affinity=(PodTerm("host", ITSELF),)))
    assert nodes_of(plane, "apart") == ["b"]
    plane.assign("listening", 1, pod_of(1, 1, ports=(HostPort(80),)))
    assert nodes_of(plane, "listening") == ["b"]
    assert (
        refusal(plane.assign("more", 1, pod_of(1, 1, ports=(HostPort(80),)))).reason == "NodePorts"
    )


def test_namespaces_are_known_by_their_labels(plane: Harness) -> None:
    plane.nodes(a_node("a", labels={"host": "a"}), a_node("b", labels={"host": "b"}))
    plane.feed(
        ObjectsObserved(CLUSTER, "Namespace", "", (NamespaceLabels("lab", {"kind": "noisy"}),))
    )
    plane.pods("a", Pod("u", "u", pod_of(1, 1, namespace="lab", labels=WEB), "a"))
    apart = PodTerm("host", ITSELF, namespace_selector=LabelSelector({"kind": "noisy"}))
    plane.assign("quiet", 1, pod_of(1, 1, anti_affinity=(apart,)))
    assert nodes_of(plane, "quiet") == ["b"]


def test_replicas_keep_the_skew_over_zones(plane: Harness) -> None:
    plane.nodes(*[a_node(f"n{i}", cpu=64000, labels={"zone": f"z{i % 3}"}) for i in range(6)])
    plane.assign(
        "web", 7, pod_of(10, 1, labels=WEB, spread=(TopologySpread("zone", 1, selector=ITSELF),))
    )
    zones = [int(name[1]) % 3 for name in nodes_of(plane, "web")]
    assert sorted(zones.count(z) for z in range(3)) == [2, 2, 3]


def test_a_refusal_says_what_users_know(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=100), a_node("b", cpu=100), a_node("off", unschedulable=True))
    no = refusal(plane.assign("web", 1, needs(cpu=2000)))
    assert (
        no.explanation.note
        == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    )
    assert len(canonical(no.explanation)) <= 2048


# --- load

LOAD = Policy(
    "DynamicSchedulerPolicy",
    "load",
    load=LoadPolicy(
        (SyncPeriod("cpu", 60),),
        (LoadLimit("cpu", 80_000),),
        (LoadWeight("cpu", 1000),),
        (HotWindow(300, 2),),
    ),
)


def measured(plane: Harness, **loads: int) -> NodeLoadObserved:
    return NodeLoadObserved(CLUSTER, "cpu", 60, plane.at, loads)


def test_a_hot_node_is_avoided_and_a_burst_is_damped(plane: Harness) -> None:
    plane.nodes(*[a_node(name, cpu=64000, memory=256 * GIB) for name in "abc"])
    plane.feed(PolicyApplied(LOAD), measured(plane, a=90_000, b=10_000, c=12_000))
    (decision,) = plane.assign("web", 8, needs(cpu=10, memory=1))
    assert isinstance(decision.data, ReplicasPlaced)
    assert decision.data.explanation.refused == {"LoadTooHigh": 1}
    where = nodes_of(plane, "web")
    assert "a" not in where
    assert where.count("c") >= 2, "all of a burst on the coolest node makes it the hottest"


def test_what_is_not_known_of_the_load_is_said_and_does_not_stop_anything(plane: Harness) -> None:
    plane.nodes(a_node("a"), a_node("b"))
    plane.feed(PolicyApplied(LOAD), measured(plane, a=10_000))
    (decision,) = plane.assign("web", 1, needs(cpu=10))
    assert isinstance(decision.data, ReplicasPlaced)
    assert "cpu of 1 nodes" in decision.data.explanation.note
    plane.feed(measured(plane, a=95_000, b=95_000))
    no = refusal(plane.assign("late", 1, needs(cpu=10)))
    assert (no.reason, no.count) == ("LoadTooHigh", 1)
    (again,) = plane.feed(plane.assigned(("late", 1, needs(cpu=10), 0)), seconds=3600)
    assert again.outcome == "placed", "a measurement of an hour ago says nothing"


# --- batches


def gathering(idle_s: int = 1, longest_s: int = 10) -> Harness:
    harness = Harness()
    harness.decider = ClusterDecider(
        ClusterProfile(window=Window(idle_s * SECOND, longest_s * SECOND))
    )
    harness.state = harness.decider.initial(STREAM)
    return harness


def test_what_comes_within_a_window_is_placed_together() -> None:
    plane = gathering()
    plane.nodes(a_node("a", cpu=3000))
    assert plane.assign("small", 1, needs(cpu=1000)) == []
    due = plane.decider.next_due(plane.state)
    assert due == plane.at + SECOND
    assert plane.assign("large", 1, needs(cpu=2000), priority=5) == []
    assert plane.decider.next_due(plane.state) == plane.at + SECOND
    decisions = plane.feed(Ticked(STREAM, plane.at + SECOND), seconds=1)
    assert outcomes(decisions) == [("placed", "large"), ("placed", "small")]
    assert plane.decider.next_due(plane.state) is None
    assert ClusterDecider.of_profile(plane.decider.profile).profile == plane.decider.profile


def test_a_window_closes_though_more_comes_all_the_time() -> None:
    plane = gathering(idle_s=2, longest_s=3)
    plane.nodes(a_node("a", cpu=64000))
    placed = 0
    for i in range(6):
        placed += len(plane.feed(plane.assigned((f"b{i}", 1, needs(cpu=10), 0)), seconds=1))
    assert placed >= 4


def test_a_stored_window_goes_on() -> None:
    plane = gathering()
    plane.nodes(a_node("a"))
    plane.assign("web", 1, needs(cpu=10))
    loaded = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    assert plane.decider.next_due(loaded) == plane.decider.next_due(plane.state)


# --- preemption


def test_the_important_takes_the_place_of_the_unimportant(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000), a_node("b", cpu=2000))
    plane.assign("batch", 2, needs(cpu=1500))
    decisions = plane.assign("urgent", 1, needs(cpu=1500), priority=10)
    assert outcomes(decisions) == [
        ("released", "batch"),
        ("placed", "urgent"),
        ("returned", "batch"),
    ]
    gone = decisions[0].data
    assert isinstance(gone, ReplicasReleased)
    assert gone.reason == "Preempted"
    assert decisions[0].cause == decisions[1].cause
    assert len(plane.where("batch")) == 1


def test_a_victim_is_placed_elsewhere_where_there_is_room(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000, labels={"disk": "ssd"}), a_node("b", cpu=1000))
    plane.assign("batch", 1, needs(cpu=900))
    plane.assign("more", 1, needs(cpu=900))
    picky = msgspec.structs.replace(needs(cpu=2000), node_selector={"disk": "ssd"})
    plane.assign("fill", 1, msgspec.structs.replace(needs(cpu=300), node_selector={"disk": "ssd"}))
    decisions = plane.assign("urgent", 1, picky, priority=1)
    assert nodes_of(plane, "urgent") == ["a"]
    assert any(d.outcome == "released" for d in decisions)


def test_nobody_gives_way_to_his_like_nor_to_who_never_preempts(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    plane.assign("first", 1, needs(cpu=1500), priority=7)
    assert outcomes(plane.assign("equal", 1, needs(cpu=1500), priority=7)) == [("refused", "equal")]
    polite = pod_of(1500, 0, never_preempts=True)
    assert outcomes(plane.assign("polite", 1, polite, priority=9)) == [("refused", "polite")]


def test_pods_of_others_are_never_touched(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    plane.pods("a", Pod("x", "x", needs(cpu=1500), "a", priority=-10))
    assert outcomes(plane.assign("urgent", 1, needs(cpu=1500), priority=1000)) == [
        ("refused", "urgent")
    ]


def test_a_budget_is_kept(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    plane.feed(
        ObjectsObserved(
            CLUSTER,
            "PodDisruptionBudget",
            "shop",
            (DisruptionBudget("shop", "web", ITSELF, allowed=0),),
        )
    )
    plane.assign("web", 1, pod_of(1500, 0, namespace="shop", labels=WEB))
    assert outcomes(plane.assign("urgent", 1, needs(cpu=1500), priority=5)) == [
        ("refused", "urgent")
    ]


def running(plane: Harness, binding: str, requirements: Requirements) -> PodsObserved:
    ((ordinal, node),) = plane.where(binding).items()
    return PodsObserved(
        CLUSTER, node, (Pod(f"uid-{binding}", binding, requirements, node, binding, ordinal),)
    )


def test_while_a_victim_still_runs_its_node_is_kept_for_who_comes(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    plane.assign("batch", 1, needs(cpu=1500))
    plane.feed(running(plane, "batch", needs(cpu=1500)))
    decisions = plane.assign("urgent", 1, needs(cpu=1500), priority=10)
    assert outcomes(decisions) == [
        ("released", "batch"),
        ("nominated", "urgent"),
        ("returned", "batch"),
    ]
    nominated = decisions[1].data
    assert isinstance(nominated, ReplicasNominated)
    assert nominated.node == "a"
    assert plane.decider.next_due(plane.state) == nominated.until_us
    # Its room is kept from who is less important, also while only a part of it is free.
    assert outcomes(plane.assign("sneaky", 1, needs(cpu=500), priority=3)) == [
        ("refused", "sneaky")
    ]
    assert outcomes(plane.feed(PodsObserved(CLUSTER, "a", ()))) == [("placed", "urgent")]
    assert plane.decider.next_due(plane.state) is None
    assert outcomes(plane.assign("sneaky", 1, needs(cpu=500), priority=3)) == [("placed", "sneaky")]


def test_a_room_that_never_gets_free_is_given_up(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    plane.assign("batch", 1, needs(cpu=1500))
    plane.feed(running(plane, "batch", needs(cpu=1500)))
    plane.assign("urgent", 1, needs(cpu=1500), priority=10)
    due = plane.decider.next_due(plane.state)
    assert due is not None
    decisions = plane.feed(Ticked(STREAM, due), seconds=301)
    assert outcomes(decisions) == [("refused", "urgent")]
    assert plane.decider.next_due(plane.state) is None


# --- groups


def member(group: str = "train", least: int = 4, cpu: int = 1000) -> Requirements:
    return pod_of(cpu, 0, group=group, min_count=least)


def test_a_group_is_placed_whole_or_not_at_all(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=3000))
    no = refusal(plane.assign("train", 4, member()))
    assert (no.count, no.reason) == (4, "GangDoesNotFit")
    assert "minCount (4) cannot be satisfied: 3 scheduled, 1 remaining" in no.explanation.note
    assert plane.where("train") == {}
    plane.nodes(a_node("a", cpu=3000), a_node("b", cpu=1500))
    assert outcomes(plane.assign("train", 4, member())) == [("placed", "train")]
    assert len(plane.where("train")) == 4


def test_more_than_the_least_is_placed_as_far_as_there_is_room(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=5000))
    assert outcomes(plane.assign("train", 8, member())) == [
        ("placed", "train"),
        ("refused", "train"),
    ]
    assert len(plane.where("train")) == 5


def test_members_wait_for_each_other_and_say_so_in_the_end(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=9000))
    assert plane.assign("launcher", 1, member()) == []
    assert plane.where("launcher") == {}
    due = plane.decider.next_due(plane.state)
    assert due == plane.at + 300 * SECOND
    assert outcomes(plane.assign("workers", 3, member())) == [
        ("placed", "launcher"),
        ("placed", "workers"),
    ]
    assert plane.decider.next_due(plane.state) is None
    assert plane.assign("alone", 2, member("other")) == []
    decisions = plane.feed(Ticked(STREAM, plane.at), seconds=301)
    no = refusal(decisions)
    assert (no.reason, no.count) == ("GangIncomplete", 2)
    assert (
        "waiting for minCount pods from a gang to appear in scheduling queue" in no.explanation.note
    )


def test_a_group_that_loses_a_node_goes_as_a_whole(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000), a_node("b", cpu=2000))
    plane.assign("train", 4, member())
    decisions = plane.nodes(a_node("a", cpu=2000))
    assert plane.where("train") == {}
    reasons = [d.data.reason for d in decisions if isinstance(d.data, ReplicasReleased)]
    assert reasons == ["NodeGone", "GangBroken"]


# --- gates


def test_a_gated_workload_is_given_back_with_its_gate(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    no = refusal(plane.assign("web", 1, pod_of(gates=("example.com/budget",))))
    assert no.reason == "Gated"
    assert "example.com/budget" in no.explanation.note
    assert outcomes(plane.assign("web", 1, pod_of())) == [("placed", "web")]


def test_shares_of_all_decisions_fit_on_their_nodes(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=3000), a_node("b", cpu=3000))
    both = plane.feed(plane.assigned(("x", 3, needs(cpu=1000), 0), ("y", 3, needs(cpu=1000), 0)))
    assert (
        sum(len(replicas_in(d.data.placed)) for d in both if isinstance(d.data, ReplicasPlaced))
        == 6
    )
