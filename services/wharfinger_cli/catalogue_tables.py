"""Instance types from files that describe them completely: a table of ours with one row an
offering, and the files of Karpenter's KWOK provider.

The table has the columns `instance_type`, `cpu`, `memory`, `zone`, `capacity_type`,
`price_per_hour`, and, where there is more to say, `arch`, `os` (several joined by `|`), `pods`,
`ephemeral_storage`, `available`, `reservation`, `left`, `gpu_count`, `gpu_model`, `gpu_kind`,
`overhead_cpu`, `overhead_memory`, `overhead_ephemeral_storage`, `label:NAME` and
`capacity:RESOURCE`. Rows of one machine say the same of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, ZONE_LABEL
from wharfinger.domain.quantities import QuantityError, parse_milli, parse_units
from wharfinger.domain.resources import GPU, Device
from wharfinger.manifests.amounts import DEVICES_MAX, is_device
from wharfinger_cli.catalogue_terms import (
    ARCH,
    OS,
    PODS,
    CatalogueTerms,
    Read,
    amount_in,
    in_region,
    left_out,
    nothing_added,
    offered,
    price_of,
    priced,
    some,
)
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import count
from wharfinger_cli.tables import TableRow, header_of, rows

MEBIBYTE = 1 << 20

# --- A row an offering: ours, and Karpenter's for KWOK as a table.

OURS = ("instance_type", "cpu", "memory", "zone", "capacity_type", "price_per_hour")
_MORE = (
    "arch",
    "os",
    "pods",
    "ephemeral_storage",
    "available",
    "reservation",
    "left",
    "gpu_count",
    "gpu_model",
    "gpu_kind",
    "overhead_cpu",
    "overhead_memory",
    "overhead_ephemeral_storage",
)
KWOK_COLUMNS = frozenset({*OURS, "arch", "os", "ephemeral_storage", "pods", "available"})
_OF_AN_OFFERING = frozenset(
    {"zone", "capacity_type", "price_per_hour", "available", "reservation", "left"}
)
_BOUGHT: tuple[CapacityType, ...] = ("on-demand", "spot", "reserved")


def ours(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    return _table(paths, asked, _described)


def kwok(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    return _table(
        paths,
        asked,
        lambda row: _of_kwok(_described(row), row.optional("cpu"), row.optional("memory")),
    )


def _table(
    paths: Sequence[Path], asked: CatalogueTerms, made: Callable[[TableRow], InstanceType]
) -> Read:
    nothing_added(asked, zones="the table has zones", overhead="the table says it itself")
    first: dict[str, TableRow] = {}
    types: dict[str, InstanceType] = {}
    sold: dict[str, dict[tuple[str, str, str], Offering]] = {}
    without_price: list[str] = []
    for row in (row for path in paths for row in _known_columns(path)):
        name = row.name("instance_type")
        if (before := first.setdefault(name, row)) is row:
            types[name] = made(row)
        else:
            _same_machine(row, before)
        if not row.optional("price_per_hour"):
            without_price.append(name)
            continue
        offering = _offering(row)
        place = (offering.zone, offering.capacity_type, offering.reservation)
        if place in sold.setdefault(name, {}):
            raise row.error(
                "zone",
                f"each offering of {name} once",
                f"{offering.zone} {offering.capacity_type} again",
            )
        sold[name][place] = offering
    found = [
        offered(in_region(types[name], asked), list(of.values()), asked)
        for name, of in sold.items()
    ]
    remarks = list(left_out((name for name in without_price if name not in sold), "no price"))
    partly = sum(name in sold for name in without_price)
    if partly:
        remarks.append(f"{count(partly, 'offering')} left out: no price")
    return Read(tuple(found), tuple(remarks))


def _known_columns(path: Path) -> Iterator[TableRow]:
    for column in header_of(path):
        if column not in OURS + _MORE and not column.startswith(("label:", "capacity:")):
            raise CommandError(
                f"{path}:1: {column}: expected one of {', '.join(OURS + _MORE)}, "
                "label:NAME or capacity:RESOURCE"
            )
    return rows(path, OURS)


def _same_machine(row: TableRow, before: TableRow) -> None:
    for column, cell in row.cells.items():
        if column not in _OF_AN_OFFERING and cell.strip() != before.cells.get(column, "").strip():
            raise row.error(
                column,
                f"{before.cells.get(column, '')!r} as in line {before.line}, for one machine",
                cell,
            )


def _described(row: TableRow) -> InstanceType:
    """The machine that a row is about, without offerings."""
    gpus = row.devices("gpu_count", default=0)
    more = {
        c.removeprefix("capacity:"): amount_in(row, c)
        for c in row.cells
        if c.startswith("capacity:") and row.optional(c)
    }
    if counted := next((name for name in more if is_device(name)), None):
        raise row.error(
            f"capacity:{counted}",
            "devices as gpu_kind and gpu_count",
            row.cells[f"capacity:{counted}"],
        )
    return InstanceType(
        row.name("instance_type"),
        some(
            cpu=amount_in(row, "cpu", parse_milli),
            memory=amount_in(row, "memory"),
            ephemeral_storage=amount_in(row, "ephemeral_storage")
            if row.optional("ephemeral_storage")
            else 0,
            pods=row.number("pods", default=PODS),
        )
        | more,
        {
            resource: amount
            for resource, column, parse in _OVERHEADS
            if row.optional(column) and (amount := amount_in(row, column, parse))
        },
        _labels(row),
        devices=(Device(row.optional("gpu_model"), row.optional("gpu_kind") or GPU),) * gpus,
    )


_OVERHEADS: tuple[tuple[str, str, Callable[[str], int]], ...] = (
    ("cpu", "overhead_cpu", parse_milli),
    ("memory", "overhead_memory", parse_units),
    ("ephemeral-storage", "overhead_ephemeral_storage", parse_units),
)


def _labels(row: TableRow) -> dict[str, tuple[str, ...]]:
    said = {ARCH: row.optional("arch"), OS: row.optional("os")} | {
        column.removeprefix("label:"): row.optional(column)
        for column in row.cells
        if column.startswith("label:")
    }
    return {name: tuple(value.split("|")) for name, value in sorted(said.items()) if value}


def _offering(row: TableRow) -> Offering:
    way = next((known for known in _BOUGHT if known == row.optional("capacity_type")), None)
    if way is None:
        raise row.error(
            "capacity_type", f"one of {', '.join(_BOUGHT)}", row.optional("capacity_type")[:40]
        )
    available = row.optional("available").lower() or "true"
    if available not in ("true", "false"):
        raise row.error("available", "true or false", available[:40])
    reservation, left = row.optional("reservation"), row.number("left", default=0)
    if (way == "reserved") != bool(reservation):
        raise row.error(
            "reservation",
            "the id of a reservation where the capacity type is reserved, and only there",
            reservation,
        )
    return Offering(
        row.name("zone"), way, priced(row, "price_per_hour"), available == "true", reservation, left
    )


# --- Karpenter's for KWOK.

KWOK_OVERHEAD = {"cpu": 100, "memory": 10 * MEBIBYTE}
"""What Karpenter's KWOK provider keeps of every machine for the kubelet."""
_AWS_SIZE = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)")


