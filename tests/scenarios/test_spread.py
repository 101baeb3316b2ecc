"""Spread over zones, providers and labels, told as stories of the fleet stage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    NO_EXECUTE,
    FleetPlane,
    a_binding,
    eviction,
    fresh,
    room,
)

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, ReplicaScheduling, SpreadConstraint
from wharfinger.events.clusters import ClusterObserved
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.trace import FleetTrace, trace


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    """Every story ends with its history gone through again. Two zones in the north, one in the
    south, much room in the first."""
    plane = FleetPlane()
    plane.given(
        in_zone("oslo", "north-a"),
        in_zone("bergen", "north-b"),
        in_zone("rome", "south-a", tier="gold"),
    )
    plane.given(room("oslo", 20), room("bergen", 6), room("rome", 4))
    yield plane
    plane.check()


def in_zone(name: str, *zones: str, **labels: str) -> ClusterObserved:
    return ClusterObserved(Cluster(name, labels, region=zones[0][:-2], zones=zones))


def over(
    field: str = "",
    least: int = 0,
    most: int = 0,
    how: ReplicaScheduling = AGGREGATED,
    label: str = "",
) -> Placement:
    return Placement(spread=(SpreadConstraint(field, label, least, most),), replicas=how)


def traced(plane: FleetPlane, binding: str) -> FleetTrace:
    record = plane.state.bindings[binding]
    found = trace(plane.state, record, question_of(plane.state, record, {}))
    assert found is not None
    return found


def test_a_zone_that_is_wanted_gets_a_replica_however_few_clusters_would_do(
    plane: FleetPlane,
) -> None:
    plane.when(a_binding("web", 5, placement=over("zone", 2)))
    plane.then_scheduled("web", oslo=4, bergen=1)


def test_a_binding_that_shrinks_keeps_its_zones_as_long_as_it_has_replicas_for_them(
    plane: FleetPlane,
) -> None:
    plane.when(a_binding("web", 9, placement=over("zone", 3, how=DYNAMIC)))
    plane.then_scheduled("web", oslo=6, bergen=2, rome=1)
    plane.when(a_binding("web", 3, placement=over("zone", 3, how=DYNAMIC)))
    plane.then_scheduled("web", oslo=1, bergen=1, rome=1)
    plane.when(a_binding("web", 2, placement=over("zone", 3, how=DYNAMIC)))
    assert sum(plane.holds("web").values()) == len(plane.holds("web")) == 2


def test_a_binding_stays_in_its_zones_when_it_grows(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 4, placement=over("zone", 1, 1)))
    plane.then_scheduled("web", oslo=4)
    plane.given(in_zone("paris", "west-a"))
    plane.given(room("paris", 500))
    plane.when(a_binding("web", 9, placement=over("zone", 1, 1)))
    plane.then_scheduled("web", oslo=9)
    plane.when(fresh("web"))
    assert plane.holds("web") == {"oslo": 9}, (
        "one zone holds all of it as well as the other, and moving costs"
    )


def test_a_binding_that_outgrows_its_zone_goes_where_all_of_it_fits(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 4, placement=over("zone", 1, 1)))
    plane.given(in_zone("paris", "west-a"))
    plane.given(room("paris", 500))
    plane.when(a_binding("web", 50, placement=over("zone", 1, 1)))
    plane.then_scheduled("web", paris=50)


def test_a_zone_that_lost_its_cluster_is_made_good_in_another(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 6, placement=over("zone", 2, 2)))
    plane.then_scheduled("web", oslo=5, bergen=1)
    plane.given(
        ClusterObserved(Cluster("bergen", region="north", zones=("north-b",), taints=(NO_EXECUTE,)))
    )
    plane.when(eviction("web", "bergen"))
    plane.then_scheduled("web", oslo=5, rome=1)


def test_too_few_zones_are_refused_until_there_is_one_more(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 5, placement=over("zone", 4)))
    refused = plane.then_refused("web", "SpreadConstraint")
    assert refused.explanation.note == "spread over at least 4 zones, 3 feasible"
    assert any(
        way[0].text == "minGroups 3 instead of 4 by zone" for way in traced(plane, "web").ways
    )
    plane.given(in_zone("paris", "west-a"))
    plane.when(room("paris", 1))
    plane.then_scheduled("web", oslo=2, bergen=1, rome=1, paris=1)


def test_a_label_spreads_and_clusters_without_it_are_not_asked(plane: FleetPlane) -> None:
    plane.given(in_zone("naples", "south-b", tier="tin"))
    plane.given(room("naples", 9))
    plane.when(a_binding("web", 2, placement=over(label="tier", least=2, how=DUPLICATED)))
    plane.then_scheduled("web", naples=2, rome=2)


def test_the_groups_of_every_constraint_are_shown(plane: FleetPlane) -> None:
    spread = (
        SpreadConstraint("region", min_groups=1, max_groups=1),
        SpreadConstraint("zone", min_groups=2),
    )
    plane.when(a_binding("web", 8, placement=Placement(spread=spread, replicas=AGGREGATED)))
    plane.then_scheduled("web", oslo=7, bergen=1)
    selection = traced(plane, "web").term.selection
    assert selection is not None
    assert {(g.by, g.name, g.chosen) for g in selection.groups} == {
        ("region", "north", True),
        ("region", "south", False),
        ("zone", "north-a", True),
        ("zone", "north-b", True),
        ("zone", "south-a", False),
    }
