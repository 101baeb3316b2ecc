"""Nodes that go, from the proposal to the end, and replicas that a strategy moves: the cluster
stage's part of it."""

from __future__ import annotations

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, a_node, replicas_in
from tests.pool_world import BIG, SMALL, PoolPlane, a_budget, a_pool, pool_policy, wants, words

from wharfinger.domain.node import Pod
from wharfinger.domain.node_pool import NodeBudget
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    ProposalRefused,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.proposals import DeschedulingProposed, DisruptionProposed, Unseating
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import move_cooldown
from wharfinger.stages.cluster.current_assignments import current_items

MINUTE = 60
DAY = 86_400


@pytest.fixture
def plane() -> PoolPlane:
    return PoolPlane().pools(a_pool())


def decided(decisions: list[Decision]) -> DisruptionDecided:
    return next(d.data for d in decisions if isinstance(d.data, DisruptionDecided))


def over(decisions: list[Decision]) -> DisruptionEnded:
    return next(d.data for d in decisions if isinstance(d.data, DisruptionEnded))


def refusal(decisions: list[Decision]) -> tuple[str, str]:
    data = next(d.data for d in decisions if isinstance(d.data, ProposalRefused))
    return data.reason, data.detail


def placings(decisions: list[Decision]) -> list[tuple[str, int]]:
    """(node, ordinal) of all that was placed."""
    return [
        (node, o)
        for d in decisions
        if isinstance(d.data, ReplicasPlaced)
        for node, o, _ in replicas_in(d.data.placed)
    ]


def two_half_full(plane: PoolPlane, cpu: int = 900) -> None:
    """Two nodes with one replica each, of which either could hold both."""
    plane.add(plane.bought(SMALL, number=1), plane.bought(SMALL, number=2))
    plane.assign("web", 2, wants(cpu, "web"))
    assert sorted(plane.where("web").values()) == ["small-1", "small-2"]


def one_too_big(plane: PoolPlane) -> str:
    """A big node with what a small one would hold; the replacement's claim."""
    plane.add(plane.bought(BIG))
    plane.assign("web", 1, wants(1500, "web"))
    assert words(plane.disrupt()) == ["disrupting", "claimed"]
    return plane.claims[0].claim


# --- nodes that go


def test_an_empty_node_goes_at_once(plane: PoolPlane) -> None:
    plane.add(plane.bought(SMALL))
    decisions = plane.disrupt()
    assert words(decisions) == ["disrupting", "removed", "done"]
    end = over(decisions)
    assert (end.outcome, end.removed, end.predicted, end.realised) == (
        "done",
        ("small-0",),
        100_000_000,
        100_000_000,
    )
    assert "small-0" in plane.state.book.closed
    assert plane.feed() == []
    assert plane.take_away() == []
    assert plane.state.pools.leaving == {}


def test_what_is_on_a_node_moves_in_one_round_and_then_the_node_goes(plane: PoolPlane) -> None:
    two_half_full(plane)
    decisions = plane.disrupt()
    assert words(decisions) == ["disrupting", "released", "placed", "removed", "done"]
    command = decided(decisions)
    gone = decisions[1].data
    assert isinstance(gone, ReplicasReleased)
    assert gone.reason == "Consolidated"
    assert [d.cause for d in decisions[1:]] == [decisions[0].id] * 4
    (target, ordinal) = placings(decisions)[0]
    # it keeps its number
    assert replicas_in(gone.released)[0][:2] == (command.nodes[0].name, ordinal)
    assert target == command.moves[0].target
    assert command.nodes[0].price == 100_000_000
    assert set(plane.where("web").values()) == {target}
    assert over(decisions).moved == 1


def test_a_node_is_replaced_only_when_what_replaces_it_is_ready(plane: PoolPlane) -> None:
    claim = one_too_big(plane)
    assert plane.state.pools.claims[claim].command == decided(plane.decided).command
    assert plane.feed(seconds=MINUTE) == []
    assert plane.where("web") == {0: "big-0"}  # nothing is let go before there is a place
    decisions = plane.deliver()
    assert words(decisions) == ["registered", "released", "placed", "removed", "done"]
    assert plane.where("web") == {0: claim}
    end = over(decisions)
    assert (end.predicted, end.realised, end.moved) == (280_000_000, 280_000_000, 1)


