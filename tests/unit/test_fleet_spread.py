"""Spread as policies say it: by zone, provider, label, alone and together, and the sentences that
say which bound is too tight."""

from __future__ import annotations

import pytest

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, ReplicaScheduling, SpreadConstraint
from wharfinger.engine.fleet.candidates import (
    LOCALITY,
    ClusterCandidate,
    Unselectable,
    groups_of,
    rank,
)
from wharfinger.engine.fleet.select import SpreadGroup as Region
from wharfinger.engine.fleet.select import best_regions, select
from wharfinger.engine.fleet.spread_floor import broken, keep_spread

AGGREGATED = ReplicaScheduling("Divided", "Aggregated")
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)


def by(field: str, least: int = 0, most: int = 0) -> SpreadConstraint:
    return SpreadConstraint(field, min_groups=least, max_groups=most)


def by_label(label: str, least: int = 0, most: int = 0) -> SpreadConstraint:
    return SpreadConstraint(label=label, min_groups=least, max_groups=most)


def over(
    *spread: SpreadConstraint, replicas: ReplicaScheduling = DYNAMIC, strict: bool = False
) -> Placement:
    return Placement(spread=spread, replicas=replicas, strict=strict)


def a_cluster(
    name: str, room: int, *zones: str, provider: str = "", held: bool = False, **labels: str
) -> ClusterCandidate:
    """The region is the zone's name without its last letter."""
    region = zones[0][:-1] if zones else ""
    facts = Cluster(name, labels, provider, region, zones)
    return ClusterCandidate(name, LOCALITY if held else 0, room, region, 0, facts)


def chosen(
    placement: Placement, replicas: int, *clusters: ClusterCandidate, fresh: bool = False
) -> list[str]:
    found = select(rank(clusters), placement, replicas, fresh=fresh)
    assert isinstance(found, list), found
    return sorted(c.name for c in found)


def refused(placement: Placement, replicas: int, *clusters: ClusterCandidate) -> str:
    found = select(rank(clusters), placement, replicas)
    assert isinstance(found, Unselectable), found
    return found.note


NORTH = (
    a_cluster("oslo", 9, "north-a", provider="fjord", tier="gold"),
    a_cluster("bergen", 7, "north-b", provider="fjord", tier="gold"),
    a_cluster("tromso", 5, "north-b", provider="ice", tier="tin"),
)
SOUTH = (
    a_cluster("rome", 6, "south-a", provider="sun", tier="gold"),
    a_cluster("naples", 2, "south-b", provider="sun", tier="tin"),
)
ALL = (*NORTH, *SOUTH)


@pytest.mark.parametrize(
    ("constraint", "names"),
    [
        (by("zone", 1, 1), ["bergen", "tromso"]),
        (by("provider", 1, 1), ["bergen", "oslo"]),
        (by_label("tier", 1, 1), ["bergen", "oslo", "rome"]),
        (by("region", 1, 1), ["bergen", "oslo", "tromso"]),
        (by("cluster", 1, 2), ["bergen", "oslo"]),
        (by("zone", 4), ["bergen", "naples", "oslo", "rome", "tromso"]),
    ],
)
def test_any_field_chooses_alone(constraint: SpreadConstraint, names: list[str]) -> None:
    assert chosen(over(constraint), 10, *ALL) == names


def test_region_zone_and_cluster_hold_together() -> None:
    placement = over(by("region", 2, 2), by("zone", 3, 4), by("cluster", 3, 4))
    names = chosen(placement, 20, *ALL)
    facts = [c.facts for c in ALL if c.name in names and c.facts is not None]
    assert broken(placement.spread, facts, 20) == ""
    assert sum(c.available for c in ALL if c.name in names) >= 20


def test_a_group_without_room_for_the_replicas_is_not_chosen_when_another_has_it() -> None:
    clusters = [a_cluster("a", 3, "one-a"), a_cluster("b", 3, "one-b"), a_cluster("c", 5, "two-a")]
    assert chosen(over(by("region", 1, 1)), 6, *clusters) == ["a", "b"]
    assert chosen(over(by("region", 1, 2), by("cluster", 1, 2)), 8, *clusters) in (
        ["a", "c"],
        ["b", "c"],
    )


