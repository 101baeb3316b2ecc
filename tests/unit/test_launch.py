"""In which order instance types are asked for, what a node may cost, and what is reserved."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pools import a_type, asks, bought_as, in_zones, money, offered, reserved

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.text import dollars
from wharfinger.engine.provisioning.catalogue import Mask, Types, mask_of
from wharfinger.engine.provisioning.launch import (
    LAUNCHED_MAX,
    Price,
    cheaper_than,
    ordered,
    price_of,
    replacing_spot,
    same_type_ceiling,
    truncated,
    values_needed,
)
from wharfinger.engine.provisioning.requirements import NO_LABELS, LabelSet
from wharfinger.engine.provisioning.reservations import (
    NodeDraft,
    Reservations,
    fitting,
    launched,
    settled,
    to_hold,
)

CAPACITY_TYPE = "karpenter.sh/capacity-type"


def every(types: Types) -> Mask:
    return np.ones(len(types), dtype=np.bool_)


def many(
    count: int, on_demand: float | None = None, spot: float | None = None
) -> list[InstanceType]:
    """t000, t001, ...: each a tenth of a cent dearer, families of ten."""

    def dearer(price: float | None, i: int) -> float | None:
        return None if price is None else price + i * 0.001

    return [
        a_type(
            f"t{i:03d}",
            offerings=offered(dearer(on_demand, i), dearer(spot, i)),
            family=f"f{i // 10:02d}",
        )
        for i in range(count)
    ]


# --- order and truncation


def test_the_cheapest_comes_first_and_of_equal_ones_the_first_by_name() -> None:
    types = Types(
        (
            a_type("c", offerings=offered(0.1)),
            a_type("a", offerings=offered(0.2)),
            a_type("b", offerings=offered(0.1)),
            a_type("gone", offerings=()),
        )
    )
    assert [types.names[row] for row in ordered(types, every(types), NO_LABELS)] == ["b", "c", "a"]


def test_what_is_cheapest_depends_on_how_it_may_be_bought() -> None:
    types = Types(
        (a_type("a", offerings=offered(0.3, 0.1)), a_type("b", offerings=offered(0.2, 0.15)))
    )
    assert truncated(types, every(types), NO_LABELS).instance_types == ("a", "b")
    assert truncated(types, every(types), asks(bought_as("on-demand"))).instance_types == ("b", "a")


def test_no_more_than_the_cheapest_six_hundred_are_handed_on() -> None:
    types = Types(many(LAUNCHED_MAX + 50, on_demand=0.1))
    found = truncated(types, every(types), NO_LABELS)
    assert found.instance_types == types.names[:LAUNCHED_MAX]
    assert found.refusal == ""


def test_dearer_types_stand_in_where_the_cheapest_are_too_few_families() -> None:
    types = Types(many(100, on_demand=0.1))
    three = asks(PoolRequirement("family", "Exists", (), 3))
    found = truncated(types, every(types), three, limit=12)
    assert found.instance_types == (*types.names[:11], "t020")
    assert truncated(types, every(types), three, limit=40).instance_types == types.names[:40]


def test_what_cannot_be_kept_is_refused_or_lowered() -> None:
    types = Types(many(100, on_demand=0.1))
    eleven = asks(PoolRequirement("family", "Exists", (), 11))
    assert truncated(types, every(types), eleven, limit=12).refusal == (
        "minValues requirement is not met by the 12 instance types at most launched, "
        'for "family" (10 of 11)'
    )
    lowered = truncated(types, every(types), eleven, "BestEffort", limit=12)
    assert (lowered.refusal, lowered.lowered) == ("", (("family", 10),))
    assert len(lowered.instance_types) == 12


def test_how_many_types_min_values_need_counts_from_the_cheapest() -> None:
    types = Types(many(100, on_demand=0.1))
    rows = ordered(types, every(types), NO_LABELS)
    assert values_needed(types, rows, NO_LABELS) == 0
    assert values_needed(types, rows, asks(PoolRequirement("family", "Exists", (), 3))) == 21
    assert values_needed(types, rows, asks(PoolRequirement("family", "Exists", (), 11))) is None


# --- what it may cost


def test_a_node_costs_between_the_cheapest_and_the_dearest_of_what_is_launched_first() -> None:
    types = Types(
        (a_type("a", offerings=offered(0.3, 0.1)), a_type("b", offerings=offered(0.2, 0.15)))
    )
    assert price_of(types, every(types), NO_LABELS) == Price(money(0.1), money(0.15), "spot")
    assert price_of(types, every(types), asks(bought_as("on-demand"))) == Price(
        money(0.2), money(0.3), "on-demand"
    )
    assert price_of(types, mask_of(types, []), NO_LABELS) is None


def test_a_replacement_must_cost_less_even_at_worst() -> None:
    uneven = (
        Offering("oslo-1", "on-demand", money(0.1)),
        Offering("oslo-2", "on-demand", money(0.3)),
    )
    types = Types((a_type("uneven", offerings=uneven), a_type("even", offerings=offered(0.19))))
    found = cheaper_than(types, every(types), NO_LABELS, money(0.2))
    assert [types.names[row] for row in np.flatnonzero(found.among)] == ["even"]
    in_one = cheaper_than(types, every(types), asks(in_zones("oslo-1")), money(0.2))
    assert in_one.among.all()
    assert in_one.price == Price(money(0.1), money(0.19), "on-demand")


def test_the_same_price_is_no_saving_and_the_numbers_are_told() -> None:
    types = Types((a_type("a", offerings=offered(0.192)),))
    assert cheaper_than(types, every(types), NO_LABELS, money(0.192)).refusal == (
        "can't replace with a cheaper node: the cheapest may cost 0.192 $/h, not below 0.192 $/h"
    )
    assert cheaper_than(types, every(types), NO_LABELS, money(0.193)).refusal == ""
    assert (
        "no offering"
        in cheaper_than(types, every(types), asks(bought_as("spot")), money(9)).refusal
    )


def test_what_could_be_spot_or_on_demand_is_bound_to_spot() -> None:
    types = Types(
        (a_type("a", offerings=offered(0.3, 0.1)), a_type("plain", offerings=offered(0.15)))
    )
    found = cheaper_than(types, every(types), NO_LABELS, money(0.2))
    assert found.labels.of(CAPACITY_TYPE).only == "spot"
    assert [types.names[row] for row in np.flatnonzero(found.among)] == ["a"], (
        "what is not sold as spot is of no use"
    )
    assert found.price == Price(money(0.1), money(0.1), "spot")


def test_where_no_spot_is_cheap_enough_on_demand_may_be() -> None:
    types = Types(
        (a_type("a", offerings=offered(0.3, 0.25)), a_type("plain", offerings=offered(0.15)))
    )
    found = cheaper_than(types, every(types), NO_LABELS, money(0.2))
    assert found.labels.of(CAPACITY_TYPE).only == "on-demand"
    assert [types.names[row] for row in np.flatnonzero(found.among)] == ["plain"]


def test_reserved_capacity_is_launched_before_all_else() -> None:
    types = Types((a_type("a", offerings=(reserved("oslo-1", 0.05, "r", 1), *offered(0.3, 0.1))),))
    assert (
        cheaper_than(types, every(types), NO_LABELS, money(0.2)).labels.of(CAPACITY_TYPE).only
        == "reserved"
    )
    bound = asks(bought_as("spot", "on-demand"))
    assert (
        cheaper_than(types, every(types), bound, money(0.2)).labels.of(CAPACITY_TYPE).only == "spot"
    )


def test_min_values_hold_among_the_cheaper_types_alone() -> None:
    types = Types(many(30, on_demand=0.1))
    three = asks(PoolRequirement("family", "Exists", (), 3))
    assert cheaper_than(types, every(types), three, money(0.115)).refusal.endswith(
        '"family" (2 of 3)'
    )
    assert cheaper_than(types, every(types), three, money(0.115), "BestEffort").among.sum() == 15
    assert cheaper_than(types, every(types), three, money(0.125)).refusal == ""


def test_one_spot_node_is_replaced_by_spot_only_with_fifteen_types_to_choose_from() -> None:
    types = Types(many(40, spot=0.1))
    off = replacing_spot(types, every(types), NO_LABELS, money(0.13), 1, allowed=False)
    assert off.refusal == "spot nodes are not replaced by spot nodes, that is off"
    few = replacing_spot(types, every(types), NO_LABELS, money(0.114), 1, allowed=True)
    assert few.refusal == "15 cheaper instance types are needed to replace spot by spot, got 14"
    assert not few.among.any()
    enough = replacing_spot(types, every(types), NO_LABELS, money(0.13), 1, allowed=True)
    assert [types.names[row] for row in np.flatnonzero(enough.among)] == list(types.names[:15])
    assert enough.price == Price(money(0.1), money(0.114), "spot")
    wide = asks(PoolRequirement("family", "Exists", (), 3))
    assert replacing_spot(types, every(types), wide, money(0.13), 1, allowed=True).among.sum() == 21


def test_several_spot_nodes_are_replaced_by_one_of_any_number_of_types() -> None:
    types = Types(many(40, spot=0.1))
    found = replacing_spot(types, every(types), NO_LABELS, money(0.114), 2, allowed=True)
    assert found.among.sum() == 14
    assert replacing_spot(
        types, every(types), NO_LABELS, money(0.1), 2, allowed=True
    ).refusal.startswith("can't replace")


def test_spot_nodes_may_go_to_what_is_no_spot_and_cheaper_still() -> None:
    types = Types((a_type("a", offerings=(reserved("oslo-1", 0.01, "r", 1), *offered(0.3, 0.1))),))
    found = replacing_spot(types, every(types), NO_LABELS, money(0.2), 1, allowed=False)
    assert found.labels.of(CAPACITY_TYPE).only == "reserved"
    plain = Types((a_type("a", offerings=offered(0.05)),))
    assert (
        replacing_spot(plain, every(plain), NO_LABELS, money(0.2), 1, allowed=False).refusal == ""
    )


def test_what_goes_is_not_replaced_by_one_of_its_own() -> None:
    types = Types(many(5, on_demand=0.1))
    among = mask_of(types, ["t000", "t001", "t003"])
    going = [("t003", money(0.103)), ("t001", money(0.09)), ("t004", money(0.01)), ("lost", 0)]
    assert same_type_ceiling(types, among, going) == money(0.09)
    assert same_type_ceiling(types, among, [("t004", 1)]) is None


@pytest.mark.parametrize(
    ("price", "said"),
    [
        (192_000_000, "0.192 $/h"),
        (0, "0 $/h"),
        (2_000_000_000, "2 $/h"),
        (1, "0.000000001 $/h"),
        (-5 * 10**8, "-0.5 $/h"),
    ],
)
def test_prices_are_written_exactly(price: int, said: str) -> None:
    assert dollars(price) == said


# --- reservations


def with_reservation(left: int, *more: Offering) -> Types:
    return Types(
        (a_type("a", offerings=(reserved("oslo-1", 0.01, "r1", left), *more, *offered(0.2))),)
    )


def test_a_node_holds_one_of_every_reservation_it_could_go_to() -> None:
    types = with_reservation(2, reserved("oslo-2", 0.02, "r2", 1))
    book = Reservations([types])
    holds, refusal = to_hold(book, "first", types, every(types), NO_LABELS, strict=True)
    assert (holds, refusal) == (frozenset({"r1", "r2"}), "")
    book.hold("first", holds)
    assert (book.left("r1"), book.left("r2")) == (1, 0)
    second, _ = to_hold(book, "second", types, every(types), NO_LABELS, strict=True)
    assert second == frozenset({"r1"})


def test_what_a_node_can_no_longer_go_to_is_free_again() -> None:
    types = with_reservation(1, reserved("oslo-2", 0.02, "r2", 1))
    book = Reservations([types])
    book.hold("first", {"r1", "r2"})
    narrowed = asks(in_zones("oslo-1"))
    holds, _ = to_hold(book, "first", types, every(types), narrowed, strict=True)
    book.hold("first", holds)
    assert (book.left("r1"), book.left("r2")) == (0, 1)
    assert book.held_by("first") == frozenset({"r1"})
    book.hold("first", ())
    assert book.left("r1") == 1


def test_a_strict_batch_waits_for_promised_capacity_and_another_one_buys() -> None:
    types = with_reservation(1)
    book = Reservations([types])
    book.hold("first", {"r1"})
    assert to_hold(book, "second", types, every(types), NO_LABELS, strict=True) == (
        frozenset(),
        "reserved capacity would fit (r1) and all of it is promised",
    )
    assert to_hold(book, "second", types, every(types), NO_LABELS, strict=False) == (
        frozenset(),
        "",
    )
    on_demand = asks(bought_as("on-demand"))
    assert to_hold(book, "second", types, every(types), on_demand, strict=True) == (frozenset(), "")
    assert to_hold(book, "first", types, every(types), on_demand, strict=True)[1] == (
        "no reserved capacity would be left that the node could go to"
    )


def test_a_strict_batch_does_not_wait_for_what_is_used_up() -> None:
    types = with_reservation(0)
    assert fitting(types, every(types), NO_LABELS) == frozenset()
    assert to_hold(Reservations([types]), "a", types, every(types), NO_LABELS, strict=True) == (
        frozenset(),
        "",
    )


def test_where_offerings_disagree_the_least_is_left() -> None:
    types = with_reservation(5, reserved("oslo-2", 0.02, "r1", 3))
    assert Reservations([types]).left("r1") == 3
    assert Reservations([types]).left("unknown") == 0


def test_who_holds_a_reservation_is_launched_into_it() -> None:
    types = with_reservation(1, reserved("oslo-2", 0.02, "r2", 1))
    labels = launched(NO_LABELS, frozenset({"r1"}))
    assert types.values("topology.kubernetes.io/zone", labels) == ("oslo-1",)
    assert price_of(types, every(types), labels) == Price(money(0.01), money(0.01), "reserved")
    assert launched(NO_LABELS, frozenset()) == NO_LABELS == LabelSet()


def test_trying_out_on_a_copy_leaves_the_book_alone() -> None:
    types = with_reservation(1)
    book = Reservations([types])
    book.copy().hold("first", {"r1"})
    assert book.left("r1") == 1
    assert book.held_by("first") == frozenset()


def drafts(types: Types, *labels: LabelSet) -> list[NodeDraft]:
    return [NodeDraft(f"new-{i}", types, every(types), each) for i, each in enumerate(labels)]


def test_the_first_nodes_get_what_is_reserved_and_the_others_wait_or_are_bought() -> None:
    types = with_reservation(1)
    strict = settled(Reservations([types]), drafts(types, NO_LABELS, NO_LABELS), strict=True)
    assert [(s.holds, s.refusal) for s in strict] == [
        (frozenset({"r1"}), ""),
        (frozenset(), "reserved capacity would fit (r1) and all of it is promised"),
    ]
    first, second = settled(
        Reservations([types]), drafts(types, NO_LABELS, NO_LABELS), strict=False
    )
    assert types.cheapest(first.labels).tolist() == [money(0.01)]
    assert second.refusal == ""
    assert types.cheapest(second.labels).tolist() == [money(0.2)], (
        "it does not cost what is reserved for another"
    )


def test_who_may_only_go_to_reserved_capacity_waits_even_where_others_buy() -> None:
    types = with_reservation(1)
    _, second = settled(
        Reservations([types]), drafts(types, NO_LABELS, asks(bought_as("reserved"))), strict=False
    )
    assert second.refusal == "nothing but reserved capacity would fit, and all of it is promised"


def test_without_reservations_nothing_is_said_of_them() -> None:
    types = Types((a_type("a", offerings=offered(0.2)),))
    assert [
        s.labels for s in settled(Reservations([types]), drafts(types, NO_LABELS), strict=True)
    ] == [NO_LABELS]


def test_a_node_on_its_way_holds_what_it_was_bound_to() -> None:
    types = with_reservation(1)
    book = Reservations([types])
    book.promised("claim-1", launched(NO_LABELS, frozenset({"r1", "other"})))
    book.promised("claim-2", NO_LABELS)
    assert (book.left("r1"), book.held_by("claim-1"), book.held_by("claim-2")) == (
        0,
        frozenset({"r1"}),
        frozenset(),
    )
