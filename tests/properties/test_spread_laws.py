"""Laws of spread: what is chosen keeps every constraint and holds the replicas, whoever can be
found is found, what is held stays, and the search over regions gives the answer of the exhaustive
one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, ReplicaScheduling, SpreadConstraint
from wharfinger.engine.fleet import regions
from wharfinger.engine.fleet.candidates import gathered, homes
from wharfinger.engine.fleet.division import Shares, by_capacity
from wharfinger.engine.fleet.select import (
    LOCALITY,
    ClusterCandidate,
    SpreadGroup,
    Unselectable,
    best_regions,
    rank,
    select,
)
from wharfinger.engine.fleet.spread_floor import broken, keep_spread

HUNTING = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
AGGREGATED = ReplicaScheduling("Divided", "Aggregated")
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
DUPLICATED = ReplicaScheduling()


@dataclass(frozen=True)
class Fleet:
    clusters: list[Cluster]
    estimates: list[int]
    held: dict[str, int]

    def ranked(self) -> list[ClusterCandidate]:
        return rank(
            [
                ClusterCandidate(
                    c.name,
                    LOCALITY if c.name in self.held else 0,
                    fits + self.held.get(c.name, 0),
                    c.region,
                    0,
                    c,
                )
                for c, fits in zip(self.clusters, self.estimates, strict=True)
            ]
        )

    def facts(self, name: str) -> Cluster:
        return next(c for c in self.clusters if c.name == name)


def a_cluster(
    name: str, provider: int, region: int, zone: int, tier: int, *, crossing: bool
) -> Cluster:
    """Zones in regions in providers; or, `crossing`, each of them by itself."""
    labels = {"tier": str(tier)}
    if crossing:
        return Cluster(name, labels, f"p{provider}", f"r{region}", (f"z{zone}",))
    return Cluster(
        name, labels, f"p{provider}", f"r{provider}{region}", (f"z{provider}{region}{zone}",)
    )


@st.composite
def fleets(draw: st.DrawFn, crossing: bool, max_size: int = 8) -> Fleet:
    small = st.integers(0, 2)
    places = draw(
        st.lists(
            st.tuples(st.integers(0, 1), small, small, st.integers(0, 1)),
            min_size=1,
            max_size=max_size,
        )
    )
    clusters = [a_cluster(f"c{i}", *at, crossing=crossing) for i, at in enumerate(places)]
    estimates = draw(
        st.lists(
            st.sampled_from([0, 0, 1, 2, 5, 10]), min_size=len(clusters), max_size=len(clusters)
        )
    )
    held = draw(
        st.dictionaries(st.sampled_from([c.name for c in clusters]), st.integers(1, 4), max_size=4)
    )
    return Fleet(clusters, estimates, held)


@st.composite
def constraints(draw: st.DrawFn, crossing: bool) -> tuple[SpreadConstraint, ...]:
    fields = ["region", "zone", "provider", "cluster", *(["tier"] if crossing else [])]
    out = []
    for field in draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique=True)):
        least = draw(st.integers(0, 3))
        most = draw(st.one_of(st.just(0), st.integers(max(1, least), least + 2)))
        by = {"label": "tier"} if field == "tier" else {"field": field}
        out.append(SpreadConstraint(**by, min_groups=least, max_groups=most))
    return tuple(out)


strategies = st.sampled_from([AGGREGATED, DYNAMIC, DUPLICATED])
replicas_wanted = st.sampled_from([0, 1, 2, 3, 5, 10, 20])
nested = st.just(False)
either = st.booleans()


def keeps(chosen: Sequence[ClusterCandidate], placement: Placement, replicas: int) -> bool:
    """By definition, counted plainly; each cluster is in one group only."""
    divided = placement.replicas.type == "Divided" and replicas > 0
    for constraint in placement.spread:
        groups = {group(c.facts, constraint) for c in chosen if c.facts is not None}
        least = min(constraint.min_groups, replicas) if divided else constraint.min_groups
        if len(groups) < least or 0 < constraint.max_groups < len(groups):
            return False
    return not divided or sum(c.available for c in chosen) >= replicas


def group(cluster: Cluster, constraint: SpreadConstraint) -> str:
    return {
        "cluster": cluster.name,
        "region": cluster.region,
        "zone": "".join(cluster.zones),
        "provider": cluster.provider,
        "": cluster.labels["tier"],
    }[constraint.field]


def some_choice_keeps(fleet: Fleet, placement: Placement, replicas: int) -> bool:
    """Every set of clusters is looked at. As many groups as minGroups says must exist, however few
    replicas there are."""
    order = fleet.ranked()
    most = min(
        [c.max_groups for c in placement.spread if c.field == "cluster" and c.max_groups],
        default=len(order),
    )
    for constraint in placement.spread:
        there = {group(c, constraint) for c in fleet.clusters}
        if len(there) < constraint.min_groups or constraint.min_groups > most:
            return False
    divided = placement.replicas.type == "Divided" and replicas > 0
    usable = [c for c in order if c.available > 0] if divided else order
    return any(
        keeps(chosen, placement, replicas)
        for size in range(1, len(usable) + 1)
        for chosen in combinations(usable, size)
    )


def fits_at_all(fleet: Fleet, placement: Placement, replicas: int) -> bool:
    return (
        placement.replicas.type == "Duplicated"
        or sum(c.available for c in fleet.ranked()) >= replicas
    )


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), strategies, replicas_wanted, either, st.booleans())
def test_what_is_chosen_keeps_every_constraint_and_holds_the_replicas(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int, crossing: bool, fresh: bool
) -> None:
    fleet = data.draw(fleets(crossing))
    placement = Placement(spread=data.draw(constraints(crossing)), replicas=scheduling)
    chosen = select(fleet.ranked(), placement, replicas, fresh=fresh)
    if isinstance(chosen, Unselectable):
        assert chosen.note
    elif fits_at_all(fleet, placement, replicas):
        assert keeps(chosen, placement, replicas)


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), strategies, replicas_wanted, st.booleans())
def test_where_groups_lie_in_groups_a_choice_is_found_whenever_there_is_one(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int, fresh: bool
) -> None:
    fleet = data.draw(fleets(False))
    placement = Placement(spread=data.draw(constraints(False)), replicas=scheduling)
    chosen = select(fleet.ranked(), placement, replicas, fresh=fresh)
    if fits_at_all(fleet, placement, replicas):
        assert isinstance(chosen, list) == some_choice_keeps(fleet, placement, replicas)


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), st.sampled_from([AGGREGATED, DYNAMIC]), st.integers(1, 20), either, st.booleans())
def test_a_division_that_is_kept_spread_gives_every_group_that_is_needed_a_replica(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int, crossing: bool, fresh: bool
) -> None:
    fleet = data.draw(fleets(crossing))
    placement = Placement(spread=data.draw(constraints(crossing)), replicas=scheduling)
    chosen = select(fleet.ranked(), placement, replicas, fresh=fresh)
    if isinstance(chosen, Unselectable):
        return
    fits = dict(zip([c.name for c in fleet.clusters], fleet.estimates, strict=True))
    names = [c.name for c in chosen]
    aggregated = scheduling.preference == "Aggregated"
    shares = by_capacity(
        names, [fits[n] for n in names], fleet.held, replicas, aggregated=aggregated, fresh=fresh
    )
    if not isinstance(shares, Shares):
        assert not fits_at_all(fleet, placement, replicas)
        return
    kept = {} if fresh else {n: fleet.held.get(n, 0) for n in names}
    given_ = keep_spread(placement, chosen, shares.replicas, kept)
    assert sum(given_.values()) == replicas
    room = {c.name: c.available for c in chosen}
    assert all(0 < n <= room[name] for name, n in given_.items())
    if not crossing or replicas >= sum(max(1, c.min_groups) for c in placement.spread):
        assert broken(placement.spread, [fleet.facts(n) for n in given_], replicas) == ""
    if broken(placement.spread, [fleet.facts(n) for n in shares.replicas], replicas) == "":
        assert given_ == shares.replicas, "what keeps the spread by itself is left alone"


@settings(HUNTING, max_examples=examples(80))
@given(st.data(), strategies, replicas_wanted, either)
def test_the_order_in_which_clusters_come_changes_no_choice(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int, crossing: bool
) -> None:
    fleet = data.draw(fleets(crossing))
    placement = Placement(spread=data.draw(constraints(crossing)), replicas=scheduling)
    order = data.draw(st.permutations(range(len(fleet.clusters))))
    other = Fleet(
        [fleet.clusters[i] for i in order], [fleet.estimates[i] for i in order], fleet.held
    )
    assert select(fleet.ranked(), placement, replicas) == select(
        other.ranked(), placement, replicas
    )


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), st.sampled_from([AGGREGATED, DYNAMIC]), st.integers(0, 6), either)
def test_a_binding_that_keeps_its_constraints_stays_where_it_is(
    data: st.DataObject, scheduling: ReplicaScheduling, more: int, crossing: bool
) -> None:
    fleet = data.draw(fleets(crossing))
    placement = Placement(spread=data.draw(constraints(crossing)), replicas=scheduling)
    held = [c for c in fleet.ranked() if c.name in fleet.held]
    replicas = sum(fleet.held.values()) + more
    chosen = select(fleet.ranked(), placement, replicas)
    if held and keeps(held, placement, replicas) and isinstance(chosen, list):
        assert set(fleet.held) <= {c.name for c in chosen}


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), st.sampled_from([AGGREGATED, DYNAMIC]), st.integers(1, 20))
def test_the_best_of_what_is_held_is_kept_if_any_choice_keeps_it(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int
) -> None:
    fleet = data.draw(fleets(False))
    placement = Placement(spread=data.draw(constraints(False)), replicas=scheduling)
    order = fleet.ranked()
    chosen = select(order, placement, replicas)
    if (
        order[0].name not in fleet.held
        or not isinstance(chosen, list)
        or not fits_at_all(fleet, placement, replicas)
    ):
        return
    others = [c for c in order[1:] if c.available > 0]
    kept = any(
        keeps((order[0], *rest), placement, replicas)
        for size in range(len(others) + 1)
        for rest in combinations(others, size)
    )
    assert (order[0] in chosen) == kept


@settings(HUNTING, max_examples=examples(120))
@given(st.data(), st.sampled_from([AGGREGATED, DYNAMIC]), st.integers(1, 20))
def test_more_room_never_turns_success_into_a_refusal(
    data: st.DataObject, scheduling: ReplicaScheduling, replicas: int
) -> None:
    fleet = data.draw(fleets(False))
    placement = Placement(spread=data.draw(constraints(False)), replicas=scheduling)
    size = len(fleet.clusters)
    more = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    other = Fleet(
        fleet.clusters, [n + m for n, m in zip(fleet.estimates, more, strict=True)], fleet.held
    )
    before, after = (
        select(fleet.ranked(), placement, replicas),
        select(other.ranked(), placement, replicas),
    )
    if isinstance(before, list) and fits_at_all(fleet, placement, replicas):
        assert isinstance(after, list)


# --- clusters over several zones


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple), max_size=6))
def test_clusters_over_several_zones_count_for_as_many_zones_as_they_can(
    zones: list[tuple[str, ...]],
) -> None:
    found = homes(zones)
    assert all(home in own if own else home == "" for home, own in zip(found, zones, strict=True))
    assert len(set(found) - {""}) == most_zones(zones)
    for count in range(len(zones)):
        first = homes(zones[:count])
        assert len(set(found[:count]) - {""}) == len(set(first) - {""}), (
            "those who come later take nobody's zone"
        )


@settings(HUNTING)
@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple), max_size=6))
def test_gathered_clusters_count_for_zones_of_theirs_and_never_for_more_than_spread_ones(
    zones: list[tuple[str, ...]],
) -> None:
    found = gathered(zones)
    assert all(home in own if own else home == "" for home, own in zip(found, zones, strict=True))
    assert len(set(found)) <= len(set(homes(zones)))


def most_zones(zones: Sequence[tuple[str, ...]], taken: frozenset[str] = frozenset()) -> int:
    """Every way to let each cluster count for one of its zones."""
    if not zones:
        return len(taken)
    return max(
        [most_zones(zones[1:], taken | {zone}) for zone in zones[0]]
        or [most_zones(zones[1:], taken)]
    )


# --- the strict search over regions


def every_set(
    groups: Sequence[SpreadGroup], least: int, most: int, min_clusters: int
) -> list[SpreadGroup]:
    """The search as Karmada does it, set after set."""
    order = sorted(groups, key=lambda g: (len(g.members), -g.score, g.name))
    found: list[tuple[SpreadGroup, ...]] = []

    def extend(start: int, taken: tuple[SpreadGroup, ...]) -> None:
        for i in range(start, len(order)):
            more = (*taken, order[i])
            if len(more) >= least and sum(len(g.members) for g in more) >= min_clusters:
                found.append(more)
            elif len(more) < most:
                extend(i + 1, more)

    if most > 0:
        extend(0, ())
    # stable: then as found
    found.sort(key=lambda s: (-sum(g.score for g in s), -sum(len(g.members) for g in s)))
    listed = [sorted(s, key=lambda g: (-g.score, g.name)) for s in found]
    best = listed[0] if listed else []
    for other in listed:
        if len(other) < len(best) and best[: len(other)] == other:
            best = other
    return best


@st.composite
def region_sets(draw: st.DrawFn) -> list[SpreadGroup]:
    scores = st.one_of(st.sampled_from([0, 1000, 1100, 2000]), st.integers(-3, 5000))
    drawn = draw(st.lists(st.tuples(scores, st.integers(1, 5)), max_size=12))
    named = draw(st.permutations([f"r{i:02d}" for i in range(len(drawn))]))
    return [
        SpreadGroup(
            name, score, tuple(ClusterCandidate(f"{name}-{i}", 0, 1, name) for i in range(size))
        )
        for name, (score, size) in zip(named, drawn, strict=True)
    ]


@settings(HUNTING, max_examples=examples(250))
@given(region_sets(), st.integers(0, 6), st.integers(0, 12), st.integers(0, 16))
def test_the_table_of_regions_finds_what_the_exhaustive_search_finds(
    groups: list[SpreadGroup], least: int, most: int, min_clusters: int
) -> None:
    if most >= least:
        assert best_regions(groups, least, most, min_clusters) == every_set(
            groups, least, most, min_clusters
        )


@settings(HUNTING, max_examples=examples(80))
@given(region_sets(), st.integers(0, 6), st.integers(1, 12), st.integers(0, 16))
def test_few_states_one_by_one_are_as_many_at_once(
    groups: list[SpreadGroup], least: int, most: int, min_clusters: int
) -> None:
    sizes, scores = [len(g.members) for g in groups], [g.score for g in groups]
    few = regions.best_set(sizes, scores, least, most, min_clusters)
    limit, regions.FEW_STATES = regions.FEW_STATES, 0
    try:
        assert regions.best_set(sizes, scores, least, most, min_clusters) == few
    finally:
        regions.FEW_STATES = limit
