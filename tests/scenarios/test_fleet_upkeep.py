"""What leaves a cluster and how: because it is ill there, because of a taint, because some of it
finds no node. Told as stories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    NO_EXECUTE,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    eviction,
    forgotten,
    room,
    static,
    withdrawn,
)

from wharfinger.domain.placement import ApplicationFailover, Placement, ReplicaScheduling
from wharfinger.events.decisions import Leaving, ProposalRefused, ScheduleDecided
from wharfinger.events.proposals import EvictionCause, EvictionProposed
from wharfinger.kernel.step import decision_id

S = 1_000_000
GRACEFULLY = ApplicationFailover(toleration_s=60, grace_s=300)
DIRECTLY = ApplicationFailover(toleration_s=60, purge="Directly", grace_s=300)
NEVER = ApplicationFailover(toleration_s=60, purge="Never")


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def placed_in_oslo(
    plane: FleetPlane, application: ApplicationFailover | None, how: ReplicaScheduling = DYNAMIC
) -> None:
    """web has its 2 replicas in oslo; then bergen comes, with room."""
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(a_binding("web", 2, placement=Placement(replicas=how, application=application)))
    plane.then_scheduled("web", oslo=2)
    plane.given(a_cluster("bergen"), room("bergen", 9))


def because(
    cause: EvictionCause, binding: str, cluster: str, replicas: int = 0, assignment: str = ""
) -> EvictionProposed:
    return EvictionProposed(STREAM, binding, cluster, "", cause, replicas, assignment)


def assignment_of(plane: FleetPlane, binding: str, cluster: str) -> str:
    return str(decision_id(STREAM, plane.state.bindings[binding].assigned_by[cluster]))


# Ill


def test_what_is_ill_keeps_its_copy_until_what_replaces_it_stands(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo", assignment=assignment_of(plane, "web", "oslo")))
    decided = plane.then_scheduled("web", bergen=2, oslo=2)
    assert decided.suspect == ("oslo",)
    assert decided.leaving == (Leaving("oslo", plane.at + 300 * S, "unhealthy"),)
    assert decided.explanation.why == "ill in oslo for longer than it bears"
    assert "until what replaces it stands" in decided.explanation.note
    plane.when(because("replaced", "web", "oslo"))
    decided = plane.then_scheduled("web", bergen=2)
    assert decided.leaving == ()
    assert decided.explanation.why == "what replaces oslo stands"


def test_it_is_waited_for_no_longer_than_the_grace(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.wait(299)
    plane.then_nothing()
    plane.wait(1)
    assert (
        plane.then_scheduled("web", bergen=2).explanation.why
        == "oslo has kept its copy for long enough"
    )
    assert plane.decider.next_due(plane.state) is None


def test_nothing_is_left_with_nothing_because_a_grace_is_over(plane: FleetPlane) -> None:
    """bergen gives back what should have replaced the copy: as long as it has no other place, the
    copy stays."""
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.when(plane.refused("bergen", "web", 2))
    assert plane.holds("web") == {"oslo": 2}
    plane.wait(1000)
    plane.then_nothing()
    assert plane.holds("web") == {"oslo": 2}
    plane.when(a_cluster("narvik"), room("narvik", 9))
    plane.then_scheduled("web", narvik=2, oslo=2)
    plane.wait(1)
    plane.then_scheduled("web", narvik=2)


def test_without_another_place_it_stays_ill_where_it_is(plane: FleetPlane) -> None:
    for application in (GRACEFULLY, DIRECTLY, NEVER):
        plane.given(a_cluster("oslo"), room("oslo", 9))
        name = f"web-{application.purge.lower()}"
        plane.given(
            a_binding(name, 2, placement=Placement(replicas=DYNAMIC, application=application))
        )
        plane.when(because("unhealthy", name, "oslo"))
        plane.then_declined("Unschedulable")
        assert plane.holds(name) == {"oslo": 2}


def test_directly_it_goes_in_the_decision_that_places_it_elsewhere_and_keeps_away(
    plane: FleetPlane,
) -> None:
    placed_in_oslo(plane, DIRECTLY, AGGREGATED)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.then_scheduled("web", bergen=2)
    plane.given(
        a_binding("web", 12, placement=Placement(replicas=AGGREGATED, application=DIRECTLY))
    )
    # 9 fit in bergen, and oslo is still too near
    plane.then_refused("web", "Unschedulable", bergen=2)
    plane.wait(360)
    plane.then_scheduled("web", bergen=7, oslo=5)


def test_never_waits_for_a_person(plane: FleetPlane) -> None:
    placed_in_oslo(plane, NEVER)
    plane.when(because("unhealthy", "web", "oslo"))
    assert plane.then_scheduled("web", bergen=2, oslo=2).leaving == (
        Leaving("oslo", 0, "unhealthy"),
    )
    plane.wait(100_000)
    assert plane.holds("web") == {"bergen": 2, "oslo": 2}
    plane.when(
        a_binding(
            "web", 2, placement=Placement(replicas=DYNAMIC, application=NEVER), reschedule="by hand"
        )
    )
    assert plane.then_scheduled("web", bergen=1, oslo=1).leaving == ()


def test_what_was_decided_otherwise_meanwhile_is_not_evicted(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    seen = assignment_of(plane, "web", "oslo")
    plane.given(a_binding("web", 3, placement=Placement(replicas=DYNAMIC, application=GRACEFULLY)))
    plane.when(because("unhealthy", "web", "oslo", assignment=seen))
    plane.then_declined("Changed")


def test_a_policy_that_does_not_ask_for_it_moves_nothing_that_is_ill(plane: FleetPlane) -> None:
    placed_in_oslo(plane, None)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.then_declined("NothingToDo")


def test_it_is_on_its_way_out_only_once(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.when(because("unhealthy", "web", "oslo"))
    plane.then_declined("NothingToDo")
    plane.when(because("replaced", "web", "bergen"))
    plane.then_declined("NothingToDo")


def test_a_copy_of_each_cluster_that_is_ill_goes_and_the_others_stand_for_it(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9), a_cluster("bergen"), room("bergen", 9))
    plane.given(
        a_binding("web", 2, placement=Placement(replicas=DUPLICATED, application=GRACEFULLY))
    )
    plane.then_scheduled("web", bergen=2, oslo=2)
    plane.when(because("unhealthy", "web", "oslo"))
    assert plane.then_scheduled("web", bergen=2, oslo=2).leaving != ()
    plane.when(because("replaced", "web", "oslo"))
    plane.then_scheduled("web", bergen=2)


def test_it_may_be_scaled_withdrawn_and_lose_its_cluster_on_the_way(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    policy = Placement(replicas=DYNAMIC, application=GRACEFULLY)
    plane.when(a_binding("web", 5, placement=policy))
    assert plane.then_scheduled("web", bergen=5, oslo=2).leaving[0].cluster == "oslo"
    plane.when(forgotten("oslo"))
    assert plane.then_scheduled("web", bergen=5).leaving == ()
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.when(because("unhealthy", "web", "bergen"))
    plane.when(withdrawn("web"))
    assert "web" not in plane.state.bindings
    plane.wait(1000)
    plane.then_nothing()


def test_of_a_silent_cluster_nothing_is_known_that_would_be_a_reason_to_leave_it(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo", lease_s=60), room("oslo", 9))
    plane.given(a_binding("web", 2, placement=Placement(replicas=DYNAMIC, application=GRACEFULLY)))
    plane.given(a_cluster("bergen", lease_s=9999), room("bergen", 9))
    plane.wait(61)
    plane.when(because("unhealthy", "web", "oslo"), because("unschedulable", "web", "oslo", 1))
    assert [d.reason for d in plane.decided if isinstance(d, ProposalRefused)] == ["Held", "Held"]
    assert plane.holds("web") == {"oslo": 2}


def test_a_copy_does_not_go_while_what_replaces_it_is_in_a_silent_cluster(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo", lease_s=9999), room("oslo", 9))
    plane.given(a_binding("web", 2, placement=Placement(replicas=DYNAMIC, application=GRACEFULLY)))
    plane.given(a_cluster("bergen", lease_s=60), room("bergen", 9))
    plane.when(because("unhealthy", "web", "oslo"))
    plane.wait(61)
    plane.when(because("replaced", "web", "oslo"))
    assert plane.then_declined("Held").detail == "bergen is silent"


# A taint


def test_a_tainted_cluster_may_be_left_gracefully_too(plane: FleetPlane) -> None:
    gracefully = Placement(replicas=DYNAMIC, cluster_purge="Gracefully")
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(a_binding("web", 2, placement=gracefully))
    plane.given(a_cluster("oslo", NO_EXECUTE))
    plane.when(eviction("web", "oslo"))
    plane.then_declined("Unschedulable")
    plane.given(a_cluster("bergen"), room("bergen", 9))
    plane.when(eviction("web", "oslo"))
    assert plane.then_scheduled("web", bergen=2, oslo=2).leaving == (
        Leaving("oslo", plane.at + 600 * S, "taint"),
    )
    plane.wait(600)
    plane.then_scheduled("web", bergen=2)


def test_a_taint_that_is_an_order_ends_the_wait_of_what_is_leaving_for_another_reason(
    plane: FleetPlane,
) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    plane.given(a_cluster("oslo", NO_EXECUTE))
    plane.when(eviction("web", "oslo"))
    assert plane.then_scheduled("web", bergen=2).leaving == ()


def test_a_cluster_whose_taint_is_gone_is_not_left_and_not_shut(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.given(
        a_binding("web", 2, placement=Placement(replicas=DYNAMIC, cluster_purge="Gracefully"))
    )
    plane.given(a_cluster("bergen"), room("bergen", 9), a_cluster("oslo", NO_EXECUTE))
    plane.when(eviction("web", "oslo"))
    plane.when(a_cluster("oslo"))
    decided = plane.then_scheduled("web", oslo=2)
    assert (decided.leaving, decided.suspect) == ((), ())
    plane.wait(1000)
    plane.then_nothing()


# Without a node


def five_in_oslo_and_five_in_bergen(plane: FleetPlane, how: ReplicaScheduling = DYNAMIC) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 5), a_cluster("bergen"), room("bergen", 5))
    plane.given(a_binding("web", 10, how))
    plane.then_scheduled("web", bergen=5, oslo=5)
    # so it is said; but two in oslo find no node
    plane.given(room("oslo", 4, fleet=9), room("bergen", 4, fleet=9))


def test_replicas_without_a_node_are_placed_where_there_is_room(plane: FleetPlane) -> None:
    five_in_oslo_and_five_in_bergen(plane)
    plane.when(because("unschedulable", "web", "oslo", 2, assignment_of(plane, "web", "oslo")))
    decided = plane.then_scheduled("web", bergen=7, oslo=3)
    assert decided.explanation.why == "2 replicas have found no node in oslo"


def test_the_cluster_gets_none_of_their_class_before_its_count_shows_more(
    plane: FleetPlane,
) -> None:
    five_in_oslo_and_five_in_bergen(plane)
    plane.when(because("unschedulable", "web", "oslo", 2))
    plane.given(room("bergen", 2, fleet=20))
    plane.when(a_binding("web", 13))
    plane.then_refused("web", "Unschedulable", bergen=7, oslo=3)
    plane.when(room("oslo", 4, fleet=20))  # what was not so is said once more
    plane.then_nothing()
    plane.when(room("oslo", 6, fleet=20))
    plane.then_scheduled("web", bergen=8, oslo=5)


def test_as_many_as_find_a_place_and_the_others_wait_where_they_are(plane: FleetPlane) -> None:
    five_in_oslo_and_five_in_bergen(plane)
    plane.given(room("bergen", 1, fleet=20))
    plane.when(because("unschedulable", "web", "oslo", 3))
    plane.then_scheduled("web", bergen=6, oslo=4)
    plane.given(room("bergen", 0, fleet=30))
    plane.when(because("unschedulable", "web", "oslo", 2))
    plane.then_declined("Unschedulable")
    assert plane.holds("web") == {"bergen": 6, "oslo": 4}


def test_who_lies_by_fixed_weights_or_everywhere_is_left_where_it_is(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 9), a_cluster("bergen"), room("bergen", 9))
    for name, how in (("fixed", static(oslo=1, bergen=1)), ("everywhere", DUPLICATED)):
        plane.given(a_binding(name, 4, how))
        plane.when(because("unschedulable", name, "oslo", 1))
        plane.then_declined("NothingToDo")


def test_what_every_eviction_says_is_within_its_bytes(plane: FleetPlane) -> None:
    placed_in_oslo(plane, GRACEFULLY)
    plane.when(because("unhealthy", "web", "oslo"))
    (decided,) = [d for d in plane.decided if isinstance(d, ScheduleDecided)]
    assert decided.explanation.failover is not None
    assert decided.explanation.failover.failed == ("oslo",)
