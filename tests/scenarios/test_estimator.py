"""The estimator in the words of those who read its numbers."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.cluster_world import CLUSTER, GIB, STREAM, a_node, event, needs, observed

from wharfinger.domain.binding import Binding, Component, set_key
from wharfinger.domain.cluster import Cluster, NodeGrade, ResourceSummary
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HOSTNAME, HostPort, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.policy import FederatedQuota, Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Refused,
    Released,
)
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals, QuotaRoom
from wharfinger.events.cluster_state import PodsObserved, QuotasObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import decode, encode
from wharfinger.events.decisions import NodeShare
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.stages.estimator import EstimatorObserver, placements_follow
from wharfinger.stages.estimator.cluster import ClusterEstimate

SMALL = needs(cpu=1000, memory=GIB)


class Estimator:
    def __init__(self) -> None:
        self.observer = EstimatorObserver()
        self.state = self.observer.initial()
        self.seq = {"fleet/0": 0, STREAM: 0}

    def given(self, *data: Value) -> None:
        for one in data:
            self.observer.fold(self.state, event(one, "e"), 1)

    def says(self) -> CapacityEstimated | None:
        publications = self.observer.publish(self.state, 1)
        assert len(publications) <= 1
        if not publications:
            return None
        assert isinstance(publications[0].data, CapacityEstimated)
        assert publications[0].key == publications[0].partition_key == publications[0].data.cluster
        return publications[0].data

    def said(self) -> CapacityEstimated:
        estimate = self.says()
        assert estimate is not None
        return estimate

    def wants(
        self, name: str, requirements: Requirements, replicas: int = 1, priority_class: str = ""
    ) -> None:
        ref = ObjectRef("apps/v1", "Deployment", name)
        self.given(
            BindingRequested(
                Binding(name, name, ref, replicas, requirements, priority_class=priority_class)
            )
        )

    def wants_sets(self, name: str, *components: Component) -> None:
        ref = ObjectRef("ray.io/v1", "RayJob", name)
        self.given(BindingRequested(Binding(name, name, ref, components=components)))

    def decided(self, stream: str, *items: AssignmentItem) -> None:
        self.given(AssignmentsDecided(CLUSTER, stream, max(i.seq for i in items), items))


@pytest.fixture
def world() -> Estimator:
    estimator = Estimator()
    estimator.wants("web", SMALL)
    estimator.given(*observed([a_node("a"), a_node("b", cpu=2500)]))
    return estimator


def test_classes_are_counted_node_by_node(world: Estimator) -> None:
    said = world.said()
    assert said.nodes == 2
    assert said.free == {"cpu": 6500, "memory": 32 * GIB}
    # 4 + 2: the halves left over on a node do not add up
    assert said.classes == {SMALL.class_key: 6}
    assert world.says() is None


def test_nothing_is_said_before_every_bucket_has_been_seen() -> None:
    estimator = Estimator()
    first, *rest = observed([a_node("a")])
    estimator.given(first)
    assert estimator.says() is None
    estimator.given(*rest)
    assert estimator.said().nodes == 1


def test_a_replica_is_counted_once_on_its_way_from_assigned_to_observed(world: Estimator) -> None:
    world.said()
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    assigned = world.said()
    assert (assigned.free["cpu"], assigned.classes[SMALL.class_key]) == (4500, 4)
    assert assigned.accounted_through == {"fleet/0": 1}
    world.decided(STREAM, Placed(1, "p1", "web", (NodeShare("a", (0, 1)),), SMALL))
    bound = world.said()
    assert (bound.free["cpu"], bound.classes[SMALL.class_key]) == (4500, 4)
    assert bound.accounted_through == {"fleet/0": 1, STREAM: 1}
    pods = tuple(Pod(f"u{i}", f"web-{i}", SMALL, "a", "web", i) for i in (0, 1))
    world.given(PodsObserved(CLUSTER, "a", pods))
    assert world.says() is None
    world.decided(STREAM, Released(2, "r", "web", (NodeShare("a", (1,)),)))
    assert world.said().free["cpu"] == 4500  # its pod is still seen
    world.given(PodsObserved(CLUSTER, "a", pods[:1]))
    world.decided("fleet/0", Assigned(2, "d2", "web", "u", 1, SMALL))
    assert world.said().free["cpu"] == 5500


def test_an_estimate_can_wait_for_placements_and_for_nothing_else(world: Estimator) -> None:
    assert not placements_follow(world.state)  # nodes are new
    world.said()
    assert not placements_follow(world.state)  # nothing is new
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    assert placements_follow(world.state)
    world.wants("api", SMALL)
    assert placements_follow(world.state)  # of a class that is counted
    world.wants("db", needs(cpu=2000))
    assert not placements_follow(world.state)
    world.said()
    world.decided(STREAM, Placed(1, "p1", "web", (NodeShare("a", (0,)),), SMALL))
    assert placements_follow(world.state)  # of the other replica
    world.decided(STREAM, Placed(2, "p2", "web", (NodeShare("a", (1,)),), SMALL))
    assert not placements_follow(world.state)
    world.decided("fleet/0", Assigned(2, "d2", "web", "u", 3, SMALL))
    assert placements_follow(world.state)
    world.given(PodsObserved(CLUSTER, "a", (Pod("u", "other-0", SMALL, "a", "other", 0),)))
    assert not placements_follow(world.state)
    assert world.said().accounted_through == {"fleet/0": 2, STREAM: 2}
    assert not placements_follow(world.state)


def test_a_fleet_with_its_own_schedulers_is_counted_once_too(world: Estimator) -> None:
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    world.given(PodsObserved(CLUSTER, "a", (Pod("u0", "web-0", SMALL, "a", "web", 0),)))
    assert world.said().free["cpu"] == 4500
    world.given(PodsObserved(CLUSTER, "b", (Pod("u1", "web-1", SMALL, "b", "web", -1),)))
    assert world.says() is None


def test_refused_replicas_are_given_back(world: Estimator) -> None:
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 9, SMALL))
    assert world.said().classes[SMALL.class_key] == 0
    world.decided(
        STREAM, Refused(1, "r1", "web", "d1", 9, SMALL.class_key, "InsufficientResources")
    )
    assert world.said().classes[SMALL.class_key] == 6


def test_a_refusal_of_an_older_assignment_does_not_touch_the_newer(world: Estimator) -> None:
    world.decided(
        "fleet/0", Assigned(1, "d1", "web", "u", 3, SMALL), Assigned(2, "d2", "web", "u", 2, SMALL)
    )
    world.decided(
        STREAM, Refused(1, "r1", "web", "d1", 3, SMALL.class_key, "InsufficientResources")
    )
    assert world.said().classes[SMALL.class_key] == 4


def test_items_read_twice_are_counted_once_and_a_moved_seq_alone_is_news(world: Estimator) -> None:
    decided = AssignmentsDecided(CLUSTER, "fleet/0", 1, (Assigned(1, "d1", "web", "u", 2, SMALL),))
    world.given(decided)
    assert world.said().free["cpu"] == 4500
    world.given(decided)
    assert world.says() is None
    world.given(
        AssignmentsDecided(CLUSTER, "fleet/1", 7, (Assigned(7, "x", "other", "u", 0, SMALL),))
    )
    assert world.said().accounted_through == {"fleet/0": 1, "fleet/1": 7}


def test_pending_replicas_of_one_class_bound_all_others_by_the_totals(world: Estimator) -> None:
    large = needs(cpu=2000)
    world.wants("db", large)
    world.said()
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 3, SMALL))
    said = world.said()
    assert said.free["cpu"] == 3500
    assert said.classes == {SMALL.class_key: 3, large.class_key: 1}


def test_devices_are_counted_one_by_one() -> None:
    estimator = Estimator()
    shared, pair = needs(gpus=1, milli=400), needs(gpus=2)
    estimator.wants("shared", shared)
    estimator.wants("pair", pair)
    estimator.given(*observed([a_node("a", gpus=3), a_node("b", gpus=1, model="V100")]))
    said = estimator.said()
    assert said.classes == {shared.class_key: 8, pair.class_key: 1}
    assert said.devices == (
        DeviceTotals("nvidia.com/gpu", "T4", 3, 3000),
        DeviceTotals("nvidia.com/gpu", "V100", 1, 1000),
    )
    estimator.decided("fleet/0", Assigned(1, "d", "shared", "u", 1, shared))
    said = estimator.said()
    assert said.classes == {shared.class_key: 7, pair.class_key: 1}
    assert said.devices[0] == DeviceTotals("nvidia.com/gpu", "T4", 2, 2600)
    placed = Placed(1, "p", "shared", (NodeShare("a", (0,), (((0, 400),),)),), shared)
    estimator.decided(STREAM, placed)
    said = estimator.said()
    assert said.classes == {shared.class_key: 7, pair.class_key: 1}
    assert said.devices[0] == DeviceTotals("nvidia.com/gpu", "T4", 2, 2600)


def test_cordoned_and_closed_nodes_offer_nothing(world: Estimator) -> None:
    world.said()
    world.decided(STREAM, NodeClosed(1, "n", "b"))
    said = world.said()
    assert (said.nodes, said.free["cpu"], said.classes[SMALL.class_key]) == (1, 4000, 4)
    world.given(*observed([a_node("a", unschedulable=True), a_node("b", cpu=2500)]))
    assert world.said().nodes == 0


def test_a_class_is_counted_while_some_binding_wants_it(world: Estimator) -> None:
    world.wants("web2", SMALL)
    world.said()
    world.given(BindingWithdrawn("web"))
    assert world.says() is None
    world.wants("web2", needs(cpu=500))
    assert world.said().classes == {needs(cpu=500).class_key: 13}
    world.given(BindingWithdrawn("web2"))
    assert world.said().classes == {}


def test_an_object_without_replicas_makes_no_class(world: Estimator) -> None:
    world.said()
    world.wants("config", Requirements(), replicas=0)
    assert world.says() is None


def test_a_summary_stands_in_only_where_no_nodes_are_reported() -> None:
    estimator = Estimator()
    estimator.wants("web", SMALL)
    summary = ResourceSummary(
        {"cpu": 10_000, "memory": 8 * GIB, "pods": 5}, {"cpu": 2000, "pods": 1}, {"cpu": 500}
    )
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=summary)))
    said = estimator.said()
    assert (said.nodes, said.free["cpu"], said.classes[SMALL.class_key]) == (0, 7500, 4)
    estimator.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    assert estimator.said().free["cpu"] == 5500
    # the new summary holds them already
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=summary)))
    assert estimator.said().free["cpu"] == 7500
    estimator.given(*observed([a_node("a")]))
    assert estimator.said().nodes == 1


def test_a_forgotten_cluster_is_silent(world: Estimator) -> None:
    world.given(ClusterForgotten(CLUSTER))
    assert world.says() is None
    world.wants("another", needs(cpu=77))  # a class more is counted everywhere else
    assert world.says() is None


def test_a_cluster_that_is_added_again_is_counted_from_the_facts_that_still_hold() -> None:
    """Only what changed is sent again; a restart would read the rest from the topics."""
    estimator = Estimator()
    estimator.wants("web", SMALL)
    first, second = observed([a_node("a"), a_node("b")], buckets=2)
    estimator.given(ClusterObserved(Cluster(CLUSTER)), first, second)
    before = estimator.said()
    assert before.nodes == 2
    estimator.given(ClusterForgotten(CLUSTER), first)
    assert estimator.says() is None
    estimator.given(ClusterObserved(Cluster(CLUSTER)))
    assert estimator.said() == before


# --- quotas


def the_quota(
    used: int = 0, name: str = "compute", hard: int = 10_000, scope: tuple[Requirement, ...] = ()
) -> Quota:
    return Quota("shop", name, {"requests.cpu": hard}, {"requests.cpu": used}, scope)


def quotas(*several: Quota) -> QuotasObserved:
    return QuotasObserved(CLUSTER, "shop", several)


def left(said: CapacityEstimated) -> dict[str, int]:
    return {room.name: room.left["cpu"] for room in said.quotas}


def test_what_a_quota_leaves_is_told_beside_the_counts(world: Estimator) -> None:
    counted = world.said().classes
    world.given(quotas(the_quota(2500)))
    said = world.said()
    assert said.classes == counted
    assert said.quotas == (QuotaRoom("shop", "compute", {"cpu": 7500}),)
    world.given(quotas())
    assert world.said().quotas == ()


def test_a_replica_is_taken_from_a_quota_once_on_its_way_from_assigned_to_used(
    world: Estimator,
) -> None:
    world.given(quotas(the_quota(500)))
    world.decided("fleet/0", Assigned(1, "d1", "shop/web", "u", 3, SMALL))
    assert left(world.said()) == {"compute": 6500}
    world.decided(STREAM, Placed(1, "p1", "shop/web", (NodeShare("a", (0, 1, 2)),), SMALL))
    assert left(world.said()) == {"compute": 6500}
    pods = tuple(Pod(f"u{i}", f"web-{i}", SMALL, "a", "shop/web", i) for i in (0, 1))
    world.given(PodsObserved(CLUSTER, "a", pods))
    assert world.says() is None  # the quota has not been read since
    world.given(quotas(the_quota(2500)))
    assert world.says() is None  # two are in what is used now, one is still deducted
    world.given(PodsObserved(CLUSTER, "a", (*pods, Pod("u2", "web-2", SMALL, "a", "shop/web", 2))))
    world.given(quotas(the_quota(3500)))
    assert world.says() is None


def test_what_is_let_go_is_given_back_when_the_quota_says_so(world: Estimator) -> None:
    pods = tuple(Pod(f"u{i}", f"web-{i}", SMALL, "a", "shop/web", i) for i in (0, 1))
    world.decided("fleet/0", Assigned(1, "d1", "shop/web", "u", 2, SMALL))
    world.decided(STREAM, Placed(1, "p1", "shop/web", (NodeShare("a", (0, 1)),), SMALL))
    world.given(PodsObserved(CLUSTER, "a", pods), quotas(the_quota(2000)))
    assert left(world.said()) == {"compute": 8000}
    world.decided("fleet/0", Assigned(2, "d2", "shop/web", "u", 0, SMALL))
    world.decided(STREAM, Released(2, "r", "shop/web", (NodeShare("a", (0, 1)),)))
    assert left(world.said()) == {"compute": 8000}
    world.given(PodsObserved(CLUSTER, "a", ()), quotas(the_quota(0)))
    assert left(world.said()) == {"compute": 10_000}


def test_replicas_count_under_the_quotas_whose_scope_covers_them(world: Estimator) -> None:
    high = (Requirement("PriorityClass", "In", ("high",)),)
    world.wants("shop/db", SMALL, priority_class="high")
    world.wants("shop/web", SMALL)
    world.given(quotas(the_quota(name="all"), the_quota(name="high", scope=high)))
    world.decided(
        "fleet/0",
        Assigned(1, "d1", "shop/db", "u", 1, SMALL),
        Assigned(2, "d2", "shop/web", "v", 2, SMALL),
    )
    assert left(world.said()) == {"all": 7000, "high": 9000}
    # of whom nobody knows any more what class it was counts everywhere
    world.given(BindingWithdrawn("shop/web"))
    assert left(world.said()) == {"all": 7000, "high": 7000}


def test_quotas_of_one_namespace_are_no_matter_of_another(world: Estimator) -> None:
    world.given(quotas(the_quota()))
    world.decided(
        "fleet/0",
        Assigned(1, "d1", "bank/web", "u", 2, SMALL),
        Assigned(2, "d2", "shop", "v", 1, SMALL),
    )
    assert left(world.said()) == {"compute": 10_000}


def test_where_no_pods_are_reported_what_was_assigned_before_is_taken_to_be_used() -> None:
    estimator = Estimator()
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=ResourceSummary({"cpu": 90_000}))))
    estimator.decided("fleet/0", Assigned(1, "d1", "shop/web", "u", 2, SMALL))
    estimator.given(quotas(the_quota(2000)))
    assert left(estimator.said()) == {"compute": 8000}
    estimator.decided("fleet/0", Assigned(2, "d2", "shop/web", "u", 5, SMALL))
    assert left(estimator.said()) == {"compute": 5000}


def test_a_federated_quota_allots_each_cluster_its_part(world: Estimator) -> None:
    policy = Policy(
        "FederatedResourceQuota",
        "all",
        "shop",
        quota=FederatedQuota({"cpu": 9000}, {CLUSTER: {"cpu": 4000}}),
    )
    world.given(PolicyApplied(policy))
    world.decided("fleet/0", Assigned(1, "d1", "shop/web", "u", 3, SMALL))
    assert left(world.said()) == {"all": 1000}
    world.given(
        ClusterForgotten(CLUSTER), *observed([a_node("a")]), ClusterObserved(Cluster(CLUSTER))
    )
    assert left(world.said()) == {"all": 1000}
    world.decided("fleet/0", Assigned(2, "d2", "shop/web", "u", 0, SMALL))
    assert left(world.said()) == {"all": 4000}
    world.given(PolicyRemoved("FederatedResourceQuota", "all", "shop"))
    assert world.said().quotas == ()


# --- grades and whole sets


def test_grades_bound_what_fits_where_no_nodes_are_reported() -> None:
    estimator = Estimator()
    estimator.wants("web", SMALL)
    estimator.wants("db", needs(cpu=3000))
    grades = (
        NodeGrade({"cpu": 2000, "memory": 4 * GIB}, 3),
        NodeGrade({"cpu": 4000, "memory": 8 * GIB}, 1),
    )
    summary = ResourceSummary({"cpu": 20_000, "memory": 64 * GIB, "pods": 99}, grades=grades)
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=summary)))
    said = estimator.said()
    assert said.classes == {SMALL.class_key: 10, needs(cpu=3000).class_key: 1}
    assert said.grades == grades
    estimator.decided("fleet/0", Assigned(1, "d1", "web", "u", 4, SMALL))
    assert estimator.said().classes == {SMALL.class_key: 6, needs(cpu=3000).class_key: 1}


def test_a_workload_of_several_kinds_of_pods_is_counted_in_whole_sets(world: Estimator) -> None:
    components = (Component("head", 1, needs(cpu=1500)), Component("worker", 2, needs(cpu=1000)))
    world.wants_sets("shop/ray", *components)
    key = set_key(components)
    # 3,500 of the 6,500 milli-cores, and no node has room for a second head
    assert world.said().classes[key] == 1
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 5, SMALL))
    assert world.said().classes[key] == 0
    world.given(BindingWithdrawn("shop/ray"))
    assert key not in world.said().classes


# Pods that keep each other off their nodes


def keeping_off(**traits: Any) -> Requirements:
    return msgspec.structs.replace(SMALL, pod=PodTraits(labels={"app": "web"}, **traits))


ALIKE = PodTerm(HOSTNAME, LabelSelector({"app": "web"}))


def hosts(*names: str) -> list[Node]:
    return [
        msgspec.structs.replace(a_node(name, cpu=9000), labels={HOSTNAME: name}) for name in names
    ]


@pytest.mark.parametrize(
    "wanted",
    [keeping_off(ports=(HostPort(80),)), keeping_off(anti_affinity=(ALIKE,))],
    ids=["port", "anti-affinity"],
)
def test_what_keeps_its_like_off_a_node_fits_once_on_each(wanted: Requirements) -> None:
    world = Estimator()
    world.wants("web", wanted)
    world.given(*observed(hosts("a", "b", "c")))
    key = wanted.class_key
    assert world.said().classes[key] == 3
    world.decided("fleet/0", Assigned(1, "d", "web", "web", 1, wanted))
    assert world.said().classes[key] == 2
    world.decided(STREAM, Placed(1, "d", "web", (NodeShare("b", (0,)),), wanted))
    assert world.said().classes[key] == 2
    theirs = Pod("u", "p", wanted, "c")
    world.given(PodsObserved(CLUSTER, "c", (theirs,)))
    assert world.said().classes[key] == 1
    world.given(PodsObserved(CLUSTER, "c", ()))
    assert world.said().classes[key] == 2


def test_anti_affinity_to_others_leaves_room_for_its_own(world: Estimator) -> None:
    others = PodTerm(HOSTNAME, LabelSelector({"app": "db"}))
    wanted = keeping_off(anti_affinity=(others, PodTerm("zone", LabelSelector({"app": "web"}))))
    world.wants("two", wanted)
    assert world.said().classes[wanted.class_key] > 2


def zoned(**zones: str) -> list[Node]:
    return [
        msgspec.structs.replace(a_node(name, cpu=9000), labels={HOSTNAME: name, "zone": zone})
        for name, zone in zones.items()
    ]


def test_what_excludes_its_like_from_a_zone_fits_once_in_each() -> None:
    wanted = keeping_off(anti_affinity=(PodTerm("zone", LabelSelector({"app": "web"})),))
    world = Estimator()
    world.wants("web", wanted)
    world.given(*observed(zoned(a="north", b="north", c="south")))
    assert world.said().classes[wanted.class_key] == 2
    world.decided(STREAM, Placed(1, "d", "web", (NodeShare("b", (0,)),), wanted))
    assert world.said().classes[wanted.class_key] == 1


def test_what_is_spread_over_zones_fits_as_often_as_the_smallest_zone_allows() -> None:
    """North has room for 18, south for 9, and no zone may have more than one more."""
    alike = LabelSelector({"app": "web"})
    wanted = keeping_off(spread=(TopologySpread("zone", 1, True, alike),))
    world = Estimator()
    world.wants("web", wanted)
    world.given(*observed(zoned(a="north", b="north", c="south")))
    assert world.said().classes[wanted.class_key] == 19


def test_what_follows_others_fits_where_they_are() -> None:
    wanted = keeping_off(affinity=(PodTerm("zone", LabelSelector({"app": "db"})),))
    world = Estimator()
    world.wants("web", wanted)
    world.given(*observed(zoned(a="north", b="north", c="south")))
    assert world.said().classes[wanted.class_key] == 0
    db = msgspec.structs.replace(SMALL, pod=PodTraits(labels={"app": "db"}))
    world.given(PodsObserved(CLUSTER, "c", (Pod("u", "db", db, "c"),)))
    assert world.said().classes[wanted.class_key] == 8


def test_a_pod_with_a_nodes_name_fits_there_alone(world: Estimator) -> None:
    wanted = keeping_off(node_name="b")
    world.wants("two", wanted)
    assert world.said().classes[wanted.class_key] == 2


def test_bindings_that_differ_in_labels_are_one_class(world: Estimator) -> None:
    world.wants("labelled", keeping_off())
    assert list(world.said().classes) == [SMALL.class_key]


def test_sums_of_hostile_amounts_saturate_and_can_be_read() -> None:
    estimator = Estimator()
    largest = 2**63 - 1
    hostile = Quota("shop", "q", {"memory": largest}, {"memory": -largest})
    estimator.given(
        *observed([a_node(f"n{n}", memory=largest) for n in range(5)]),
        QuotasObserved(CLUSTER, "shop", (hostile,)),
    )
    said = estimator.said()
    assert 0 < said.free["memory"] <= largest
    assert [room.left for room in said.quotas] == [{"memory": largest}]
    body = encode(said, id=uuid4(), source="/tests", subject=CLUSTER)
    assert decode(body).data == said


def test_a_failure_of_one_cluster_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = Estimator()
    estimator.given(*observed([a_node("n0")]))
    other = [msgspec.structs.replace(one, cluster="other") for one in observed([a_node("n0")])]
    estimator.given(*other)
    count = ClusterEstimate.estimate

    def failing(self: ClusterEstimate, *args: Any, **named: Any) -> CapacityEstimated | None:
        if self.name == "other":
            raise ZeroDivisionError
        return count(self, *args, **named)

    monkeypatch.setattr(ClusterEstimate, "estimate", failing)
    assert estimator.said().cluster == CLUSTER
    assert [cluster for cluster, _ in estimator.observer.failures.take()] == ["other"]
    assert estimator.observer.failures.take() == []
