"""Joined clusters in which waiting pods are placed, told as stories."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs, observed, outcomes

from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import (
    WAITING_BUCKETS,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.decisions import (
    PodsUnplaced,
    ReplicasAdopted,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster.current_assignments import current_items
from wharfinger.stages.cluster.pod_placing import why_waits
from wharfinger.stages.cluster.profile import UNPLACED_US, ClusterProfile
from wharfinger.stages.cluster.trace import trace
from wharfinger.stages.cluster.unplaced_pods import AGAIN_US

OURS = "wharfinger"
WEB = "shop/web-deployment"
LOCAL = f"{WEB}@{CLUSTER}"
UNPLACED_AGAIN_S = AGAIN_US // 1_000_000


def wants(cpu: int, scheduler: str = OURS, **traits: object) -> Requirements:
    made = PodTraits(scheduler=scheduler, namespace="shop", **traits)  # type: ignore[arg-type]
    return msgspec.structs.replace(needs(cpu), pod=made)


def waits(uid: str, cpu: int = 500, scheduler: str = OURS, **said: object) -> WaitingPod:
    """A pod of the workload; `said`: its other fields."""
    said.setdefault("binding", WEB)
    return WaitingPod(uid, uid, wants(cpu, scheduler), **said)  # type: ignore[arg-type]


def with_traits(pod: WaitingPod, **traits: object) -> WaitingPod:
    cpu = pod.requirements.requests["cpu"]
    return msgspec.structs.replace(pod, requirements=wants(cpu, **traits))  # type: ignore[arg-type]


def waiting(*pods: WaitingPod, bucket: int = 0) -> WaitingPodsObserved:
    return WaitingPodsObserved(CLUSTER, "shop", bucket, WAITING_BUCKETS, pods)


def on(node: str, *pods: Pod | WaitingPod) -> PodsObserved:
    """Pods on a node, as the collector reports them: without binding and ordinal, with what made
    them."""
    there = [pod if isinstance(pod, Pod) else _running(pod, node) for pod in pods]
    return PodsObserved(CLUSTER, node, tuple(there))


def _running(pod: WaitingPod, node: str) -> Pod:
    workload, _, kind = pod.binding.rpartition("-")
    name = workload.rpartition("/")[2]
    traits = pod.requirements.traits
    owners: tuple[Owner, ...] = ()
    if kind == "deployment":
        owners = (Owner("ReplicaSet", f"{name}-6b7", "r"),)
        traits = msgspec.structs.replace(
            traits, owner="ReplicaSet", labels={**traits.labels, "pod-template-hash": "6b7"}
        )
    elif kind:
        made = kind.capitalize()
        owners, traits = (Owner(made, name, "o"),), msgspec.structs.replace(traits, owner=made)
    return msgspec.structs.replace(
        pod.on(node),
        requirements=msgspec.structs.replace(pod.requirements, pod=traits),
        upkeep=PodUpkeep(owners=owners),
    )


def joined(*nodes: Node, buckets: int = 2) -> list[NodesObserved]:
    return [
        msgspec.structs.replace(bucket, places="pods", scheduler=OURS)
        for bucket in observed(nodes, buckets)
    ]


def free(plane: Harness, node: str) -> int:
    table = plane.state.book.table
    return table.rows[node].free[table.resource_codes["cpu"]]


def places(
    decisions: Sequence[Decision], kind: type[ReplicasPlaced | ReplicasAdopted] = ReplicasPlaced
) -> dict[str, tuple[str, str, int]]:
    """uid -> (binding, node, ordinal)."""
    return {
        uid: (d.data.binding, share.node, ordinal)
        for d in decisions
        if isinstance(d.data, kind)
        for share in d.data.placed
        for uid, ordinal in zip(share.pods, share.ordinals, strict=True)
    }


@pytest.fixture
def plane() -> Harness:
    plane = Harness()
    plane.feed(*joined(a_node("a", 1000), a_node("b", 1000)))
    return plane


def test_assigned_replicas_wait_for_their_pods(plane: Harness) -> None:
    assert plane.assign(WEB, 3, wants(500)) == []
    decided = plane.feed(waiting(waits("u1"), waits("u2")))
    assert {found[0] for found in places(decided).values()} == {WEB}
    assert sorted(plane.where(WEB)) == [0, 1]
    assert sum(n for _, n in plane.state.book.unbound_classes()) == 1, "one has no pod yet"


def test_a_pod_is_placed_by_its_own_requirements(plane: Harness) -> None:
    """A webhook gave it a sidecar: it is larger than the template that the fleet knows."""
    plane.assign(WEB, 2, wants(300))
    plane.feed(waiting(waits("u1", 700)))
    (node,) = plane.where(WEB).values()
    assert free(plane, node) == 300


def test_a_workload_that_the_fleet_does_not_know_has_a_binding_of_its_own(plane: Harness) -> None:
    decided = plane.feed(waiting(waits("u1"), waits("bare", binding="")))
    assert {binding for binding, _, _ in places(decided).values()} == {
        LOCAL,
        f"shop/bare-pod@{CLUSTER}",
    }


@pytest.mark.parametrize(
    "pod",
    [
        waits("theirs", scheduler="default-scheduler"),
        waits("unnamed", scheduler=""),
        with_traits(waits("gated"), gates=("quota",)),
    ],
    ids=lambda pod: pod.uid,
)
def test_other_pods_are_not_placed(plane: Harness, pod: WaitingPod) -> None:
    assert plane.feed(waiting(pod)) == []


def test_a_pod_that_was_bound_is_charged_once(plane: Harness) -> None:
    """It is reported on its node first, and for a moment still as waiting."""
    pod = waits("u1")
    (_, node, _) = places(plane.feed(waiting(pod)))["u1"]
    assert free(plane, node) == 500
    assert plane.feed(on(node, pod)) == []
    assert free(plane, node) == 500
    assert plane.feed(waiting()) == []
    assert free(plane, node) == 500
    assert outcomes(plane.feed(on(node))) == [("released", LOCAL)]
    assert free(plane, node) == 1000
    assert plane.state.book.held == {}


def test_a_pod_that_is_gone_before_it_is_bound_is_released(plane: Harness) -> None:
    plane.feed(waiting(waits("u1")))
    (gone,) = plane.feed(waiting())
    assert isinstance(gone.data, ReplicasReleased)
    assert gone.data.reason == "PodGone"
    assert gone.data.released[0].pods == (), "no pod is to be evicted"
    assert [free(plane, name) for name in "ab"] == [1000, 1000]


def test_its_room_is_taken_in_the_same_round(plane: Harness) -> None:
    plane.feed(waiting(waits("u1", 1000), waits("u2", 1000)))
    decided = plane.feed(waiting(waits("u2", 1000), waits("u3", 1000)))
    assert [d.outcome for d in decided] == ["released", "placed"]
    assert list(places(decided)) == ["u3"]


def test_a_pod_that_others_bound_elsewhere_is_not_moved(plane: Harness) -> None:
    pod = waits("u1")
    (_, node, _) = places(plane.feed(waiting(pod)))["u1"]
    other = "b" if node == "a" else "a"
    decided = plane.feed(on(other, pod), waiting())
    assert outcomes(decided) == [("released", LOCAL), ("adopted", LOCAL)]
    adopted = decided[1].data
    assert isinstance(adopted, ReplicasAdopted)
    assert adopted.why == "bound-elsewhere"
    assert places(decided, ReplicasAdopted) == {"u1": (LOCAL, other, 0)}
    assert (free(plane, node), free(plane, other)) == (1000, 500)


def test_a_pod_whose_node_goes_is_placed_anew(plane: Harness) -> None:
    (_, node, _) = places(plane.feed(waiting(waits("u1"))))["u1"]
    (other,) = {"a", "b"} - {node}
    decided = plane.feed(*joined(a_node(other, 1000)))
    assert [d.outcome for d in decided] == ["released", "placed"]
    assert places(decided)["u1"][1] == other


def test_the_pods_of_a_node_that_went_are_left_to_the_cluster(plane: Harness) -> None:
    pod = waits("u1")
    (_, node, _) = places(plane.feed(waiting(pod)))["u1"]
    plane.feed(on(node, pod), waiting())
    (other,) = {"a", "b"} - {node}
    assert plane.feed(*joined(a_node(other, 1000))) == []
    assert outcomes(plane.feed(on(node))) == [("released", LOCAL)]


def test_fewer_replicas_take_no_pod_off_its_node(plane: Harness) -> None:
    """Which pods go is the choice of the workload's controller."""
    plane.assign(WEB, 2, wants(500))
    pods = waits("u1"), waits("u2")
    decided = places(plane.feed(waiting(*pods)))
    for pod in pods:
        plane.feed(on(decided[pod.uid][1], pod))
    plane.feed(waiting())
    assert plane.assign(WEB, 1, wants(500)) == []
    assert plane.assign(WEB, 0, wants(500)) == []
    assert outcomes(plane.feed(on(decided["u2"][1]))) == [("released", WEB)]
    assert plane.where(WEB) == {0: decided["u1"][1]}


