"""Replicas that lost their node and fit on no other: the cluster returns them, and says for whom
they were preempted. A request that does not fit is refused as before."""

from __future__ import annotations

import pytest
from tests.cluster_world import STREAM, Harness, a_node, needs

from wharfinger.domain.taints import Taint
from wharfinger.events.decisions import DisplacedReplicas, ReplicasRefused, ReplicasReleased
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head

CPU = needs(cpu=1000)


@pytest.fixture
def plane() -> Harness:
    return Harness()


def given_back(decisions: list[Decision]) -> list[tuple[str, str, ReplicasRefused]]:
    return [
        (d.outcome, d.subject, d.data) for d in decisions if isinstance(d.data, ReplicasRefused)
    ]


def test_what_is_preempted_and_fits_nowhere_is_returned_with_its_preemptor(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("low", 4, CPU, 1)
    decided = plane.assign("high", 3, CPU, 9)
    released = [d.data for d in decided if isinstance(d.data, ReplicasReleased)]
    assert {(r.reason, r.preemptor) for r in released} == {("Preempted", "high")}
    assert released[0].sentence() == "from a: Preempted by high"
    ((outcome, subject, data),) = given_back(decided)
    assert (outcome, subject, data.count) == ("returned", "low", 3)
    assert data.displaced == (DisplacedReplicas("Preempted", 3, "high"),)
    assert (data.refusal(), data.reason) == ("Preempted", "InsufficientResources")
    assert data.sentence() == (
        "3 replicas returned to the fleet: Preempted by high, and no other node is feasible: "
        "InsufficientResources"
    )


def test_a_request_that_does_not_fit_is_refused(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    ((outcome, _, data),) = given_back(plane.assign("web", 5, CPU))
    assert (outcome, data.count, data.displaced) == ("refused", 1, ())
    assert data.sentence() == "1 replica returned to the fleet: InsufficientResources"


def test_several_preemptors_and_a_request_in_one_decision(plane: Harness) -> None:
    """The fleet stage counts one answer of each assignment, so one decision holds them all."""
    plane.nodes(a_node("a"))
    plane.assign("low", 4, CPU, 1)
    decided = plane.feed(
        plane.assigned(("low", 6, CPU, 1), ("mid", 1, CPU, 5), ("high", 2, CPU, 9))
    )
    ((outcome, _, data),) = given_back(decided)
    assert (outcome, data.count) == ("refused", 5)
    assert set(data.displaced) == {
        DisplacedReplicas("Preempted", 1, "mid"),
        DisplacedReplicas("Preempted", 2, "high"),
    }


def test_what_finds_another_node_is_no_return(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("low", 4, CPU, 1)
    plane.nodes(a_node("a"), a_node("b", cpu=2000))
    assert given_back(plane.assign("high", 2, CPU, 9)) == []
    assert plane.state.displaced == {}


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (a_node("b", cpu=0), "NodeGone"),
        (a_node("a", taints=(Taint("down", "NoExecute"),)), "NoExecuteTaint"),
        (a_node("a", cpu=0), "NodeShrank"),
    ],
)
def test_a_lost_node_is_a_return_too(plane: Harness, after: object, reason: str) -> None:
    plane.nodes(a_node("a"))
    plane.assign("web", 2, CPU)
    ((outcome, _, data),) = given_back(plane.nodes(after))  # type: ignore[arg-type]
    assert (outcome, data.displaced) == ("returned", (DisplacedReplicas(reason, 2),))  # type: ignore[arg-type]
    assert data.sentence().startswith(f"2 replicas returned to the fleet: {reason}, and no other")


def test_a_new_request_forgets_what_was_displaced(plane: Harness) -> None:
    """While its room on another node is reserved, the victim is requested otherwise."""
    plane.nodes(a_node("a"))
    plane.assign("low", 4, CPU, 1)
    plane.feed(plane.assigned(("high", 2, CPU, 9), ("low", 3, needs(cpu=1500), 1)))
    assert plane.state.displaced == {}
    ((outcome, _, data),) = [
        (o, s, d)
        for recorded in plane.rounds[-1:]
        for o, s, d in given_back(list(recorded.round.decisions))
    ]
    assert (outcome, data.displaced) == ("refused", ())


def test_it_is_recovered_and_replayed(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("low", 4, CPU, 1)
    plane.feed(plane.assigned(("low", 6, CPU, 1), ("mid", 1, CPU, 5), ("high", 2, CPU, 9)))
    plane.nodes(a_node("a", cpu=1000))
    decider = plane.decider
    recovered = recover(decider, decider.initial(STREAM), plane.rounds)
    assert decider.dump(recovered) == decider.dump(plane.state)
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds).divergences == []
    )
