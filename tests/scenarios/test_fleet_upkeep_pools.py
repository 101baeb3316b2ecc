"""One plan over the node pools of many clusters: free room first, then what can be made, where it
is cheapest. Told as stories."""

from __future__ import annotations

from collections.abc import Iterator

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
    room,
    static,
)

from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.decisions import ScheduleRefused

KEY = SMALL.class_key


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def pools(
    cluster: str, free: int, made: int, price: int, fleet: int = 0, own: int = 0
) -> CapacityEstimated:
    """Room for `free` replicas, and for `made` more on nodes that could be made, `price` each."""
    return msgspec.structs.replace(
        room(cluster, free, fleet=fleet, own=own), provisionable={KEY: made}, price_of={KEY: price}
    )


def three_clusters(plane: FleetPlane) -> None:
    """alta is dear, bergen cheap; oslo has no pools."""
    plane.given(a_cluster("alta"), a_cluster("bergen"), a_cluster("oslo"))
    plane.given(pools("alta", 2, 100, 90), pools("bergen", 1, 5, 30), room("oslo", 3))


def test_what_is_free_is_used_first_and_then_the_cheapest_pools(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 6))
    assert plane.then_scheduled("web", alta=2, bergen=1, oslo=3).explanation.note == ""
    assert plane.estimated_by("web")["bergen"] == "pools"
    plane.when(a_binding("api", 4))
    decided = plane.then_scheduled("api", bergen=4)
    assert decided.explanation.note == "4 replicas wait for new nodes in bergen"
    assert decided.explanation.best["bergen"] == 4
    plane.when(a_binding("db", 3))
    plane.then_scheduled("db", alta=2, bergen=1)


def test_aggregated_bindings_do_so_too_and_scale_there(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 8, AGGREGATED))
    plane.then_scheduled("web", alta=2, bergen=3, oslo=3)
    plane.when(a_binding("web", 20, AGGREGATED))
    plane.then_scheduled("web", alta=11, bergen=6, oslo=3)


def test_more_than_can_be_made_waits_and_comes_when_more_can(plane: FleetPlane) -> None:
    plane.given(a_cluster("bergen"), pools("bergen", 0, 5, 30))
    plane.when(a_binding("web", 6))
    plane.then_refused("web", "Unschedulable")
    plane.when(pools("bergen", 0, 5, 40))
    plane.then_nothing()
    plane.when(pools("bergen", 0, 6, 40))
    plane.then_scheduled("web", bergen=6)


def test_a_refusal_closes_the_class_there_and_it_goes_where_it_still_can(plane: FleetPlane) -> None:
    three_clusters(plane)
    plane.when(a_binding("web", 10))
    plane.then_scheduled("web", alta=2, bergen=5, oslo=3)
    plane.when(plane.refused("bergen", "web", 4))
    plane.then_scheduled("web", alta=6, bergen=1, oslo=3)
    plane.when(pools("bergen", 0, 5, 30, fleet=9))
    plane.when(a_binding("api", 2))
    plane.then_scheduled("api", alta=2)
    plane.given(pools("bergen", 0, 5, 30, fleet=9, own=1))
    plane.when(a_binding("db", 2))
    plane.then_scheduled("db", bergen=2)


def test_a_spread_is_kept_though_one_cluster_would_be_cheaper(plane: FleetPlane) -> None:
    three_clusters(plane)
    spread = Placement(
        spread=(SpreadConstraint("cluster", min_groups=2, max_groups=2),), replicas=DYNAMIC
    )
    plane.when(a_binding("web", 40, placement=spread))
    decided = plane.schedule("web")
    assert not isinstance(decided, ScheduleRefused), decided
    assert len(decided.targets) == 2
    assert sum(t.replicas for t in decided.targets) == 40


def test_fixed_shares_and_copies_that_wait_for_room_come_with_pools(plane: FleetPlane) -> None:
    plane.given(a_cluster("alta"), a_cluster("bergen"), room("alta", 3), room("bergen", 0))
    for name, how in (("copy", DUPLICATED), ("fixed", static(alta=1, bergen=1))):
        plane.given(a_binding(name, 2, how))
        assert plane.holds(name).get("bergen", 0) == 0
    assert plane.holds("fixed") == {"alta": 1}
    plane.when(pools("bergen", 0, 20, 30, fleet=99, own=99))
    assert plane.holds("copy") == {"alta": 2, "bergen": 2}
    assert plane.holds("fixed") == {"alta": 1, "bergen": 1}


def test_done_strictly_nothing_is_asked_of_pools(plane: FleetPlane) -> None:
    kinds = ("apps/v1/Deployment",)
    observed = a_cluster("bergen")
    plane.given(
        msgspec.structs.replace(
            observed, cluster=msgspec.structs.replace(observed.cluster, api_kinds=kinds)
        )
    )
    plane.given(pools("bergen", 1, 5, 30))
    plane.when(a_binding("web", 3, placement=Placement(replicas=DYNAMIC, strict=True)))
    plane.then_refused("web", "Unschedulable")


def test_a_cluster_that_is_silent_makes_nothing(plane: FleetPlane) -> None:
    plane.given(
        a_cluster("alta", lease_s=9999),
        a_cluster("bergen", lease_s=60),
        a_cluster("oslo", lease_s=9999),
    )
    plane.given(pools("alta", 0, 5, 90), pools("bergen", 0, 5, 30))
    plane.wait(61)
    plane.when(a_binding("web", 2))
    plane.then_scheduled("web", alta=2)


def test_what_was_decided_is_not_promised_twice_before_it_is_counted(plane: FleetPlane) -> None:
    plane.given(a_cluster("bergen"), pools("bergen", 1, 5, 30))
    plane.when(*(a_binding(f"web-{i}", 2) for i in range(4)))
    assert sum(sum(plane.holds(f"web-{i}").values()) for i in range(4)) == 6