def test_the_pods_of_a_new_template_come_beside_the_old_ones(plane: Harness) -> None:
    """A rollout with one more pod than are wanted: nothing is refused, and nothing is released
    before the controller takes an old pod away."""
    plane.assign(WEB, 2, wants(400))
    old = waits("u1", 400), waits("u2", 400)
    decided = places(plane.feed(waiting(*old)))
    for name in "ab":
        plane.feed(on(name, *[pod for pod in old if decided[pod.uid][1] == name]))
    assert plane.assign(WEB, 2, wants(450)) == []
    surge = plane.feed(waiting(waits("u3", 450)))
    assert places(surge)["u3"][2] == 2
    assert outcomes(surge) == [("placed", WEB)]


def test_a_pod_keeps_its_own_index(plane: Harness) -> None:
    decided = plane.feed(waiting(waits("u2", 100, index=2), waits("u0", 100, index=0)))
    assert {uid: ordinal for uid, (_, _, ordinal) in places(decided).items()} == {"u2": 2, "u0": 0}


def test_the_older_and_the_more_important_come_first(plane: Harness) -> None:
    decided = plane.feed(
        waiting(
            waits("late", 1000, created_us=3),
            waits("early", 1000, created_us=2),
            waits("high", 1000, created_us=9, priority=5),
        )
    )
    assert sorted(places(decided)) == ["early", "high"]
    (late,) = [p for p in plane.state.book.waiting.pods.values() if p.uid == "late"]
    assert "Insufficient cpu" in why_waits(plane.state, late)


