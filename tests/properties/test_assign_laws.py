"""Laws of one fleet decision: what is given sums up, fits, stays within its limits, and does not
depend on any order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.reference.karmada_cycle import Asked, Cycled, assigned, reconcile

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import (
    ANY_CLUSTER,
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.fleet.assign import ReplicaDivision, Unassignable
from wharfinger.engine.fleet.bounds import ReplicaBounds, Unbounded, divide
from wharfinger.engine.fleet.placement_errors import problem_of
from wharfinger.rules.clusters.affinity import in_force
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery

NAMES = ["oslo", "bergen", "narvik", "tromso", "bodo", "x" * 253]
KIND = "apps/v1/Deployment"
BY_ROOM = ("dynamic", "Aggregated")
KINDS = ("Duplicated", "static", *BY_ROOM)

numbers = st.one_of(st.integers(0, 5), st.integers(0, 40), st.sampled_from([0, 100_000, 2**31 - 1]))
replica_counts = st.one_of(st.integers(0, 8), st.integers(0, 60), st.sampled_from([0, 1, 100_000]))
some_names = st.lists(st.sampled_from(NAMES), max_size=4, unique=True).map(tuple)


@st.composite
def a_cluster(draw: st.DrawFn, name: str) -> Cluster:
    return Cluster(
        name,
        {"tier": draw(st.sampled_from(["gold", "silver"]))},
        region=draw(st.sampled_from(["", "north", "south"])),
        zones=draw(st.sampled_from([(), ("a",), ("a", "b")])),
        taints=draw(st.sampled_from([(), (), (Taint("k", "NoSchedule"),)])),
        api_kinds=draw(st.sampled_from([(KIND,), (KIND,), (KIND,), ()])),
        deleting=draw(st.integers(0, 9)) == 0,
    )


clusters_of = st.integers(1, len(NAMES)).flatmap(
    lambda n: st.tuples(*[a_cluster(name) for name in NAMES[:n]])
)


def affinity(name: str = "") -> st.SearchStrategy[ClusterAffinity]:
    return st.builds(
        ClusterAffinity,
        st.just(name),
        some_names,
        st.just(()),
        st.sampled_from([None, None, LabelSelector({"tier": "gold"})]),
    )


@st.composite
def a_limit(draw: st.DrawFn, cluster: str) -> ReplicaLimit:
    least = draw(st.integers(0, 4))
    return ReplicaLimit(
        cluster, least, draw(st.sampled_from([None, max(1, least), least + 2, least + 4]))
    )


@st.composite
def a_scheduling(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> ReplicaScheduling:
    kind = draw(st.sampled_from(kinds))
    if kind == "Duplicated":
        return ReplicaScheduling()
    limited = draw(
        st.lists(st.sampled_from([*NAMES[:3], "*"]), min_size=1, max_size=3, unique=True)
    )
    return ReplicaScheduling(
        "Divided",
        "Aggregated" if kind == "Aggregated" else "Weighted",
        tuple(
            StaticWeight(ClusterAffinity(cluster_names=(name,)), draw(st.integers(0, 4)))
            for name in draw(some_names)
            if kind == "static"
        ),
        kind == "dynamic",
        draw(st.sampled_from(["webster", "webster", "in-order"])),
        kind == "static" and draw(st.booleans()),
        tuple(draw(a_limit(cluster)) for cluster in limited) if draw(st.booleans()) else (),
    )


@st.composite
def a_placement(
    draw: st.DrawFn, kinds: tuple[str, ...] = KINDS, spread: bool = True, overflow: bool = True
) -> Placement:
    replicas = draw(a_scheduling(kinds))
    by_room = replicas.preference == "Aggregated" or replicas.dynamic
    terms: tuple[ClusterAffinity, ...] = ()
    match draw(st.integers(0, 2)):
        case 1:
            terms = (draw(affinity()),)
        case 2:
            terms = tuple(draw(affinity(name)) for name in ["near", "far"])
            if overflow and by_room and draw(st.booleans()):
                terms = (
                    msgspec.structs.replace(terms[0], overflow=(draw(affinity("next")),)),
                    *terms[1:],
                )
    by = (SpreadConstraint("cluster", "", 1, 3),), (SpreadConstraint("region", "", 1, 2),)
    constraints = draw(st.sampled_from([(), (), *by])) if spread else ()
    tolerations = draw(st.sampled_from([(), (Toleration("k", "Exists"),)]))
    return Placement(terms, tolerations, constraints, replicas, strict=draw(st.booleans()))


holdings = st.dictionaries(st.sampled_from([*NAMES, "gone"]), st.integers(0, 9), max_size=4)
rooms = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))


@st.composite
def an_asking(
    draw: st.DrawFn, placements: st.SearchStrategy[Placement] | None = None, fresh: bool = True
) -> Asked:
    return Asked(
        draw(a_placement() if placements is None else placements),
        KIND,
        draw(replica_counts),
        draw(holdings),
        draw(st.sampled_from(["", "near", "far", "gone"])),
        draw(st.integers(0, 9)) > 0,
        fresh and draw(st.booleans()),
        draw(st.sampled_from(["", "u1", "u2"])),
    )


def within(limits: tuple[ReplicaLimit, ...], cluster: str, replicas: int) -> bool:
    own = {limit.cluster: limit for limit in limits}
    limit = own.get(cluster, own.get("*", ReplicaLimit("*")))
    return limit.least <= replicas and (limit.most is None or replicas <= limit.most)


def cut_to_room(placement: Placement) -> bool:
    """Whether the strategy itself looks at no capacity, and is cut to what fits."""
    scheduling = placement.replicas
    return not placement.strict and (scheduling.weighed or scheduling.type == "Duplicated")


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(an_asking(), clusters_of, rooms)
def test_what_is_given_sums_up_and_lies_where_it_may(
    asked: Asked, clusters: tuple[Cluster, ...], estimates: dict[str, int]
) -> None:
    done = reconcile(asked, clusters, estimates)
    scheduling = asked.placement.replicas
    if done.condition != "Success":
        assert done.note
        if cut_to_room(asked.placement) and done.note.endswith("room in their clusters"):
            for name, n in done.clusters.items():
                assert n <= estimates[name] + asked.held.get(name, 0)
            assert scheduling.type == "Duplicated" or sum(done.clusters.values()) < asked.replicas
            return
        assert dict(done.clusters) in ({}, dict(asked.held))
        if done.clusters != asked.held:
            assert asked.placement.strict, "only as Karmada does it is anything taken away"
        return
    term = next((t for t in asked.placement.affinities if t.name == done.observed), None)
    term = term or next(iter(asked.placement.affinities), ANY_CLUSTER)
    question = ClusterQuery(asked.placement, in_force(term, asked.counted), KIND)
    facts = {c.name: c for c in clusters}
    for name in done.clusters:
        assert first_refusal(question, facts[name], name in asked.held) is None
    if not asked.counted:
        assert set(done.clusters.values()) <= {0}
    elif scheduling.type == "Duplicated":
        assert set(done.clusters.values()) <= {asked.replicas}
    else:
        assert sum(done.clusters.values()) == asked.replicas
        assert all(n > 0 for n in done.clusters.values())


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(an_asking(a_placement(("static", *BY_ROOM))), clusters_of, rooms)
def test_nobody_gets_more_than_fits_nor_what_its_limit_forbids(
    asked: Asked, clusters: tuple[Cluster, ...], estimates: dict[str, int]
) -> None:
    scheduling = asked.placement.replicas
    assume(asked.counted)
    done = reconcile(asked, clusters, estimates)
    assume(done.condition == "Success")
    for name, n in done.clusters.items():
        if (
            scheduling.dynamic
            or scheduling.preference == "Aggregated"
            or scheduling.within_capacity
        ):
            assert n <= estimates[name] + asked.held.get(name, 0)
        assert within(scheduling.limits, name, n)


@st.composite
def a_change(draw: st.DrawFn) -> tuple[Placement, list[int], dict[str, int], int]:
    """A binding that some clusters hold, and a number of replicas that is near what it has and what
    fits: placement with two overflow groups or none, room of each cluster, what is held,
    replicas."""
    scheduling = draw(a_scheduling(BY_ROOM))
    count = draw(st.integers(2, len(NAMES)))
    rooms_ = [draw(st.integers(0, 9)) for _ in range(count)]
    held = {name: draw(st.integers(0, 6)) for name in NAMES[:count] if draw(st.booleans())}
    held = {name: n for name, n in held.items() if n == 0 or within(scheduling.limits, name, n)}
    replicas = sum(held.values()) + draw(st.integers(-4, sum(rooms_)))
    tiers = [ClusterAffinity(f"tier{i}", (name,)) for i, name in enumerate(NAMES[:count])]
    term = (
        ClusterAffinity("near", tuple(NAMES[:1]), overflow=tuple(tiers[1:]))
        if draw(st.booleans())
        else ANY_CLUSTER
    )
    return Placement((term,), replicas=scheduling), rooms_, held, max(1, replicas)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(a_change(), st.sampled_from(["", "u1"]))
def test_growing_takes_nothing_away_and_shrinking_adds_nothing(
    change: tuple[Placement, list[int], dict[str, int], int], uid: str
) -> None:
    """Of what keeps its limits, whatever the tiers; not said of static weights, which are shared
    out again each time."""
    placement, rooms_, held, replicas = change
    clusters = [Cluster(name) for name in NAMES[: len(rooms_)]]
    room_of = {c.name: n for c, n in zip(clusters, rooms_, strict=True)}
    answer = assigned(
        Asked(placement, KIND, replicas, held, uid=uid), clusters, room_of, placement.affinities[0]
    )
    if isinstance(answer, Unassignable):
        limited = bool(placement.replicas.limits)
        assert answer.note
        assert limited or sum(rooms_) + sum(held.values()) < replicas, (
            "refused though there was room"
        )
        return
    assert sum(answer.replicas.values()) == replicas
    for name, fits in zip([c.name for c in clusters], rooms_, strict=True):
        n, before = answer.replicas.get(name, 0), held.get(name, 0)
        assert n <= before + fits
        assert n == 0 or within(placement.replicas.limits, name, n)
        if replicas >= sum(held.values()):
            assert n >= before, "growing took replicas away"
        elif not placement.replicas.limits:
            assert n <= before, "shrinking added replicas"


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(an_asking(), clusters_of, rooms, st.data())
def test_the_order_of_clusters_changes_nothing(
    asked: Asked, clusters: tuple[Cluster, ...], estimates: dict[str, int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(clusters))
    assert said(reconcile(asked, clusters, estimates)) == said(
        reconcile(asked, shuffled, estimates)
    )


def said(done: Cycled) -> object:
    return dict(done.clusters), done.observed, done.condition, done.note


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(an_asking(a_placement(spread=False, overflow=False)), clusters_of, rooms)
def test_strict_and_not_strict_are_the_same_where_there_is_no_better_rule(
    asked: Asked, clusters: tuple[Cluster, ...], estimates: dict[str, int]
) -> None:
    placement = asked.placement
    strict, ours = (
        reconcile(
            replace(asked, placement=msgspec.structs.replace(placement, strict=s)),
            clusters,
            estimates,
        )
        for s in (True, False)
    )
    if placement.replicas.weighed or placement.replicas.type == "Duplicated":
        room = {name: estimates.get(name, 0) + asked.held.get(name, 0) for name in strict.clusters}
        assume(all(n <= room[name] for name, n in strict.clusters.items()))
    assert (strict.condition, strict.observed) == (ours.condition, ours.observed)
    if strict.condition != "NoClusterFit":
        assert strict.clusters == ours.clusters
    else:
        assert (dict(strict.clusters), dict(ours.clusters)) == ({}, dict(asked.held))


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(
    a_scheduling(),
    clusters_of,
    rooms,
    holdings,
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from(["", "u1"]),
)
def test_a_limit_that_limits_nothing_changes_nothing(
    scheduling: ReplicaScheduling,
    clusters: tuple[Cluster, ...],
    estimates: dict[str, int],
    held: dict[str, int],
    replicas: int,
    fresh: bool,
    uid: str,
) -> None:
    """The bounded division is the plain one where no bound binds."""
    plain = msgspec.structs.replace(
        scheduling, limits=(), within_capacity=False, remainder="webster"
    )
    bounded = msgspec.structs.replace(plain, limits=(ReplicaLimit("*"),))
    one, other = (
        assigned(
            Asked(Placement(replicas=s), KIND, replicas, held, fresh=fresh, uid=uid),
            clusters,
            estimates,
        )
        for s in (plain, bounded)
    )
    assert type(one) is type(other)
    if isinstance(one, ReplicaDivision) and isinstance(other, ReplicaDivision):
        assert one.replicas == other.replicas


sized = st.integers(1, 6)


@st.composite
def a_bounded_division(draw: st.DrawFn) -> tuple[list[int], int, list[ReplicaBounds]]:
    n = draw(sized)
    weights = draw(
        st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**31)), min_size=n, max_size=n)
    )
    bounds = []
    for _ in range(n):
        least = draw(st.integers(0, 6))
        bounds.append(
            ReplicaBounds(least, least + draw(st.integers(0, 9)), draw(st.integers(0, 4)) == 0)
        )
    return weights, draw(st.integers(0, 40)), bounds


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(a_bounded_division(), st.booleans(), st.booleans())
def test_a_bounded_division_keeps_its_bounds_and_is_refused_only_with_a_sentence(
    asked: tuple[list[int], int, list[ReplicaBounds]], descending: bool, in_order: bool
) -> None:
    weights, seats, bounds = asked
    names = NAMES[: len(weights)]
    given_ = divide(names, weights, seats, bounds, descending=descending, in_order=in_order)
    if isinstance(given_, Unbounded):
        assert given_.note
        usable = [b for b, w in zip(bounds, weights, strict=True) if b.due or w > 0]
        if not any(b.least for b in usable):
            assert sum(b.most for b in usable) < seats, "refused though it was possible"
        return
    assert sum(given_) == seats
    for n, bound, weight in zip(given_, bounds, weights, strict=True):
        assert n == 0 or bound.least <= n <= bound.most
        assert weight > 0 or bound.due or n == 0
        assert not bound.due or seats == 0 or n >= bound.least


@given(a_bounded_division(), st.booleans())
def test_seats_within_bounds_go_out_as_if_one_by_one(
    asked: tuple[list[int], int, list[ReplicaBounds]], descending: bool
) -> None:
    weights, seats, bounds = asked
    names = NAMES[: len(weights)]
    given_ = divide(names, weights, seats, bounds, descending=descending)
    assume(not isinstance(given_, Unbounded) and seats > 0)
    assert not isinstance(given_, Unbounded)
    used = [i for i, n in enumerate(given_) if n or bounds[i].due]
    # all are used
    assume(sum(bounds[i].least for i, b in enumerate(bounds) if b.due or weights[i] > 0) <= seats)
    used = [i for i, b in enumerate(bounds) if b.due or (weights[i] > 0 and b.most > 0)]
    own = {i: weights[i] for i in used}
    if not any(own.values()):
        own = dict.fromkeys(used, 1)
    held = {i: bounds[i].least for i in used}
    place = {name: k for k, name in enumerate(sorted(names, reverse=descending))}
    for _ in range(seats - sum(held.values())):
        open_ = [i for i in used if held[i] < bounds[i].most]
        best = min(
            open_, key=lambda i: (-Fraction(own[i], 2 * held[i] + 1), held[i], place[names[i]])
        )
        held[best] += 1
    assert given_ == [held.get(i, 0) for i in range(len(names))]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 200))
def test_in_order_is_the_floor_of_the_share_and_one_more_each_from_the_front(
    weights: list[int], seats: int
) -> None:
    given_ = divide(
        NAMES[: len(weights)], weights, seats, [ReplicaBounds()] * len(weights), in_order=True
    )
    floors = [seats * w // sum(weights) for w in weights]
    left = seats - sum(floors)
    assert given_ == [n + (i < left) for i, n in enumerate(floors)]


@given(a_placement())
def test_a_sensible_placement_has_no_problem_and_a_senseless_one_a_sentence(
    placement: Placement,
) -> None:
    assert problem_of(placement) == ""
    for wrong in (
        (SpreadConstraint("region", "", -1, 2),),
        (SpreadConstraint("cluster", "", 3, 2),),
        (SpreadConstraint("planet", "", 1, 2),),
        (SpreadConstraint("", "", 1, 2),),
        (SpreadConstraint("region", "tier", 1, 2),),
    ):
        assert problem_of(msgspec.structs.replace(placement, spread=wrong, strict=False))
    limits = (ReplicaLimit("oslo", -1), ReplicaLimit("oslo", 3, 2), ReplicaLimit("oslo", 0, -1))
    for limit in limits:
        replicas = msgspec.structs.replace(placement.replicas, limits=(limit,))
        assert problem_of(msgspec.structs.replace(placement, replicas=replicas))


@given(st.integers(-5, 0), a_placement(), clusters_of, rooms, holdings)
def test_nothing_and_less_is_answered(
    replicas: int,
    placement: Placement,
    clusters: tuple[Cluster, ...],
    estimates: dict[str, int],
    held: dict[str, int],
) -> None:
    answer = assigned(Asked(placement, KIND, replicas, held), clusters, estimates)
    if isinstance(answer, Unassignable):
        assert answer.note
    else:
        assert not any(answer.replicas.values())
