"""Files of instance types in the formats in common use. The format is recognized by the columns.

What a file does not say is not made up. A machine of unknown size is left out, and so is an
offering without a price; a remark names both. Zones and spot prices that are not in the file come
from the options of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wharfinger_cli.catalogue_clouds import AWS_PRICES, aws, azure, gcp
from wharfinger_cli.catalogue_tables import KWOK_COLUMNS, OURS, karpenter, kwok, ours
from wharfinger_cli.catalogue_terms import CatalogueTerms, Read
from wharfinger_cli.failures import CommandError
from wharfinger_cli.tables import header_of

FORMS: Mapping[str, Callable[[Sequence[Path], CatalogueTerms], Read]] = {
    "kwok": kwok,
    "karpenter": karpenter,
    "aws": aws,
    "azure": azure,
    "gcp": gcp,
    "csv": ours,
}
KNOWN_BY: tuple[tuple[str, frozenset[str]], ...] = (
    ("aws", frozenset({"alloc_cpu", "alloc_memory"})),
    ("aws", frozenset(AWS_PRICES)),
    ("azure", frozenset({"region", "vm_sku", "usd_per_hour"})),
    ("gcp", frozenset({"region", "machine_type", "on_demand_usd_per_hour", "spot_usd_per_hour"})),
    ("kwok", KWOK_COLUMNS),
    ("csv", frozenset(OURS)),
)
"""Columns by which a form is known, the first that has them all."""


def read(paths: Sequence[Path], form: str, asked: CatalogueTerms) -> Read:
    """`form`: one of `FORMS`, or `auto`. CommandError: the first thing that is wrong, with its file
    and line."""
    named = form_of(paths) if form == "auto" else form
    found = FORMS[named](paths, asked)
    if not found.types:
        raise CommandError(
            f"{paths[0]}: expected at least one instance type with a price, got none",
            *found.remarks,
        )
    return Read(tuple(sorted(found.types, key=lambda kind: kind.name)), found.remarks)


def form_of(paths: Sequence[Path]) -> str:
    """The format, by the content of the first file. CommandError: it is none of the known ones."""
    path = paths[0]
    if path.name.removesuffix(".gz").endswith(".json"):
        return "karpenter"
    header = frozenset(header_of(path))
    for form, columns in KNOWN_BY:
        if columns <= header:
            return "csv" if form == "kwok" and header - KWOK_COLUMNS else form
    raise CommandError(
        f"{path}:1: expected a table of instance types; say which with --format "
        f"{', '.join(FORMS)}, got the columns"
        f" {', '.join(sorted(header)[:12]) or 'none'}"
    )