def test_a_group_is_placed_when_enough_of_its_pods_fit(plane: Harness) -> None:
    first = [with_traits(waits(f"u{i}", 900), group="train", min_count=3) for i in range(3)]
    assert outcomes(plane.feed(waiting(*first))) == [("unplaced", LOCAL)], "two of three fit"
    assert why_waits(plane.state, first[0]) == "too few pods of group train have room"
    decided = plane.feed(*joined(*[a_node(name, 1000) for name in "abc"]))
    assert sorted(places(decided)) == ["u0", "u1", "u2"]


def test_what_was_placed_ahead_is_given_up(plane: Harness) -> None:
    """The cluster was fed by files before it was joined."""
    plane = Harness()
    plane.feed(*observed([a_node("a", 1000)], 2))
    assert outcomes(plane.assign(WEB, 1, wants(500, ""))) == [("placed", WEB)]
    decided = plane.feed(*joined(a_node("a", 1000)), on("a", waits("u1")))
    assert outcomes(decided) == [("released", WEB), ("adopted", WEB)]
    assert free(plane, "a") == 500


def test_the_same_facts_again_change_nothing(plane: Harness) -> None:
    facts: list[Value] = [*joined(a_node("a", 1000), a_node("b", 1000)), waiting(waits("u1"))]
    plane.feed(*facts)
    assert plane.feed(*facts) == []
    assert plane.decider.next_due(plane.state) is None


def test_the_history_replays_and_a_snapshot_is_the_state(plane: Harness) -> None:
    plane.assign(WEB, 2, wants(500))
    pods = waits("u1"), waits("u2", 600)
    first = plane.feed(waiting(*pods))
    node = places(first)["u1"][1]
    plane.feed(on(node, pods[0]), waiting(pods[1]))
    sections = plane.decider.dump(plane.state)
    again = plane.decider.load(STREAM, sections)
    assert plane.decider.dump(again) == sections
    assert again.book.pods == plane.state.book.pods
    assert again.book.replica_of == plane.state.book.replica_of
    assert again.book.astray == plane.state.book.astray == {}
    plane.feed(waiting(), on(node))
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []
    assert replayed.decisions == len(places(first)) + 1, "both pods are released together"