def test_the_replacement_costs_less_than_what_it_replaces(plane: PoolPlane) -> None:
    one_too_big(plane)
    (claim,) = plane.claims
    assert claim.instance_types == ("small",)
    assert claim.ceiling == 380_000_000
    assert claim.replicas == {"web": 1}


def test_a_replacement_that_does_not_come_rolls_the_command_back(plane: PoolPlane) -> None:
    claim = one_too_big(plane)
    assert plane.decider.next_due(plane.state) == plane.at + 10 * MINUTE * 1_000_000
    decisions = plane.feed(seconds=10 * MINUTE)
    assert words(decisions) == ["timed-out", "rolled-back"]
    end = over(decisions)
    assert (end.outcome, end.removed, end.realised) == ("rolled-back", (), 0)
    assert claim in end.reason
    assert "big-0" not in plane.state.book.closed
    assert words(plane.assign("api", 1, wants(1500))) == ["placed"]  # it takes replicas again
    assert plane.where("web") == {0: "big-0"}


def test_a_replacement_that_stays_unready_is_given_up_and_stays_as_a_node(plane: PoolPlane) -> None:
    one_too_big(plane)
    node = plane.node_for(plane.claims[0])
    unready = msgspec.structs.replace(node, ready=False)
    assert words(plane.add(unready)) == ["registered"]
    decisions = plane.feed(seconds=10 * MINUTE)
    assert words(decisions) == ["rolled-back"]
    assert over(decisions).realised == -100_000_000


def test_a_node_that_goes_by_itself_ends_its_command(plane: PoolPlane) -> None:
    claim = one_too_big(plane)
    plane.there.pop("big-0")
    decisions = plane.tell_nodes()
    assert over(decisions).reason == "node big-0 has gone by itself"
    assert claim not in plane.state.pools.claims
    # and the replica is looked after like any whose node is gone
    assert "released" in words(decisions)
    assert len(plane.claims) == 1
    assert plane.claims[0].replicas == {"web": 1}


def test_the_budget_of_a_workload_bounds_how_many_move_at_a_time(plane: PoolPlane) -> None:
    plane.add(plane.bought(BIG, number=1))
    plane.assign("web", 4, wants(450, "web"))
    plane.run_pods()
    plane.budgets(a_budget("web", max_unavailable="1"))
    plane.disrupt()
    assert len(plane.claims) == 1
    moved: list[int] = []
    for decisions in (plane.deliver(), *(plane.run_pods() for _ in range(4))):
        moved.append(len(placings(decisions)))
        if "done" in words(decisions):
            break
    # the next one when the last is seen to run; the node when no pod is seen there
    assert moved == [1, 1, 1, 1, 0]
    assert over(plane.decided).moved == 4


def test_where_pods_are_not_told_of_a_moved_replica_counts_as_disrupted_for_a_while(
    plane: PoolPlane,
) -> None:
    plane.add(plane.bought(BIG, number=1))
    plane.assign("web", 2, wants(900, "web"))
    plane.budgets(a_budget("web", max_unavailable="1"))
    plane.disrupt()
    assert len(placings(plane.deliver())) == 1
    assert plane.feed(seconds=10) == []
    assert plane.decider.next_due(plane.state) == plane.at + 20 * 1_000_000 - 1
    assert words(plane.feed(seconds=20)) == ["released", "placed", "removed", "done"]


def test_pods_of_others_are_waited_for_and_room_is_kept_for_them(plane: PoolPlane) -> None:
    plane.add(plane.bought(SMALL, number=1), plane.bought(SMALL, number=2))
    plane.assign("web", 1, wants(300, "web"))
    (home,) = plane.where("web").values()
    other = "small-2" if home == "small-1" else "small-1"
    foreign = Pod("f-1", "job", wants(900), upkeep=PodUpkeep((Owner("ReplicaSet", "job"),)))
    plane.pods(other, foreign)
    decisions = plane.disrupt()
    command = decided(decisions)
    node = command.nodes[0].name
    if node == home:  # ours moves to the other's node, which is as good
        assert "done" in words(decisions)
        return
    assert words(decisions) == ["disrupting"]
    assert command.moves[0].pod == "f-1"
    # its room on the other node is taken
    assert words(plane.assign("big", 1, wants(1000))) != ["placed"]
    done = plane.pods(other)
    assert words(done)[-2:] == ["removed", "done"]