def _of_kwok(kind: InstanceType, cpu: str, memory: str) -> InstanceType:
    """With the labels by which Karpenter's KWOK provider describes its types."""
    size = found[1] if (found := _AWS_SIZE.fullmatch(kind.name)) else cpu
    family = (
        re.split(r"[.-]", kind.name, maxsplit=1)[0]
        if re.search(r"[.-]", kind.name)
        else kind.name[:1]
    )
    described = {
        "instance-cpu": cpu,
        "instance-family": family,
        "instance-memory": memory,
        "instance-size": size,
    }
    labels = {
        **kind.labels,
        **{f"karpenter.kwok.sh/{name}": (value,) for name, value in described.items()},
    }
    return InstanceType(
        kind.name,
        kind.capacity,
        dict(KWOK_OVERHEAD),
        dict(sorted(labels.items())),
        kind.offerings,
        kind.devices,
    )


def karpenter(paths: Sequence[Path], asked: CatalogueTerms) -> Read:
    """The JSON file from which Karpenter's KWOK provider reads its instance types."""
    nothing_added(asked, zones="the file has zones", overhead="Karpenter has its own for KWOK")
    found: dict[str, InstanceType] = {}
    for path in paths:
        for i, raw in enumerate(_json_list(path)):
            here = _Json(path, f"[{i}]", raw)
            kind = in_region(_of_json(here), asked)
            if kind.name in found:
                raise here.error("name", "each instance type once", kind.name)
            found[kind.name] = offered(kind, list(kind.offerings), asked)
    return Read(tuple(found.values()))


