"""Nodes that did not take a pod that was placed there, told as stories."""

from __future__ import annotations

import pytest
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node
from tests.scenarios.test_pod_placing import LOCAL, WEB, joined, on, places, waiting, waits, wants

from wharfinger.domain.node import WaitingPod
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.events.decisions import NodeBarred, PodsUnplaced, ReplicasPlaced, ReplicasReleased
from wharfinger.events.effects import AnswerOutcome, EffectAnswer, EffectsObserved
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.barred_nodes import BIND_REFUSED, MINUTE_US, without_barred
from wharfinger.stages.cluster.trace import trace

MINUTE_S = 60


def answer(
    uid: str, node: str, binding: str = LOCAL, outcome: AnswerOutcome = "refused"
) -> EffectAnswer:
    return EffectAnswer(
        STREAM,
        1,
        "",
        "bind",
        "bind-pod",
        "Pod",
        "shop",
        uid,
        uid,
        outcome,
        binding=binding,
        node=node,
        code=422,
        reason="Invalid",
        message="no such thing",
    )


def answers(*items: EffectAnswer) -> EffectsObserved:
    return EffectsObserved(CLUSTER, items)


def bars(decided: list[Decision]) -> list[NodeBarred]:
    return [d.data for d in decided if isinstance(d.data, NodeBarred)]


@pytest.fixture
def plane() -> Harness:
    plane = Harness()
    plane.feed(*joined(a_node("a", 1000), a_node("b", 1000)))
    return plane


def placed(plane: Harness, pod: WaitingPod) -> str:
    (_, node, _) = places(plane.feed(waiting(pod)))[pod.uid]
    return node


def test_a_pod_whose_binding_was_refused_is_placed_elsewhere_at_once(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    decided = plane.feed(answers(answer("u1", node)))
    barred, released, again = [d.data for d in decided]
    assert isinstance(barred, NodeBarred)
    assert (barred.node, barred.failures, barred.reason) == (node, 1, "Invalid")
    assert barred.until_us == plane.state.at + MINUTE_US
    assert isinstance(released, ReplicasReleased)
    assert released.reason == BIND_REFUSED
    assert [share.pods for share in released.released] == [()], "the pod is not to be evicted"
    assert places(decided)["u1"][1] != node
    assert f"Barred for this workload: {node} (Invalid: no such thing)." in str(again)
    assert {d.cause for d in decided[:2]} == {plane.rounds[-1].events[-1].id}


def test_each_further_failure_doubles_the_time(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000)))
    plane.feed(waiting(waits("u1")))
    minutes: list[int] = []
    for _ in range(8):
        (barred,) = bars(plane.feed(answers(answer("u1", "a"))))
        minutes.append((barred.until_us - plane.state.at) // MINUTE_US)
        assert places(plane.feed(seconds=minutes[-1] * MINUTE_S)), "there is no other node"
    assert minutes == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_has_no_other_node_waits_until_the_bar_ends_and_is_told_why(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000)))
    placed(plane, waits("u1"))
    decided = plane.feed(answers(answer("u1", "a")))
    (said,) = [d.data for d in decided if isinstance(d.data, PodsUnplaced)]
    assert "Barred for this workload: a (Invalid: no such thing)." in said.message
    (why,) = trace(plane.state, said).nodes  # type: ignore[union-attr]
    assert why.refused
    assert why.said == {"Barred": ("Invalid: no such thing",)}
    until = bars(decided)[0].until_us
    assert plane.decider.next_due(plane.state) == until
    assert places(plane.feed(seconds=MINUTE_S - 1)) == {}
    assert places(plane.feed(seconds=1)) == {"u1": (LOCAL, "a", 0)}


def test_other_workloads_still_come_to_the_node(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000)))
    placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", "a")))
    decided = plane.feed(waiting(waits("u1"), waits("u2", binding="shop/job-job")))
    assert set(places(decided)) == {"u2"}