def test_who_is_more_important_takes_the_place_and_the_command_is_rolled_back(
    plane: PoolPlane,
) -> None:
    one_too_big(plane)
    assert words(plane.assign("urgent", 1, wants(1500), priority=100)) == ["claimed"]
    (replacement,) = [claim for claim in plane.claims if claim.command]
    decisions = plane.deliver(replacement)
    assert words(decisions) == ["registered", "placed", "cancelled", "rolled-back"]
    assert plane.where("urgent") == {0: replacement.claim}
    assert over(decisions).reason == "web #0 has no place any more"
    assert plane.where("web") == {0: "big-0"}
    assert plane.state.book.closed == set()


def test_the_place_of_a_replica_that_is_to_move_is_kept_from_its_likes(plane: PoolPlane) -> None:
    one_too_big(plane)
    assert words(plane.assign("api", 1, wants(1500))) == ["claimed"]
    (replacement,) = [claim for claim in plane.claims if claim.command]
    decisions = plane.deliver(replacement)
    assert words(decisions) == ["registered", "released", "placed", "removed", "done"]
    assert plane.where("web") == {0: replacement.claim}
    assert plane.where("api") == {}


# --- what is refused


def test_a_proposal_about_a_node_that_changed_is_refused_whole(plane: PoolPlane) -> None:
    two_half_full(plane)
    plane.at += MINUTE * 1_000_000
    plane.state.at = plane.at
    (found,) = plane.survey()
    proposed = plane.proposed(found)
    plane.assign("late", 1, wants(100))
    plane.assign("later", 1, wants(100))
    decisions = plane.feed(proposed, seconds=MINUTE)
    assert refusal(decisions)[0] == "Changed"
    assert plane.state.running == {}
    assert plane.state.book.closed == set()


def test_the_budget_of_the_pool_is_kept_over_all_commands(plane: PoolPlane) -> None:
    plane.feed(pool_policy(a_pool(budgets=(NodeBudget("1"),))))
    plane.add(*[plane.bought(SMALL, number=i) for i in range(3)])
    plane.at += MINUTE * 1_000_000
    plane.state.at = plane.at
    first = plane.survey()
    assert len(first) == 1
    others = [
        msgspec.structs.replace(plane.proposed(first[0]), nodes=(f"small-{i}",)) for i in range(3)
    ]
    full = [
        msgspec.structs.replace(
            p, contents={p.nodes[0]: plane.proposed(first[0]).contents[first[0].nodes[0]]}
        )
        for p in others
    ]
    decisions = plane.feed(*full)
    assert plane.told_by(decisions)["done"] == 1
    assert plane.told_by(decisions)["refused"] == 2
    assert refusal(decisions)[0] == "BudgetSpent"
    # The node is still there: nobody else may go before it has gone.
    assert refusal(plane.feed(full[2], seconds=MINUTE))[0] in ("BudgetSpent", "NothingToDo")
    plane.take_away()
    left = sorted(plane.there)
    again = msgspec.structs.replace(
        full[0], nodes=(left[0],), contents={left[0]: full[0].contents[full[0].nodes[0]]}
    )
    assert "done" in words(plane.feed(again, seconds=MINUTE))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cluster": "bergen"}, "UnknownTarget"),
        ({"nodes": ("nowhere",)}, "UnknownTarget"),
        ({"contents": {}}, "Changed"),
        ({"method": "drift"}, "Changed"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    plane: PoolPlane, change: dict[str, object], reason: str
) -> None:
    two_half_full(plane)
    plane.at += MINUTE * 1_000_000
    plane.state.at = plane.at
    proposed = plane.proposed(plane.survey()[0], **change)
    assert refusal(plane.feed(proposed))[0] == reason
    assert plane.state.running == {}


