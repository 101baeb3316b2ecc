"""The estimator in the words of those who read its numbers."""

from __future__ import annotations

import pytest
from tests.cluster_world import CLUSTER, GIB, STREAM, a_node, event, needs, observed

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.node import Pod
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
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import NodeShare
from wharfinger.stages.estimator import EstimatorObserver

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

    def wants(self, name: str, requirements: Requirements, replicas: int = 1) -> None:
        ref = ObjectRef("apps/v1", "Deployment", name)
        self.given(BindingRequested(Binding(name, name, ref, replicas, requirements)))

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
    assert said.classes == {SMALL.class_key: 6}  # 4 + 2: the halves left over on a node do not add up
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


def test_a_fleet_with_its_own_schedulers_is_counted_once_too(world: Estimator) -> None:
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    world.given(PodsObserved(CLUSTER, "a", (Pod("u0", "web-0", SMALL, "a", "web", 0),)))
    assert world.said().free["cpu"] == 4500
    world.given(PodsObserved(CLUSTER, "b", (Pod("u1", "web-1", SMALL, "b", "web", -1),)))
    assert world.says() is None


def test_refused_replicas_are_given_back(world: Estimator) -> None:
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 9, SMALL))
    assert world.said().classes[SMALL.class_key] == 0
    world.decided(STREAM, Refused(1, "r1", "web", "d1", 9, SMALL.class_key, "InsufficientResources"))
    assert world.said().classes[SMALL.class_key] == 6


def test_a_refusal_of_an_older_assignment_does_not_touch_the_newer(world: Estimator) -> None:
    world.decided("fleet/0", Assigned(1, "d1", "web", "u", 3, SMALL), Assigned(2, "d2", "web", "u", 2, SMALL))
    world.decided(STREAM, Refused(1, "r1", "web", "d1", 3, SMALL.class_key, "InsufficientResources"))
    assert world.said().classes[SMALL.class_key] == 4


def test_items_read_twice_are_counted_once_and_a_moved_seq_alone_is_news(world: Estimator) -> None:
    decided = AssignmentsDecided(CLUSTER, "fleet/0", 1, (Assigned(1, "d1", "web", "u", 2, SMALL),))
    world.given(decided)
    assert world.said().free["cpu"] == 4500
    world.given(decided)
    assert world.says() is None
    world.given(AssignmentsDecided(CLUSTER, "fleet/1", 7, (Assigned(7, "x", "other", "u", 0, SMALL),)))
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
    summary = ResourceSummary({"cpu": 10_000, "memory": 8 * GIB, "pods": 5}, {"cpu": 2000, "pods": 1}, {"cpu": 500})
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=summary)))
    said = estimator.said()
    assert (said.nodes, said.free["cpu"], said.classes[SMALL.class_key]) == (0, 7500, 4)
    estimator.decided("fleet/0", Assigned(1, "d1", "web", "u", 2, SMALL))
    assert estimator.said().free["cpu"] == 5500
    estimator.given(ClusterObserved(Cluster(CLUSTER, summary=summary)))  # the new summary holds them already
    assert estimator.said().free["cpu"] == 7500
    estimator.given(*observed([a_node("a")]))
    assert estimator.said().nodes == 1


def test_a_forgotten_cluster_is_silent(world: Estimator) -> None:
    world.given(ClusterForgotten(CLUSTER))
    assert world.says() is None
