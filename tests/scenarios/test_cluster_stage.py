"""The cluster stage in the words of those who run it."""

from __future__ import annotations

import pytest
from tests.cluster_world import (
    CLUSTER,
    GIB,
    STREAM,
    Harness,
    a_node,
    needs,
    observed,
    outcomes,
    replicas_in,
    some_id,
)

from wharfinger.domain.node import Pod
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import (
    NodeRemovalDecided,
    ProposalRefused,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster.answers import SHARE_MAX

SMALL = needs(cpu=1000, memory=GIB)
NO_EXECUTE = Taint("maintenance", "NoExecute")


def placed(decision: Decision) -> ReplicasPlaced:
    assert isinstance(decision.data, ReplicasPlaced)
    return decision.data


def refused(decision: Decision) -> ReplicasRefused:
    assert isinstance(decision.data, ReplicasRefused)
    return decision.data


def released(decision: Decision) -> ReplicasReleased:
    assert isinstance(decision.data, ReplicasReleased)
    return decision.data


@pytest.fixture
def plane() -> Harness:
    return Harness()


def test_replicas_are_spread_over_the_emptier_nodes(plane: Harness) -> None:
    plane.nodes(a_node("a"), a_node("b"))
    (decision,) = plane.assign("web", 4, SMALL)
    assert sorted(plane.where("web").values()) == ["a", "a", "b", "b"]
    assert decision.subject == "web"
    assert sorted(o for _, o, _ in replicas_in(placed(decision).placed)) == [0, 1, 2, 3]


def test_most_allocated_fills_one_node_before_the_next() -> None:
    plane = Harness("most-allocated")
    plane.nodes(a_node("a"), a_node("b"))
    plane.assign("web", 4, SMALL)
    assert len(set(plane.where("web").values())) == 1


def test_what_fits_is_placed_and_the_rest_is_given_back_with_its_reasons(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000), a_node("full", cpu=500), a_node("off", unschedulable=True))
    first, second = plane.assign("web", 5, SMALL)
    assert len(replicas_in(placed(first).placed)) == 2
    no = refused(second)
    assert (no.count, no.reason, no.class_key) == (3, "InsufficientResources", SMALL.class_key)
    assert no.explanation.refused == {"InsufficientResources": 2, "Unschedulable": 1}
    assert plane.feed() == []  # given up: waiting is the fleet stage's business
    assert plane.nodes(a_node("a", cpu=9000)) == []


def test_a_refusal_names_the_assignment_it_answers_and_the_next_assignment_stands_whole(
    plane: Harness,
) -> None:
    plane.nodes(a_node("a", cpu=2000))
    first = plane.assigned(("web", 3, SMALL, 0))
    _, no = plane.feed(first)
    assert isinstance(first.items[0], Assigned)
    assert refused(no).assignment == first.items[0].decision
    assert no.cause is not None
    assert str(no.cause) == first.items[0].decision
    (again,) = plane.assign("web", 5, SMALL)
    assert refused(again).count == 3


def test_nothing_is_decided_before_every_bucket_of_nodes_has_been_seen(plane: Harness) -> None:
    first, *rest = observed([a_node(f"n{i}") for i in range(20)])
    assert plane.feed(first) == []
    assert plane.assign("web", 2, SMALL) == []
    assert outcomes(plane.feed(*rest)) == [("placed", "web")]


def test_a_cluster_that_never_reports_nodes_holds_its_assignments(plane: Harness) -> None:
    assert plane.assign("web", 2, SMALL) == []
    assert plane.feed() == []
    assert plane.decider.next_due(plane.state) is None


def test_a_cluster_known_to_have_no_nodes_refuses(plane: Harness) -> None:
    plane.nodes()
    (no,) = plane.assign("web", 2, SMALL)
    assert refused(no).count == 2
    assert refused(no).explanation.note == "the cluster has no nodes"


def test_scaling_down_lets_the_highest_ordinals_go_and_scaling_up_fills_the_lowest(
    plane: Harness,
) -> None:
    plane.nodes(a_node("a"), a_node("b"))
    plane.assign("web", 5, SMALL)
    (down,) = plane.assign("web", 2, SMALL)
    assert sorted(o for _, o, _ in replicas_in(released(down).released)) == [2, 3, 4]
    assert released(down).reason == "ScaledDown"
    (up,) = plane.assign("web", 3, SMALL)
    assert [o for _, o, _ in replicas_in(placed(up).placed)] == [2]
    plane.assign("web", 0, SMALL)
    assert plane.where("web") == {}
    assert "web" not in plane.state.book.held