def test_a_node_is_not_taken_twice(plane: PoolPlane) -> None:
    one_too_big(plane)
    again = next(d.data for d in plane.rounds[-1].events if isinstance(d.data, DisruptionProposed))
    assert refusal(plane.feed(again))[0] == "NothingToDo"


def test_a_workload_that_may_not_be_disrupted_protects_its_node(plane: PoolPlane) -> None:
    two_half_full(plane)
    plane.at += MINUTE * 1_000_000
    plane.state.at = plane.at
    proposed = plane.proposed(plane.survey()[0])
    plane.budgets(a_budget("web", allowed=0))
    reason, detail = refusal(plane.feed(proposed))
    assert reason == "Protected"
    assert "shop/web" in detail


def test_no_replacement_is_asked_of_a_pool_that_rests(plane: PoolPlane) -> None:
    one_too_big(plane)
    plane.feed(seconds=10 * MINUTE)
    reason, detail = refusal(plane.disrupt(seconds=1))
    assert reason == "Held"
    assert "no node of pool default could be had" in detail


def test_before_all_nodes_are_seen_nothing_goes() -> None:
    plane = PoolPlane()
    proposed = DisruptionProposed(STREAM, CLUSTER, "emptiness", ("a",), {"a": ""})
    seat = DeschedulingProposed(
        STREAM, CLUSTER, "RemoveDuplicates", "test", (Unseating("a", "web", 0),)
    )
    decisions = plane.feed(proposed, seat)
    assert words(decisions) == ["refused", "refused"]
    assert refusal(decisions)[0] == "UnknownTarget"


# --- taken up again


def test_a_command_goes_on_wherever_its_stream_is_taken_up_again(plane: PoolPlane) -> None:
    plane.add(plane.bought(BIG, number=1))
    plane.assign("web", 3, wants(450, "web"))
    plane.run_pods()
    plane.budgets(a_budget("web"))
    plane.disrupt()
    plane.deliver()
    for _ in range(5):
        plane.run_pods()
    plane.take_away()
    assert over(plane.decided).outcome == "done"
    decider, rounds = plane.decider, plane.rounds
    for cut in range(1, len(rounds)):
        recovered = recover(decider, decider.initial(STREAM), rounds[:cut])
        loaded = decider.load(STREAM, decider.dump(recovered))
        for state in (recovered, loaded):
            assert (
                audit(decider, state, rounds[cut - 1].round.head(), rounds[cut:]).divergences == []
            )
    assert audit(decider, decider.initial(STREAM), empty_head(STREAM), rounds).divergences == []


def test_what_stands_is_told_to_who_begins_anew(plane: PoolPlane) -> None:
    claim = one_too_big(plane)
    told = {type(item).__name__: item for item in current_items(plane.state, plane.head.seq)}
    assert set(told) == {"Placed", "Claimed", "Disrupting"}
    assert getattr(told["Claimed"], "claim", "") == claim
    assert getattr(told["Disrupting"], "nodes", ()) == ("big-0",)
    plane.deliver()
    assert [type(item).__name__ for item in current_items(plane.state, plane.head.seq)] == [
        "Placed",
        "NodeClosed",
    ]


# --- what strategies move


def test_a_replica_that_should_be_elsewhere_moves_there_in_one_round(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 2, wants(500, "web"))
    plane.add(a_node("b", cpu=4000))
    decisions = plane.unseat("RemoveDuplicates", ("a", "web", 1))
    assert words(decisions) == ["released", "placed"]
    gone = decisions[0].data
    assert isinstance(gone, ReplicasReleased)
    assert gone.reason == "RemoveDuplicates"
    assert plane.where("web") == {0: "a", 1: "b"}
    assert plane.state.descheduling == {}


def test_one_without_a_better_place_stays(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000), a_node("full", cpu=100))
    plane.assign("web", 2, wants(500, "web"))
    decisions = plane.unseat("RemoveDuplicates", ("a", "web", 1))
    assert refusal(decisions)[0] == "NoRoom"
    assert plane.where("web") == {0: "a", 1: "a"}


