"""Instance types as columns, and what overlays make of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pools import GIB, a_type, asks, bought_as, in_zones, money, offered, reserved

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node_pool import NodeOverlay, PoolRequirement
from wharfinger.domain.resources import DeviceRequest
from wharfinger.engine.provisioning.catalogue import (
    MEMORY,
    NO_PRICE,
    PODS,
    UNLIMITED,
    Mask,
    Types,
    mask_of,
)
from wharfinger.engine.provisioning.overlays import OverlayError, adjusted, concerning
from wharfinger.engine.provisioning.requirements import NO_LABELS, LabelSet

SMALL = a_type("c-small", 2, 4, offered(0.1, 0.04), family="c")
LARGE = a_type("m-large", 8, 32, offered(0.4, 0.16), family="m")
GPU = a_type("g-one", 8, 32, offered(1.0, zones=["oslo-1"]), gpus=1, family="g", gpu="t4")
CATALOGUE = (SMALL, LARGE, GPU)


def named(types: Types, mask: Mask) -> list[str]:
    return [types.names[row] for row in np.flatnonzero(mask)]


def test_types_stand_in_order_of_name_whatever_the_order_of_the_file() -> None:
    assert (
        Types(CATALOGUE).names
        == ("c-small", "g-one", "m-large")
        == Types(reversed(CATALOGUE)).names
    )


def test_labels_choose_types_and_a_label_that_only_others_have_is_missing() -> None:
    types = Types(CATALOGUE)
    assert named(types, types.fitting(asks(("family", "In", ("c", "m"))))) == ["c-small", "m-large"]
    assert named(types, types.fitting(asks(("gpu", "Exists", ())))) == ["g-one"]
    assert named(types, types.fitting(asks(("gpu", "DoesNotExist", ())))) == ["c-small", "m-large"]
    assert named(
        types, types.fitting(asks(("node.kubernetes.io/instance-type", "NotIn", ("g-one",))))
    ) == ["c-small", "m-large"]
    assert types.fitting(asks(("team", "In", ("blue",)))).all(), "catalogues say nothing of teams"


def test_labels_by_which_types_are_described_are_known() -> None:
    assert {"family", "gpu", "node.kubernetes.io/instance-type"} <= Types(CATALOGUE).known
    assert "team" not in Types(CATALOGUE).known


def test_offerings_are_found_by_zone_and_capacity_type_together() -> None:
    types = Types(
        (
            a_type(
                "x",
                offerings=(*offered(0.2, zones=["oslo-1"]), *offered(spot=0.1, zones=["oslo-2"])),
            ),
        )
    )
    assert types.cheapest(asks(in_zones("oslo-1"))).tolist() == [money(0.2)]
    assert types.cheapest(asks(bought_as("spot"))).tolist() == [money(0.1)]
    assert types.cheapest(asks(in_zones("oslo-1"), bought_as("spot"))).tolist() == [NO_PRICE]
    assert not types.with_offering(asks(in_zones("oslo-1"), bought_as("spot"))).any()


def test_what_is_not_available_or_sold_out_is_not_offered() -> None:
    gone = Offering("oslo-1", "on-demand", money(0.1), available=False)
    types = Types((a_type("x", offerings=(gone, *offered(0.2, 0.15, zones=["oslo-2"]))),))
    assert types.zones(NO_LABELS) == ("oslo-2",)
    sold_out = types.but_for(frozenset({("x", "oslo-2", "spot")}))
    assert sold_out.cheapest(NO_LABELS).tolist() == [money(0.2)]
    assert sold_out.price_of("x", "oslo-2", "spot") == money(0.15), (
        "what a node costs that is there is known still"
    )


def test_a_reservation_of_which_nothing_is_left_is_not_offered() -> None:
    types = Types((a_type("x", offerings=(reserved("oslo-1", 0.01, "r", 0), *offered(0.2))),))
    assert types.cheapest(NO_LABELS).tolist() == [money(0.2)]
    assert Types((a_type("x", offerings=(reserved("oslo-1", 0.01, "r", 1),)),)).cheapest(
        NO_LABELS
    ).tolist() == [money(0.01)]


def test_the_worst_price_is_the_dearest_of_what_is_launched_first() -> None:
    uneven = (
        Offering("oslo-1", "spot", money(0.05)),
        Offering("oslo-2", "spot", money(0.09)),
        *offered(0.2),
    )
    types = Types((a_type("x", offerings=uneven),))
    assert types.worst(NO_LABELS).tolist() == [money(0.09)]
    assert types.worst(asks(in_zones("oslo-1"))).tolist() == [money(0.05)]
    assert types.worst(asks(bought_as("on-demand"))).tolist() == [money(0.2)]
    with_reserved = Types((a_type("x", offerings=(*uneven, reserved("oslo-1", 0.01, "r", 2))),))
    assert with_reserved.worst(NO_LABELS).tolist() == [money(0.01)]


def test_huge_pages_are_taken_off_the_memory() -> None:
    pages = a_type(
        "x", 4, 16, more={"hugepages-2Mi": 2 * GIB}, overhead={"memory": GIB, "cpu": 100}
    )
    types = Types((pages,))
    assert types.allocatable[0, MEMORY] == 13 * GIB
    assert types.allocatable[0, types.resource["hugepages-2Mi"]] == 2 * GIB
    assert types.capacity[0, MEMORY] == 16 * GIB


def test_a_type_that_does_not_say_how_many_pods_it_holds_holds_any_number() -> None:
    types = Types((InstanceType("x", {"cpu": 1000, "memory": GIB}),))
    assert types.allocatable[0, PODS] == UNLIMITED


def test_what_no_type_has_fits_nowhere_and_what_no_node_has_is_not_looked_at() -> None:
    types = Types(CATALOGUE)
    assert types.amounts({"cpu": 100, "example.com/dongle": 1}) is None
    amounts = types.amounts({"cpu": 4000, "storage": 1 << 40, "example.com/dongle": 0})
    assert amounts is not None
    assert named(types, types.roomy(amounts)) == ["g-one", "m-large"]


def test_devices_are_had_all_at_once_whole_ones_and_shares() -> None:
    types = Types(
        (
            a_type("two", gpus=2),
            a_type("one", gpus=1),
            a_type("other", gpus=2, model="a100"),
            a_type("none"),
        )
    )
    whole, share = DeviceRequest(1), DeviceRequest(1, milli=600)
    assert named(types, types.holding(())) == ["none", "one", "other", "two"]
    assert named(types, types.holding((whole,))) == ["one", "other", "two"]
    assert named(types, types.holding((whole, share))) == ["other", "two"]
    assert named(types, types.holding((share, share))) == ["other", "two"], (
        "two shares of 600 are not on one device"
    )
    assert named(types, types.holding((DeviceRequest(2, models=("t4",)),))) == ["two"]
    assert named(types, types.holding((DeviceRequest(1, kind="amd.com/gpu"),))) == []
    assert types.capacity_of("nvidia.com/gpu").tolist() == [0, 1, 2, 2]


def test_values_that_are_left_are_those_that_can_be_bought() -> None:
    types = Types(CATALOGUE)
    assert types.values("family", NO_LABELS) == ("c", "g", "m")
    assert types.values("family", asks(in_zones("oslo-2"))) == ("c", "m")
    assert types.values("family", asks(("family", "NotIn", ("c",)), bought_as("spot"))) == ("m",)
    assert types.zones(asks(("gpu", "Exists", ()))) == ("oslo-1",)
    assert types.values("team", NO_LABELS) == ()
    assert (
        types.count_values("family", NO_LABELS, mask_of(types, ["c-small", "m-large", "not-there"]))
        == 2
    )


def test_the_same_tuple_of_types_is_made_into_columns_once() -> None:
    assert Types.of(CATALOGUE) is Types.of(CATALOGUE)
    assert Types.of(CATALOGUE) is not Types.of(
        CATALOGUE, (), frozenset({("c-small", "oslo-1", "spot")})
    )
    assert Types.of(list(CATALOGUE)) is not Types.of(list(CATALOGUE))


# --- overlays


def overlay(name: str, weight: int = 0, *wanted: PoolRequirement, **what: object) -> NodeOverlay:
    return NodeOverlay(name, wanted, weight, **what)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("price", "adjustment", "then"),
    [
        ("0.1", "+0.05", "0.15"),
        ("0.1", "0.05", "0.15"),
        ("0.1", "-0.01", "0.09"),
        ("0.1", "-0.2", "0"),
        ("0.1", "+10%", "0.11"),
        ("0.1", "-5%", "0.095"),
        ("0.1", "-100%", "0"),
        ("0.1", "+0.5%", "0.1005"),
    ],
)
def test_a_price_is_adjusted_exactly(price: str, adjustment: str, then: str) -> None:
    assert adjusted(money(price), adjustment) == money(then)


def test_a_share_of_a_billionth_is_rounded_half_up() -> None:
    assert adjusted(1, "+50%") == 2
    assert adjusted(1, "+49%") == 1
    assert adjusted(3, "-50%") == 2
    assert adjusted(333_333_333, "+1%") == 336_666_666


@pytest.mark.parametrize("text", ["", "%", "cheap", "1e3", "--1", "0x1", "1.2.3", "+-5%", "٣"])
def test_what_is_no_price_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        OverlayError,
        match=r"^expected a price such as 0\.05 or an adjustment such as -5%, got [^\n]*$",
    ):
        adjusted(1, text)


def test_the_heaviest_overlay_that_matches_sets_the_price_and_of_equal_ones_the_first_by_name() -> (
    None
):
    family = PoolRequirement("family", "In", ("c",))
    overlays = [
        overlay("b", 5, family, price="0.5"),
        overlay("a", 5, family, price_adjustment="+100%"),
        overlay("light", 1, price="9"),
    ]
    types = Types(CATALOGUE, overlays)
    on_demand = asks(bought_as("on-demand"))
    assert types.cheapest(on_demand).tolist() == [money(0.2), money(9), money(9)]


def test_an_overlay_of_one_zone_leaves_the_others() -> None:
    types = Types(
        (SMALL,), [overlay("near", 0, PoolRequirement(*in_zones("oslo-1")), price="0.01")]
    )
    assert types.cheapest(asks(in_zones("oslo-1"))).tolist() == [money(0.01)]
    assert types.cheapest(asks(in_zones("oslo-2"), bought_as("on-demand"))).tolist() == [money(0.1)]


def test_capacity_is_added_where_it_is_there_however_the_type_is_bought() -> None:
    dongle = {"example.com/dongle": 2}
    everywhere = Types(
        (SMALL,), [overlay("all", 0, PoolRequirement("family", "In", ("c",)), capacity=dongle)]
    )
    assert everywhere.capacity_of("example.com/dongle").tolist() == [2]
    somewhere = Types(
        (SMALL,), [overlay("one", 0, PoolRequirement(*in_zones("oslo-1")), capacity=dongle)]
    )
    assert somewhere.amounts(dongle) is None
    several = [
        overlay("a", 1, capacity={**dongle, "cpu": 500}),
        overlay("b", 9, capacity={"example.com/dongle": 3}),
    ]
    both = Types((SMALL,), several)
    assert (both.capacity_of("example.com/dongle").tolist(), both.capacity_of("cpu").tolist()) == (
        [3],
        [2500],
    )


def test_an_overlay_may_ask_for_a_pool() -> None:
    of_blue = overlay(
        "blue",
        0,
        PoolRequirement("team", "In", ("blue",)),
        PoolRequirement(*in_zones("oslo-1")),
        price="1",
    )
    described = frozenset({"family", "topology.kubernetes.io/zone"})
    (kept,) = concerning([of_blue], LabelSet.of_labels({"team": "blue"}), described)
    assert kept.requirements == (PoolRequirement(*in_zones("oslo-1")),)
    assert concerning([of_blue], LabelSet.of_labels({"team": "red"}), described) == ()
    unspoken = concerning([of_blue], NO_LABELS, described)
    assert Types((SMALL,), unspoken).cheapest(asks(in_zones("oslo-1"))).tolist() == [money(0.04)]


def test_what_is_nowhere_offered_is_in_no_zone() -> None:
    types = Types((a_type("x", offerings=()), SMALL))
    assert named(types, types.with_offering(NO_LABELS)) == ["c-small"]
    assert named(types, types.fitting(asks(in_zones("oslo-1")))) == ["c-small"]
    assert Types(()).zones(NO_LABELS) == ()
    assert Types(()).cheapest(NO_LABELS).tolist() == []