def test_changed_requirements_replace_every_replica(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("web", 2, SMALL)
    gone, anew = plane.assign("web", 2, needs(cpu=2000))
    assert released(gone).reason == "RequirementsChanged"
    assert len(replicas_in(released(gone).released)) == 2
    assert placed(anew).requirements == needs(cpu=2000)
    assert plane.state.book.table.rows["a"].free[0] == 0


def test_a_node_that_disappears_sends_its_replicas_to_others(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=3000), a_node("b", cpu=3000))
    plane.assign("web", 4, SMALL)
    on_a = [o for o, node in plane.where("web").items() if node == "a"]
    gone, anew, no = plane.nodes(a_node("b", cpu=3000))
    assert released(gone).reason == "NodeGone"
    assert [o for _, o, _ in replicas_in(released(gone).released)] == on_a
    assert (
        gone.cause
        == plane.rounds[-1]
        .events[next(i for i, b in enumerate(observed([a_node("a")])) if b.nodes)]
        .id
    )
    assert len(replicas_in(placed(anew).placed)) == 3 - (4 - len(on_a))
    assert refused(no).count == 1
    assert set(plane.where("web").values()) == {"b"}


def test_a_noexecute_taint_drives_out_what_does_not_bear_it(plane: Harness) -> None:
    bears = Requirements({"cpu": 1000}, tolerations=(Toleration("maintenance", "Exists"),))
    plane.nodes(a_node("a"))
    plane.assign("plain", 1, SMALL)
    plane.assign("tough", 1, bears)
    gone, anew = plane.nodes(a_node("a", taints=(NO_EXECUTE,)), a_node("b"))
    assert (gone.subject, released(gone).reason) == ("plain", "NoExecuteTaint")
    assert plane.where("plain") == {0: "b"}
    assert plane.where("tough") == {0: "a"}
    assert anew.subject == "plain"


def test_a_noexecute_taint_is_borne_for_as_long_as_the_toleration_says(plane: Harness) -> None:
    patient = Requirements(
        {"cpu": 1000}, tolerations=(Toleration("maintenance", "Exists", seconds=60),)
    )
    plane.nodes(a_node("a"))
    plane.assign("web", 1, patient)
    assert plane.nodes(a_node("a", taints=(NO_EXECUTE,))) == []
    due = plane.decider.next_due(plane.state)
    assert due == plane.at + 60_000_000
    assert plane.feed(seconds=30) == []
    gone, _ = plane.feed(seconds=31)
    assert released(gone).reason == "NoExecuteTaint"
    assert gone.cause is None


def test_higher_priority_goes_first_and_equals_go_in_order_of_arrival(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=2000))
    decided = plane.feed(
        plane.assigned(("low", 1, SMALL, 0), ("first", 1, SMALL, 5), ("second", 1, SMALL, 5))
    )
    assert outcomes(decided) == [("placed", "first"), ("placed", "second"), ("refused", "low")]


def test_a_shared_device_request_takes_the_fullest_device_that_still_has_room(
    plane: Harness,
) -> None:
    plane.nodes(a_node("a", gpus=2))
    plane.assign("x", 1, needs(gpus=1, milli=600))
    plane.assign("y", 1, needs(gpus=1, milli=700))
    (third,) = plane.assign("z", 1, needs(gpus=1, milli=300))
    assert placed(third).placed[0].devices == (((1, 300),),)
    (no,) = plane.assign("w", 1, needs(gpus=1, milli=500))
    assert refused(no).reason == "InsufficientDevices"  # 400 free in all, on no single device


def test_whole_devices_must_be_entirely_free_and_of_an_allowed_model(plane: Harness) -> None:
    plane.nodes(a_node("t4", gpus=4, model="T4"), a_node("v100", gpus=2, model="V100"))
    plane.assign("share", 1, needs(gpus=1, milli=100, models=("V100",)))
    (no,) = plane.assign("pair", 1, needs(gpus=2, models=("V100",)))
    assert refused(no).reason == "InsufficientDevices"
    (yes,) = plane.assign("three", 1, needs(gpus=3))
    assert placed(yes).placed[0].devices == (((0, 1000), (1, 1000), (2, 1000)),)


def test_extended_resources_count_and_a_node_that_does_not_name_one_has_none(
    plane: Harness,
) -> None:
    plane.nodes(a_node("plain"), a_node("special", extended={"example.com/fpga": 1}))
    asks = Requirements({"example.com/fpga": 1})
    first, second = plane.assign("web", 2, asks)
    assert plane.where("web") == {0: "special"}
    assert refused(second).explanation.refused == {"InsufficientResources": 2}
    assert placed(first).explanation.feasible == 1


