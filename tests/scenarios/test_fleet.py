"""What the fleet stage does, told as stories."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
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
    static,
    totals,
    withdrawn,
)

from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
)
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    FailoverHeld,
    FailoverResumed,
    ScheduleRefused,
)
from wharfinger.events.policies import PolicyRemoved
from wharfinger.stages.fleet import FleetDecider


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    """Every story ends with its history gone through again."""
    plane = FleetPlane()
    yield plane
    plane.check()


def three_clusters(plane: FleetPlane, lease_s: int | None = None) -> None:
    plane.given(*(a_cluster(name, lease_s=lease_s) for name in ("bergen", "narvik", "oslo")))
    plane.given(room("bergen", 4), room("narvik", 2), room("oslo", 6))


# First, scale, reconcile


def test_replicas_are_divided_by_what_fits(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 6))
    decision = plane.then_scheduled("web", bergen=2, narvik=1, oslo=3)
    assert decision.trigger == "FirstSchedule"
    assert decision.explanation.best == {"oslo": 6}


def test_aggregated_packs_into_as_few_clusters_as_hold_them(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 5, AGGREGATED))
    plane.then_scheduled("web", oslo=5)


def strictly(how: ReplicaScheduling) -> Placement:
    return Placement(replicas=how, strict=True)


def of_known_kinds(observed: ClusterObserved) -> ClusterObserved:
    """Strictly as Karmada only a kind that a cluster has reported is one that it has."""
    facts = msgspec.structs.replace(observed.cluster, api_kinds=("apps/v1/Deployment",))
    return ClusterObserved(facts)


def test_duplicated_gives_each_cluster_all(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 2, DUPLICATED))
    plane.then_scheduled("web", bergen=2, narvik=2, oslo=2)
    plane.given(*[of_known_kinds(a_cluster(name)) for name in ("bergen", "narvik", "oslo")])
    plane.when(a_binding("strict", 30, placement=strictly(DUPLICATED)))
    plane.then_scheduled("strict", bergen=30, narvik=30, oslo=30)


def test_static_weights_look_at_no_capacity_strictly_as_karmada(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(*[of_known_kinds(a_cluster(name)) for name in ("bergen", "narvik", "oslo")])
    plane.when(a_binding("web", 30, placement=strictly(static(bergen=2, oslo=1))))
    plane.then_scheduled("web", bergen=20, oslo=10)


def test_no_cluster_is_asked_for_copies_that_do_not_fit(plane: FleetPlane) -> None:
    three_clusters(plane)  # room for 6 in oslo, 4 in bergen, 2 in narvik
    plane.when(a_binding("web", 3, DUPLICATED))
    refused = plane.then_refused("web", "Unschedulable", bergen=3, narvik=2, oslo=3)
    assert refused.explanation.note == "1 replicas wait for room in their clusters"
    plane.when(room("narvik", 1, fleet=9))
    plane.then_scheduled("web", bergen=3, narvik=3, oslo=3)


def test_static_weights_divide_within_what_fits_and_the_rest_goes_where_room_is(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 6, static(narvik=2, oslo=1)))  # by weight alone 4 and 2
    plane.then_scheduled("web", narvik=2, oslo=4)
    plane.when(a_binding("api", 9, static(bergen=2, oslo=1)))  # 4 and 2 are left
    refused = plane.then_refused("api", "Unschedulable", bergen=4, oslo=2)
    assert refused.explanation.note == "3 replicas wait for room in their clusters"


def test_who_waits_for_room_takes_nothing_from_where_it_runs(plane: FleetPlane) -> None:
    """A retry adds where room is; by weights alone bergen would give replicas up."""
    three_clusters(plane)
    plane.given(a_binding("web", 11, static(bergen=1, narvik=9)))
    assert plane.holds("web") == {"bergen": 4, "narvik": 2}
    plane.when(room("narvik", 5, fleet=9))
    plane.then_scheduled("web", bergen=4, narvik=7)


def test_a_cluster_that_nothing_is_known_of_is_asked_by_weight(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), a_cluster("bergen"), room("oslo", 9))
    plane.when(a_binding("web", 4, static(oslo=1, bergen=1)))
    plane.then_scheduled("web", bergen=2, oslo=2)


def test_a_full_cluster_is_asked_where_lower_priorities_could_give_way(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 3))
    plane.given(a_binding("low", 3, DUPLICATED), a_binding("same", 1, DUPLICATED, priority=5))
    plane.when(a_binding("high", 2, DUPLICATED, priority=5))
    plane.then_scheduled("high", oslo=2)
    plane.when(a_binding("lowest", 2, DUPLICATED, priority=-1))
    plane.then_refused("lowest", "Unschedulable")


def test_growing_adds_and_shrinking_takes_by_what_is_held(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.when(a_binding("web", 6, AGGREGATED))
    assert plane.then_scheduled("web", oslo=6).trigger == "ScaleSchedule"
    plane.when(a_binding("web", 2, AGGREGATED))
    plane.then_scheduled("web", oslo=2)


def test_a_steady_binding_never_moves_when_capacity_changes(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 6))
    plane.when(room("oslo", 0, fleet=1), room("bergen", 100, fleet=1))
    plane.then_nothing()


def test_the_same_request_again_changes_nothing(plane: FleetPlane) -> None:
    three_clusters(plane)
    request = a_binding("web", 6)
    plane.given(request)
    before = plane.decider.dump(plane.state)
    plane.when(request)
    assert plane.decider.dump(plane.state) == before
    plane.then_nothing()


def test_a_new_placement_is_reconciled(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 2, AGGREGATED))
    away = Placement((ClusterAffinity(exclude=("oslo",)),), replicas=AGGREGATED)
    plane.when(a_binding("web", 2, placement=away))
    assert plane.then_scheduled("web", bergen=2).trigger == "ReconcileSchedule"


def test_new_requirements_are_decided_even_where_nothing_moves(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 2, AGGREGATED))
    larger = Requirements({"cpu": 1500})
    plane.when(a_binding("web", 2, AGGREGATED, requirements=larger))
    decision = plane.then_scheduled("web", oslo=2)
    assert decision.trigger == "ReconcileSchedule"
    assert decision.requirements == larger


def test_a_reschedule_token_divides_everything_anew(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 6, AGGREGATED))
    plane.given(room("oslo", 0, fleet=1), room("bergen", 20, fleet=1))
    plane.when(a_binding("web", 6, AGGREGATED, reschedule="monday"))
    assert plane.then_scheduled("web", bergen=6).trigger == "ReconcileSchedule"


def test_scaling_to_zero_lets_everything_go(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 6))
    plane.when(a_binding("web", 0))
    plane.then_scheduled("web")


def test_an_object_without_replicas_goes_everywhere_and_follows_the_fleet(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.when(a_binding("config", 0, requirements=Requirements()))
    plane.then_scheduled("config", bergen=0, narvik=0, oslo=0)
    plane.when(a_cluster("tromso"))
    plane.then_scheduled("config", bergen=0, narvik=0, oslo=0, tromso=0)


def test_a_suspended_binding_is_scheduled_once_it_is_not(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 1, AGGREGATED, suspended=True))
    plane.then_nothing()
    plane.when(a_binding("web", 1, AGGREGATED))
    plane.then_scheduled("web", oslo=1)


def test_a_withdrawn_binding_is_released(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 2, AGGREGATED))
    plane.when(withdrawn("web"))
    (released,) = plane.decided
    assert isinstance(released, BindingReleased)
    assert [t.cluster for t in released.previous] == ["oslo"]
    plane.when(withdrawn("web"))
    plane.then_nothing()


def test_bindings_are_answered_by_priority_then_in_the_order_they_came(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("second"), a_binding("first"), a_binding("third", priority=9))
    assert [d.subject for d in plane.last] == ["third", "second", "first"]


# Affinities and spread


def test_the_first_affinity_that_schedules_wins_and_is_remembered(plane: FleetPlane) -> None:
    three_clusters(plane)
    terms = (ClusterAffinity("near", ("narvik",)), ClusterAffinity("far", ("oslo", "bergen")))
    plane.when(a_binding("web", 5, placement=Placement(terms, replicas=AGGREGATED)))
    assert plane.then_scheduled("web", oslo=5).affinity == "far"


def test_a_spread_constraint_limits_the_clusters(plane: FleetPlane) -> None:
    three_clusters(plane)
    spread = Placement(
        spread=(SpreadConstraint("cluster", min_groups=2, max_groups=2),), replicas=DYNAMIC
    )
    plane.when(a_binding("web", 5, placement=spread))
    plane.then_scheduled("web", bergen=2, oslo=3)


@pytest.mark.parametrize(
    "wrong",
    [
        Placement(
            spread=(SpreadConstraint("cluster", min_groups=3, max_groups=2),), replicas=DYNAMIC
        ),
        Placement(
            spread=(SpreadConstraint("zone", "rack", min_groups=1, max_groups=2),), replicas=DYNAMIC
        ),
        Placement(replicas=static(oslo=-1)),
    ],
)
def test_a_wrong_policy_is_refused_with_a_sentence(plane: FleetPlane, wrong: Placement) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 1, placement=wrong))
    assert plane.then_refused("web", "InvalidPlacement").explanation.note
    plane.when(room("oslo", 100))
    plane.then_nothing()


# Capacity


def test_own_decisions_are_deducted_until_the_estimator_accounts_for_them(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 5))
    plane.when(a_binding("a", 3), a_binding("b", 3))
    plane.then_refused("b", "Unschedulable")
    plane.when(room("oslo", 5, fleet=0))
    plane.then_nothing()
    plane.when(room("oslo", 3, fleet=1))
    plane.then_scheduled("b", oslo=3)


def test_replicas_of_another_class_are_deducted_by_their_resources(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 5))
    plane.when(a_binding("large", 1, requirements=Requirements({"cpu": 4000})), a_binding("web", 2))
    plane.then_refused("web", "Unschedulable")


def test_a_class_that_nobody_has_counted_is_estimated_from_totals_and_says_so(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo"), totals("oslo", 2500))
    plane.when(a_binding("web", 2))
    assert plane.then_scheduled("web", oslo=2).explanation.best == {"oslo": 2}
    assert plane.estimated_by("web") == {"oslo": "totals"}


def test_a_cluster_without_an_estimator_is_estimated_from_its_summary(plane: FleetPlane) -> None:
    summary = ResourceSummary({"cpu": 8000, "pods": 3}, {"cpu": 1000}, {"cpu": 1000})
    plane.given(ClusterObserved(Cluster("oslo", summary=summary)))
    plane.when(a_binding("web", 3))
    assert plane.then_scheduled("web", oslo=3).explanation.best == {"oslo": 3}
    assert plane.estimated_by("web") == {"oslo": "summary"}


def test_what_a_summary_does_not_include_stays_deducted(plane: FleetPlane) -> None:
    """Without `accounted_through` it would be taken to include everything before it."""

    def summary(allocated: int, through: int) -> ClusterObserved:
        totals = {"cpu": 8000}
        included = {"fleet/0": through}
        found = ResourceSummary(totals, {"cpu": allocated}, accounted_through=included)
        return ClusterObserved(Cluster("oslo", summary=found))

    plane.given(summary(0, 0), a_binding("web", 3))
    plane.given(summary(1000, 0))
    plane.when(a_binding("db", 5))
    plane.then_refused("db", "Unschedulable")
    plane.when(summary(3000, 1_000_000))
    plane.then_scheduled("db", oslo=5)


def test_capacity_may_be_known_before_the_cluster(plane: FleetPlane) -> None:
    plane.given(room("oslo", 5))
    plane.when(a_binding("web", 2))
    plane.then_refused("web", "NoClusterFit")
    plane.when(a_cluster("oslo"))
    plane.then_scheduled("web", oslo=2)


# Refusals and waiting


def test_refused_replicas_are_placed_elsewhere_at_once(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), a_cluster("bergen"), room("oslo", 9), room("bergen", 3))
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.when(plane.refused("oslo", "web", 2))
    decision = plane.then_scheduled("web", oslo=1, bergen=2)
    assert [(t.cluster, t.replicas) for t in decision.previous] == [("oslo", 3)]
    assert decision.trigger == "ScaleSchedule"


def test_what_fits_nowhere_waits_and_is_woken_by_a_count_that_knows_of_the_refusal(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(a_binding("web", 3))
    plane.when(plane.refused("oslo", "web", 2))
    plane.then_refused("web", "Unschedulable", oslo=1)
    plane.when(room("oslo", 9, fleet=2, own=0))
    plane.then_nothing()
    plane.when(room("oslo", 2, fleet=2, own=1))
    plane.then_scheduled("web", oslo=3)


def test_a_count_that_was_proved_wrong_is_not_believed_twice(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 3))
    plane.given(a_binding("web", 3))
    plane.given(plane.refused("oslo", "web", 3))
    plane.when(room("oslo", 3, fleet=2, own=1))
    plane.then_scheduled("web", oslo=3)
    plane.when(plane.refused("oslo", "web", 3))
    plane.then_refused("web", "Unschedulable")
    plane.when(room("oslo", 3, fleet=4, own=2))
    plane.then_nothing()
    plane.when(room("oslo", 4, fleet=4, own=2))
    plane.then_scheduled("web", oslo=3)


def test_a_refusal_of_an_overtaken_assignment_takes_nothing(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(a_binding("web", 3))
    stale = plane.refused("oslo", "web", 1)
    plane.given(a_binding("web", 5))
    plane.when(stale)
    plane.then_nothing()
    assert plane.holds("web") == {"oslo": 5}


def test_static_weights_do_not_ask_for_ever_for_what_was_refused(plane: FleetPlane) -> None:
    plane.given(*[of_known_kinds(a_cluster(name)) for name in ("bergen", "oslo")])
    plane.given(room("oslo", 9), room("bergen", 9))
    strict = strictly(static(oslo=1, bergen=1))
    plane.given(a_binding("web", 4, placement=strict))
    plane.when(plane.refused("oslo", "web", 1))
    plane.then_refused("web", "Unschedulable", oslo=1, bergen=2)
    plane.when(room("bergen", 20))
    plane.then_nothing()
    plane.when(room("oslo", 1, fleet=2, own=1))
    plane.then_scheduled("web", oslo=2, bergen=2)


def test_what_one_cluster_refuses_of_static_weights_goes_to_another(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), a_cluster("bergen"), room("oslo", 9), room("bergen", 9))
    plane.given(a_binding("web", 4, static(oslo=1, bergen=1)))
    plane.when(plane.refused("oslo", "web", 1))
    plane.then_scheduled("web", oslo=1, bergen=3)


def test_waiting_bindings_are_woken_by_priority_then_age(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 0))
    plane.given(a_binding("old"), a_binding("young"), a_binding("urgent", priority=5))
    plane.when(room("oslo", 2, fleet=3))
    assert [d.subject for d in plane.last] == ["urgent", "old"]


def test_a_binding_waits_silently_while_its_reasons_stay(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 1))
    plane.when(a_binding("web", 5))
    refusal = plane.then_refused("web", "Unschedulable")
    assert refusal.explanation.note == "5 replicas to place, 1 fit"
    for replicas in (2, 3, 4):
        plane.when(room("oslo", replicas, fleet=1))
        plane.then_nothing()
    plane.when(a_cluster("oslo", NO_SCHEDULE))
    assert plane.then_refused("web", "NoClusterFit").explanation.refused == {"TaintToleration": 1}


# Silence and failover


def test_silence_is_decided_and_nothing_is_released(plane: FleetPlane) -> None:
    plane.given(
        a_cluster("oslo", lease_s=30),
        a_cluster("bergen", lease_s=600),
        room("oslo", 5),
        room("bergen", 3),
    )
    plane.given(a_binding("web", 2, AGGREGATED))
    plane.wait(60)
    (silenced,) = plane.decided
    assert isinstance(silenced, ClusterSilenced)
    assert plane.holds("web") == {"oslo": 2}
    plane.when(a_binding("api", 2, AGGREGATED))
    assert plane.then_scheduled("api", bergen=2).explanation.refused == {"ClusterSilent": 1}
    plane.when(a_cluster("oslo", lease_s=30))
    assert isinstance(plane.decided[0], ClusterRecovered)


def test_heartbeats_keep_a_cluster_from_being_called_silent(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo", lease_s=30), a_cluster("bergen", lease_s=600))
    for _ in range(5):
        plane.wait(20)
        plane.when(a_cluster("oslo", lease_s=30))
        plane.then_nothing()


def test_failover_adds_elsewhere_and_recovery_takes_back_what_was_added(plane: FleetPlane) -> None:
    three_clusters(plane, lease_s=600)
    plane.given(a_cluster("oslo", lease_s=30))
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.wait(60)
    plane.when(failover("web", "oslo"))
    decision = plane.then_scheduled("web", oslo=3, bergen=3)
    assert (decision.trigger, decision.suspect) == ("FailoverSchedule", ("oslo",))
    plane.when(failover("web", "oslo"))
    plane.then_declined("NothingToDo")
    plane.when(a_cluster("oslo", lease_s=30))
    assert plane.then_scheduled("web", oslo=3).suspect == ()


def test_two_clusters_of_one_binding_are_heard_again_at_once(plane: FleetPlane) -> None:
    """Settled for the one it is settled for the other as well."""
    three_clusters(plane, lease_s=600)
    for name in ("lund", "malmo"):
        plane.given(a_cluster(name, lease_s=600), room(name, 9))
    plane.given(a_cluster("oslo", lease_s=30), a_cluster("bergen", lease_s=30))
    plane.given(a_binding("web", 4, static(oslo=1, bergen=1)))
    plane.wait(60)
    plane.given(failover("web", "oslo"), failover("web", "bergen"))
    assert plane.state.bindings["web"].suspect == ("bergen", "oslo")
    plane.when(a_cluster("oslo", lease_s=30), a_cluster("bergen", lease_s=30))
    assert plane.then_scheduled("web", bergen=2, oslo=2).suspect == ()
    plane.check()


def test_a_failover_that_fits_nowhere_is_declined(plane: FleetPlane) -> None:
    three_clusters(plane, lease_s=600)
    plane.given(a_cluster("oslo", lease_s=30))
    plane.given(a_binding("web", 6, AGGREGATED), room("bergen", 1), room("narvik", 1))
    plane.wait(60)
    plane.when(failover("web", "oslo"))
    plane.then_declined("Unschedulable")
    assert plane.holds("web") == {"oslo": 6}


def test_a_failover_from_a_cluster_that_is_back_is_declined(plane: FleetPlane) -> None:
    three_clusters(plane, lease_s=600)
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.when(failover("web", "oslo"))
    plane.then_declined("TargetRecovered")
    plane.when(failover("web", "atlantis"))
    plane.then_declined("UnknownTarget")


def test_scaling_down_during_a_failover_keeps_the_suspect(plane: FleetPlane) -> None:
    three_clusters(plane, lease_s=600)
    plane.given(a_cluster("oslo", lease_s=30))
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.wait(60)
    plane.given(failover("web", "oslo"))
    plane.when(a_binding("web", 2, AGGREGATED))
    assert plane.then_scheduled("web", oslo=3, bergen=2).suspect == ("oslo",)
    plane.when(a_cluster("oslo", lease_s=30))
    plane.then_scheduled("web", oslo=2)


def test_failover_is_held_when_most_of_the_fleet_is_silent(plane: FleetPlane) -> None:
    three_clusters(plane, lease_s=30)
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.wait(60)
    assert [type(d) for d in plane.decided] == [
        ClusterSilenced,
        ClusterSilenced,
        ClusterSilenced,
        FailoverHeld,
    ]
    plane.when(failover("web", "oslo"))
    plane.then_declined("FleetHeld")
    plane.when(a_cluster("bergen", lease_s=30), a_cluster("narvik", lease_s=30))
    assert FailoverResumed(1, 3) in plane.decided
    plane.when(failover("web", "oslo"))
    plane.then_scheduled("web", bergen=3, oslo=3)


def test_a_forgotten_cluster_takes_its_replicas_with_it(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 3, AGGREGATED))
    plane.when(forgotten("oslo"))
    assert plane.then_scheduled("web", bergen=3).trigger == "FailoverSchedule"


def test_a_deleting_cluster_is_left_when_there_is_another_place_and_kept_when_not(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.given(room("oslo", 60))
    plane.given(a_binding("web", 3, AGGREGATED), a_binding("big", 4, AGGREGATED))
    plane.when(a_cluster("oslo", deleting=True))
    assert plane.then_scheduled("web", bergen=3).trigger == "FailoverSchedule"
    plane.then_refused("big", "Unschedulable", oslo=4)


# Eviction


def tolerating(seconds: int | None) -> Placement:
    return Placement(
        tolerations=(Toleration("broken", "Exists", seconds=seconds),), replicas=AGGREGATED
    )


def test_an_eviction_waits_for_the_end_of_the_toleration(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 3, placement=tolerating(60)))
    plane.given(a_cluster("oslo", NO_EXECUTE))
    plane.when(eviction("web", "oslo"))
    plane.then_declined("TolerationNotEnded")
    plane.when(eviction("web", "oslo"), after_s=60)
    assert plane.then_scheduled("web", bergen=3).trigger == "FailoverSchedule"


def test_an_evicted_binding_does_not_return_while_the_taint_stands(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(a_binding("web", 3, placement=tolerating(0)))
    plane.given(a_cluster("oslo", NO_EXECUTE))
    plane.when(eviction("web", "oslo"))
    plane.then_refused("web", "NoClusterFit")
    plane.when(room("oslo", 20, fleet=9))
    plane.then_nothing()
    plane.when(a_cluster("oslo"))
    plane.then_scheduled("web", oslo=3)


@pytest.mark.parametrize(("seconds", "taints"), [(None, True), (5, False)])
def test_an_eviction_without_cause_is_declined(
    plane: FleetPlane, seconds: int | None, taints: bool
) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 3, placement=tolerating(seconds)))
    plane.given(a_cluster("oslo", *([NO_EXECUTE] if taints else [])))
    plane.when(eviction("web", "oslo"), after_s=10)
    plane.then_declined("TolerationNotEnded" if taints else "TargetRecovered")


# Proposals to reschedule


def test_a_fresh_decision_is_taken_where_it_changes_something(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.given(a_binding("web", 4, AGGREGATED))
    plane.when(fresh("web"))
    plane.then_declined("NothingToDo")
    plane.given(room("bergen", 30, fleet=1))
    plane.when(fresh("web"))
    plane.then_scheduled("web", bergen=4)
    plane.when(fresh("unheard-of"))
    plane.then_declined("UnknownTarget")


# Bounds


def test_many_that_become_placeable_at_once_are_spread_over_rounds(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 0))
    plane.given(*(a_binding(f"b{i:04d}") for i in range(1200)))
    plane.when(room("oslo", 5000, fleet=5000))
    assert len(plane.decided) == 500
    assert plane.decider.next_due(plane.state) == plane.at
    plane.wait(0)
    assert len(plane.decided) == 700
    assert plane.decider.next_due(plane.state) is None


def test_the_removal_of_an_unknown_policy_changes_nothing(plane: FleetPlane) -> None:
    before = plane.decider.dump(plane.state)
    plane.when(PolicyRemoved("PropagationPolicy", "p"))
    plane.then_nothing()
    assert plane.decider.dump(plane.state) == before


def test_a_decision_names_what_caused_it(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"))
    request = plane.event(a_binding("web", 2))
    plane.when(request)
    assert plane.last[0].cause == request.id
    counted = plane.event(room("oslo", 2))
    plane.when(counted)
    assert plane.last[0].cause == counted.id
    refused = plane.refused("oslo", "web", 1)
    plane.when(refused)
    assert str(plane.last[0].cause) == refused.items[0].decision
    assert [type(d) for d in plane.decided] == [ScheduleRefused]


def test_a_doubted_count_is_credible_again_once_it_has_come_down(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.given(a_binding("web", 2))
    plane.given(plane.refused("oslo", "web", 2), room("oslo", 2, fleet=1, own=1))
    assert plane.state.clusters["oslo"].doubt == {SMALL.class_key: 2}
    plane.when(plane.refused("oslo", "web", 2))
    plane.then_refused("web", "Unschedulable")
    plane.when(room("oslo", 2, fleet=9, own=2))
    plane.then_nothing()
    plane.given(room("oslo", 0, fleet=9, own=2))
    plane.when(room("oslo", 2, fleet=9, own=2))
    plane.then_scheduled("web", oslo=2)


def test_a_refusal_says_the_priority_that_the_binding_has(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 2))
    plane.when(a_binding("web", 5, priority=7))
    assert plane.then_refused("web", "Unschedulable").priority == 7


def test_a_round_limit_is_part_of_the_profile_and_read_back_from_it() -> None:
    few = FleetDecider(round_limit=2)
    assert FleetDecider.of_profile(few.profile).profile == few.profile
    assert (
        few.profile
        != FleetDecider().profile
        == FleetDecider.of_profile("fleet round-limit=many").profile
    )