def test_a_decision_can_be_derived_again_with_all_nodes(plane: Harness) -> None:
    """The pod is larger than the template that the fleet assigned, and more important."""
    plane.feed(*joined(a_node("a", 1000), a_node("b", 1000), a_node("small", 600)))
    plane.assign(WEB, 2, wants(100))
    sections = plane.decider.dump(plane.state)
    fact = waiting(waits("u1", 700, priority=3))
    (placed,) = plane.feed(fact)
    before = plane.decider.load(STREAM, sections)
    before.book.observe_waiting(fact)
    assert isinstance(placed.data, ReplicasPlaced)
    shown = trace(before, placed.data)
    assert shown is not None
    assert shown.asked == placed.data.requirements == wants(700)
    assert [node.name for node in shown.nodes if node.refused] == ["small"]
    assert shown.nodes[0].replicas == 1
    assert shown.nodes[0].score == placed.data.explanation.best[shown.nodes[0].name]
    assert "on " in placed.data.sentence()


def test_a_replica_whose_pod_fits_nowhere_is_given_back(plane: Harness) -> None:
    plane.assign(WEB, 3, wants(900))
    pods = [waits(f"u{i}", 900) for i in range(3)]
    assert outcomes(plane.feed(waiting(*pods))) == [("placed", WEB), ("unplaced", WEB)]
    due = plane.decider.next_due(plane.state)
    assert due == plane.at + UNPLACED_US
    assert plane.feed(seconds=19) == []
    (back,) = plane.feed(seconds=2)
    assert isinstance(back.data, ReplicasRefused)
    assert (back.data.count, back.data.reason) == (1, "InsufficientResources")
    assert back.data.explanation.note.startswith("u2: 0/2 nodes are available: 2 Insufficient cpu")
    assert plane.decider.next_due(plane.state) is None
    assert plane.feed(seconds=60) == [], "once"
    assert sum(n for _, n in plane.state.book.unbound_classes()) == 0


@pytest.mark.parametrize("seconds", [0, 3, 600])
def test_when_a_replica_is_given_back_is_a_setting(seconds: int) -> None:
    profile = ClusterProfile(unplaced_us=seconds * 1_000_000)
    assert ClusterProfile.of(profile.text) == profile
    plane = Harness()
    plane.decider = ClusterDecider(profile)
    plane.state = plane.decider.initial(STREAM)
    plane.feed(*joined(a_node("a", 1000)))
    plane.assign(WEB, 1, wants(1900))
    decided = plane.feed(waiting(waits("u1", 1900)))
    if not seconds:
        assert outcomes(decided) == [("refused", WEB), ("unplaced", LOCAL)]
        return
    assert outcomes(decided) == [("unplaced", WEB)]
    plane.state = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    assert plane.decider.next_due(plane.state) == plane.at + seconds * 1_000_000
    assert plane.feed(seconds=seconds - 1) == []
    assert ("refused", WEB) in outcomes(plane.feed(seconds=1))
    begun = plane.decider.initial(STREAM), empty_head(STREAM)
    assert audit(plane.decider, *begun, plane.rounds).divergences == []


def test_it_is_placed_if_there_is_room_in_time(plane: Harness) -> None:
    plane.assign(WEB, 3, wants(900))
    plane.feed(waiting(*[waits(f"u{i}", 900) for i in range(3)]))
    plane.feed(*joined(*[a_node(name, 1000) for name in "abc"]), seconds=15)
    assert plane.feed(seconds=30) == []
    assert len(plane.where(WEB)) == 3


def test_the_surge_of_a_rollout_in_a_full_cluster_is_not_given_back(plane: Harness) -> None:
    """Both nodes are full with the old pods. The first new pod waits, until the controller has
    taken an old one away; every replica stays in this cluster."""
    plane.assign(WEB, 2, wants(950))
    old = waits("u1", 950), waits("u2", 950)
    decided = places(plane.feed(waiting(*old)))
    for pod in old:
        plane.feed(on(decided[pod.uid][1], pod))
    plane.assign(WEB, 2, wants(960))
    new = [waits("v1", 960), waits("v2", 960)]
    assert outcomes(plane.feed(waiting(new[0]))) == [("unplaced", WEB)]
    assert plane.feed(seconds=60) == []
    first = plane.feed(on(decided["u1"][1]))
    assert outcomes(first) == [("released", WEB), ("placed", WEB)]
    plane.feed(on(decided["u1"][1], new[0]), waiting(new[1]))
    assert plane.feed(seconds=60) == []
    second = plane.feed(on(decided["u2"][1]))
    assert outcomes(second) == [("released", WEB), ("placed", WEB)]
    assert len(plane.where(WEB)) == 2