def test_no_node_is_relieved_at_the_cost_of_one_that_would_be_as_full(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 4, wants(500, "web"))
    plane.add(a_node("b", cpu=1000))
    seats = [("a", "web", ordinal) for ordinal in range(4)]
    decisions = plane.unseat("LowNodeUtilization", *seats)
    assert placings(decisions) == []  # half of a is in use, and half of b would be
    assert refusal(decisions)[0] == "NoRoom"


def test_of_several_each_is_moved_or_stays_by_itself(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 3, wants(900, "web"))
    plane.add(a_node("b", cpu=1000))
    decisions = plane.unseat("PodLifeTime", *[("a", "web", ordinal) for ordinal in range(3)])
    assert words(decisions) == ["released", "placed", "refused"]
    reason, detail = refusal(decisions)
    assert (reason, detail.startswith("2 of 3 stay")) == ("NoRoom", True)


def test_nodes_that_are_to_be_emptied_fill_the_fullest_others(plane: PoolPlane) -> None:
    plane.add(a_node("fuller", cpu=4000), a_node("full", cpu=4000), a_node("empty", cpu=4000))
    plane.pods("fuller", Pod("x", "x", wants(2500)))
    plane.pods("full", Pod("y", "y", wants(2000)))
    plane.assign("web", 1, wants(500, "web"))
    assert plane.where("web") == {0: "empty"}
    plane.unseat("HighNodeUtilization", ("empty", "web", 0))
    assert plane.where("web") == {0: "fuller"}


def test_pods_of_others_are_not_ours_to_move(plane: PoolPlane) -> None:
    plane.add(a_node("a"), a_node("b"))
    plane.pods("a", Pod("f-1", "job", wants(900)))
    data = DeschedulingProposed(
        STREAM, CLUSTER, "PodLifeTime", "test", (Unseating("a", pod="f-1"),)
    )
    assert refusal(plane.feed(data)) == ("Protected", "pod f-1 on node a is not ours to move")


def test_a_workload_that_was_moved_is_left_alone_for_a_while(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 3, wants(500, "web"))
    plane.add(a_node("b", cpu=4000), a_node("c", cpu=4000))
    plane.unseat("RemoveDuplicates", ("a", "web", 1))
    reason, detail = refusal(plane.unseat("RemoveDuplicates", ("a", "web", 2)))
    assert (reason, "left alone for" in detail) == ("Held", True)
    plane.feed(seconds=5 * MINUTE)
    assert words(plane.unseat("RemoveDuplicates", ("a", "web", 2))) == ["released", "placed"]
    assert sorted(plane.where("web").values()) == ["a", "b", "c"]


def test_nothing_goes_back_to_where_its_workload_was_taken_off(plane: PoolPlane) -> None:
    """Nor by another replica of it. What it may go to is a node where none of it has been."""
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 2, wants(500, "web"))
    plane.add(a_node("b", cpu=4000))
    plane.unseat("PodLifeTime", ("a", "web", 1), return_s=DAY)
    assert plane.where("web") == {0: "a", 1: "b"}
    plane.feed(seconds=5 * MINUTE)
    reason, detail = refusal(plane.unseat("PodLifeTime", ("b", "web", 1)))
    assert (reason, "not to go back" in detail) == ("NoRoom", True)
    plane.add(a_node("c", cpu=4000))
    plane.unseat("PodLifeTime", ("b", "web", 1), return_s=DAY)
    assert plane.where("web") == {0: "a", 1: "c"}
    plane.feed(seconds=5 * MINUTE)
    assert refusal(plane.unseat("PodLifeTime", ("a", "web", 0), ("c", "web", 1)))[0] == "NoRoom"
    plane.feed(seconds=DAY)
    assert words(plane.unseat("PodLifeTime", ("c", "web", 1))) == ["released", "placed"]


