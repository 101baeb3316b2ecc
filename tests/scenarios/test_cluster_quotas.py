"""Quotas of clusters, as the fleet stage keeps within them: what a namespace may still ask for,
whatever the cluster could hold."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DYNAMIC,
    SMALL,
    FleetPlane,
    a_cluster,
    room,
    totals,
)

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, NodeGrade, ResourceSummary
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated, QuotaRoom
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.trace import trace

HIGH = (Requirement("PriorityClass", "In", ("high",)),)


def in_shop(
    name: str,
    replicas: int,
    how: ReplicaScheduling | Placement = DYNAMIC,
    *,
    namespace: str = "shop",
    priority_class: str = "",
    requirements: Requirements = SMALL,
) -> BindingRequested:
    ref = ObjectRef("apps/v1", "Deployment", name, namespace)
    return BindingRequested(
        Binding(
            f"{namespace}/{name}",
            f"uid-of-{name}",
            ref,
            replicas,
            requirements,
            how if isinstance(how, Placement) else Placement(replicas=how),
            priority_class=priority_class,
        )
    )


def only(*clusters: str) -> Placement:
    return Placement((ClusterAffinity(cluster_names=clusters),), replicas=DYNAMIC)


def bounded(
    counted: CapacityEstimated, cpu: int, scope: tuple[Requirement, ...] = (), name: str = "q"
) -> CapacityEstimated:
    return msgspec.structs.replace(
        counted, quotas=(*counted.quotas, QuotaRoom("shop", name, {"cpu": cpu}, scope))
    )


@pytest.fixture
def plane() -> FleetPlane:
    plane = FleetPlane()
    plane.when(a_cluster("bergen"), a_cluster("oslo"))
    plane.when(bounded(room("oslo", 10), 3000), bounded(room("bergen", 10), 2000))
    return plane


def test_replicas_go_where_their_namespace_has_quota_left(plane: FleetPlane) -> None:
    plane.when(in_shop("web", 5))
    assert plane.holds("shop/web") == {"bergen": 2, "oslo": 3}
    plane.when(in_shop("db", 1))
    plane.then_refused("shop/db", "Unschedulable")
    plane.when(in_shop("web", 12, namespace="bank"))
    # a quota bounds its namespace, not the cluster
    assert sum(plane.holds("bank/web").values()) == 12
    plane.check()


def test_an_estimate_says_that_a_quota_made_it(plane: FleetPlane) -> None:
    plane.when(in_shop("web", 4, AGGREGATED))
    decided = plane.then_scheduled("shop/web", bergen=2, oslo=2)
    assert decided.explanation.best == {"oslo": 3}
    assert plane.estimated_by("shop/web") == {"oslo": "quota", "bergen": "quota"}


def test_what_was_decided_is_deducted_until_it_is_accounted_for_and_only_once(
    plane: FleetPlane,
) -> None:
    plane.when(in_shop("web", 2, only("oslo")))
    plane.then_scheduled("shop/web", oslo=2)
    plane.when(bounded(room("oslo", 9), 3000))  # counted before the decision was known there
    plane.when(in_shop("db", 2, only("oslo")))
    plane.then_refused("shop/db", "Unschedulable")
    plane.when(bounded(room("oslo", 8, fleet=1), 1500), after_s=20)  # and now it is in
    plane.then_nothing()
    plane.when(bounded(room("oslo", 8, fleet=2), 2000), after_s=20)
    plane.then_scheduled("shop/db", oslo=2)
    plane.check()


def test_a_waiting_binding_hears_of_a_raised_quota(plane: FleetPlane) -> None:
    plane.when(in_shop("web", 7))
    plane.then_refused("shop/web", "Unschedulable")
    plane.when(bounded(room("oslo", 10), 3000, name="other"))
    plane.then_nothing()
    plane.when(bounded(room("oslo", 10), 5000), after_s=20)
    assert plane.holds("shop/web") == {"bergen": 2, "oslo": 5}
    plane.check()


def test_a_waiting_binding_hears_that_its_last_quota_is_gone(plane: FleetPlane) -> None:
    plane.when(in_shop("web", 11))
    plane.then_refused("shop/web", "Unschedulable")
    plane.when(room("oslo", 10), after_s=20)
    assert sum(plane.holds("shop/web").values()) == 11
    plane.check()


def test_a_first_quota_bounds_who_waits_for_more(plane: FleetPlane) -> None:
    fresh = FleetPlane()
    fresh.when(a_cluster("oslo"), room("oslo", 3))
    fresh.when(in_shop("web", 4))
    fresh.then_refused("shop/web", "Unschedulable")
    fresh.when(bounded(room("oslo", 9), 3500), after_s=20)
    fresh.then_nothing()
    fresh.when(bounded(room("oslo", 9), 4000), after_s=20)
    assert fresh.holds("shop/web") == {"oslo": 4}
    fresh.check()


def test_only_the_quotas_that_cover_its_priority_class_bound_a_binding() -> None:
    plane = FleetPlane()
    plane.when(
        a_cluster("oslo"), bounded(bounded(room("oslo", 10), 5000, name="all"), 1000, HIGH, "high")
    )
    plane.when(in_shop("low", 2))
    assert plane.holds("shop/low") == {"oslo": 2}
    plane.when(in_shop("high", 2, priority_class="high"))
    plane.then_refused("shop/high", "Unschedulable")
    plane.when(in_shop("one", 1, priority_class="high"))
    assert plane.holds("shop/one") == {"oslo": 1}
    plane.check()


def test_a_forgotten_cluster_takes_its_quotas_along(plane: FleetPlane) -> None:
    plane.when(a_cluster("trondheim"), room("trondheim", 9))
    plane.when(ClusterForgotten("oslo"), ClusterForgotten("bergen"))
    plane.when(in_shop("web", 9))
    assert plane.holds("shop/web") == {"trondheim": 9}
    assert not plane.state.cluster_index.quoted
    plane.check()


def test_a_class_nobody_counted_is_bounded_by_the_grades_of_the_nodes() -> None:
    plane = FleetPlane()
    grades = (NodeGrade({"cpu": 4000}, 2),)
    plane.when(a_cluster("oslo"), msgspec.structs.replace(totals("oslo", 90_000), grades=grades))
    plane.when(in_shop("web", 5, requirements=Requirements({"cpu": 1500})))
    plane.then_refused("shop/web", "Unschedulable")
    plane.when(in_shop("db", 3, requirements=Requirements({"cpu": 1500})))
    assert plane.holds("shop/db") == {"oslo": 3}
    decided = plane.then_scheduled("shop/db", oslo=3)
    assert decided.explanation.best == {"oslo": 4}
    assert plane.estimated_by("shop/db") == {"oslo": "grades"}
    plane.when(in_shop("more", 2, requirements=Requirements({"cpu": 1500})))
    plane.then_refused("shop/more", "Unschedulable")
    plane.check()


def test_before_the_first_count_a_cluster_s_own_summary_tells_its_grades() -> None:
    plane = FleetPlane()
    summary = ResourceSummary({"cpu": 90_000}, grades=(NodeGrade({"cpu": 2000}, 3),))
    plane.when(ClusterObserved(Cluster("oslo", summary=summary)))
    plane.when(in_shop("web", 4, requirements=Requirements({"cpu": 1500})))
    plane.then_refused("shop/web", "Unschedulable")
    plane.when(in_shop("db", 3, requirements=Requirements({"cpu": 1500})))
    assert plane.holds("shop/db") == {"oslo": 3}
    plane.check()


def test_an_explanation_names_the_quota_that_is_short() -> None:
    plane = FleetPlane()
    plane.when(a_cluster("oslo"), bounded(room("oslo", 10), 400))
    plane.when(in_shop("web", 1))
    plane.then_refused("shop/web", "Unschedulable")
    record = plane.state.bindings["shop/web"]
    traced = trace(plane.state, record, question_of(plane.state, record, {}))
    assert traced is not None
    (cluster,) = traced.terms[0].clusters
    assert (cluster.estimate, cluster.source) == (0, "quota")
    assert [[change.text for change in way] for way in cluster.ways] == [
        ["600m more cpu left of the quota shop/q"]
    ]