@dataclass(frozen=True, slots=True)
class _Json:
    """A value in a JSON file, and where it is. The names of fields are compared without regard to
    case, as Go does."""

    path: Path
    where: str
    value: object

    def get(self, name: str) -> _Json:
        if not isinstance(self.value, dict):
            raise self.error("", "an object", self.value)
        found = next((v for k, v in self.value.items() if k.lower() == name.lower()), None)
        return _Json(self.path, f"{self.where}.{name}", found)

    def items(self) -> list[_Json]:
        if not isinstance(self.value, list):
            raise self.error("", "a list", self.value)
        return [_Json(self.path, f"{self.where}[{i}]", item) for i, item in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.error("", "a text that is not empty", self.value)
        return self.value

    def quantity(self, parse: Callable[[str], int]) -> int:
        try:
            amount = parse(str(self.value))
        except QuantityError:
            amount = -1
        if amount < 0 or isinstance(self.value, bool):
            raise self.error("", "a quantity such as 500m, 2 or 1.5Gi", self.value)
        return amount

    def error(self, name: str, expected: str, got: object) -> CommandError:
        where = f"{self.where}.{name}" if name else self.where
        return CommandError(f"{self.path}: {where}: expected {expected}, got {str(got)[:40]!r}")


def _of_json(here: _Json) -> InstanceType:
    resources = here.get("resources")
    if not isinstance(resources.value, dict):
        raise resources.error("", "resources by name", resources.value)
    amounts = {
        name: resources.get(name).quantity(parse_milli if name == "cpu" else parse_units)
        for name in resources.value
    }
    gpus = {name: amounts.pop(name) for name in list(amounts) if is_device(name)}
    if max(gpus.values(), default=0) > DEVICES_MAX:
        raise resources.error("", f"at most {DEVICES_MAX} devices", max(gpus.values()))
    systems = tuple(system.text() for system in here.get("operatingSystems").items())
    labels = {ARCH: (here.get("architecture").text(),), OS: systems}
    kind = InstanceType(
        here.get("name").text(),
        {"pods": PODS} | {name: amount for name, amount in sorted(amounts.items()) if amount},
        {},
        labels,
        tuple(_json_offering(offering) for offering in here.get("offerings").items()),
        tuple(Device("", name) for name, number in sorted(gpus.items()) for _ in range(number)),
    )
    return _of_kwok(kind, str(resources.get("cpu").value), str(resources.get("memory").value))


def _json_offering(here: _Json) -> Offering:
    """Zone and capacity type as requirements, or, as Karpenter once wrote it, as fields. It takes
    all of them for available."""
    if here.get("requirements").value is None:
        zone, way = here.get("zone").text(), here.get("capacityType").text()
    else:
        said = {
            one.get("key").text(): one.get("values").items()
            for one in here.get("requirements").items()
        }
        zone, way = (_only(here, said, label) for label in (ZONE_LABEL, CAPACITY_TYPE_LABEL))
    known = next((one for one in _BOUGHT if one == way), None)
    if known is None:
        raise here.error("capacityType", f"one of {', '.join(_BOUGHT)}", way)
    price = here.get("price")
    try:
        return Offering(zone, known, price_of(str(price.value)))
    except ValueError:
        raise price.error("", "a price in dollars an hour such as 0.096", price.value) from None


def _only(here: _Json, said: Mapping[str, list[_Json]], label: str) -> str:
    values = said.get(label, [])
    if len(values) != 1:
        raise here.error("requirements", f"one value of {label}", len(values))
    return values[0].text()


def _json_list(path: Path) -> list[object]:
    try:
        with path.open("rb") as file:
            found: object = json.load(file, parse_float=Decimal)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise CommandError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{path}: not JSON: {type(error).__name__}") from error
    if not isinstance(found, list):
        raise CommandError(f"{path}: expected a list of instance types")
    return found
