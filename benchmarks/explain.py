"""How long an explanation takes on a long ledger: `python -m benchmarks.explain --decisions 1000000`.

The history is made without a broker: deciders of both stages are stepped directly and their rounds committed. Fifty clusters of a
hundred nodes hold bindings that are requested, re-scaled and re-requested for as long as it takes; the snapshots are those that
the keeper would make, by its follower. Then random decisions of all ages, of the fleet and of clusters, are explained.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import derive, explain
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.embedded import Embedded
from wharfinger.runtime.ledger import Ledger, LedgerRow, SnapshotFollower
from wharfinger.runtime.ledger.follower import Cadence
from wharfinger.runtime.ledger.schema import migrate
from wharfinger.stages.world import World

SECOND = 1_000_000
START = 1_750_000_000 * SECOND
GI = 2**30
CLASSES = [Requirements({"cpu": 10 * (1 + i % 8), "memory": (16 + i % 5) * 2**20}) for i in range(40)]
PLACEMENTS = [
    Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True)),
    Placement(replicas=ReplicaScheduling("Divided", "Aggregated")),
]
CADENCE = Cadence(10_000, 1_000)
BATCH = 200
EXPLAINED = (ScheduleDecided, ScheduleRefused, ReplicasPlaced, ReplicasRefused)


@dataclass(frozen=True, slots=True)
class Filled:
    decisions: int
    filling_s: float
    following_s: float
    snapshots: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--bindings", type=int, default=0, help="a tenth of the decisions where it is not said")
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--explains", type=int, default=500)
    options = parser.parse_args()
    named = os.environ.get("WHARFINGER_DATABASE")
    if named:
        asyncio.run(measure(named, options))
        return
    with tempfile.TemporaryDirectory(prefix="wharfinger-bench-") as directory:
        os.chmod(directory, 0o755)  # the embedded database runs as a user of its own where we are root
        embedded = Embedded.under(Path(directory), die_with_parent=True)
        try:
            asyncio.run(measure(embedded.start().database_url, options))
        finally:
            embedded.stop()


async def measure(url: str, options: argparse.Namespace) -> None:
    await migrate(url)
    ledger = await Ledger.open(url, "benchmark")
    try:
        bindings = options.bindings or max(100, options.decisions // 10)
        filled = await fill(ledger, options.decisions, bindings, options.clusters, options.nodes)
        print(
            f"{filled.decisions:,} decisions in {filled.filling_s:.0f} s, "
            f"{filled.snapshots:,} snapshots in {filled.following_s:.0f} s"
        )
        await sizes(ledger)
        await ask(ledger, options.explains)
    finally:
        await ledger.close()


# --- filling


async def fill(ledger: Ledger, decisions: int, bindings: int, clusters: int, nodes: int) -> Filled:
    began = time.perf_counter()
    world = World(recorded=True, repeat_after_s=None, at=START)
    written = 0
    numbers = random.Random(7)
    for at, events in enumerate(happenings(numbers, bindings, clusters, nodes)):
        rounds = world.tell(events, START + at * SECOND)
        await committed(ledger, rounds)
        written += sum([len(r.round.decisions) for r in rounds])
        if written >= decisions:
            break
    filling_s = time.perf_counter() - began
    began, snapshots = time.perf_counter(), 0
    for head in await ledger.heads():
        prefix = FLEET if head.stream.startswith(FLEET) else CLUSTER
        if head.stream.startswith((FLEET, CLUSTER)):
            follower: SnapshotFollower[Any] = SnapshotFollower(ledger, DECIDERS[prefix], head.stream, cadence=CADENCE)
            snapshots += len(await follower.catch_up())
            assert follower.divergence is None, follower.divergence
    async with ledger.database.reading() as raw:
        await raw.execute("analyze")
    return Filled(written, filling_s, time.perf_counter() - began, snapshots)


def happenings(numbers: random.Random, bindings: int, clusters: int, nodes: int) -> Iterator[list[Event[Value]]]:
    told = 0

    def event(data: Value, subject: str) -> Event[Value]:
        nonlocal told
        told += 1
        return made(data, id=derived_id("benchmark", told), source="/benchmark", subject=subject)

    names = [f"cluster-{i:02d}" for i in range(clusters)]
    facts: list[Event[Value]] = []
    for name in names:
        facts.append(event(ClusterObserved(Cluster(name, region=f"region-{hash_of(name) % 5}")), name))
        found = [Node(f"{name}-n{i:03d}", {"cpu": 64_000, "memory": 256 * GI, "pods": 500}) for i in range(nodes)]
        facts += [event(said, name) for said in into_buckets(name, found, 4)]
    yield facts
    first = 0
    while True:
        batch: list[Event[Value]] = []
        for _ in range(BATCH):
            at, first = (first, first + 1) if first < bindings else (numbers.randrange(bindings), first)
            name = f"team-{at % 97}/app-{at}"
            asked = CLASSES[(at + numbers.randrange(20) // 19) % len(CLASSES)]
            ref = ObjectRef("apps/v1", "Deployment", f"app-{at}", f"team-{at % 97}")
            placement = PLACEMENTS[at % len(PLACEMENTS)]
            spec = Binding(name, f"uid-{at}", ref, 1 + numbers.randrange(4), asked, placement)
            batch.append(event(BindingRequested(spec), name))
        yield batch


def hash_of(name: str) -> int:
    return sum(name.encode())


async def committed(ledger: Ledger, rounds: Sequence[RecordedRound]) -> None:
    await ledger.ensure_streams({r.round.stream for r in rounds})
    for recorded in rounds:
        result = await ledger.commit([recorded.round], {e.id: e for e in recorded.events})
        assert not result.fenced


# --- asking


async def sizes(ledger: Ledger) -> None:
    async with ledger.database.reading() as raw:
        for whole, number, bytes_ in await raw.fetch(
            "select n.whole, count(distinct (n.stream, n.round)), sum(length(t.body)) from snapshot n "
            "join snapshot_section t on t.stream = n.stream and t.round = n.round group by 1 order by 1"
        ):
            print(f"{'whole' if whole else 'delta'}: {number:,} stored, {bytes_ / 2**20:,.1f} MiB")
        row = await raw.fetchrow("select pg_database_size(current_database())")
        print(f"the database: {row[0] / 2**20:,.0f} MiB" if row is not None else "")


async def ask(ledger: Ledger, explains: int) -> None:
    numbers = random.Random(11)
    chosen = await some_decisions(ledger, numbers, explains)
    times: dict[str, list[float]] = {"fleet": [], "cluster": [], "own CPU time": []}
    whole = 0
    for row in chosen[:20]:
        await derive(
            ledger, row
        )  # connections, code and plans are warm in a process that answers more than one question
    for row in chosen:
        began, cpu_began = time.perf_counter(), time.process_time()
        found = await explain(ledger, row.subject, decision=row.id)
        times["fleet" if row.stream.startswith(FLEET) else "cluster"].append(1000 * (time.perf_counter() - began))
        times["own CPU time"].append(1000 * (time.process_time() - cpu_began))
        assert found.decision.again.same, row
        whole += found.decision.again.whole
    for what, taken in times.items():
        report(what, taken)
    report("all", times["fleet"] + times["cluster"])
    print(f"needed the whole state: {whole}")


def report(what: str, taken: Sequence[float]) -> None:
    if len(taken) > 1:
        ordered = sorted(taken)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        p50 = statistics.median(taken)
        print(f"explain, {what}: {len(taken)} asked, p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {ordered[-1]:.1f} ms")


async def some_decisions(ledger: Ledger, numbers: random.Random, wanted: int) -> list[LedgerRow]:
    """Half of the fleet, half of clusters, of all ages alike."""
    heads = {head.stream: head for head in await ledger.heads()}
    fleets = [h for h in heads.values() if h.stream.startswith(FLEET) and h.seq]
    clusters = [h for h in heads.values() if h.stream.startswith(CLUSTER) and h.seq]
    found: list[LedgerRow] = []
    while len(found) < wanted:
        head = numbers.choice(fleets if len(found) % 2 else clusters)
        rows = await ledger.rows_after(
            {h.stream: h.seq for h in heads.values()} | {head.stream: numbers.randrange(head.seq)}, 1
        )
        if rows and isinstance(rows[0].data(), EXPLAINED):
            found.append(rows[0])
    return found


if __name__ == "__main__":
    main()