def test_a_node_takes_no_more_pods_than_it_says(plane: Harness) -> None:
    plane.nodes(a_node("a", pods=2))
    first, second = plane.assign("web", 3, needs(cpu=1))
    assert len(replicas_in(placed(first).placed)) == 2
    assert refused(second).count == 1


def test_foreign_pods_take_room_and_our_own_are_counted_once(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=3000))
    plane.pods("a", Pod("u1", "sshd", needs(cpu=1000), "a"))
    plane.assign("web", 1, SMALL)
    free = plane.state.book.table.rows["a"].free
    assert free[0] == 1000
    plane.pods(
        "a", Pod("u1", "sshd", needs(cpu=1000), "a"), Pod("u2", "web-0", SMALL, "a", "web", 0)
    )
    assert plane.state.book.table.rows["a"].free[0] == 1000
    # the pod is still there: its room is free once it is seen no more
    plane.assign("web", 0, SMALL)
    assert plane.state.book.table.rows["a"].free[0] == 1000
    plane.pods("a", Pod("u1", "sshd", needs(cpu=1000), "a"))
    assert plane.state.book.table.rows["a"].free[0] == 2000


def test_the_device_a_pod_holds_counts_not_the_one_it_was_given(plane: Harness) -> None:
    plane.nodes(a_node("a", gpus=2))
    plane.assign("web", 1, needs(gpus=1))
    plane.pods("a", Pod("u", "web-0", needs(gpus=1), "a", "web", 0, ((1, 1000),)))
    assert plane.state.book.table.rows["a"].device_free == [1000, 0]


def test_a_pod_that_does_not_say_which_devices_it_holds_still_holds_some(plane: Harness) -> None:
    plane.nodes(a_node("a", gpus=2))
    plane.pods("a", Pod("u", "train", needs(gpus=1), "a"))
    first, second = plane.assign("web", 2, needs(gpus=1))
    assert len(replicas_in(placed(first).placed)) == 1
    assert refused(second).count == 1


def test_an_empty_node_is_removed_and_gets_nothing_more(plane: Harness) -> None:
    plane.nodes(a_node("a"), a_node("b"))
    (yes,) = plane.propose_removal("a")
    assert isinstance(yes.data, NodeRemovalDecided)
    assert (yes.subject, yes.cause) == ("a", plane.rounds[-1].events[0].id)
    plane.assign("web", 4, SMALL)
    assert set(plane.where("web").values()) == {"b"}
    plane.nodes(a_node("b"))
    plane.nodes(a_node("a"), a_node("b"))  # a new node of the same name is a new node
    plane.assign("web", 6, SMALL)
    assert set(plane.where("web").values()) == {"a", "b"}


@pytest.mark.parametrize(
    ("node", "reason"),
    [("busy", "NodeNotEmpty"), ("nobody", "UnknownTarget"), ("watched", "NodeNotEmpty")],
)
def test_a_node_that_is_not_empty_or_not_there_is_not_removed(
    plane: Harness, node: str, reason: str
) -> None:
    plane.nodes(a_node("busy"), a_node("watched", cpu=0))
    plane.pods("watched", Pod("u", "daemon", needs(), "watched"))
    plane.assign("web", 1, SMALL)
    (no,) = plane.propose_removal(node)
    assert isinstance(no.data, ProposalRefused)
    assert (no.data.target, no.data.reason) == (node, reason)