def test_pods_that_the_fleet_does_not_know_only_wait(plane: Harness) -> None:
    assert outcomes(plane.feed(waiting(waits("u1", 5000)))) == [("unplaced", LOCAL)]
    assert plane.decider.next_due(plane.state) is None
    assert plane.feed(seconds=60) == []


def test_a_pod_that_fits_nowhere_is_told_why_and_again_only_when_that_changes(
    plane: Harness,
) -> None:
    pods = [waits(f"u{i}", 5000) for i in range(2)]
    (said,) = plane.feed(waiting(*pods))
    assert isinstance(said.data, PodsUnplaced)
    assert (said.data.pods, said.data.reason) == (("u0", "u1"), "InsufficientResources")
    assert said.data.message == why_waits(plane.state, pods[0])
    assert said.data.message.startswith("0/2 nodes are available: 2 Insufficient cpu")
    more = [*pods, waits("u2", 5000)]
    (also,) = plane.feed(waiting(*more))
    assert isinstance(also.data, PodsUnplaced)
    assert also.data.pods == ("u2",), "of the others it was said"
    three = joined(*[a_node(name, 1000) for name in "abc"])
    assert plane.feed(*three) == [], "the numbers changed, and it was said just now"
    (new,) = plane.feed(*three, seconds=UNPLACED_AGAIN_S)
    assert isinstance(new.data, PodsUnplaced)
    assert new.data.pods == ("u0", "u1", "u2")
    assert new.data.message.startswith("0/3 nodes are available")
    assert plane.feed(*three, seconds=UNPLACED_AGAIN_S) == []
    decided = plane.feed(*joined(*[a_node(name, 6000) for name in "abc"]))
    assert sorted(places(decided)) == ["u0", "u1", "u2"]
    assert plane.state.said == {}
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []


def test_what_was_said_is_in_the_snapshot_and_stands(plane: Harness) -> None:
    (said,) = plane.feed(waiting(waits("u0", 5000), waits("u1", 5000)))
    sections = plane.decider.dump(plane.state)
    again = plane.decider.load(STREAM, sections)
    assert again.said == plane.state.said
    assert plane.decider.dump(again) == sections
    assert isinstance(said.data, PodsUnplaced)
    stands = list(current_items(again, said.seq))
    assert [item for _, item in said.data.assignment_items(said.seq, str(said.id))] == stands
    plane.feed(waiting(waits("u1", 5000)))
    assert list(plane.state.said) == ["u1"], "a pod that is gone is forgotten"


def test_why_a_pod_waits_can_be_derived_again_with_all_nodes(plane: Harness) -> None:
    sections = plane.decider.dump(plane.state)
    fact = waiting(waits("u1", 5000))
    (said,) = plane.feed(fact)
    before = plane.decider.load(STREAM, sections)
    before.book.observe_waiting(fact)
    assert isinstance(said.data, PodsUnplaced)
    shown = trace(before, said.data)
    assert shown is not None
    assert shown.message == said.data.message
    assert [node.refused for node in shown.nodes] == [("InsufficientResources",)] * 2


def test_taking_over_a_cluster_moves_nothing(plane: Harness) -> None:
    """All pods run already when the cluster is joined and the binding is assigned; one more waits.
    What is free is what the cluster has."""
    plane = Harness()
    there = [waits(f"u{i}", 300) for i in range(4)]
    facts: list[Value] = [
        *joined(a_node("a", 1000), a_node("b", 1000)),
        on("a", *there[:3]),
        on("b", there[3], waits("theirs", 200, "default-scheduler", binding="x/y-deployment")),
    ]
    decided = plane.feed(*facts, plane.assigned((WEB, 5, wants(300), 0)))
    assert outcomes(decided) == [("adopted", WEB)]
    assert plane.where(WEB) == {0: "a", 1: "a", 2: "a", 3: "b"}
    assert (free(plane, "a"), free(plane, "b")) == (100, 500)
    assert sum(n for _, n in plane.state.book.unbound_classes()) == 1
    decided = plane.feed(waiting(waits("u4", 300)))
    assert outcomes(decided) == [("placed", WEB)]
    assert (free(plane, "a"), free(plane, "b")) == (100, 200)
    assert plane.state.book.unbound == {}
