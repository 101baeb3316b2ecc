"""What an hour of a node costs, by its instance type, from a CSV file.

The columns may be named as the clouds' own tables name them. A table with several regions needs one
to be chosen, because the same type has another price in each.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TextIO

from wharfinger.runtime.ledger.errors import LedgerError

TYPE_COLUMNS = ("instance-type", "instance_type", "machine_type", "vm_sku")
PRICE_COLUMNS = ("price_per_hour", "price-per-hour", "on_demand_usd_per_hour", "usd_per_hour")
REGION_COLUMN = "region"
CURRENCY_COLUMN = "currency"
MICRO = 1_000_000
PRICE_MAX = Decimal(10**9)
REGIONS_NAMED = 4


class PricesError(LedgerError):
    """The file gives no prices: one line that says where and why."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """`of_type`: instance type -> millionths of `currency` an hour."""

    of_type: Mapping[str, int]
    currency: str = ""


def read_prices(where: str) -> PriceList:
    """`FILE`, or `FILE@REGION` for a table with several regions. PricesError: one line."""
    path, region = _split(where)
    of_type: dict[str, int] = {}
    currencies: dict[str, None] = {}
    regions: dict[str, None] = {}
    for line, row in _rows(path):
        kind, price = _cell(path, row, TYPE_COLUMNS), _cell(path, row, PRICE_COLUMNS)
        of_row = row.get(REGION_COLUMN, "")
        regions[of_row] = None
        if region and of_row != region:
            continue
        of_type[kind] = _micro(path, line, price)
        currencies[row.get(CURRENCY_COLUMN, "")] = None
    if not region and len(regions) > 1:
        some = ", ".join(sorted(regions)[:REGIONS_NAMED])
        raise PricesError(
            f"{path}: prices of {len(regions)} regions; choose one, "
            f"as in {path}@{next(iter(regions))} ({some}, ...)"
        )
    if not of_type:
        raise PricesError(f"{path}: no prices{f' of the region {region}' if region else ''}")
    if len(currencies) > 1:
        raise PricesError(
            f"{path}: prices in {', '.join(sorted(currencies))}; expected one currency"
        )
    return PriceList(of_type, next(iter(currencies)))


def _split(where: str) -> tuple[Path, str]:
    if Path(where).exists():
        return Path(where), ""
    file, at, region = where.rpartition("@")
    return (Path(file), region) if at and Path(file).exists() else (Path(where), "")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column)."""
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            for row in reader:
                yield (
                    reader.line_num,
                    {str(name).strip(): str(cell or "").strip() for name, cell in row.items()},
                )
    except (OSError, EOFError, zlib.error) as error:
        raise PricesError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise PricesError(f"{path}: expected CSV, got {error}") from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _cell(path: Path, row: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if name in row:
            return row[name]
    raise PricesError(f"{path}:1: expected a column {names[0]}, got {', '.join(row)}")


def _micro(path: Path, line: int, text: str) -> int:
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(-1)
    if not (price.is_finite() and 0 <= price <= PRICE_MAX):
        raise PricesError(f"{path}:{line}: expected a price an hour, got {text!r}")
    return int((price * MICRO).to_integral_value())