def test_a_proposal_may_name_nodes_that_will_not_do(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 1, wants(500, "web"))
    plane.add(a_node("b", cpu=4000), a_node("c", cpu=4000))
    away = Unseating("a", "web", 0, avoid=("b", "c"))
    assert refusal(plane.unseat("PodLifeTime", unseatings=(away,)))[0] == "NoRoom"
    plane.unseat("PodLifeTime", unseatings=(msgspec.structs.replace(away, avoid=("b",)),))
    assert plane.where("web") == {0: "c"}


def test_a_workload_rests_for_as_long_as_who_moved_it_said(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 3, wants(500, "web"))
    plane.add(a_node("b", cpu=4000), a_node("c", cpu=4000))
    plane.unseat("RemoveDuplicates", ("a", "web", 1), cooldown_s=30 * MINUTE)
    plane.feed(seconds=29 * MINUTE)
    assert refusal(plane.unseat("RemoveDuplicates", ("a", "web", 2)))[0] == "Held"
    plane.feed(seconds=MINUTE)
    assert words(plane.unseat("RemoveDuplicates", ("a", "web", 2))) == ["released", "placed"]


def test_what_was_taken_off_more_nodes_than_can_be_kept_in_mind_is_left_alone(
    plane: PoolPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_cooldown, "LEFT_MAX", 1)
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 1, wants(500, "web"))
    plane.add(a_node("b", cpu=4000), a_node("c", cpu=4000))
    plane.unseat("PodLifeTime", ("a", "web", 0), return_s=DAY)
    (home,) = plane.where("web").values()
    plane.feed(seconds=5 * MINUTE)
    assert refusal(plane.unseat("PodLifeTime", (home, "web", 0), return_s=DAY))[0] == "Held"


def test_what_was_left_is_forgotten_with_its_time_and_its_workload(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 1, wants(500, "web"))
    plane.add(a_node("b", cpu=4000))
    plane.unseat("PodLifeTime", ("a", "web", 0), return_s=DAY)
    assert set(plane.state.left["web"]) == {"a"}
    plane.feed(seconds=DAY)
    plane.unseat("PodLifeTime", ("a", "nobody", 0))
    assert plane.state.left == {}


def test_a_snapshot_keeps_what_was_left_and_an_older_one_knows_of_nothing(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 1, wants(500, "web"))
    plane.add(a_node("b", cpu=4000))
    plane.unseat("PodLifeTime", ("a", "web", 0), return_s=DAY)
    sections = plane.decider.dump(plane.state)
    assert plane.decider.load(STREAM, sections).left == plane.state.left
    older = {k: v for k, v in msgspec.json.decode(sections["upkeep"]).items() if k != "left"}
    assert plane.decider.load(STREAM, {**sections, "upkeep": msgspec.json.encode(older)}).left == {}


def test_a_strategy_breaks_no_budget_either(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000))
    plane.assign("web", 3, wants(500, "web"))
    plane.add(a_node("b", cpu=4000), a_node("c", cpu=4000))
    plane.run_pods()
    plane.budgets(a_budget("web", allowed=1))
    decisions = plane.unseat("RemoveDuplicates", ("a", "web", 1), ("a", "web", 2))
    assert words(decisions) == ["released", "placed", "refused"]
    reason, detail = refusal(decisions)
    assert (reason, "PodDisruptionBudget shop/web" in detail) == ("Protected", True)


def test_one_that_has_moved_meanwhile_is_left_where_it_is(plane: PoolPlane) -> None:
    plane.add(a_node("a", cpu=4000), a_node("b", cpu=4000))
    plane.assign("web", 1, wants(500, "web"))
    (home,) = plane.where("web").values()
    elsewhere = "b" if home == "a" else "a"
    assert refusal(plane.unseat("PodLifeTime", (elsewhere, "web", 0)))[0] == "Changed"
    assert plane.where("web") == {0: home}


def test_a_removal_that_was_proposed_the_old_way_minds_who_is_promised_the_node(
    plane: PoolPlane,
) -> None:
    one_too_big(plane)
    node = plane.node_for(plane.claims[0])
    plane.add(msgspec.structs.replace(node, ready=False))  # it has come, and nothing is on it yet
    assert refusal(plane.propose_removal(node.name)) == (
        "NodeNotEmpty",
        "it is promised to somebody",
    )
