"""Whose turn it is, told as stories: priority, and patience with what is refused again and
again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import STREAM, FleetPlane, a_binding, a_cluster, room

from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import step
from wharfinger.stages.fleet.backoff import CALM_S, pause_after, refused


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def test_the_important_requests_of_a_round_are_answered_first(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 4))
    plane.when(a_binding("batch", 3), a_binding("web", 3, priority=5))
    plane.then_scheduled("web", oslo=3)
    plane.then_refused("batch", "Unschedulable")


def test_pauses_double_up_to_ten_seconds_and_calm_ends_them() -> None:
    assert [pause_after(n) // SECOND for n in range(1, 9)] == [0, 0, 1, 2, 4, 8, 10, 10]
    assert refused(5, 100 * SECOND, (100 + CALM_S) * SECOND - 1, asked=False)[0] == 6
    assert refused(5, 100 * SECOND, (100 + CALM_S) * SECOND, asked=False) == (
        1,
        (100 + CALM_S) * SECOND,
    )
    assert refused(5, 100 * SECOND, 100 * SECOND, asked=True)[0] == 1


def flap(plane: FleetPlane, times: int, every_s: float = 0.05) -> int:
    """Room for web is counted, web is placed, and the cluster refuses it: again and again. How many
    decisions that makes."""
    made = 0
    for _ in range(times):
        plane.when(
            room("oslo", 2, fleet=plane.head.seq, own=plane.outcome_seq.get("oslo", 0)),
            after_s=every_s,
        )
        made += len(plane.decided)
        if plane.holds("web"):
            plane.when(plane.refused("oslo", "web", 2))
            made += len(plane.decided)
        plane.when(room("oslo", 0, fleet=plane.head.seq, own=plane.outcome_seq.get("oslo", 0)))
        made += len(plane.decided)
    return made


def test_flapping_capacity_makes_no_history_of_a_binding(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.given(a_binding("web", 2))
    assert flap(plane, 200) < 20, "in fifteen seconds it is tried a few times, and not two hundred"


def test_what_changed_during_a_pause_is_looked_at_when_it_ends(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.given(a_binding("web", 2))
    flap(plane, 4)
    assert plane.state.bindings["web"].pause_until > plane.at
    plane.when(room("oslo", 3, fleet=plane.head.seq, own=plane.outcome_seq["oslo"]))
    plane.then_nothing()
    assert plane.decider.next_due(plane.state) == plane.state.bindings["web"].pause_until
    plane.wait(10)
    plane.then_scheduled("web", oslo=2)


def test_a_pause_in_which_nothing_changed_ends_unnoticed(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.given(a_binding("web", 2))
    flap(plane, 4)
    assert plane.decider.next_due(plane.state) in (None, plane.state.bindings["web"].pause_until)
    plane.wait(30)
    rounds = len(plane.rounds)
    plane.wait(1000)
    assert len(plane.rounds) == rounds


def test_what_is_asked_for_is_answered_whatever_the_pause(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.given(a_binding("web", 2))
    flap(plane, 5)
    plane.when(room("oslo", 1, fleet=plane.head.seq, own=plane.outcome_seq["oslo"]))
    plane.then_nothing()
    plane.when(a_binding("web", 1))
    plane.then_scheduled("web", oslo=1)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from((0.01, 0.3, 1.1, 4.0))),
        max_size=25,
    )
)
def test_a_stream_taken_up_during_pauses_goes_on_alike(
    story: list[tuple[int, bool, float]],
) -> None:
    plane = FleetPlane()
    plane.given(
        a_cluster("oslo"), a_cluster("bergen"), a_binding("web", 2), a_binding("db", 3, priority=1)
    )
    middle = len(story) // 2
    before, other, head = 0, plane.state, plane.head
    for place, (free, refuse, after_s) in enumerate(story):
        if place == middle:
            before, head = len(plane.rounds), plane.head
            other = plane.decider.load(STREAM, plane.decider.dump(plane.state))
        facts: list[Value] = [
            room("oslo", free, fleet=plane.head.seq, own=plane.outcome_seq.get("oslo", 0))
        ]
        if refuse and plane.holds("web").get("oslo"):
            facts.insert(0, plane.refused("oslo", "web", 1))
        plane.wait(after_s)
        plane.when(*facts)
    if not story:
        return
    for recorded in plane.rounds[before:]:
        again = step(
            plane.decider, other, head, recorded.events, recorded.round.at, recorded.round.basis
        )
        assert [d.body for d in again.decisions] == [d.body for d in recorded.round.decisions]
        head = again.head()
    live = plane.decider.dump(plane.state)
    assert plane.decider.dump(other) == live
    assert (
        plane.decider.dump(recover(plane.decider, plane.decider.initial(STREAM), plane.rounds))
        == live
    )
    assert plane.decider.next_due(other) == plane.decider.next_due(plane.state)
