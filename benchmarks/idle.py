"""What a plane costs that has nothing to do: processor seconds of each part, as a share of one
core.

A plane with eight clusters and eight bindings that stand still is left alone until start-up work
(compiling, caches) is over; then the kernel's account of each process (user and system time,
`/proc/PID/stat`) is read twice. Nothing asks the plane anything meanwhile: a probe would be paid
for by what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.latency import a_binding, a_fleet
from benchmarks.plane import PlaneUnderTest, a_plane
from benchmarks.processor import processor_seconds
from benchmarks.subscriber import Subscriber
from wharfinger.runtime.ledger import Ledger

BINDINGS = 8
AFTER_S = 120.0
"""From `up` to the first reading."""
PERIOD_S = 60.0
MUST = {"services": 2.0, "broker": 2.0}
"""Per cent of a core."""
PLACED_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Idle:
    """`share`: part -> per cent of one core over the period."""

    share: Mapping[str, float]
    period_s: float


def measured(plane: PlaneUnderTest, period_s: float = PERIOD_S) -> Idle:
    """A process that begins in the period counts from its start; one that ends in it is left
    out."""
    began, before = time.monotonic(), processor_seconds(plane)
    time.sleep(period_s)
    after, elapsed = processor_seconds(plane), time.monotonic() - began
    share: dict[str, float] = {}
    for (part, pid), seconds in after.items():
        share[part] = (
            share.get(part, 0.0) + 100 * (seconds - before.get((part, pid), 0.0)) / elapsed
        )
    return Idle(share, elapsed)


async def place(plane: PlaneUnderTest, bindings: int = BINDINGS) -> None:
    """Eight clusters of a hundred nodes, and bindings of one replica each; returns when all
    replicas are placed."""
    where = plane.plane()
    ledger = await Ledger.open(where["database_url"], "wharfinger-bench")
    try:
        async with Subscriber(where["bootstrap"]) as subscriber:
            await ledger.accept(a_fleet())
            names = [f"idle/b{i}" for i in range(bindings)]
            await ledger.accept([a_binding(name) for name in names])
            if not await subscriber.until(
                lambda s: set(names) <= s.first_node.keys(), PLACED_TIMEOUT_S
            ):
                raise RuntimeError(
                    f"not all of {bindings} bindings were placed in {PLACED_TIMEOUT_S:.0f} s"
                )
    finally:
        await ledger.close()


def idle(processes: str = "auto", after_s: float = AFTER_S, period_s: float = PERIOD_S) -> Idle:
    """A plane of its own, from `up` to the figures."""
    with a_plane() as plane:
        plane.up("--processes", processes)
        began = time.monotonic()
        asyncio.run(place(plane))
        time.sleep(max(0.0, after_s - (time.monotonic() - began)))
        return measured(plane, period_s)


def table(found: Idle) -> Table:
    shown = Table(title=f"An idle plane, {found.period_s:.0f} s", title_justify="left")
    for column in ("part", "of a core", "wanted"):
        shown.add_column(column, justify="right" if column != "part" else "left")
    for part, share in sorted(found.share.items(), key=lambda item: -item[1]):
        shown.add_row(part, f"{share:.2f} %", f"≤ {MUST[part]:g} %" if part in MUST else "")
    shown.add_row("all", f"{sum(found.share.values()):.2f} %", "")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--processes", choices=("auto", "one", "two", "each"), default="auto")
    parser.add_argument(
        "--after", type=float, default=AFTER_S, help="seconds from `up` to the first reading"
    )
    parser.add_argument(
        "--period", type=float, default=PERIOD_S, help="seconds between the two readings"
    )
    options = parser.parse_args()
    Console().print(table(idle(options.processes, options.after, options.period)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