def test_a_removal_is_judged_after_the_replicas_of_the_same_round(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    decided = plane.feed(
        NodeRemovalProposed(STREAM, CLUSTER, "a", "empty"), plane.assigned(("web", 1, SMALL, 0))
    )
    assert outcomes(decided) == [("placed", "web"), ("refused", "a")]


def test_an_assignment_read_twice_is_taken_once(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    first = plane.assigned(("web", 3, SMALL, 0))
    plane.feed(first)
    plane.assign("web", 1, SMALL)
    assert plane.feed(first) == []
    assert len(plane.where("web")) == 1


def test_when_the_buckets_are_renumbered_the_old_nodes_stand_until_the_new_set_is_whole(
    plane: Harness,
) -> None:
    nodes = [a_node(f"n{i}") for i in range(8)]
    plane.nodes(*nodes)
    plane.assign("web", 8, SMALL)
    *most, last = observed(nodes[:6], buckets=3)
    assert plane.feed(*most) == []
    decided = plane.feed(last)
    assert {d.outcome for d in decided} == {"released", "placed"}
    assert set(plane.where("web").values()) <= {n.name for n in nodes[:6]}
    assert len(plane.where("web")) == 8


def test_a_node_claimed_by_two_buckets_is_one_node(plane: Harness) -> None:
    big, small = a_node("a", cpu=4000), a_node("a", cpu=1000)
    plane.feed(NodesObserved(CLUSTER, 1, 2, (small,)), NodesObserved(CLUSTER, 0, 2, (big, small)))
    first, second = plane.assign("web", 5, SMALL)
    assert len(replicas_in(placed(first).placed)) == 4
    assert refused(second).count == 1


def test_a_hundred_thousand_replicas_are_placed_in_messages_of_bearable_size(
    plane: Harness,
) -> None:
    plane.nodes(*[a_node(f"n{i}", cpu=10**6, memory=0) for i in range(20)])
    decided = plane.assign("swarm", 25_000, needs(cpu=1))
    assert [len(replicas_in(placed(d).placed)) for d in decided] == [SHARE_MAX, SHARE_MAX, 5_000]
    assert len(plane.where("swarm")) == 25_000
    (no,) = plane.assign("swarm", 10**18, needs(cpu=10**6 + 1))[-1:]
    assert refused(no).count == 10**18


@pytest.mark.parametrize("letter", ["n", '"', "\\", "\x01", "\u00e9", "\U0001f6a2"])
@pytest.mark.parametrize("length", [1, 60, 253, 5000])
def test_the_recorded_explanation_stays_small_whatever_the_names(
    plane: Harness, letter: str, length: int
) -> None:
    plane.nodes(*[a_node(letter * length + str(i)) for i in range(9)])
    (decision,) = plane.assign("web", 2, SMALL)
    explanation = placed(decision).explanation
    assert len(canonical(explanation)) <= 2048
    assert explanation.candidates == explanation.feasible == 9
    assert len(explanation.best) == 2 or length > 60


def test_the_explanation_names_the_chosen_and_the_next_best_with_scores(plane: Harness) -> None:
    plane.nodes(a_node("big", cpu=8000), a_node("mid", cpu=4000), a_node("tiny", cpu=100))
    (decision,) = plane.assign("web", 1, needs(cpu=1000))
    explanation = placed(decision).explanation
    # Untainted 3 x 100; what is left of cpu and memory, of which scoring counts 200 MiB; and how
    # even the two are.
    assert explanation.best == {"big": 300 + (87 + 98) // 2 + 93, "mid": 300 + (75 + 98) // 2 + 87}
    assert explanation.refused == {"InsufficientResources": 1}


def test_one_binding_gets_no_more_than_a_cluster_can_hold(
    plane: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.stages.cluster.node_search.REPLICAS_MAX", 3)
    plane.nodes(a_node("a"))
    first, second = plane.assign("web", 4, needs(cpu=1))
    assert len(replicas_in(placed(first).placed)) == 3
    assert "at most" in refused(second).explanation.note
    (again,) = plane.assign("web", 4, needs(cpu=1))
    assert refused(again).count == 1


def test_another_clusters_events_are_not_ours(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    item = Assigned(1, str(some_id(1)), "web", "u", 1, SMALL)
    assert plane.feed(AssignmentsDecided("bergen", "fleet/0", 1, (item,))) == []
    assert plane.feed(NodeRemovalProposed("cluster/bergen", "bergen", "a")) == []
    assert plane.feed(AssignmentsDecided(CLUSTER, STREAM, 1, (item,))) == []


def test_a_cluster_that_changed_its_strategy_is_replayed_with_both() -> None:
    spread, fill = Harness("least-allocated"), Harness("most-allocated")
    spread.nodes(*(a_node(f"n-{i}") for i in range(4)))
    spread.assign("shop/web", 2, SMALL)
    fill.state = fill.decider.load(STREAM, spread.decider.dump(spread.state))
    fill.head, fill.at, fill.seq, fill.events = spread.head, spread.at, spread.seq, spread.events
    fill.assign("shop/api", 4, SMALL)
    history = [*spread.rounds, *fill.rounds]
    decider = ClusterDecider.of_profile("")
    found = audit(
        decider, decider.initial(STREAM), empty_head(STREAM), history, ClusterDecider.of_profile
    )
    assert (found.rounds, found.divergences) == (len(history), [])
    other = audit(decider, decider.initial(STREAM), empty_head(STREAM), history)
    assert [d.step for d in other.divergences] == ["score"]


@pytest.mark.parametrize("strategy", ["least-allocated", "most-allocated"])
def test_a_profile_is_found_by_its_text(strategy: str) -> None:
    profile = Harness(strategy).decider.profile
    assert strategy in profile
    assert ClusterDecider.of_profile(profile).profile == profile
    assert ClusterDecider.of_profile("another").profile == ClusterDecider().profile
