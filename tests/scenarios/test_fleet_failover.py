"""Clusters that fail, told as stories: what is reserved, what takes over, and what the decision
says of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DYNAMIC,
    NO_EXECUTE,
    NO_SCHEDULE,
    SMALL,
    FleetPlane,
    a_binding,
    a_cluster,
    eviction,
    failover,
    forgotten,
    fresh,
    room,
)

from wharfinger.domain.binding import Component, set_key
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling, StaticWeight
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import FailoverSets, ScheduleDecided
from wharfinger.stages.fleet.explain import LIMIT

RESERVE = Placement(replicas=DYNAMIC, failover="reserve")
EVICT = Placement(replicas=DYNAMIC)
NOTHING = Requirements()


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def a_fleet(
    plane: FleetPlane, *names: str, rooms: tuple[int, ...], lease_s: int | None = 60
) -> None:
    for name, replicas in zip(names, rooms, strict=True):
        kinds = ("apps/v1/Deployment",)  # done strictly, a kind that is not reported is not there
        plane.given(
            ClusterObserved(Cluster(name, lease_s=lease_s, api_kinds=kinds)), room(name, replicas)
        )


def hear(plane: FleetPlane, *names: str, after_s: float) -> None:
    plane.when(*(a_cluster(name, lease_s=60) for name in names), after_s=after_s)


def silence(plane: FleetPlane, *heard: str) -> None:
    """Everybody but `heard` says nothing for longer than the lease."""
    hear(plane, *heard, after_s=40)
    hear(plane, *heard, after_s=40)
    plane.wait(1)


def on_two_of_four(plane: FleetPlane, placement: Placement) -> None:
    """web has 4 in oslo and 2 in bergen, and there are narvik and tromso besides, which it may
    use."""
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2))
    plane.given(a_binding("web", 6, placement=placement))
    plane.then_scheduled("web", oslo=4, bergen=2)
    a_fleet(plane, "narvik", "tromso", rooms=(9, 5))


def test_the_healthy_are_reserved_and_one_candidate_takes_over_the_count_of_the_failed(
    plane: FleetPlane,
) -> None:
    on_two_of_four(plane, RESERVE)
    silence(plane, "bergen", "narvik", "tromso")
    plane.when(failover("web", "oslo"))
    decided = plane.then_scheduled("web", bergen=2, narvik=4, oslo=4)
    assert (decided.trigger, decided.suspect) == ("FailoverSchedule", ("oslo",))
    assert decided.explanation.failover == FailoverSets(
        ("bergen",), ("narvik", "tromso"), ("narvik", "tromso"), ("oslo",), (1, 2, 2, 1)
    )
    assert decided.explanation.why == "oslo is silent"


def test_what_a_cluster_refuses_while_another_is_removed_is_placed_as_well(
    plane: FleetPlane,
) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(1, 1), lease_s=None)
    plane.given(a_binding("web", 2, placement=RESERVE))
    plane.then_scheduled("web", oslo=1, bergen=1)
    a_fleet(plane, "narvik", rooms=(9,), lease_s=None)
    plane.when(forgotten("bergen"), plane.refused("oslo", "web", 1))
    plane.then_scheduled("web", narvik=2)


def test_refilled_by_the_bindings_own_strategy_the_healthy_may_take_some_of_it(
    plane: FleetPlane,
) -> None:
    on_two_of_four(plane, EVICT)
    plane.given(room("bergen", 9, fleet=1))
    silence(plane, "bergen", "narvik", "tromso")
    plane.when(failover("web", "oslo"))
    decided = plane.schedule("web")
    assert isinstance(decided, ScheduleDecided)
    assert sum(t.replicas for t in decided.targets) == 6 + 4
    assert {t.cluster: t.replicas for t in decided.targets}["bergen"] > 2
    assert decided.explanation.failover is not None
    assert decided.explanation.failover.counts == (1, 2, 2, 1)


def test_fewer_candidates_than_failed_targets_means_that_nothing_moves(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2))
    plane.given(a_binding("web", 6, placement=RESERVE))
    plane.given(a_cluster("narvik", NO_SCHEDULE, lease_s=60), room("narvik", 9))
    hear(plane, "bergen", after_s=40)
    plane.when(
        a_cluster("bergen", lease_s=60), a_cluster("narvik", NO_SCHEDULE, lease_s=60), after_s=40
    )
    plane.wait(1)
    plane.when(failover("web", "oslo"))
    refusal = plane.then_declined("Unschedulable")
    assert refusal.detail == "1 failed, 0 candidates: nothing moves"
    assert plane.holds("web") == {"oslo": 4, "bergen": 2}


def test_a_candidate_without_room_for_what_it_would_take_over_is_none(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2))
    plane.given(a_binding("web", 6, placement=RESERVE))
    a_fleet(plane, "narvik", rooms=(3,))
    silence(plane, "bergen", "narvik")
    plane.when(failover("web", "oslo"))
    assert "room" in plane.then_declined("Unschedulable").detail
    assert plane.holds("web") == {"oslo": 4, "bergen": 2}


def test_a_reserved_binding_stays_in_a_tainted_cluster_until_there_is_a_candidate(
    plane: FleetPlane,
) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2))
    plane.given(a_binding("web", 6, placement=RESERVE))
    plane.given(a_cluster("oslo", NO_EXECUTE, lease_s=60))
    plane.when(eviction("web", "oslo"))
    plane.then_declined("Unschedulable")
    assert plane.holds("web") == {"oslo": 4, "bergen": 2}
    a_fleet(plane, "narvik", rooms=(9,))
    plane.when(eviction("web", "oslo"))
    decided = plane.then_scheduled("web", bergen=2, narvik=4)
    assert decided.explanation.failover is not None
    assert decided.explanation.failover.failed == ("oslo",)


def test_each_of_two_clusters_that_go_is_replaced_by_one_of_its_own(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", "alta", rooms=(3, 2, 1), lease_s=None)
    plane.given(a_binding("web", 6, placement=RESERVE))
    plane.then_scheduled("web", alta=1, bergen=2, oslo=3)
    a_fleet(plane, "narvik", "tromso", rooms=(5, 9), lease_s=None)
    plane.when(forgotten("oslo"), forgotten("bergen"))
    decided = plane.then_scheduled("web", alta=1, narvik=2, tromso=3)
    assert decided.trigger == "FailoverSchedule"
    assert decided.explanation.failover is not None
    assert decided.explanation.failover.failed == ("bergen", "oslo")


def test_what_is_being_deleted_keeps_its_replicas_while_there_are_too_few_candidates(
    plane: FleetPlane,
) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=RESERVE))
    plane.when(a_cluster("oslo", deleting=True))
    plane.then_refused("web", "Unschedulable", oslo=4, bergen=2)
    a_fleet(plane, "narvik", rooms=(9,), lease_s=None)
    assert plane.holds("web").get("bergen", 0) >= 2


@pytest.mark.parametrize("how", ["evict", "reserve"])
def test_a_set_of_components_in_a_silent_cluster_is_placed_once_more_and_let_go_again(
    plane: FleetPlane, how: str
) -> None:
    parts = (Component("head", 1, SMALL), Component("worker", 2, SMALL))
    sets = {"oslo": 2, "bergen": 1, "narvik": 1}
    for name in sets:
        plane.given(a_cluster(name, lease_s=60))
    plane.given(
        *(
            CapacityEstimated(n, 1, {"cpu": 3000 * sets[n]}, {set_key(parts): sets[n]}, {})
            for n in sets
        )
    )
    placement = Placement(replicas=AGGREGATED, failover="reserve" if how == "reserve" else "evict")
    whole = msgspec.structs.replace(
        a_binding("ray", 0, placement=placement).binding, components=parts, requirements=NOTHING
    )
    plane.given(BindingRequested(whole))
    plane.then_scheduled("ray", oslo=0)
    silence(plane, "bergen", "narvik")
    plane.when(failover("ray", "oslo"))
    assert plane.then_scheduled("ray", bergen=0, oslo=0).suspect == ("oslo",)
    plane.when(a_cluster("oslo", lease_s=60))
    plane.then_scheduled("ray", oslo=0)


def test_a_scattered_fleet_with_long_names_still_has_a_short_explanation(plane: FleetPlane) -> None:
    names = tuple(
        f"{place}-" + "ø" * 240 for place in ("oslo", "bergen", "narvik", "tromso", "alta")
    )
    a_fleet(plane, *names, rooms=(4, 2, 9, 5, 5))
    plane.given(a_binding("web", 6, placement=EVICT))
    held = plane.holds("web")
    lost = max(held, key=lambda name: held[name])
    silence(plane, *(name for name in names if name != lost))
    plane.when(failover("web", lost))
    decided = plane.schedule("web")
    assert decided.explanation.failover is not None
    assert decided.explanation.failover.counts[3] == 1
    assert len(canonical(decided.explanation)) <= LIMIT


def test_every_decision_says_what_triggered_it_and_why(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(9, 9), lease_s=None)
    told: list[tuple[str, str]] = []

    def when(*facts: object) -> None:
        plane.when(*facts)  # type: ignore[arg-type]
        explanation = plane.schedule("web")
        told.append((explanation.trigger, explanation.explanation.why))

    when(a_binding("web", 2))
    when(a_binding("web", 3))
    when(
        a_binding(
            "web",
            3,
            placement=Placement((ClusterAffinity(cluster_names=("oslo",)),), replicas=DYNAMIC),
        )
    )
    when(a_binding("web", 3, reschedule="again"))
    when(forgotten("oslo"))
    assert told == [
        ("FirstSchedule", "never placed before"),
        ("ScaleSchedule", "scaled from 2 to 3 replicas"),
        ("ReconcileSchedule", "the policy places it otherwise"),
        ("ReconcileSchedule", "the policy places it otherwise"),
        ("FailoverSchedule", "oslo is gone"),
    ]


# What runs is not taken away


STRICT = Placement(replicas=DYNAMIC, strict=True)


def changed(placement: Placement, *affinities: ClusterAffinity) -> Placement:
    return Placement(affinities, replicas=placement.replicas, strict=placement.strict)


@pytest.mark.parametrize(
    "nobody",
    [ClusterAffinity(cluster_names=("nowhere",)), ClusterAffinity(exclude=("oslo", "bergen"))],
)
def test_a_filter_that_nobody_passes_leaves_what_runs(
    plane: FleetPlane, nobody: ClusterAffinity
) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=EVICT))
    plane.when(a_binding("web", 6, placement=changed(EVICT, nobody)))
    plane.then_refused("web", "NoClusterFit", oslo=4, bergen=2)


def test_done_strictly_a_filter_that_nobody_passes_clears_the_assignment(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=STRICT))
    plane.then_scheduled("web", oslo=4, bergen=2)
    plane.when(
        a_binding("web", 6, placement=changed(STRICT, ClusterAffinity(cluster_names=("nowhere",))))
    )
    plane.then_refused("web", "NoClusterFit")


@pytest.mark.parametrize("strict", [False, True])
def test_a_full_fleet_leaves_what_runs_however_strict(plane: FleetPlane, strict: bool) -> None:
    placement = Placement(replicas=DYNAMIC, strict=strict)
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=placement))
    plane.given(room("oslo", 0, fleet=1), room("bergen", 0, fleet=1))
    plane.when(a_binding("web", 9, placement=placement))
    plane.then_refused("web", "Unschedulable", oslo=4, bergen=2)


def test_a_first_group_that_fits_nobody_and_a_second_that_is_full_leave_what_runs(
    plane: FleetPlane,
) -> None:
    """Karmada wipes the assignment here, because the first failure is told and that one clears."""
    groups = (ClusterAffinity("near", ("alta",)), ClusterAffinity("far", ("oslo", "bergen")))
    placement = Placement(groups, replicas=DYNAMIC)
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=placement))
    plane.given(room("oslo", 0, fleet=1), room("bergen", 0, fleet=1))
    assert plane.holds("web") == {"oslo": 4, "bergen": 2}
    plane.when(a_binding("web", 9, placement=placement, reschedule="afresh"))
    plane.then_refused("web", "NoClusterFit", oslo=4, bergen=2)


def test_a_wrong_policy_leaves_what_runs_and_zero_replicas_do_not(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    plane.given(a_binding("web", 6, placement=EVICT))
    wrong = ReplicaScheduling("Divided", "Weighted", (StaticWeight(ClusterAffinity(), -1),))
    plane.when(a_binding("web", 6, wrong))
    plane.then_refused("web", "InvalidPlacement", oslo=4, bergen=2)
    plane.when(a_binding("web", 0, placement=EVICT))
    plane.then_scheduled("web")


def test_a_binding_of_another_scheduler_is_kept_and_never_decided(plane: FleetPlane) -> None:
    a_fleet(plane, "oslo", "bergen", rooms=(4, 2), lease_s=None)
    ours = a_binding("web", 6)
    plane.given(ours)
    theirs = BindingRequested(
        msgspec.structs.replace(ours.binding, scheduler="volcano", replicas=3)
    )
    plane.when(theirs, forgotten("bergen"))
    plane.then_nothing()
    plane.when(fresh("web"))
    assert "volcano" in plane.then_declined("NothingToDo").detail
    assert plane.holds("web") == {"oslo": 4}
    plane.when(
        BindingRequested(msgspec.structs.replace(theirs.binding, scheduler="default-scheduler"))
    )
    plane.then_scheduled("web", oslo=3)
