"""What a benchmark prints at its end: its figures as a table, each beside what is wanted, and their
record."""

from __future__ import annotations

import os
import platform
import sys

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.history import Figure, record


def finish(figures: list[Figure], commit: str | None) -> None:
    """Print the figures, and record them; None: keep no record."""
    show(figures)
    if commit is not None:
        print(f"recorded in {record(figures, machine(), commit)}", file=sys.stderr)


def show(figures: list[Figure]) -> None:
    table = Table(
        title="Wharfinger on this machine",
        caption=machine(),
        title_justify="left",
        caption_justify="left",
    )
    for column, justify in (
        ("figure", "left"),
        ("measured", "right"),
        ("wanted", "right"),
        ("met", "left"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for f in figures:
        exact = f"{f.bound:g}" if f.bound is not None and f.bound < 10 else f"{f.bound or 0:,.0f}"
        wanted = "" if f.bound is None else f"{'≥' if f.higher else '≤'} {exact} {f.unit}"
        digits = (
            0 if abs(f.value) >= 100 or f.value == int(f.value) else 1 if abs(f.value) >= 10 else 2
        )
        table.add_row(f.name, f"{f.value:,.{digits}f} {f.unit}", wanted, f.met, f.ratio)
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


def machine() -> str:
    load = os.getloadavg()[0]
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"load {load:.1f} at the end"
    )
