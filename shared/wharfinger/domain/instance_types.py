"""What nodes can be bought: instance types, where and how they are offered, and for how much.

A catalogue comes in parts, since all of a provider's types are too much for one message; it is
known when every part is. Prices are integers, in billionths of a dollar an hour: exact for what
providers publish, and summed in any order.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.resources import Device
from wharfinger.domain.text import PRICE_UNIT as PRICE_UNIT
from wharfinger.domain.value import Name, Value

CapacityType = Literal["reserved", "spot", "on-demand"]


class Offering(Value, frozen=True, array_like=True):
    """An instance type in a zone, bought in one way. `reservation`: of which reservation, where it
    is reserved, and `left`: how many more instances that one holds."""

    zone: str
    capacity_type: CapacityType
    price: int
    available: bool = True
    reservation: str = ""
    left: int = 0


class InstanceType(Value, frozen=True):
    """`capacity`: of the machine; `overhead`: what of it pods cannot have (units:
    `domain.resources`). `labels`: label -> the values nodes of it can have; those of zone and
    capacity type follow from the offerings and are not among them."""

    name: Name
    capacity: dict[str, int]
    overhead: dict[str, int] = {}
    labels: dict[str, tuple[str, ...]] = {}
    offerings: tuple[Offering, ...] = ()
    devices: tuple[Device, ...] = ()

    @property
    def allocatable(self) -> dict[str, int]:
        """Never below zero."""
        return {
            name: max(0, amount - self.overhead.get(name, 0))
            for name, amount in self.capacity.items()
        }


class Catalogue(Value, frozen=True):
    """One of `parts` parts of the catalogue `name`, counted from 0; its types in order of name."""

    name: Name
    types: tuple[InstanceType, ...]
    part: int = 0
    parts: int = 1