def test_many_pods_that_one_kubelet_does_not_admit_are_one_failure(plane: Harness) -> None:
    pods = [waits(f"u{n}", 100) for n in range(4)]
    where = {uid: node for uid, (_, node, _) in places(plane.feed(waiting(*pods))).items()}
    node = where["u0"]
    here = [uid for uid, name in where.items() if name == node]
    assert len(here) > 1
    plane.feed(waiting(*[pod for pod in pods if pod.uid not in here]))  # they failed, and are gone
    decided = plane.feed(*[answers(answer(uid, node, outcome="rejected")) for uid in here])
    assert [barred.failures for barred in bars(decided)] == [1]
    (after,) = places(plane.feed(waiting(waits("next", 100)))).values()
    assert after[1] != node


def test_an_answer_about_what_was_decided_before_changes_nothing(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", node)))
    assert plane.feed(answers(answer("u1", node))) == [], "it is placed elsewhere already"
    plane.feed(on(node, waits("u1")), waiting())
    assert plane.feed(answers(answer("u2", node)), answers(answer("u1", "c"))) == []


def test_a_pod_that_runs_there_is_not_released(plane: Harness) -> None:
    """The answer was lost and the request sent again: the fact is newer than the second answer."""
    node = placed(plane, waits("u1"))
    plane.feed(on(node, waits("u1")), waiting())
    decided = plane.feed(answers(answer("u1", node)))
    assert not [d for d in decided if isinstance(d.data, ReplicasReleased)]


def test_what_was_carried_out_decides_nothing(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    for outcome in ("done", "gone", "conflict", "blocked", "forbidden"):
        said = answer("u1", node, outcome=outcome)
        assert not said.against_placement
        assert plane.feed(answers(said)) == []


def test_a_replica_of_the_fleet_is_given_back_where_nothing_else_takes_it(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000)))
    plane.assign(WEB, 1, wants(500))
    placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", "a", WEB)))
    decided = plane.feed(seconds=20)
    (back,) = [d for d in decided if d.outcome == "refused"]
    assert "Barred for this workload: a" in str(back.data)


def test_a_binding_that_is_assigned_later_does_not_use_the_barred_node(plane: Harness) -> None:
    """The pods of a workload of the cluster are now those of a binding. The node is the same."""
    plane.feed(*joined(a_node("a", 2000), a_node("b", 2000)))
    node = placed(plane, waits("u1"))
    plane.assign(WEB, 1, wants(100))
    (again,) = [
        d.data
        for d in plane.feed(answers(answer("u1", node)))
        if isinstance(d.data, ReplicasPlaced)
    ]
    assert again.binding == WEB
    assert [share.node for share in again.placed] != [node]


def test_a_node_that_was_made_again_is_not_barred(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", node)))
    plane.feed(*joined())
    assert plane.state.barred == {}


def test_the_state_survives_a_snapshot_and_a_replay(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", node)))
    sections = plane.decider.dump(plane.state)
    plane.state = plane.decider.load(STREAM, sections)
    assert plane.state.barred[WEB][node].failures == 1
    assert plane.decider.dump(plane.state) == sections
    plane.feed(waiting(waits("u1"), waits("u2")), seconds=30)
    decider = plane.decider
    replayed = audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []


def test_barred_nodes_are_excluded_from_every_term(plane: Harness) -> None:
    node = placed(plane, waits("u1"))
    plane.feed(answers(answer("u1", node)))
    disk, empty = NodeTerm((Requirement("disk", "In", ("ssd",)),)), NodeTerm()
    asked = wants(100)
    assert without_barred(plane.state, "shop/job-job", asked) is asked, "another binding"
    one = without_barred(plane.state, LOCAL, asked)
    assert not one.node_terms[0].matches({}, node)
    assert one.node_terms[0].matches({}, "other")
    both = type(asked)(node_terms=(disk, empty))
    first, second = without_barred(plane.state, LOCAL, both).node_terms
    assert second == empty, "a term with nothing in it matches no node"
    assert first.matches({"disk": "ssd"}, "other")
    assert not first.matches({"disk": "ssd"}, node)
    assert not first.matches({}, "other")
