"""What a file of instance types does not contain and the command adds, what is read from the file,
and how amounts and prices are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from wharfinger.domain.instance_types import PRICE_UNIT, InstanceType, Offering
from wharfinger.domain.quantities import QuantityError, parse_units
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import count
from wharfinger_cli.tables import TableRow

ARCH, OS, REGION = "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/region"
PRICE_MAX = 10**6
"""Dollars an hour; far above any machine."""
NAMED_MAX = 4
"""So many of what is left out are named."""
PODS = 110
"""How many pods a node takes by default (Kubernetes)."""


@dataclass(frozen=True, slots=True)
class CatalogueTerms:
    """What the file does not say. `zones`: the last part of their names; empty: those of the
    format. `spot_factor`: of the price on demand. `overhead`: what of each machine pods cannot
    have. `pods`: how many a node takes (0: the usual number)."""

    region: str = ""
    zones: tuple[str, ...] = ()
    spot_factor: Decimal | None = None
    overhead: Mapping[str, int] = field(default_factory=dict)
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """`types` in order of name. `remarks`: what was left out, and what was taken as given."""

    types: tuple[InstanceType, ...]
    remarks: tuple[str, ...] = ()

    @property
    def offerings(self) -> int:
        return sum(len(kind.offerings) for kind in self.types)


def price_of(text: str) -> int:
    """Dollars an hour as billionths, rounded half up. Raises ValueError."""
    try:
        dollars = Decimal(text)
    except InvalidOperation:
        raise ValueError("a price in dollars an hour") from None
    if not dollars.is_finite() or not 0 <= dollars <= PRICE_MAX:
        raise ValueError("a price in dollars an hour")
    return whole(dollars * PRICE_UNIT)


def whole(amount: Decimal) -> int:
    return int(amount.quantize(Decimal(1), ROUND_HALF_UP))


def priced(row: TableRow, column: str) -> int:
    text = row.optional(column)
    try:
        return price_of(text)
    except ValueError:
        raise row.error(column, "a price in dollars an hour such as 0.096", text[:40]) from None


def amount_in(row: TableRow, column: str, parse: Callable[[str], int] = parse_units) -> int:
    text = row.optional(column)
    try:
        amount = parse(text)
    except QuantityError:
        amount = -1
    if amount < 0:
        raise row.error(column, "a quantity such as 500m, 2 or 1.5Gi", text[:40])
    return amount


def some(**amounts: int) -> dict[str, int]:
    return {name.replace("_", "-"): amount for name, amount in amounts.items() if amount}


def _spots(offerings: list[Offering], factor: Decimal | None) -> list[Offering]:
    """Each offering on demand once more as spot, for `factor` of its price."""
    if factor is None:
        return offerings
    spot = [
        Offering(o.zone, "spot", whole(o.price * factor))
        for o in offerings
        if o.capacity_type == "on-demand"
    ]
    return [*offerings, *spot]


def left_out(names: Iterable[str], why: str) -> Iterator[str]:
    found = sorted(set(names))
    if found:
        more = ", ..." if len(found) > NAMED_MAX else ""
        yield (
            f"{count(len(found), 'instance type')} left out: {why} "
            f"({', '.join(found[:NAMED_MAX])}{more})"
        )


def offered(kind: InstanceType, offerings: list[Offering], asked: CatalogueTerms) -> InstanceType:
    found = _spots(offerings, asked.spot_factor)
    ordered = sorted(found, key=lambda o: (o.zone, o.capacity_type, o.reservation))
    return InstanceType(
        kind.name, kind.capacity, kind.overhead, kind.labels, tuple(ordered), kind.devices
    )


def in_region(kind: InstanceType, asked: CatalogueTerms) -> InstanceType:
    if not asked.region:
        return kind
    labels = dict(sorted({**kind.labels, REGION: (asked.region,)}.items()))
    return InstanceType(
        kind.name, kind.capacity, kind.overhead, labels, kind.offerings, kind.devices
    )


def nothing_added(asked: CatalogueTerms, zones: str = "", overhead: str = "") -> None:
    """What is said beside a file that says it itself would contradict it."""
    if asked.pods:
        raise CommandError(
            "--pods: expected only where a file does not say how many pods a node takes, "
            "as this one does"
        )
    if zones and asked.zones:
        raise CommandError(f"--zones: expected only where a file has none: {zones}")
    if overhead and asked.overhead:
        raise CommandError(f"--overhead: expected only where a file has none: {overhead}")
    if zones and asked.spot_factor is not None:
        raise CommandError(
            "--spot-factor: expected only where a file has no spot prices: "
            "this one names each offering"
        )
