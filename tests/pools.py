"""Words for tests of node pools: instance types, offerings and pools in one line each. Prices are
in dollars an hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.instance_types import PRICE_UNIT, CapacityType, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    ZONE_LABEL,
    PoolOperator,
    PoolRequirement,
)
from wharfinger.domain.resources import Device
from wharfinger.engine.provisioning.requirements import LabelSet

GIB = 1 << 30
ZONES = ("oslo-1", "oslo-2")


def money(dollars: float | str) -> int:
    """Exact for what tests write."""
    return round(float(dollars) * 10**6) * (PRICE_UNIT // 10**6)


def offered(
    on_demand: float | None = None, spot: float | None = None, zones: Iterable[str] = ZONES
) -> tuple[Offering, ...]:
    """The same in each zone."""
    found = []
    for zone in zones:
        if on_demand is not None:
            found.append(Offering(zone, "on-demand", money(on_demand)))
        if spot is not None:
            found.append(Offering(zone, "spot", money(spot)))
    return tuple(found)


def reserved(zone: str, price: float, reservation: str, left: int) -> Offering:
    return Offering(zone, "reserved", money(price), reservation=reservation, left=left)


def a_type(
    name: str,
    cpu: int = 4,
    gib: int = 16,
    offerings: Iterable[Offering] = offered(0.2),
    *,
    pods: int = 110,
    overhead: Mapping[str, int] | None = None,
    gpus: int = 0,
    model: str = "t4",
    more: Mapping[str, int] | None = None,
    **labels: str,
) -> InstanceType:
    """`labels`: one value each; `more`: further capacity."""
    capacity = {"cpu": cpu * 1000, "memory": gib * GIB, "pods": pods, **(more or {})}
    return InstanceType(
        name,
        capacity,
        dict(overhead or {}),
        {"kubernetes.io/arch": ("amd64",), **{key: (value,) for key, value in labels.items()}},
        tuple(offerings),
        (Device(model),) * gpus,
    )


def asks(*wanted: tuple[str, PoolOperator, tuple[str, ...]] | PoolRequirement) -> LabelSet:
    return LabelSet.of_pool(
        w if isinstance(w, PoolRequirement) else PoolRequirement(*w) for w in wanted
    )


def in_zones(*zones: str) -> tuple[str, PoolOperator, tuple[str, ...]]:
    return ZONE_LABEL, "In", zones


def bought_as(*types: CapacityType) -> tuple[str, PoolOperator, tuple[str, ...]]:
    return CAPACITY_TYPE_LABEL, "In", types
