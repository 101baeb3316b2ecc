"""Filters in their order, estimates from totals, explanations within their limit, regions without
end."""

from __future__ import annotations

import msgspec
import pytest
from tests.reference.karmada_cycle import Asked, all_admitted
from tests.reference.karmada_trigger import replicas_changed

from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.decide import decide_term
from wharfinger.engine.fleet.estimate import NO_BOUND, demand_of, room_of_count, room_of_summary
from wharfinger.engine.fleet.select import ClusterCandidate, SpreadGroup, best_regions, rank, select
from wharfinger.engine.fleet.trigger import placement_changed
from wharfinger.events.capacity import DeviceTotals
from wharfinger.events.decisions import Explanation, FailoverSets
from wharfinger.rules.clusters.filters import FILTERS, all_refusals, first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.stages.fleet.explain import LIMIT, bounded

ANYWHERE = ClusterQuery(
    Placement(spread=(SpreadConstraint("region", max_groups=1),)),
    ClusterAffinity(),
    "apps/v1/Deployment",
)


def test_every_filter_speaks_and_the_first_is_the_reason() -> None:
    question = ClusterQuery(
        ANYWHERE.placement,
        ClusterAffinity(exclude=("a",)),
        ANYWHERE.gvk,
        ("a",),
        ("a",),
        (),
        ("a",),
    )
    worst = Cluster("a", taints=(Taint("k", "NoSchedule"),), api_kinds=(), deleting=True)
    found = all_refusals(question, worst)
    assert found == [rule.reason for rule in FILTERS if rule.reason in found]
    assert found == [
        "ClusterDeleting",
        "ClusterSilent",
        "ClusterAffinity",
        "TaintToleration",
        "APIEnablement",
        "SpreadConstraint",
        "WorkloadAffinity",
        "WorkloadAntiAffinity",
        "Evicted",
    ]
    assert first_refusal(question, worst) == "ClusterDeleting"


def test_what_holds_replicas_already_passes_where_newcomers_do_not() -> None:
    question = ClusterQuery(Placement(), ClusterAffinity(), ANYWHERE.gvk, ("a",))
    held = Cluster("a", taints=(Taint("k", "NoExecute"),), api_kinds=())
    assert first_refusal(question, held, existing=True) is None
    assert first_refusal(question, held) == "ClusterSilent"


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        (Requirements({"cpu": 1000}), 5),
        (Requirements({"cpu": 0}), 7),
        (Requirements({"cpu": 1000, "example.com/absent": 1}), 0),
        (Requirements({}, (DeviceRequest(1, 250),)), 6),
        (Requirements({}, (DeviceRequest(2),)), 0),
        (Requirements({}, (DeviceRequest(1, models=("A",)),)), 1),
        (Requirements({}, (DeviceRequest(1, models=("B",)),)), 0),
    ],
)
def test_totals_are_divided_by_the_scarcest_request(request_: Requirements, fits: int) -> None:
    room = room_of_count({"cpu": 5500, "pods": 7}, (DeviceTotals("nvidia.com/gpu", "A", 1, 1500),))
    assert room.fits(demand_of(request_)) == fits


def test_what_was_taken_is_no_longer_free() -> None:
    room = room_of_count({"cpu": 5500}, (DeviceTotals("nvidia.com/gpu", "A", 2, 2000),))
    gpu = demand_of(Requirements({"cpu": 500}, (DeviceRequest(1, 500),)))
    room.take(gpu, 3)
    assert room.fits(gpu) == 1
    assert room.fits(demand_of(Requirements({"cpu": 1000}))) == 4
    assert room.fits(demand_of(Requirements({}, (DeviceRequest(1),)))) == 0
    assert room.fits(demand_of(Requirements())) == NO_BOUND


def test_a_summary_is_allocatable_less_allocated_and_allocating_and_never_debt() -> None:
    room = room_of_summary(
        ResourceSummary({"cpu": 4000, "memory": 10}, {"cpu": 1000, "memory": 99}, {"cpu": 500})
    )
    assert room.left == {"cpu": 2500, "memory": 0}


def test_the_roomiest_clusters_are_swapped_in_until_they_hold_what_is_wanted() -> None:
    ranked = rank(
        [ClusterCandidate("used", 100, 2), ClusterCandidate("a", 0, 3), ClusterCandidate("b", 0, 9)]
    )
    one = (SpreadConstraint("cluster", min_groups=1, max_groups=1),)
    divided = select(
        ranked, Placement(spread=one, replicas=ReplicaScheduling("Divided", "Aggregated")), 5
    )
    duplicated = select(ranked, Placement(spread=one), 5)
    assert isinstance(divided, list)
    assert isinstance(duplicated, list)
    assert [c.name for c in divided] == ["b"]
    assert [c.name for c in duplicated] == ["used"], "Duplicated is limited by rank alone"


