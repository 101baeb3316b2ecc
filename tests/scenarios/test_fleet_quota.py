"""Quotas of namespaces, told as stories: what is refused, what stays, who is woken, and that
nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    failover,
    room,
    static,
    withdrawn,
)

from wharfinger.domain.binding import Component
from wharfinger.domain.policy import FederatedQuota, Policy
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import DeviceTotals
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.recover import recover
from wharfinger.stages.fleet import FleetDecider

KIND = "FederatedResourceQuota"


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    plane.given(a_cluster("oslo"), room("oslo", 100), a_cluster("bergen"), room("bergen", 100))
    yield plane
    plane.check()


def quota(namespace: str = "shop", name: str = "all", **overall: int) -> PolicyApplied:
    return PolicyApplied(
        Policy(KIND, name, namespace, quota=FederatedQuota(overall), manifest="{}")
    )


def no_quota(namespace: str = "shop", name: str = "all") -> PolicyRemoved:
    return PolicyRemoved(KIND, name, namespace)


def placed(plane: FleetPlane, name: str) -> int:
    """How many replicas the last round gave it in all."""
    decision = plane.schedule(name)
    assert isinstance(decision, ScheduleDecided), decision
    return sum(t.replicas for t in decision.targets)


def refused(plane: FleetPlane, name: str) -> int:
    """How many replicas it keeps though the last round refused it for its quota."""
    decision = plane.schedule(name)
    assert isinstance(decision, ScheduleRefused), decision
    assert decision.reason == "QuotaExceeded"
    return sum(t.replicas for t in decision.targets)


def test_more_than_is_left_is_refused_with_the_numbers_and_what_runs_stays(
    plane: FleetPlane,
) -> None:
    plane.given(quota(cpu=8000))
    plane.given(a_binding("shop/web", 5))
    assert placed(plane, "shop/web") == 5
    plane.when(a_binding("shop/db", 4))
    refusal = plane.then_refused("shop/db", "QuotaExceeded")
    assert refusal.explanation.note == "over the quota of shop: cpu 4 more, 3 of 8 left"
    plane.when(a_binding("shop/web", 9))
    assert refused(plane, "shop/web") == 5
    plane.when(a_binding("office/web", 50))
    assert placed(plane, "office/web") == 50


def test_what_is_given_back_wakes_who_waits_for_it_by_priority(plane: FleetPlane) -> None:
    plane.given(quota(cpu=8000))
    plane.given(a_binding("shop/web", 6))
    plane.when(a_binding("shop/small", 3), a_binding("shop/urgent", 5, priority=1))
    plane.when(a_binding("shop/web", 1))
    assert [(d.subject, d.outcome) for d in plane.last] == [
        ("shop/web", "scheduled"),
        ("shop/urgent", "scheduled"),
    ]
    plane.when(withdrawn("shop/web"))
    assert [(d.subject, d.outcome) for d in plane.last] == [
        ("shop/web", "released"),
        ("shop/small", "scheduled"),
    ]


def test_a_lowered_quota_takes_nothing_away_and_a_raised_one_wakes_who_waits(
    plane: FleetPlane,
) -> None:
    plane.given(quota(cpu=8000), a_binding("shop/web", 8))
    plane.when(quota(cpu=2000))
    plane.then_nothing()
    plane.when(a_binding("shop/web", 7))
    assert placed(plane, "shop/web") == 7
    plane.when(a_binding("shop/web", 8))
    assert refused(plane, "shop/web") == 7
    plane.when(quota(cpu=8000))
    assert placed(plane, "shop/web") == 8
    plane.when(a_binding("shop/db", 1))
    plane.then_refused("shop/db", "QuotaExceeded")
    plane.when(no_quota())
    assert placed(plane, "shop/db") == 1


def test_of_two_quotas_both_are_kept(plane: FleetPlane) -> None:
    plane.given(quota(cpu=8000), quota(name="memory", memory=4 << 30, cpu=9000))
    asks = Requirements({"cpu": 1000, "memory": 2 << 30})
    plane.when(room("oslo", 10, asks), a_binding("shop/web", 3, requirements=asks))
    assert "memory" in plane.then_refused("shop/web", "QuotaExceeded").explanation.note
    plane.when(a_binding("shop/web", 2, requirements=asks))
    plane.then_scheduled("shop/web", oslo=2)


def test_every_copy_of_a_duplicated_workload_counts(plane: FleetPlane) -> None:
    plane.given(quota(cpu=5000))
    plane.when(a_binding("shop/web", 3, DUPLICATED))
    plane.then_refused("shop/web", "QuotaExceeded")
    plane.when(a_binding("shop/web", 2, DUPLICATED))
    plane.then_scheduled("shop/web", bergen=2, oslo=2)


def test_replicas_that_ask_for_more_count_from_when_that_is_decided(plane: FleetPlane) -> None:
    plane.given(quota(cpu=6000), a_binding("shop/web", 3))
    large = Requirements({"cpu": 3000})
    plane.when(room("oslo", 10, large), a_binding("shop/web", 3, requirements=large))
    assert refused(plane, "shop/web") == 3
    plane.when(a_binding("shop/db", 4))
    plane.then_refused("shop/db", "QuotaExceeded")
    plane.when(a_binding("shop/db", 3))
    assert placed(plane, "shop/db") == 3


def test_devices_count_by_kind(plane: FleetPlane) -> None:
    gpus = Requirements({"cpu": 100}, (DeviceRequest(2),))
    plane.given(
        PolicyApplied(Policy(KIND, "all", "shop", quota=FederatedQuota({"nvidia.com/gpu": 3})))
    )
    for name in ("oslo", "bergen"):
        free = (DeviceTotals("nvidia.com/gpu", "T4", 18, 18_000),)
        plane.given(msgspec.structs.replace(room(name, 9, gpus), devices=free))
    plane.when(a_binding("shop/train", 2, static(oslo=1, bergen=1), requirements=gpus))
    assert refused(plane, "shop/train") == 0
    plane.when(a_binding("shop/train", 1, static(oslo=1, bergen=1), requirements=gpus))
    assert placed(plane, "shop/train") == 1


def test_a_set_of_components_counts_as_a_whole(plane: FleetPlane) -> None:
    parts = (
        Component("head", 1, Requirements({"cpu": 1000})),
        Component("worker", 2, Requirements({"cpu": 1500})),
    )
    told = a_binding("shop/ray", 0, AGGREGATED, requirements=Requirements())
    ray = BindingRequested(msgspec.structs.replace(told.binding, components=parts))
    plane.given(quota(cpu=3999))
    plane.when(ray)
    refusal = plane.then_refused("shop/ray", "QuotaExceeded")
    assert refusal.explanation.note == "over the quota of shop: cpu 4 more, 3999m of 3999m left"
    plane.when(quota(cpu=4000))
    plane.then_scheduled("shop/ray", bergen=0)
    plane.when(a_binding("shop/web", 1))
    plane.then_refused("shop/web", "QuotaExceeded")


def test_what_a_silent_cluster_holds_is_counted_once() -> None:
    plane = FleetPlane()
    plane.given(*(a_cluster(name, lease_s=60) for name in ("oslo", "bergen", "alta")))
    plane.given(
        room("oslo", 6),
        room("bergen", 0),
        room("alta", 0),
        quota(cpu=8000),
        a_binding("shop/web", 6),
    )
    plane.given(room("bergen", 9), room("alta", 9))
    for _ in range(2):
        plane.when(a_cluster("bergen", lease_s=60), a_cluster("alta", lease_s=60), after_s=40)
    plane.wait(1)
    plane.when(failover("shop/web", "oslo"))
    assert sum(plane.holds("shop/web").values()) == 12
    plane.when(a_binding("shop/db", 3))
    plane.then_refused("shop/db", "QuotaExceeded")
    plane.when(a_binding("shop/db", 2))
    assert placed(plane, "shop/db") == 2
    plane.when(a_cluster("oslo", lease_s=60))
    assert plane.holds("shop/web") == {"oslo": 6}
    plane.check()


def test_negative_limits_are_none_at_all(plane: FleetPlane) -> None:
    plane.given(quota(cpu=-1))
    plane.when(a_binding("shop/web", 1))
    plane.then_refused("shop/web", "QuotaExceeded")
    plane.when(a_binding("shop/web", 0))
    plane.then_scheduled("shop/web")


def test_several_shards_share_a_quota_so_that_together_they_keep_to_it() -> None:
    used = 0
    for shard in range(3):
        plane = FleetPlane(FleetDecider(shards=3))
        plane.state.stream = f"fleet/{shard}"
        plane.given(a_cluster("oslo"), room("oslo", 100), quota(cpu=9000))
        for number in range(8):
            plane.when(a_binding(f"shop/app-{number}", 1))
            used += sum(plane.holds(f"shop/app-{number}").values())
    assert used == 9
    assert FleetDecider(shards=3).profile == "fleet round-limit=500 shards=3"
    assert (
        FleetDecider.of_profile("fleet round-limit=500 shards=3").profile
        == "fleet round-limit=500 shards=3"
    )


sizes = st.integers(0, 6)
strategies = st.sampled_from((DYNAMIC, AGGREGATED, DUPLICATED))
happenings = st.one_of(
    st.builds(
        lambda name, n, how: a_binding(f"shop/{name}", n, how),
        st.sampled_from("abc"),
        sizes,
        strategies,
    ),
    st.builds(lambda n: quota(cpu=n * 1000), st.integers(-1, 12)),
    st.builds(lambda name: withdrawn(f"shop/{name}"), st.sampled_from("abc")),
    st.builds(
        lambda name, n: room(name, n), st.sampled_from(("oslo", "bergen")), st.integers(0, 10)
    ),
    st.just(no_quota()),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(happenings, min_size=1, max_size=3), max_size=12))
def test_no_decision_goes_beyond_the_quota_and_the_count_is_what_is_held(
    story: list[list[Value]],
) -> None:
    plane = FleetPlane()
    plane.given(a_cluster("oslo"), room("oslo", 9), a_cluster("bergen"), room("bergen", 9))
    for facts in story:
        before = used(plane)
        plane.when(*facts)
        limit = plane.state.quotas.limits("shop").get("cpu")
        now = used(plane)
        if limit is not None:
            assert now <= max(limit, before)
            assert plane.state.quotas.use("shop", plane.state.bindings).get("cpu", 0) == now
    plane.check()
    recovered = recover(plane.decider, plane.decider.initial(STREAM), plane.rounds)
    assert recovered.quotas.waiting == plane.state.quotas.waiting


def used(plane: FleetPlane) -> int:
    return sum(1000 * sum(record.targets.values()) for record in plane.state.bindings.values())
