"""Where bindings go by the finer rules: overflow, limits, remainders, sets of components, groups of
workloads, and what ran before.

Every story ends with its history gone through again: recovered, dumped, loaded and replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    SMALL,
    FleetPlane,
    a_binding,
    a_cluster,
    forgotten,
    room,
    static,
    withdrawn,
)

from wharfinger.domain.binding import Component, TargetCluster, part_of, set_key
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    SpreadConstraint,
)
from wharfinger.domain.pod_traits import HostPort, PodTraits
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned, Refused
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.decisions import BindingReleased, ScheduleDecided, ScheduleRefused
from wharfinger.events.fanout import assignment_items
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.kernel.step import decision_id
from wharfinger.stages.fleet import queue, solve
from wharfinger.stages.fleet.current_assignments import current_items
from wharfinger.stages.fleet.drafts import present
from wharfinger.stages.fleet.solve import SolveResult, beyond
from wharfinger.stages.fleet.state import BindingState, FleetState


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def three_clusters(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "narvik", "oslo")))
    plane.given(room("bergen", 4), room("narvik", 2), room("oslo", 6))


def placed(plane: FleetPlane, binding: str) -> Mapping[str, int]:
    return plane.state.bindings[binding].targets


def a_request(name: str, replicas: int = 1, **fields: object) -> BindingRequested:
    """A binding with fields of its own."""
    told = a_binding(name, replicas)
    return BindingRequested(msgspec.structs.replace(told.binding, **fields))


# Overflow


HOME = ClusterAffinity(
    "home", ("bergen",), overflow=(ClusterAffinity("cloud", ("narvik", "oslo")),)
)
SPILLING = Placement((HOME,), replicas=DYNAMIC)


def test_what_the_first_clusters_do_not_hold_goes_to_the_overflow_group_and_comes_back_first(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 3, placement=SPILLING))
    plane.then_scheduled("web", bergen=3)
    plane.when(a_binding("web", 7, placement=SPILLING))
    plane.then_scheduled("web", bergen=4, oslo=2, narvik=1)
    plane.when(a_binding("web", 5, placement=SPILLING))
    assert placed(plane, "web")["bergen"] == 4, "contracted from the overflow group"


def test_room_at_home_takes_nothing_back_until_somebody_asks(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 7, placement=SPILLING))
    before = dict(placed(plane, "web"))
    plane.when(room("bergen", 9, fleet=1))
    assert placed(plane, "web") == before
    plane.when(a_binding("web", 8, placement=SPILLING))
    assert all(placed(plane, "web")[c] >= n for c, n in before.items()), (
        "growing takes nothing away"
    )


def test_an_object_without_replicas_fills_no_cluster_and_overflows_none(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("config", 0, placement=SPILLING, requirements=Requirements()))
    plane.then_scheduled("config", bergen=0)


def test_full_tiers_are_a_refusal_that_ends_when_the_last_of_them_has_room(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 20, placement=SPILLING))
    assert isinstance(plane.decided[-1], ScheduleRefused)
    plane.when(room("oslo", 30), after_s=60)
    assert sum(placed(plane, "web").values()) == 20


# Limits, remainders, static weights within capacity


def limited(how: ReplicaScheduling, *limits: ReplicaLimit) -> Placement:
    return Placement(replicas=msgspec.structs.replace(how, limits=limits))


def test_a_cluster_gets_no_more_and_no_less_than_its_limits(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(
        a_binding(
            "web",
            6,
            placement=limited(DYNAMIC, ReplicaLimit("oslo", 0, 2), ReplicaLimit("narvik", 2)),
        )
    )
    plane.then_scheduled("web", bergen=2, narvik=2, oslo=2)


def test_limits_nobody_can_keep_are_refused_and_what_runs_stays(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 6))
    before = dict(placed(plane, "web"))
    plane.when(a_binding("web", 6, placement=limited(DYNAMIC, ReplicaLimit("*", 0, 1))))
    refused = plane.decided[-1]
    assert isinstance(refused, ScheduleRefused)
    assert refused.reason == "Unschedulable"
    assert "6 replicas" in refused.explanation.note
    assert placed(plane, "web") == before


def test_a_new_limit_moves_only_what_breaks_it(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 6))
    plane.then_scheduled("web", bergen=2, narvik=1, oslo=3)
    plane.when(a_binding("web", 6, placement=limited(DYNAMIC, ReplicaLimit("oslo", 0, 2))))
    decided = placed(plane, "web")
    assert decided["oslo"] == 2
    assert decided["bergen"] >= 2
    assert decided["narvik"] >= 1


def test_static_weights_may_respect_what_fits(plane: FleetPlane) -> None:
    three_clusters(plane)
    weights = static(narvik=10, oslo=1)
    plane.when(a_binding("web", 6, weights))
    plane.then_scheduled("web", narvik=2, oslo=4)
    plane.when(
        a_binding(
            "api",
            2,
            placement=Placement(replicas=msgspec.structs.replace(weights, within_capacity=True)),
        )
    )
    # the first binding has taken all that fits in narvik
    plane.then_scheduled("api", oslo=2)
    within = msgspec.structs.replace(weights, within_capacity=True)
    plane.when(a_binding("all-or-nothing", 3, placement=Placement(replicas=within)))
    plane.then_refused("all-or-nothing", "Unschedulable")


def test_remainders_may_go_out_in_order(plane: FleetPlane) -> None:
    three_clusters(plane)
    in_order = msgspec.structs.replace(static(bergen=3, narvik=3, oslo=1), remainder="in-order")
    plane.when(a_binding("web", 5, placement=Placement(replicas=in_order)))
    # Floors are 2, 2 and 0; what is left goes to the first in rank, the roomiest.
    plane.then_scheduled("web", bergen=2, narvik=2, oslo=1)


# Sets of components


FLINK = (
    Component("jobmanager", 1, Requirements({"cpu": 1000})),
    Component("taskmanager", 3, Requirements({"cpu": 500})),
)


def rooms_for_sets(plane: FleetPlane, **sets: int) -> None:
    """Room for so many whole sets in each cluster."""
    plane.given(
        *(
            CapacityEstimated(name, 1, {"cpu": 2500 * n}, {set_key(FLINK): n}, {"fleet/0": 0})
            for name, n in sets.items()
        )
    )


def of_components(
    name: str, components: tuple[Component, ...] = FLINK, how: ReplicaScheduling = AGGREGATED
) -> BindingRequested:
    return a_request(
        name,
        0,
        components=components,
        requirements=Requirements(),
        placement=Placement(replicas=how),
    )


def items(plane: FleetPlane) -> dict[tuple[str, str], int]:
    """(cluster, binding) -> replicas, of what the last round tells the clusters."""
    return {
        (cluster, item.binding): item.replicas
        for decision in plane.last
        for cluster, item in assignment_items(decision.seq, str(decision.id), decision.data)
        if isinstance(item, Assigned)
    }


def test_a_whole_set_goes_to_one_cluster_and_each_component_is_told(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    rooms_for_sets(plane, bergen=1, oslo=2)
    plane.when(of_components("flink"))
    decided = plane.then_scheduled("flink", oslo=0)
    assert decided.components == FLINK
    assert items(plane) == {("oslo", "flink#jobmanager"): 1, ("oslo", "flink#taskmanager"): 3}
    assert {(c, i.binding): i.replicas for c, i in current_items(plane.state)} == items(plane)


def test_sets_are_deducted_one_by_one_and_the_one_too_many_waits(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    rooms_for_sets(plane, bergen=1, oslo=1)
    plane.when(of_components("one"), of_components("two"), of_components("three"))
    assert [type(d) for d in plane.decided] == [ScheduleDecided, ScheduleDecided, ScheduleRefused]
    assert {next(iter(placed(plane, n))) for n in ("one", "two")} == {"bergen", "oslo"}


def test_one_component_that_does_not_fit_takes_its_set_elsewhere(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    rooms_for_sets(plane, bergen=1, oslo=2)
    plane.when(of_components("flink"))
    seq = plane.last[-1].seq
    refused = Refused(
        1,
        "00000000-0000-5000-8000-000000000001",
        "flink#taskmanager",
        str(decision_id("fleet/0", seq)),
        1,
        FLINK[1].requirements.class_key,
        "InsufficientResources",
    )
    plane.when(OutcomesDecided("oslo", 0, "cluster/oslo", 1, (refused,)))
    plane.then_scheduled("flink", bergen=0)
    told = items(plane)
    assert told[("oslo", "flink#jobmanager")] == told[("oslo", "flink#taskmanager")] == 0
    assert told[("bergen", "flink#taskmanager")] == 3


def test_a_component_that_is_gone_is_told_so(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"))
    plane.given(CapacityEstimated("oslo", 1, {"cpu": 9000}, {}, {"fleet/0": 0}))
    plane.when(of_components("flink"))
    plane.when(of_components("flink", FLINK[:1]))
    plane.then_scheduled("flink", oslo=0)
    assert items(plane) == {("oslo", "flink#jobmanager"): 1, ("oslo", "flink#taskmanager"): 0}
    plane.when(withdrawn("flink"))
    assert [type(d) for d in plane.decided] == [BindingReleased]
    assert items(plane)[("oslo", "flink#jobmanager")] == 0


def test_more_of_a_component_stays_where_the_set_is(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    plane.given(
        *(
            CapacityEstimated(n, 1, {"cpu": cpu}, {}, {"fleet/0": 0})
            for n, cpu in (("bergen", 9000), ("oslo", 99000))
        )
    )
    plane.when(of_components("flink"))
    plane.then_scheduled("flink", oslo=0)
    more = (FLINK[0], msgspec.structs.replace(FLINK[1], replicas=5))
    plane.when(of_components("flink", more))
    plane.then_scheduled("flink", oslo=0)
    assert items(plane)[("oslo", part_of("flink", "taskmanager"))] == 5


def test_duplicated_sets_go_everywhere(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    rooms_for_sets(plane, bergen=1, oslo=2)
    plane.when(of_components("flink", how=DUPLICATED))
    plane.then_scheduled("flink", bergen=0, oslo=0)


# Groups of workloads


def test_workloads_of_one_group_follow_the_first(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(
        a_request("shop/db", 2, affinity_group="g", placement=Placement(replicas=AGGREGATED))
    )
    plane.then_scheduled("shop/db", oslo=2)
    plane.when(room("bergen", 50))
    plane.when(
        a_request("shop/web", 3, affinity_group="g", placement=Placement(replicas=AGGREGATED))
    )
    decided = plane.then_scheduled("shop/web", oslo=3)
    assert decided.explanation.refused == {"WorkloadAffinity": 2}
    plane.when(
        a_request("other/web", 3, affinity_group="g", placement=Placement(replicas=AGGREGATED))
    )
    plane.then_scheduled("other/web", bergen=3)


def test_workloads_that_must_not_meet_wait_until_one_leaves(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    plane.given(room("bergen", 9), room("oslo", 9))
    packed = Placement(replicas=AGGREGATED)
    plane.when(
        *(
            a_request(f"shop/{n}", 2, anti_affinity_group="g", placement=packed)
            for n in ("a", "b", "c")
        )
    )
    assert [type(d) for d in plane.decided] == [ScheduleDecided, ScheduleDecided, ScheduleRefused]
    assert set(placed(plane, "shop/a")) | set(placed(plane, "shop/b")) == {"bergen", "oslo"}
    where = dict(placed(plane, "shop/a"))
    plane.when(withdrawn("shop/a"), after_s=60)
    assert placed(plane, "shop/c") == where


def test_who_waits_for_its_group_is_placed_when_the_group_moves(plane: FleetPlane) -> None:
    plane.given(*(a_cluster(name) for name in ("bergen", "oslo")))
    plane.given(room("bergen", 9), room("oslo", 2))
    packed = Placement((ClusterAffinity(cluster_names=("oslo",)),), replicas=AGGREGATED)
    plane.when(a_request("shop/db", 2, affinity_group="g", placement=packed))
    anywhere = Placement(replicas=AGGREGATED)
    plane.when(a_request("shop/web", 3, affinity_group="g", placement=anywhere))
    assert isinstance(plane.decided[-1], ScheduleRefused), "no room where its group is"
    moved = Placement((ClusterAffinity(cluster_names=("bergen",)),), replicas=AGGREGATED)
    plane.when(a_request("shop/db", 2, affinity_group="g", placement=moved), after_s=60)
    if not placed(plane, "shop/web"):
        plane.when(after_s=60)
    assert placed(plane, "shop/web") == {"bergen": 3}


# What ran before


def test_a_binding_that_is_taken_over_stays_where_it_runs(plane: FleetPlane) -> None:
    three_clusters(plane)
    held = (TargetCluster("narvik", 2), TargetCluster("bergen", 1))
    plane.when(a_request("web", 3, clusters=held, placement=Placement(replicas=DYNAMIC)))
    decided = plane.then_scheduled("web", bergen=1, narvik=2)
    assert decided.previous == decided.targets
    assert not plane.state.clusters["narvik"].pending, "what runs there already is counted already"
    plane.when(a_request("web", 4, clusters=held, placement=Placement(replicas=DYNAMIC)))
    assert placed(plane, "web")["narvik"] == 2


def test_of_what_is_taken_over_only_the_rest_is_placed(plane: FleetPlane) -> None:
    three_clusters(plane)
    held = (TargetCluster("narvik", 2), TargetCluster("gone", 5))
    plane.when(a_request("web", 4, clusters=held, placement=Placement(replicas=AGGREGATED)))
    plane.then_scheduled("web", narvik=4)
    plane.when(forgotten("narvik"))
    plane.then_scheduled("web", oslo=4)


# As Karmada does it


def test_only_a_strict_placement_that_fits_nowhere_loses_what_it_has(plane: FleetPlane) -> None:
    three_clusters(plane)
    nowhere = Placement((ClusterAffinity(cluster_names=("nowhere",)),), replicas=DYNAMIC)
    plane.when(a_binding("kept", 3), a_binding("cleared", 3))
    before = dict(placed(plane, "kept"))
    plane.when(
        a_binding("kept", 3, placement=nowhere),
        a_binding("cleared", 3, placement=msgspec.structs.replace(nowhere, strict=True)),
    )
    assert [type(d) for d in plane.decided] == [ScheduleRefused, ScheduleRefused]
    assert placed(plane, "kept") == before
    assert placed(plane, "cleared") == {}


def test_a_spread_gets_its_replica_in_each_group(plane: FleetPlane) -> None:
    plane.given(
        *(
            a_cluster(name, region=r)
            for name, r in (("bergen", "west"), ("narvik", "north"), ("oslo", "east"))
        )
    )
    plane.given(room("bergen", 100), room("narvik", 1), room("oslo", 90))
    spread = Placement(spread=(SpreadConstraint("region", "", 3, 3),), replicas=DYNAMIC)
    plane.when(a_binding("web", 5, placement=spread))
    assert set(placed(plane, "web")) == {"bergen", "narvik", "oslo"}


# What others see of its pods


def labelled(requests: Requirements, **labels: str) -> Requirements:
    return msgspec.structs.replace(requests, pod=PodTraits(labels=dict(labels)))


def told_of(decision: ScheduleDecided) -> dict[str, Requirements]:
    return {
        c: i.requirements for c, i in assignment_items(1, "d", decision) if isinstance(i, Assigned)
    }


def test_other_labels_move_nothing_and_are_told_where_the_pods_are(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 3, requirements=labelled(SMALL, app="web")))
    before = dict(placed(plane, "web"))
    plane.given(*(room(name, n) for name, n in (("bergen", 0), ("narvik", 900), ("oslo", 0))))
    again = labelled(SMALL, app="web", version="2")
    plane.when(a_binding("web", 3, requirements=again))
    decided = plane.then_scheduled("web", **before)
    assert told_of(decided) == dict.fromkeys(before, again)
    plane.when(a_binding("web", 3, requirements=again))
    plane.then_nothing()


def test_another_priority_is_told_where_the_pods_are(plane: FleetPlane) -> None:
    three_clusters(plane)
    asked = labelled(SMALL, app="web")
    plane.when(a_binding("web", 3, requirements=asked))
    before = dict(placed(plane, "web"))
    plane.when(a_binding("web", 3, requirements=asked, priority=7))
    decided = plane.then_scheduled("web", **before)
    assert [
        i.priority for _, i in assignment_items(1, "d", decided) if isinstance(i, Assigned)
    ] == [7] * len(before)


def test_labels_and_a_number_that_change_together_are_placed_as_the_number_is(
    plane: FleetPlane,
) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 3, requirements=labelled(SMALL, app="web")))
    more = labelled(SMALL, app="web", version="2")
    plane.when(a_binding("web", 4, requirements=more))
    decided = plane.schedule("web")
    assert isinstance(decided, ScheduleDecided)
    assert sum(t.replicas for t in decided.targets) == 4
    assert all(told == more for told in told_of(decided).values())


def test_a_binding_that_waits_goes_on_waiting_under_its_new_labels(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), room("oslo", 0))
    plane.when(a_binding("web", 2, requirements=labelled(SMALL, app="web")))
    plane.then_refused("web", "Unschedulable")
    again = labelled(SMALL, app="web", version="2")
    plane.when(a_binding("web", 2, requirements=again))
    plane.then_refused("web", "Unschedulable")
    plane.when(room("oslo", 5))
    assert told_of(plane.then_scheduled("web", oslo=2)) == {"oslo": again}


def test_what_keeps_its_pods_apart_is_another_class(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 3, requirements=labelled(SMALL, app="web")))
    apart = msgspec.structs.replace(
        SMALL, pod=PodTraits(labels={"app": "web"}, ports=(HostPort(80),))
    )
    plane.when(a_binding("web", 3, requirements=apart))
    assert plane.schedule("web").explanation.why == "its replicas ask for something else"


# Facts that no policy reads


PROD = {"env": "prod"}
LABELLED = ClusterAffinity("prod", labels=LabelSelector(PROD))
EVERYWHERE = {
    "Duplicated": a_request("web", placement=Placement((LABELLED,), replicas=DUPLICATED)),
    "an object without replicas": a_request(
        "web", replicas=0, requirements=Requirements(), placement=Placement((LABELLED,))
    ),
    "two affinity terms": a_request(
        "web",
        placement=Placement(
            (LABELLED, ClusterAffinity("rest", exclude=("oslo",))), replicas=DUPLICATED
        ),
    ),
    "a spread constraint": a_request(
        "web",
        placement=Placement(
            (LABELLED,), spread=(SpreadConstraint("cluster", "", 1, 9),), replicas=DUPLICATED
        ),
    ),
}


@pytest.mark.parametrize("request_", EVERYWHERE.values(), ids=EVERYWHERE)
def test_a_label_that_no_policy_reads_solves_nothing(
    plane: FleetPlane, monkeypatch: pytest.MonkeyPatch, request_: BindingRequested
) -> None:
    names = ("bergen", "narvik", "oslo")
    plane.given(*(a_cluster(name, labels=PROD) for name in names))
    plane.given(*(room(name, 6) for name in names))
    plane.when(request_)
    assert [*placed(plane, "web")] == [*names]
    plane.when(a_cluster("oslo", labels=PROD | {"serial": "1"}))
    solved: list[str] = []

    def counted(state: FleetState, record: BindingState, **asked: bool) -> SolveResult:
        solved.append(record.spec.name)
        return present(state, record, **asked)

    monkeypatch.setattr(queue, "present", counted)
    plane.when(a_cluster("oslo", labels=PROD | {"serial": "2"}))
    plane.when(a_cluster("bergen", labels=PROD | {"serial": "2"}))
    assert solved == []
    plane.when(a_cluster("stavanger", labels=PROD), room("stavanger", 6))
    plane.when(a_cluster("stavanger", labels=PROD | {"serial": "3"}))
    assert solved, "a cluster that joins is looked at"
    assert [*placed(plane, "web")] == [*names, "stavanger"]


def test_preemption_is_weighed_only_where_some_binding_has_a_lower_priority(
    plane: FleetPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(state: FleetState, record: BindingState, name: str) -> int:
        asked.append(name)
        return beyond(state, record, name)

    monkeypatch.setattr(solve, "beyond", counted)
    three_clusters(plane)
    plane.when(a_binding("web", 5, DUPLICATED))
    plane.then_refused("web", "Unschedulable", bergen=4, narvik=2, oslo=5)
    assert asked == []
    plane.when(a_binding("api", 5, DUPLICATED, priority=1))
    assert {"bergen", "narvik", "oslo"} >= {*asked} != set()
    plane.when(withdrawn("web"))
    asked.clear()
    plane.when(a_binding("db", 5, DUPLICATED))
    assert asked == [], "what was withdrawn has no priority any more"
