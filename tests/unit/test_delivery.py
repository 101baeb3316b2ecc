"""What a claim becomes where nobody sells real machines."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.domain.instance_types import PRICE_UNIT, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    CLAIM_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    PoolRequirement,
)
from wharfinger.domain.taints import Taint
from wharfinger.engine.provisioning.simulated_nodes import bought, by_name, delivered
from wharfinger.events.decisions import NodeClaimRequested

CENT = PRICE_UNIT // 100

SMALL = InstanceType(
    "small",
    {"cpu": 2000, "memory": 4 << 30},
    {"cpu": 100},
    {"kubernetes.io/arch": ("amd64",), "os": ("linux", "bsd")},
    (
        Offering("a", "on-demand", 10 * CENT),
        Offering("b", "on-demand", 9 * CENT),
        Offering("b", "spot", 3 * CENT),
    ),
)
LARGE = InstanceType(
    "large",
    {"cpu": 4000},
    offerings=(
        Offering("a", "spot", 2 * CENT, available=False),
        Offering("a", "reserved", 1 * CENT, reservation="r", left=0),
        Offering("a", "on-demand", 20 * CENT),
    ),
)
TYPES = by_name([SMALL, LARGE])

CLAIM = NodeClaimRequested(
    "oslo",
    "general-1",
    "general",
    (PoolRequirement("team", "In", ("shop",)),),
    ("small", "large"),
    {"cpu": 1500},
    {"shop/web": 3},
    3 * CENT,
    0,
    labels={"tier": "web"},
    taints=(Taint("dedicated", "NoSchedule"),),
    startup_taints=(Taint("cni", "NoExecute"),),
    annotations={"karpenter.sh/nodepool-hash": "1"},
)


def only(*requirements: PoolRequirement) -> NodeClaimRequested:
    return msgspec.structs.replace(CLAIM, requirements=requirements)


def what(claim: NodeClaimRequested) -> tuple[str, str, str] | None:
    taken = bought(claim, TYPES)
    return None if taken is None else (taken[0].name, taken[1].zone, taken[1].capacity_type)


def test_spot_is_taken_before_on_demand_and_the_cheapest_of_it() -> None:
    assert what(CLAIM) == ("small", "b", "spot")


@pytest.mark.parametrize(
    ("requirement", "taken"),
    [
        (PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("on-demand",)), ("small", "b", "on-demand")),
        (PoolRequirement(ZONE_LABEL, "NotIn", ("b",)), ("small", "a", "on-demand")),
        (PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("reserved",)), None),
    ],
)
def test_what_the_claim_requires_is_kept(
    requirement: PoolRequirement, taken: tuple[str, str, str] | None
) -> None:
    assert what(only(requirement)) == taken


def test_nothing_at_or_above_the_ceiling_is_bought() -> None:
    assert what(msgspec.structs.replace(CLAIM, ceiling=4 * CENT)) == ("small", "b", "spot")
    assert what(msgspec.structs.replace(CLAIM, ceiling=3 * CENT)) is None
    assert delivered(msgspec.structs.replace(CLAIM, ceiling=CENT), TYPES, 5) is None


def test_the_node_is_what_was_asked_for_and_ready() -> None:
    node = delivered(CLAIM, TYPES, 5)
    assert node is not None
    assert node.name == node.labels[CLAIM_LABEL] == "general-1"
    assert node.allocatable == {"cpu": 1900, "memory": 4 << 30}
    assert node.labels[POOL_LABEL] == "general"
    assert {
        "team": "shop",
        "tier": "web",
        "kubernetes.io/arch": "amd64",
        ZONE_LABEL: "b",
    }.items() <= node.labels.items()
    assert "os" not in node.labels, "which of several values it will be nobody knows"
    assert node.taints == (Taint("dedicated", "NoSchedule"),), "the startup taints have gone"
    assert node.annotations == {"karpenter.sh/nodepool-hash": "1"}
    assert node.created_us == 5


def test_types_that_nobody_sells_any_more_are_passed_over() -> None:
    assert what(msgspec.structs.replace(CLAIM, instance_types=("gone", "large"))) == (
        "large",
        "a",
        "on-demand",
    )