def test_regions_are_dropped_rather_than_clusters_exceeded() -> None:
    three = [a_cluster(f"c{i}", 10, f"r{i}-a") for i in range(3)]
    assert len(chosen(over(by("region", 1, 3), by("cluster", 1, 2)), 5, *three)) <= 2
    assert (
        len(chosen(over(by("region", 3, 3), by("cluster", 1, 2), strict=True), 5, *three)) == 3
    ), "as Karmada does"
    note = refused(over(by("region", 3, 3), by("cluster", 1, 2)), 5, *three)
    assert note == "at most 2 clusters cannot spread over at least 3 regions"


def test_a_binding_stays_in_its_groups_when_others_have_become_roomier() -> None:
    held = [a_cluster("a", 3, "one-a", held=True), a_cluster("b", 3, "two-a", held=True)]
    new = [a_cluster("c", 90, "three-a"), a_cluster("d", 90, "four-a"), a_cluster("e", 3, "one-b")]
    placement = over(by("region", 2, 2))
    assert chosen(placement, 8, *held, *new) == ["a", "b", "e"]
    assert chosen(placement, 8, *held, *new, fresh=True) == ["a", "d", "e"], (
        "region two holds less than its share"
    )


def test_a_binding_that_outgrows_its_groups_leaves_as_few_as_it_must() -> None:
    held = [a_cluster("a", 4, "one-a", held=True), a_cluster("b", 6, "two-a", held=True)]
    new = [a_cluster("c", 90, "three-a"), a_cluster("d", 95, "four-a")]
    names = chosen(over(by("region", 2, 2)), 50, *held, *new)
    assert names == ["b", "d"], "one of the two stays"


@pytest.mark.parametrize(
    ("placement", "note"),
    [
        (over(by("region", 3)), "spread over at least 3 regions, 2 feasible"),
        (over(by_label("tier", 3)), "spread over at least 3 values of label tier, 2 feasible"),
        (
            over(by("zone", 1, 1)),
            "no choice of 1 to 1 zones holds 14 replicas: the roomiest 1 zones hold 12",
        ),
        (
            over(by("zone", 0, 3), by("cluster", 1, 1)),
            (
                "no choice of at most 3 zones in 1 to 1 clusters holds 14 replicas: "
                "the roomiest 1 clusters hold 9"
            ),
        ),
        (
            over(by("region", 1, 1), by("zone", 3)),
            "no choice of 1 to 1 regions in at least 3 zones holds 14 replicas",
        ),
    ],
)
def test_a_refusal_says_which_constraint_is_in_the_way(placement: Placement, note: str) -> None:
    assert refused(placement, 14, *ALL) == note


def test_groups_that_cross_are_refused_as_not_found() -> None:
    clusters = [a_cluster("a", 9, "one-a", tier="x"), a_cluster("b", 9, "two-a", tier="x")]
    clusters += [a_cluster("c", 9, "one-a", tier="y"), a_cluster("d", 9, "one-b", tier="y")]
    placement = over(by("region", 2, 2), by_label("tier", 2, 2), by("cluster", 2, 2))
    assert set(chosen(placement, 4, *clusters)) in ({"b", "c"}, {"b", "d"})
    note = refused(
        over(by("region", 2, 2), by_label("tier", 2, 2), by("cluster", 2, 2)), 19, *clusters
    )
    assert note.endswith("the roomiest 2 clusters hold 18")


def test_where_all_replicas_fit_nowhere_the_division_says_so() -> None:
    assert len(chosen(over(by("region", 2, 2)), 1_000, *ALL)) == len(ALL)