def test_the_search_over_regions_ends_however_many_there_are() -> None:
    groups = [
        SpreadGroup(f"r{i:04d}", i, (ClusterCandidate(f"c{i:04d}", 0, 1, f"r{i:04d}"),))
        for i in range(1500)
    ]
    assert len(best_regions(groups, 2, 1500, 1400)) == 1400
    assert best_regions(groups, 2, 0, 1) == []
    assert best_regions(groups, 1501, 2000, 1) == []


def test_a_placement_has_changed_only_if_the_term_in_force_has() -> None:
    near, far = ClusterAffinity("near", ("a",)), ClusterAffinity("far", ("b",))
    assert not placement_changed(Placement((near, far)), Placement((far, near)), "near")
    assert not placement_changed(Placement((near, far)), Placement((near,)), "near")
    assert placement_changed(Placement((near, far)), Placement((far,)), "near")


def test_replicas_have_changed_when_the_sum_or_with_duplicates_any_count_is_another() -> None:
    assert not replicas_changed({"a": 2, "b": 1}, 3, duplicated=False)
    assert replicas_changed({"a": 2, "b": 1}, 3, duplicated=True)


@pytest.mark.parametrize("letter", ["a", "ø", "\x00", "🜁"])
def test_an_explanation_is_at_most_two_kibibytes_whatever_the_clusters_are_called(
    letter: str,
) -> None:
    for length in (1, 10, 20, 60, 253, 5000):
        names = tuple(letter * length + str(i) for i in range(4))
        explanation = Explanation(
            2**31,
            2**31,
            {rule.reason: 2**31 for rule in FILTERS},
            note=letter * length,
            why=letter * length,
            best=dict.fromkeys(names[:2], 2**31 - 1),
        )
        failed_over = msgspec.structs.replace(
            explanation, failover=FailoverSets(names, names, names, names, (2**31,) * 4)
        )
        for one in (explanation, failed_over):
            assert len(canonical(bounded(one))) <= LIMIT
            if length == 1:
                assert bounded(one) == one


def test_a_summary_counts_whole_devices_under_their_kind() -> None:
    summary = ResourceSummary(
        {"cpu": 64_000, "nvidia.com/gpu": 16}, {"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 1}
    )
    room = room_of_summary(summary)
    four = demand_of(Requirements({"cpu": 1_000}, (DeviceRequest(4),)))
    assert room.fits(four) == 3
    room.take(four, 2)
    assert room.fits(four) == 1
    # Which models there are the summary does not say: the cluster stage refuses where they are
    # others.
    assert room.fits(demand_of(Requirements({}, (DeviceRequest(1, models=("A100",)),)))) == 4
    half = demand_of(Requirements({}, (DeviceRequest(1, 500),)))
    assert room.fits(half) == 8
    room.take(half, 1)
    assert (room.fits(half), room.fits(four)) == (7, 0)
    assert room.fits(demand_of(Requirements({}, (DeviceRequest(1, kind="amd.com/gpu"),)))) == 0
    assert room_of_summary(ResourceSummary({"cpu": 64_000})).fits(four) == 0


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        ({}, {"a": 3, "b": 3, "c": 3}),
        ({"b": 1}, {"a": 4, "b": 1, "c": 4}),
        ({"b": 1, "c": 3}, {"a": 5, "b": 1, "c": 3}),
        ({"b": 0, "c": 4}, {"a": 5, "c": 4}),
        ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_static_weights_raise_no_silent_cluster(
    silent: dict[str, int], expected: dict[str, int]
) -> None:
    """Nine replicas, equal weights, and capacity everywhere. What one silent cluster does not get
    must not go to another one."""
    clusters = [Cluster(name) for name in "abc"]
    placement = Placement(
        replicas=ReplicaScheduling(
            "Divided",
            static=tuple(StaticWeight(ClusterAffinity(cluster_names=(name,)), 1) for name in "abc"),
        ),
        strict=True,
    )
    question, term = all_admitted(
        Asked(placement, "apps/v1/Deployment", 9, silent), clusters, dict.fromkeys("abc", 100)
    )
    question = msgspec.structs.replace(question, silent=frozenset(silent))
    assert dict(decide_term(question, term).answer.targets) == expected
