"""Laws of catalogues, pools, limits, prices and reservations, held against plain loops over types
and offerings."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.pools import GIB

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTraits, TopologySpread, WeightedNodeTerm
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.catalogue import (
    NO_PRICE,
    PODS,
    PREFERENCE,
    Mask,
    Types,
    mask_of,
)
from wharfinger.engine.provisioning.filtering import filtered, too_few_values
from wharfinger.engine.provisioning.launch import (
    cheaper_than,
    ordered,
    price_of,
    replacing_spot,
    truncated,
)
from wharfinger.engine.provisioning.limits import Left
from wharfinger.engine.provisioning.overlays import adjusted
from wharfinger.engine.provisioning.relaxation import steps
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.reservations import Reservations, to_hold
from wharfinger.engine.provisioning.templates import template_of

ZONES, FAMILIES, SIZES = ["a", "b", "c"], ["c", "g", "m"], ["1", "2", "8"]
MODES: list[CapacityType] = ["reserved", "spot", "on-demand"]
RESERVATIONS = ["r1", "r2"]


@st.composite
def offerings(draw: st.DrawFn) -> tuple[Offering, ...]:
    found = []
    for zone in draw(st.sets(st.sampled_from(ZONES), max_size=3)):
        for mode in draw(st.sets(st.sampled_from(MODES), max_size=3)):
            price, available = (
                draw(st.integers(0, 12)),
                draw(st.sampled_from([True, True, True, False])),
            )
            if mode == "reserved":
                reservation, left = draw(st.sampled_from(RESERVATIONS)), draw(st.integers(0, 2))
                found.append(Offering(zone, mode, price, available, reservation, left))
            else:
                found.append(Offering(zone, mode, price, available))
    return tuple(found)


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[InstanceType, ...]:
    return tuple(
        InstanceType(
            f"t{i}",
            {
                "cpu": 1000 * draw(st.integers(1, 4)),
                "memory": GIB * draw(st.integers(1, 4)),
                "pods": draw(st.integers(1, 4)),
            },
            {"cpu": draw(st.sampled_from([0, 100]))},
            draw(
                st.fixed_dictionaries(
                    {"family": st.sampled_from(FAMILIES).map(lambda v: (v,))},
                    optional={"size": st.sampled_from(SIZES).map(lambda v: (v,))},
                )
            ),
            draw(offerings()),
        )
        for i in range(draw(st.integers(0, 4)))
    )


def some_of(values: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True).map(tuple)


fewest = st.sampled_from([0, 0, 0, 1, 2, 3])
wishes = st.lists(
    st.one_of(
        st.builds(
            PoolRequirement,
            st.just(ZONE_LABEL),
            st.sampled_from(["In", "NotIn"]),
            some_of(ZONES),
            fewest,
        ),
        st.builds(
            PoolRequirement,
            st.just(CAPACITY_TYPE_LABEL),
            st.sampled_from(["In", "NotIn"]),
            some_of([*MODES]),
            fewest,
        ),
        st.builds(
            PoolRequirement,
            st.just("family"),
            st.sampled_from(["In", "NotIn"]),
            some_of(FAMILIES),
            fewest,
        ),
        st.builds(
            PoolRequirement,
            st.just("size"),
            st.sampled_from(["Gt", "Lte"]),
            st.just(("1",)),
            fewest,
        ),
        st.builds(
            PoolRequirement,
            st.just("size"),
            st.sampled_from(["Exists", "DoesNotExist"]),
            st.just(()),
            fewest,
        ),
        st.builds(
            PoolRequirement, st.just(INSTANCE_TYPE_LABEL), st.just("Exists"), st.just(()), fewest
        ),
    ),
    max_size=4,
)
label_sets = wishes.map(LabelSet.of_pool)


def plain(found: InstanceType, labels: LabelSet) -> bool:
    """Whether a type can be so, label by label."""
    own = {**found.labels, INSTANCE_TYPE_LABEL: (found.name,)}
    own[ZONE_LABEL] = tuple(o.zone for o in found.offerings)
    own[CAPACITY_TYPE_LABEL] = tuple(o.capacity_type for o in found.offerings)
    return all(
        any(values.allows(v) for v in own[key]) if key in own else values.allows(None)
        for key, values in labels.items()
    )


def on_offer(found: InstanceType, labels: LabelSet) -> list[Offering]:
    return [
        o
        for o in found.offerings
        if o.available
        and (o.capacity_type != "reserved" or o.left > 0)
        and labels.of(ZONE_LABEL).allows(o.zone)
        and labels.of(CAPACITY_TYPE_LABEL).allows(o.capacity_type)
    ]


def everything(types: Types) -> Mask:
    return np.ones(len(types), dtype=np.bool_)


def described(catalogue: tuple[InstanceType, ...], labels: LabelSet) -> LabelSet:
    """Of a label that no type has nothing is said of types."""
    return labels if any("size" in t.labels for t in catalogue) else labels.without("size")


@given(catalogues(), label_sets)
@settings(max_examples=examples(60))
def test_masks_and_prices_are_what_a_look_at_each_type_says(
    catalogue: tuple[InstanceType, ...], labels: LabelSet
) -> None:
    labels = described(catalogue, labels)
    if not catalogue:
        labels = LabelSet()
    types = Types(catalogue)
    assert types.fitting(labels).tolist() == [plain(t, labels) for t in types.types]
    prices = [[o.price for o in on_offer(t, labels)] for t in types.types]
    assert types.cheapest(labels).tolist() == [min(p, default=NO_PRICE) for p in prices]
    worst = []
    for t in types.types:
        found = on_offer(t, labels)
        first = min((PREFERENCE.index(o.capacity_type) for o in found), default=0)
        worst.append(
            max(
                (o.price for o in found if PREFERENCE.index(o.capacity_type) == first),
                default=NO_PRICE,
            )
        )
    assert types.worst(labels).tolist() == worst
    able = [t for t in types.types if plain(t, labels) and on_offer(t, labels)]
    assert types.zones(labels) == tuple(sorted({o.zone for t in able for o in on_offer(t, labels)}))
    assert types.values("family", labels) == tuple(
        sorted({v for t in able for v in t.labels["family"] if labels.of("family").allows(v)})
    )


@given(catalogues(), label_sets, st.integers(1, 5))
@settings(max_examples=examples(60))
def test_what_is_launched_is_short_in_order_and_diverse_enough(
    catalogue: tuple[InstanceType, ...], labels: LabelSet, limit: int
) -> None:
    types = Types(catalogue)
    among = types.fitting(labels)
    rows = ordered(types, among, labels)
    prices = [(int(types.cheapest(labels)[row]), types.names[row]) for row in rows]
    assert prices == sorted(prices)
    assert set(rows) == {i for i, t in enumerate(types.types) if among[i] and on_offer(t, labels)}
    found = truncated(types, among, labels, limit=limit)
    first = tuple(types.names[row] for row in rows[:limit])
    first_do = not too_few_values(types, mask_of(types, first), labels)
    if first_do:
        assert (found.instance_types, found.refusal) == (first, ""), (
            "the cheapest are taken wherever they suffice"
        )
    elif not found.refusal:
        assert not too_few_values(types, mask_of(types, found.instance_types), labels)
    assert len(found.instance_types) <= limit
    assert list(found.instance_types) == [
        name for _, name in prices if name in found.instance_types
    ]
    lenient = truncated(types, among, labels, "BestEffort", limit=limit)
    assert not lenient.refusal
    kept = labels.with_min_values(dict(lenient.lowered))
    assert not too_few_values(types, mask_of(types, lenient.instance_types), kept)


@given(catalogues(), label_sets, st.integers(0, 13))
@settings(max_examples=examples(60))
def test_a_replacement_is_cheaper_however_it_is_launched(
    catalogue: tuple[InstanceType, ...], labels: LabelSet, ceiling: int
) -> None:
    types = Types(catalogue)
    among = types.fitting(labels)
    found = cheaper_than(types, among, labels, ceiling)
    assert bool(found.refusal) == (not found.among.any())
    for row in np.flatnonzero(found.among):
        possible = on_offer(types.types[row], found.labels)
        assert possible
        assert len({o.capacity_type for o in possible}) == 1
        assert max(o.price for o in possible) < ceiling
    if not found.refusal:
        assert found.price is not None
        assert found.price.least <= found.price.worst < ceiling
        assert found.price == price_of(types, found.among, found.labels)
        assert not too_few_values(types, found.among, found.labels)
    elif not labels.min_values:
        assert not (among & (types.worst(labels) < min(ceiling, NO_PRICE))).any(), (
            "Karpenter would find one"
        )


@given(catalogues(), label_sets, st.integers(0, 13), st.integers(1, 2), st.booleans())
@settings(max_examples=examples(40))
def test_spot_for_spot_is_never_more_than_cheaper(
    catalogue: tuple[InstanceType, ...], labels: LabelSet, ceiling: int, nodes: int, allowed: bool
) -> None:
    types = Types(catalogue)
    found = replacing_spot(types, types.fitting(labels), labels, ceiling, nodes, allowed=allowed)
    for row in np.flatnonzero(found.among):
        assert max(o.price for o in on_offer(types.types[row], found.labels)) < ceiling
        if not allowed:
            assert found.labels.of(CAPACITY_TYPE_LABEL).only != "spot"


@given(catalogues(), st.integers(0, 12), st.integers(0, 12), st.integers(0, 5), st.data())
@settings(max_examples=examples(50))
def test_limits_are_kept_whatever_the_nodes_become(
    catalogue: tuple[InstanceType, ...], cpu: int, memory: int, nodes: int, data: st.DataObject
) -> None:
    types = Types(catalogue)
    pool = NodePoolPolicy("p", limits={"cpu": cpu * 1000, "memory": memory * GIB, "nodes": nodes})
    left = Left.of(pool, {})
    became: list[InstanceType] = []
    while (within := left.within(types)).any():
        assert left.refusal(types, within) == ""
        could = within & np.array(
            data.draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types))),
            dtype=np.bool_,
        )
        could = could if could.any() else within
        became.append(types.types[data.draw(st.sampled_from(np.flatnonzero(could).tolist()))])
        left = left.after(types, could)
    assert sum(t.capacity["cpu"] for t in became) <= cpu * 1000
    assert sum(t.capacity["memory"] for t in became) <= memory * GIB
    assert len(became) <= nodes
    if len(types):
        assert left.refusal(types, everything(types))


@given(
    catalogues(),
    st.lists(st.tuples(st.sampled_from("xyz"), label_sets, st.booleans()), max_size=12),
)
@settings(max_examples=examples(50))
def test_no_more_is_promised_of_a_reservation_than_there_is(
    catalogue: tuple[InstanceType, ...], asked: list[tuple[str, LabelSet, bool]]
) -> None:
    types = Types(catalogue)
    book = Reservations([types])
    whole = {r: book.left(r) for r in RESERVATIONS}
    for claim, labels, strict in asked:
        before = book.held_by(claim)
        holds, refusal = to_hold(book, claim, types, everything(types), labels, strict)
        if refusal:
            assert strict
            assert not holds
            assert book.held_by(claim) == before
            continue
        book.hold(claim, holds)
        for reservation in RESERVATIONS:
            held = sum(reservation in book.held_by(c) for c in "xyz")
            assert book.left(reservation) == whole[reservation] - held >= 0


daemons = st.lists(
    st.builds(
        Requirements,
        st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 3000), "memory": st.just(GIB)}),
        node_selector=st.dictionaries(
            st.sampled_from(["family", ZONE_LABEL]), st.sampled_from(["c", "m", "a"]), max_size=1
        ),
        node_terms=st.lists(
            st.sampled_from(SIZES).map(lambda v: NodeTerm((Requirement("size", "In", (v,)),))),
            max_size=2,
        ).map(tuple),
        tolerations=st.sampled_from([(), (Toleration("t", "Exists"),)]),
    ),
    max_size=3,
)


@given(catalogues(), wishes, daemons, st.booleans())
@settings(max_examples=examples(60))
def test_room_is_what_is_allocatable_less_the_daemons_that_come(
    catalogue: tuple[InstanceType, ...],
    wanted: list[PoolRequirement],
    asked: list[Requirements],
    tainted: bool,
) -> None:
    pool = NodePoolPolicy(
        "p", requirements=tuple(wanted), taints=(Taint("t", "NoSchedule"),) if tainted else ()
    )
    found = template_of(
        pool, catalogue, (), [DaemonPods("ns", f"d{i}", r) for i, r in enumerate(asked)]
    )
    types = found.types
    covered = np.zeros(len(types), dtype=np.int64)
    for group in found.daemons:
        covered += group.among
    labels = found.labels.without("kubernetes.io/hostname", "karpenter.sh/nodepool")
    for row, t in enumerate(types.types):
        suits = plain(t, described(catalogue, labels)) and bool(on_offer(t, labels))
        assert covered[row] == 1
        coming = [
            r
            for r in asked
            if (not tainted or r.tolerations) and comes(t, r, found.labels, catalogue)
        ]
        for column, name in enumerate(types.resources):
            each = (
                [r.requests.get(name, 0) for r in coming] if name != "pods" else [1] * len(coming)
            )
            assert found.room[row, column] == t.allocatable[name] - sum(each)
        assert found.able[row] == (suits and (found.room[row] >= 0).all())


def comes(
    found: InstanceType, daemon: Requirements, labels: LabelSet, catalogue: tuple[InstanceType, ...]
) -> bool:
    if any(daemon.requests.get(name, 0) > amount for name, amount in found.allocatable.items()):
        return False
    sized = any("size" in t.labels for t in catalogue)
    for asked in LabelSet.alternatives(daemon):
        both = labels.intersect(asked).without("kubernetes.io/hostname", "karpenter.sh/nodepool")
        if "size" in asked and not sized and ("size" not in labels or both.of("size").empty):
            continue  # no type has the label, and the pool does not set it so
        if plain(found, described(catalogue, both)):
            return True
    return False


@given(catalogues(), wishes, st.integers(0, 5000), st.integers(0, 4))
@settings(max_examples=examples(50))
def test_types_are_left_exactly_where_no_refusal_is_given(
    catalogue: tuple[InstanceType, ...], wanted: list[PoolRequirement], cpu: int, pods: int
) -> None:
    found = template_of(NodePoolPolicy("p", requirements=tuple(wanted)), catalogue)
    amounts = found.types.amounts({"cpu": cpu})
    assert amounts is not None
    amounts[PODS] += pods
    strict = filtered(found, found.labels, amounts)
    lenient = filtered(found, found.labels, amounts, min_values="BestEffort")
    assert bool(strict.refusal) == (not strict.remaining.any())
    assert bool(lenient.refusal) == (not lenient.remaining.any())
    expected = found.able & np.array(
        [t.allocatable["cpu"] >= cpu and t.capacity["pods"] >= pods for t in found.types.types]
        or [],
        dtype=np.bool_,
    )
    assert (lenient.remaining == expected).all()
    if not lenient.refusal:
        assert bool(strict.refusal) == (lenient.lowered is not None)


sizes = st.sampled_from(SIZES).map(lambda v: NodeTerm((Requirement("size", "In", (v,)),)))


@given(
    st.builds(
        Requirements,
        node_terms=st.lists(sizes, max_size=3).map(tuple),
        pod=st.builds(
            PodTraits,
            preferences=st.lists(
                st.builds(WeightedNodeTerm, st.integers(1, 100), sizes), max_size=3
            ).map(tuple),
            spread=st.lists(
                st.builds(TopologySpread, st.just("zone"), st.just(1), st.booleans()), max_size=3
            ).map(tuple),
        ),
    ),
    st.booleans(),
)
def test_nobody_gives_up_what_is_required(pod: Requirements, tolerate: bool) -> None:
    nodes = [{}, *({"size": size} for size in SIZES)]
    seen = 0
    for relaxed, said in steps(pod, tolerate):
        seen += 1
        assert said
        for labels in nodes:
            if any(a.satisfied_by(labels) for a in LabelSet.alternatives(relaxed)):
                assert any(a.satisfied_by(labels) for a in LabelSet.alternatives(pod))
    soft = sum(not s.hard for s in pod.traits.spread)
    assert seen == max(0, len(pod.node_terms) - 1) + len(pod.traits.preferences) + soft + tolerate


@given(st.integers(0, 10**14), st.integers(-(10**6), 10**6), st.integers(0, 4))
def test_an_adjusted_price_is_the_nearest_there_is(price: int, share: int, digits: int) -> None:
    whole, part = divmod(abs(share), 10**digits)
    text = f"{'-' if share < 0 else '+'}{whole}" + (f".{part:0{digits}d}" if digits else "") + "%"
    exact = max(Fraction(0), price * (1 + Fraction(share, 10**digits) / 100))
    got = adjusted(price, text)
    assert abs(got - exact) <= Fraction(1, 2)
    assert got - exact != Fraction(-1, 2), "halves go up"


@given(catalogues(), st.permutations(range(3)))
def test_the_order_in_which_overlays_are_told_is_nothing(
    catalogue: tuple[InstanceType, ...], order: list[int]
) -> None:
    told = [
        NodeOverlay("x", (PoolRequirement("family", "In", ("c", "m")),), 1, price="0.000000005"),
        NodeOverlay("y", (PoolRequirement(ZONE_LABEL, "In", ("a",)),), 1, price_adjustment="+100%"),
        NodeOverlay("z", (), 0, price_adjustment="-50%", capacity={"cpu": 7}),
    ]
    one, other = Types(catalogue, told), Types(catalogue, [told[i] for i in order])
    assert one.price.tolist() == other.price.tolist()
    assert one.capacity.tolist() == other.capacity.tolist()