def test_a_cluster_over_several_zones_counts_for_one_of_them() -> None:
    wide = a_cluster("wide", 9, "one-a", "one-b")
    narrow = a_cluster("narrow", 9, "one-a")
    assert chosen(over(by("zone", 2, 2)), 4, wide, narrow) == ["narrow", "wide"]
    assert refused(over(by("zone", 2)), 4, wide) == "spread over at least 2 zones, 1 feasible"
    assert (
        broken((by("zone", 3),), [c.facts for c in (wide, narrow) if c.facts], 9)
        == "2 by zone, 3 to any wanted"
    )
    assert broken((by("zone", 1, 1),), [c.facts for c in (wide, narrow) if c.facts], 9) == "", (
        "both may count for one-a"
    )


def test_clusters_over_the_same_zones_may_count_for_one_where_one_is_all_there_may_be() -> None:
    placement = over(by("zone", 1, 1))
    held = [
        a_cluster("a", 5, "one-a", "one-b", held=True),
        a_cluster("b", 5, "one-a", "one-b", held=True),
    ]
    assert chosen(placement, 9, *held) == ["a", "b"]
    assert chosen(placement, 4, *held, a_cluster("c", 90, "one-b")) == ["a", "b", "c"], (
        "nobody moves"
    )
    assert refused(placement, 11, *held, a_cluster("d", 6, "two-a")).startswith(
        "no choice of 1 to 1 zones holds 11"
    )


def test_a_cluster_in_no_group_is_never_chosen() -> None:
    bare = a_cluster("bare", 50)
    assert groups_of(bare.facts or Cluster("bare"), by("zone")) == ()
    assert chosen(over(by("zone", 1)), 4, bare, *SOUTH) == ["naples", "rome"]


def test_aggregated_replicas_go_to_every_group_that_is_needed() -> None:
    placement = over(by("zone", 3), replicas=AGGREGATED)
    assert keep_spread(placement, rank(ALL), {"oslo": 9}, {}) == {"oslo": 7, "bergen": 1, "rome": 1}
    assert keep_spread(placement, rank(ALL), {"oslo": 2}, {}) == {"oslo": 1, "bergen": 1}, (
        "as many as there are replicas"
    )
    assert keep_spread(over(by("zone", 3), strict=True), rank(ALL), {"oslo": 9}, {}) == {"oslo": 9}


def test_what_is_new_is_moved_before_what_lay_there() -> None:
    placement = over(by("zone", 3))
    given = {"oslo": 5, "bergen": 4}
    assert keep_spread(placement, rank(ALL), given, {"oslo": 5, "bergen": 1}) == {
        "oslo": 5,
        "bergen": 3,
        "rome": 1,
    }


def test_a_cluster_with_a_least_of_replicas_gets_that_many_or_none() -> None:
    placement = over(by("region", 2))
    assert keep_spread(placement, rank(ALL), {"oslo": 9}, {}, {"rome": 4}) == {
        "oslo": 8,
        "naples": 1,
    }
    assert keep_spread(placement, rank(NORTH + SOUTH[:1]), {"oslo": 9}, {}, {"rome": 4}) == {
        "oslo": 5,
        "rome": 4,
    }
    assert keep_spread(placement, rank(ALL), {"oslo": 3}, {}, {"oslo": 3}) == {
        "rome": 1,
        "bergen": 2,
    }


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("replicas", [-1, 0, 1, 100_000, 2**62])
@pytest.mark.parametrize("bound", [0, 1, 2**31 - 1, 2**62])
def test_absurd_numbers_are_chosen_by_or_refused(strict: bool, replicas: int, bound: int) -> None:
    for field in ("cluster", "region", "zone"):
        for least in (0, bound):
            placement = over(by(field, least, bound), by("cluster", least, 2**40), strict=strict)
            found = select(rank(ALL), placement, replicas)
            assert found if isinstance(found, list) else found.note


def test_two_hundred_regions_are_searched() -> None:
    """Karmada's search would look at some 2^199 sets."""
    regions = [
        Region(
            f"r{i:03d}",
            1000 + i % 7,
            tuple(ClusterCandidate(f"c{i}-{j}", 0, 1) for j in range(1 + i % 4)),
        )
        for i in range(200)
    ]
    best = best_regions(regions, 2, 200, 300)
    assert sum(len(g.members) for g in best) >= 300
    assert sum(len(g.members) for g in best[:-1]) < 300 or len(best) == 2
