"""A plane of real processes under a steady load for a long time: what grows, and what an event
costs on disk.

The load is that of `tests.chaos.campaign`: events of bindings by a seed, 35 % of them withdrawals
and scale-backs, over a fixed number of names. So what the plane has to know stays as large as it
is, and memory that grows is lost. Each minute memory (proportional set size), lag and the size of
the tables are read. Growth is the slope of a line through the readings after the warm-up.

    make endurance MINUTES=30
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import asyncpg
from benchmarks.plane import PlaneUnderTest, a_plane
from benchmarks.processor import processor_seconds
from tests.chaos.campaign import Campaign, Load
from tests.chaos.outages import BACKENDS, memory_mib

from wharfinger.runtime.backends import plain_database_url

GROWTH_MIB_MAX = 1.0
"""A minute, of all services and the supervisor."""
MINUTES_MIN = 2.0
WARM_UP = 1 / 3
"""Share of the time in which caches fill."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`memory`: part -> MiB. `lag`: messages not yet taken in, of all services."""

    minute: float
    events: int
    memory: dict[str, float]
    lag: int
    tables: dict[str, int]

    def line(self) -> str:
        memory = ", ".join(f"{part} {mib:.0f}" for part, mib in sorted(self.memory.items()))
        size = sum(self.tables.values()) / 2**20
        return (
            f"{self.minute:5.1f} min  {self.events:7,} events  lag {self.lag:4}  "
            f"tables {size:6.1f} MiB  memory {memory} MiB"
        )


def growth(readings: Sequence[Reading], part: str) -> float:
    """MiB a minute: the slope of the line through the readings after the warm-up."""
    first = readings[-1].minute * WARM_UP
    late = [reading for reading in readings if reading.minute >= first]
    minutes = [reading.minute for reading in late]
    return statistics.linear_regression(minutes, [r.memory.get(part, 0.0) for r in late]).slope


async def read(plane: PlaneUnderTest, minute: float, events: int) -> Reading:
    memory = await asyncio.to_thread(memory_mib, plane)
    status = await asyncio.to_thread(plane.json, "status")
    connection = await asyncpg.connect(plain_database_url(str(plane.plane()["database_url"])))
    try:
        rows = await connection.fetch(_TABLES)
    finally:
        await connection.close()
    return Reading(
        minute,
        events,
        memory,
        sum(service["lag"] or 0 for service in status["services"].values()),
        {row["name"]: row["bytes"] for row in rows},
    )


_TABLES = """
select relname as name, pg_total_relation_size(oid) as bytes from pg_class
where relkind in ('r', 'p', 'm') and relnamespace = 'public'::regnamespace and not relispartition
union all
select parent.relname, sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits
join pg_class parent on parent.oid = inhparent group by parent.relname
"""


async def endure(plane: PlaneUnderTest, seed: int, minutes: float, rate: float) -> list[str]:
    """What was not kept."""
    one = Campaign(plane, seed, Load(Random(f"load {seed}")))
    await one.run((), 0)
    began, used = time.monotonic(), processor_seconds(plane)
    readings: list[Reading] = []

    async def look() -> None:
        reading = await read(plane, (time.monotonic() - began) / 60, len(one.load.accepted))
        readings.append(reading)
        print(reading.line(), flush=True)

    loading = asyncio.create_task(one.load.steadily(one.url, rate, minutes * 60))
    await look()
    while not loading.done():
        await asyncio.wait([loading], timeout=60)
        await look()
    await loading
    seconds, spent = time.monotonic() - began, processor_seconds(plane)
    found = await one.check()
    print(dict(sorted(found.figures.items())))
    broken = list(found.broken)
    last = await read(plane, seconds / 60, len(one.load.accepted))
    if last.lag:
        broken.append(f"lag is {last.lag} after the load has ended")
    slopes = {part: growth(readings, part) for part in sorted(last.memory)}
    for part, mib in slopes.items():
        print(f"{part}: grows by {mib:+.2f} MiB a minute")
    together = sum(mib for part, mib in slopes.items() if part not in BACKENDS)
    print(f"services and supervisor together: grow by {together:+.2f} MiB a minute")
    if together >= GROWTH_MIB_MAX:
        broken.append(f"services grow by {together:.2f} MiB a minute")
    for part in sorted({part for part, _ in spent}):
        share = sum(s - used.get(key, 0.0) for key, s in spent.items() if key[0] == part) / seconds
        print(f"{part}: {100 * share:.1f} % of a core")
    middle = readings[len(readings) // 2]
    events = last.events - middle.events
    for table in sorted(last.tables, key=lambda name: -last.tables[name]):
        more = last.tables[table] - middle.tables.get(table, 0)
        if more > 0:
            print(f"table {table}: {more / events:.0f} bytes an event in the second half")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="make endurance", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0, help="events a second")
    asked = parser.parse_args()
    if asked.minutes < MINUTES_MIN:
        parser.error(f"--minutes: expected at least {MINUTES_MIN:g}: a slope needs two readings")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the plane is stopped too
    with a_plane() as plane:
        broken = asyncio.run(endure(plane, asked.seed, asked.minutes, asked.rate))
    for line in broken:
        print(f"broken: {line}")
    print(f"{asked.minutes:g} min at {asked.rate:g} events/s: {'BROKEN' if broken else 'kept'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
