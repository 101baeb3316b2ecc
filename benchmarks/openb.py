"""The public openb trace, whole, through all five services."""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import asyncio
import csv
import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks.plane import PlaneUnderTest
from benchmarks.subscriber import Seen, Subscriber
from wharfinger.runtime.backends import plain_database_url

NODES = "openb_node_list_all_node.csv"
PODS = "openb_pod_list_default.csv"


@dataclass(frozen=True, slots=True)
class OpenbRun:
    """`seconds`: from the first row the intake accepted to the last decision a subscriber saw."""

    bindings: int
    decisions: int
    placed: int
    refused: int
    duplicates: int
    seconds: float

    @property
    def decisions_a_second(self) -> float:
        return self.decisions / self.seconds

    @property
    def bindings_a_second(self) -> float:
        return self.bindings / self.seconds


def data_directory() -> Path | None:
    """Where the traces lie: `WHARFINGER_DATA`, else `shared/data` beside the project; None when
    neither is there."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    directory = Path(os.environ.get("WHARFINGER_DATA", beside))
    return directory if (directory / "openb" / NODES).exists() else None


def pods_in(path: Path) -> int:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return sum(1 for _ in csv.DictReader(lines))


async def openb(plane: PlaneUnderTest, data: Path, timeout_s: float = 300.0) -> OpenbRun:
    nodes, pods = data / "openb" / NODES, data / "openb" / PODS
    expected = pods_in(pods)
    async with Subscriber(plane.plane()["bootstrap"]) as subscriber:
        importing = asyncio.create_task(
            asyncio.to_thread(
                plane.command, "import", "openb", "--nodes", str(nodes), "--pods", str(pods)
            )
        )
        done = await subscriber.until(
            lambda s: len(s.first_fleet) >= expected, timeout_s, quiet_s=2.0
        )
        await importing
        seen = subscriber.seen
    if not done:
        raise RuntimeError(
            f"{len(seen.first_fleet)} of {expected} bindings had an outcome after {timeout_s:.0f} s"
        )
    began = await first_accepted(plane.plane()["database_url"])
    return _summary(seen, expected, seen.last_at - began)


def _summary(seen: Seen, bindings: int, seconds: float) -> OpenbRun:
    return OpenbRun(
        bindings,
        sum(seen.ids.values()),
        seen.types["io.wharfinger.replicas.placed.v1"],
        seen.types["io.wharfinger.replicas.refused.v1"],
        sum(n - 1 for n in seen.ids.values()),
        seconds,
    )


async def first_accepted(database_url: str) -> float:
    connection = await asyncpg.connect(plain_database_url(database_url))
    try:
        at_us = await connection.fetchval(
            "select min(r.at_us) from round r join stream s on s.id = r.stream where s.name = "
            "'intake'"
        )
        return float(at_us) / 1e6
    finally:
        await connection.close()
