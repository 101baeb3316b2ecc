"""How long an explanation takes on a long ledger: `python -m benchmarks.explain --decisions
1000000`.

`explain_history` fills the ledger. Then decisions that were made at random places of it are
explained, one after another, by one process that has explained some before: of the fleet and of
clusters, of the oldest, the middle and the newest third, placed and refused. Told is the wall time,
of which the database's part depends on who else is on the machine, and this process's own CPU time,
which does not. Each explanation must have come out with the recorded bytes, or nothing is told.

With WHARFINGER_DATABASE and `--decisions 0` a ledger that was filled before is asked again.
`--command` times the command too, its start included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.explain_history import Filled, Size, fill
from wharfinger.events.decisions import (
    ReplicasPlaced,
    ReplicasRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.explain import explain
from wharfinger.kernel.round import Head
from wharfinger.runtime.embedded import Embedded
from wharfinger.runtime.ledger import Ledger, LedgerRow
from wharfinger.runtime.ledger.follower import SnapshotCadence
from wharfinger.runtime.ledger.migration import migrate
from wharfinger.runtime.settings import Settings

EXPLAINED = (ScheduleDecided, ScheduleRefused, ReplicasPlaced, ReplicasRefused)
WARM = 20
"""Asked before anything is measured: connections, code and statements are there in a process that
answers more than once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`refused`: the decision was a refusal. `age`: of three parts of the stream the one it lies
    in, the oldest being 0."""

    row: LedgerRow
    age: int
    wall_ms: float
    cpu_ms: float
    whole: bool

    @property
    def kind(self) -> str:
        return "fleet" if self.row.stream.startswith(FLEET) else "cluster"

    @property
    def refused(self) -> bool:
        return self.row.outcome == "refused"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument(
        "--bindings", type=int, default=0, help="a tenth of the decisions where it is not said"
    )
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument(
        "--processes", type=int, default=2, help="that fill; each has a fleet shard"
    )
    parser.add_argument("--explains", type=int, default=500)
    parser.add_argument("--command", action="store_true", help="time `wharfinger explain` as well")
    options = parser.parse_args()
    named = os.environ.get("WHARFINGER_DATABASE")
    if named:
        measure(named, options)
        return
    with tempfile.TemporaryDirectory(prefix="wharfinger-bench-") as directory:
        # the embedded database runs as a user of its own where we are root
        os.chmod(directory, 0o755)
        embedded = Embedded.under(Path(directory), die_with_parent=True)
        try:
            measure(embedded.start().database_url, options)
        finally:
            embedded.stop()


def measure(url: str, options: argparse.Namespace) -> None:
    asyncio.run(migrate(url))
    if options.decisions:
        bindings = options.bindings or max(100, options.decisions // 10)
        size = Size(options.decisions, bindings, options.clusters, options.nodes)
        cadence = SnapshotCadence(Settings().snapshot_rows, Settings().delta_rows)
        began = time.perf_counter()
        filled = fill(url, size, options.processes, cadence)
        told_filling(filled, size, time.perf_counter() - began)
    asked = asyncio.run(ask(url, options.explains))
    told(asked)
    if options.command:
        told_command(url, random.Random(5).sample(asked, min(10, len(asked))))


# --- asking


async def ask(url: str, explains: int) -> list[Asked]:
    ledger = await Ledger.open(url, "benchmark", clock=lambda: 0)
    try:
        async with ledger.database.reading() as raw:
            await raw.execute("vacuum analyze")
        chosen = await some_decisions(ledger, random.Random(11), explains)
        heads = {head.stream: head for head in await ledger.heads()}
        for row in chosen[:WARM]:
            await explain(ledger, row.subject, decision=row.id)
        return [await _asked(ledger, row, heads) for row in chosen]
    finally:
        await ledger.close()


async def _asked(ledger: Ledger, row: LedgerRow, heads: Mapping[str, Head]) -> Asked:
    began, cpu_began = time.perf_counter(), time.process_time()
    found = await explain(ledger, row.subject, decision=row.id)
    wall_ms, cpu_ms = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu_began)
    again = found.decision.again
    assert again.same, f"{row.stream} {row.seq} did not come out again"
    return Asked(row, min(2, 3 * row.seq // heads[row.stream].seq), wall_ms, cpu_ms, again.whole)


async def some_decisions(ledger: Ledger, numbers: random.Random, wanted: int) -> list[LedgerRow]:
    """Half of the fleet, half of clusters, of all ages alike; refusals among them as they come."""
    heads = {head.stream: head for head in await ledger.heads()}
    fleets = [h for h in heads.values() if h.stream.startswith(FLEET) and h.seq]
    clusters = [h for h in heads.values() if h.stream.startswith(CLUSTER) and h.seq]
    found: list[LedgerRow] = []
    while len(found) < wanted:
        head = numbers.choice(fleets if len(found) % 2 else clusters)
        rows = await ledger.rows_after(
            {h.stream: h.seq for h in heads.values()} | {head.stream: numbers.randrange(head.seq)},
            1,
        )
        if rows and isinstance(rows[0].data(), EXPLAINED):
            found.append(rows[0])
    return found


# --- telling


def told_filling(filled: Sequence[Filled], size: Size, took_s: float) -> None:
    decisions = sum(f.decisions for f in filled)
    print(
        f"{decisions:,} decisions about {size.bindings:,} bindings in {took_s:.0f} s, "
        f"{len(filled)} processes"
    )
    for whole, name in ((True, "whole"), (False, "delta")):
        count = sum(f.snapshots[whole] for f in filled)
        if not count:
            continue
        size_kib = sum(f.bytes[whole] for f in filled) / count / 1024
        cost_ms = 1000 * sum(f.taking_s[whole] for f in filled) / count
        print(
            f"a {name} snapshot: {size_kib:,.0f} KiB before compression, {cost_ms:,.0f} ms, "
            f"{count:,} made"
        )


def told(asked: Sequence[Asked]) -> None:
    for kind in ("fleet", "cluster"):
        of_kind = [a for a in asked if a.kind == kind]
        report(kind, of_kind)
        for age, name in enumerate(("oldest third", "middle third", "newest third")):
            report(f"{kind}, {name}", [a for a in of_kind if a.age == age])
        report(f"{kind}, refused", [a for a in of_kind if a.refused])
    report("all", asked)
    print(f"needed the whole state: {sum(a.whole for a in asked)}")


def report(what: str, asked: Sequence[Asked]) -> None:
    if asked:
        wall, cpu = [a.wall_ms for a in asked], [a.cpu_ms for a in asked]
        print(
            f"explain, {what}: {len(asked)} asked, wall p50 {statistics.median(wall):.1f} ms, "
            f"p99 {_p99(wall):.1f} ms, "
            f"most {max(wall):.1f} ms; own CPU p50 {statistics.median(cpu):.1f} ms, "
            f"p99 {_p99(cpu):.1f} ms"
        )


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


def told_command(url: str, asked: Sequence[Asked]) -> None:
    """A process for each answer: what somebody at a terminal waits for."""
    took: list[float] = []
    for one in asked:
        command = [
            sys.executable,
            "-m",
            "wharfinger_cli",
            "explain",
            one.row.subject,
            "--decision",
            str(one.row.id),
        ]
        began = time.perf_counter()
        subprocess.run(
            command,
            env=os.environ | {"WHARFINGER_DATABASE": url},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took.append(1000 * (time.perf_counter() - began))
    print(
        f"the command, its start included: {len(took)} run, p50 {statistics.median(took):.0f} "
        f"ms, most {max(took):.0f} ms"
    )


if __name__ == "__main__":
    main()
