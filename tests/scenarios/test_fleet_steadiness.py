"""Moves that nobody asked for, told as stories: back to the first choice, onto clusters that
returned, and not on noise."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DYNAMIC,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    forgotten,
    room,
    static,
)

from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    Steadiness,
)
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.kernel.step import number
from wharfinger.stages.fleet.focus import FleetFocus
from wharfinger.stages.fleet.moves import MOVES_A_MINUTE

GROUPS = (ClusterAffinity("home", ("oslo", "bergen")), ClusterAffinity("away", ("alta",)))


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def going_home(after_s: int | None = 60, window_s: int = 300) -> Placement:
    steady = Steadiness(failback_after_s=after_s, window_s=window_s)
    return Placement(GROUPS, replicas=DYNAMIC, steadiness=steady)


def balanced(how: ReplicaScheduling = DYNAMIC, **what: int) -> Placement:
    return Placement(
        replicas=how, steadiness=Steadiness(rebalance_after_s=what.pop("after_s", 60), **what)
    )


def moved(plane: FleetPlane) -> list[dict[str, int]]:
    """What moves there were in the last round or wait."""
    found = [d for d in plane.decided if isinstance(d, ScheduleDecided) and d.move]
    return [{t.cluster: t.replicas for t in d.targets} for d in found]


def away_from_home(plane: FleetPlane, placement: Placement) -> None:
    """Nothing is free at home, so web goes away."""
    plane.given(*(a_cluster(name) for name in ("oslo", "bergen", "alta")))
    plane.given(room("oslo", 0), room("bergen", 0), room("alta", 9))
    plane.when(a_binding("web", 4, placement=placement))
    assert plane.then_scheduled("web", alta=4).affinity == "away"


def test_home_again_once_home_could_have_taken_it_for_long_enough(plane: FleetPlane) -> None:
    away_from_home(plane, going_home(60))
    plane.when(room("oslo", 3), room("bergen", 3))
    plane.then_nothing()
    plane.wait(59)
    assert moved(plane) == []
    plane.wait(10)
    assert moved(plane) == [{"bergen": 2, "oslo": 2}]
    decided = plane.decided[-1]
    assert isinstance(decided, ScheduleDecided)
    assert (decided.affinity, decided.trigger, decided.move) == (
        "home",
        "ReconcileSchedule",
        "failback",
    )
    assert decided.explanation.why.startswith("failback")


def test_a_break_begins_the_time_anew(plane: FleetPlane) -> None:
    away_from_home(plane, going_home(60))
    plane.when(room("oslo", 3), room("bergen", 3))
    plane.wait(40)
    plane.when(room("oslo", 0))
    plane.wait(10)
    plane.when(room("oslo", 3))
    plane.wait(50)
    assert moved(plane) == []
    plane.wait(30)
    assert moved(plane) == [{"bergen": 2, "oslo": 2}]


def test_a_home_that_could_take_only_some_is_none(plane: FleetPlane) -> None:
    away_from_home(plane, going_home(10))
    plane.when(room("oslo", 3), room("bergen", 0))
    plane.wait(100)
    assert moved(plane) == []


def test_without_leave_nothing_goes_back(plane: FleetPlane) -> None:
    away_from_home(plane, going_home(None))
    plane.when(room("oslo", 9), room("bergen", 9))
    plane.wait(10_000)
    plane.then_nothing()
    assert plane.decider.next_due(plane.state) is None


def test_between_two_moves_of_one_binding_lies_the_window(plane: FleetPlane) -> None:
    away_from_home(plane, going_home(10, window_s=600))
    plane.when(room("oslo", 9), room("bergen", 9))
    plane.wait(20)
    assert moved(plane) == [{"bergen": 2, "oslo": 2}]
    plane.when(forgotten("oslo"), forgotten("bergen"))
    plane.then_scheduled("web", alta=4)
    plane.when(a_cluster("oslo"), room("oslo", 9), a_cluster("bergen"), room("bergen", 9))
    plane.wait(500)
    assert moved(plane) == []
    plane.wait(200)
    assert moved(plane) == [{"bergen": 2, "oslo": 2}]


def one_of_three(plane: FleetPlane, placement: Placement, replicas: int = 12) -> None:
    """web lies in oslo and bergen only, and then narvik comes, as roomy as they."""
    plane.given(a_cluster("oslo"), room("oslo", 40), a_cluster("bergen"), room("bergen", 40))
    plane.when(a_binding("web", replicas, placement=placement))
    plane.then_scheduled("web", oslo=replicas // 2, bergen=replicas // 2)
    used = replicas // 2
    plane.when(room("oslo", 40 - used, fleet=1), room("bergen", 40 - used, fleet=1))
    plane.when(a_cluster("narvik"), room("narvik", 40))
    plane.then_nothing()


def settle(plane: FleetPlane, rooms: dict[str, int], seconds: float) -> list[dict[str, int]]:
    """Time passes, with the clusters counted again after every move: what is free and what web has
    is `rooms`."""
    found: list[dict[str, int]] = []
    for _ in range(int(seconds // 10)):
        plane.wait(10)
        if moved(plane):
            found += moved(plane)
            held = plane.holds("web")
            plane.when(
                *(
                    room(name, n - held.get(name, 0), fleet=plane.head.seq)
                    for name, n in rooms.items()
                )
            )
            plane.then_nothing()
    return found


THREE = {"oslo": 40, "bergen": 40, "narvik": 40}


def test_a_cluster_that_comes_gets_its_part_under_the_budget(plane: FleetPlane) -> None:
    one_of_three(plane, balanced(after_s=60, window_s=60, gain_percent=5, budget_percent=17))
    one, two = settle(plane, THREE, 600)
    assert one == {"bergen": 4, "narvik": 3, "oslo": 5}, "17 % of 12, rounded up, are moved at once"
    assert two == {"bergen": 4, "narvik": 4, "oslo": 4}


def test_what_would_gain_too_little_stays(plane: FleetPlane) -> None:
    one_of_three(plane, balanced(after_s=10, gain_percent=40))
    plane.wait(1000)
    assert moved(plane) == []


def test_without_leave_nothing_is_balanced(plane: FleetPlane) -> None:
    one_of_three(plane, Placement(replicas=DYNAMIC))
    plane.wait(10_000)
    plane.then_nothing()


def test_static_weights_are_come_back_to_when_a_cluster_returns(plane: FleetPlane) -> None:
    placement = balanced(static(oslo=1, bergen=1), after_s=30, budget_percent=100)
    plane.given(a_cluster("oslo"), room("oslo", 40), a_cluster("bergen"), room("bergen", 40))
    plane.given(a_binding("web", 10, placement=placement))
    plane.when(forgotten("bergen"))
    plane.then_scheduled("web", oslo=10)
    plane.when(a_cluster("bergen"), room("bergen", 40))
    plane.then_nothing()
    plane.wait(60)
    assert moved(plane) == [{"bergen": 5, "oslo": 5}]


def test_an_aggregated_binding_is_gathered_when_one_cluster_could_hold_it(
    plane: FleetPlane,
) -> None:
    placement = balanced(AGGREGATED, after_s=30, budget_percent=100)
    plane.given(a_cluster("oslo"), room("oslo", 6), a_cluster("bergen"), room("bergen", 4))
    plane.given(a_binding("web", 10, placement=placement))
    plane.then_scheduled("web", oslo=6, bergen=4)
    plane.when(room("oslo", 4, fleet=1), room("bergen", 0, fleet=1))
    plane.wait(100)
    assert moved(plane) == [], "it would fit, but without anything to spare"
    plane.when(room("oslo", 9, fleet=1))
    plane.wait(100)
    assert moved(plane) == [{"oslo": 10}]


def test_a_roomier_cluster_does_not_draw_an_aggregated_binding(plane: FleetPlane) -> None:
    placement = balanced(AGGREGATED, after_s=10, budget_percent=100)
    plane.given(a_cluster("oslo"), room("oslo", 10))
    plane.given(a_binding("web", 10, placement=placement))
    plane.when(room("oslo", 0, fleet=1), a_cluster("bergen"), room("bergen", 1000))
    plane.wait(1000)
    assert moved(plane) == []


def test_no_step_on_the_way_breaks_the_least_of_a_cluster(plane: FleetPlane) -> None:
    how = msgspec.structs.replace(DYNAMIC, limits=(ReplicaLimit("*", least=3),))
    one_of_three(plane, balanced(how, after_s=10, window_s=10, budget_percent=10))
    assert settle(plane, THREE, 200) == [], (
        "two replicas may move at once, and narvik takes three or none"
    )


def test_a_returning_cluster_does_not_set_the_whole_fleet_in_motion(plane: FleetPlane) -> None:
    many = MOVES_A_MINUTE + 20
    plane.given(a_cluster("oslo"), room("oslo", 10_000))
    placement = balanced(after_s=10, window_s=3600, budget_percent=100)
    plane.given(*(a_binding(f"app-{i:03}", 2, placement=placement) for i in range(many)))
    plane.when(a_cluster("bergen"), room("bergen", 10_000), room("oslo", 9_000, fleet=many))
    plane.wait(30)
    assert len(moved(plane)) == MOVES_A_MINUTE
    plane.wait(60)
    assert len(moved(plane)) == 20


NOISE = 2


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from((DYNAMIC, AGGREGATED, ReplicaScheduling("Divided", "Weighted"))),
)
def test_noise_below_the_gain_never_moves_anything(seed: int, how: ReplicaScheduling) -> None:
    """Clusters of about a hundred free replicas, of which two come and go, are weighed otherwise by
    less than a tenth."""
    random, plane = Random(seed), FleetPlane()
    names = ("bergen", "narvik", "oslo", "tromso")
    plane.given(*(a_cluster(name) for name in names), *(room(name, 100) for name in names))
    plane.given(
        a_binding("web", 40, placement=balanced(how, after_s=0, window_s=0, gain_percent=10))
    )
    held = plane.holds("web")
    for _ in range(30):
        name = random.choice(names)
        free = 100 - held.get(name, 0) + random.randint(-NOISE, NOISE)
        plane.when(room(name, free, fleet=1), after_s=7)
        plane.then_nothing()
        plane.wait(random.choice((0, 6, 60)))
        assert plane.decided == []
    plane.check()


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=6),
    st.integers(1, 40),
    st.sampled_from((DYNAMIC, AGGREGATED, ReplicaScheduling("Divided", "Weighted"))),
    st.integers(1, 60),
    st.integers(1, 100),
)
def test_a_fleet_in_which_nothing_changes_comes_to_rest(
    rooms: list[int], replicas: int, how: ReplicaScheduling, gain: int, budget: int
) -> None:
    """However far apart, there is an end of moving: never back to where it was, and nothing due
    afterwards."""
    plane = FleetPlane()
    placement = balanced(how, after_s=0, window_s=0, gain_percent=gain, budget_percent=budget)
    names = [f"c{i}" for i in range(len(rooms))]
    plane.given(a_cluster("c0"), room("c0", replicas))
    plane.given(a_binding("web", replicas, placement=placement))
    there = {
        name: n + (replicas if name == "c0" else 0) for name, n in zip(names, rooms, strict=True)
    }
    seen = [plane.holds("web")]
    plane.when(*(a_cluster(name) for name in names[1:]), *counted(plane, there))
    for _ in range(4 * replicas + 8):
        plane.wait(10)
        if not moved(plane):
            break
        assert plane.holds("web") not in seen, "where it was before"
        seen.append(plane.holds("web"))
        plane.when(*counted(plane, there), after_s=5)
    assert not moved(plane)
    plane.wait(1000)
    plane.then_nothing()
    assert plane.decider.next_due(plane.state) is None
    plane.check()


def counted(plane: FleetPlane, there: dict[str, int]) -> list[CapacityEstimated]:
    held = plane.holds("web")
    return [room(name, n - held.get(name, 0), fleet=plane.head.seq) for name, n in there.items()]


def test_a_move_is_explained_without_the_other_bindings() -> None:
    """The one decision is taken again on a state that knows of no other binding, and comes out the
    same."""
    plane = FleetPlane()
    one_of_three(plane, balanced(after_s=30, window_s=60, gain_percent=5, budget_percent=20))
    plane.given(a_binding("other", 3), a_binding("db", 2, placement=going_home(20)))
    assert settle(plane, THREE, 300)
    explained = 0
    for place, last in enumerate(plane.rounds):
        for made in last.round.decisions:
            if not isinstance(made.data, ScheduleDecided) or not made.data.move:
                continue
            focus = FleetFocus(plane.decider.initial(STREAM), "web", {})
            for before in plane.rounds[:place]:
                focus.fold(before.round.at, before.events, before.round.decisions)
            focus.fold(
                last.round.at, last.events, [d for d in last.round.decisions if d.seq < made.seq]
            )
            drafts = plane.decider.decide(focus.state, last.round.at)
            again = next(draft for draft in drafts if draft.subject == "web")
            assert number(again, STREAM, made.seq).body == made.body
            explained += 1
    assert explained


def test_nothing_moves_while_most_of_the_fleet_is_silent(plane: FleetPlane) -> None:
    for name in ("oslo", "bergen", "narvik"):
        plane.given(a_cluster(name, lease_s=60), room(name, 40 if name != "narvik" else 0))
    plane.given(a_binding("web", 12, placement=balanced(after_s=0, budget_percent=100)))
    plane.wait(70)
    assert plane.state.held
    plane.when(a_cluster("narvik", lease_s=60), room("narvik", 40))
    plane.wait(50)
    assert moved(plane) == []
