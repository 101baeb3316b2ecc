"""The long ledger that `benchmarks.explain` asks: a million decisions in minutes, made by the
stages themselves.

Without a broker: each process lets a `World` of its own run, one fleet shard with its clusters, and
commits its rounds, those of many moments at once. Bindings are requested, re-scaled and
re-requested for as long as it takes. A few ask for more than any node has, and a few clusters have
a taint that only some bear, so that there are refusals to explain.

Snapshots are taken of the states as they stand, by the same dumps and at the same distances as the
follower's. What is saved is the follower's work of deciding everything a second time, which would
double the time of filling and change no byte.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import fleet_stream
from wharfinger.kernel.decider import Incremental
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.follower import BYTES_A_ROW, SnapshotCadence
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World

SECOND = 1_000_000
START = 1_750_000_000 * SECOND
GI = 2**30
CLASSES = [
    Requirements({"cpu": 10 * (1 + i % 8), "memory": (16 + i % 5) * 2**20}) for i in range(40)
]
TOO_LARGE = Requirements({"cpu": 65_000, "memory": GI})
RESERVED = Taint("reserved", "NoSchedule", "batch")
BEARING = (Toleration("reserved", "Exists"),)
PLACEMENTS = [
    Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True)),
    Placement(replicas=ReplicaScheduling("Divided", "Aggregated")),
    Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True), tolerations=BEARING),
]
BATCH = 200
"""Requests of one moment."""

COMMITTED = 8
"""Moments whose rounds go in one transaction."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of what one process makes. `bindings`: how many names there are; each is asked for again and
    again."""

    decisions: int
    bindings: int
    clusters: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Filled:
    """`bytes`, `taking_s`: of snapshots, `whole` or not, before compression and with what storing
    them took."""

    decisions: int = 0
    snapshots: Mapping[bool, int] = field(default_factory=dict)
    bytes: Mapping[bool, int] = field(default_factory=dict)
    taking_s: Mapping[bool, float] = field(default_factory=dict)


def fill(url: str, size: Size, processes: int, cadence: SnapshotCadence) -> list[Filled]:
    """Each process makes its share of the decisions, bindings and clusters."""
    share = Size(
        size.decisions // processes,
        size.bindings // processes,
        size.clusters // processes,
        size.nodes,
    )
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(
            pool.map(
                _fill_shard,
                *zip(*[(url, shard, share, cadence) for shard in range(processes)], strict=True),
            )
        )


def _fill_shard(url: str, shard: int, size: Size, cadence: SnapshotCadence) -> Filled:
    return asyncio.run(_filled(url, shard, size, cadence))


async def _filled(url: str, shard: int, size: Size, cadence: SnapshotCadence) -> Filled:
    ledger = await Ledger.open(url, "benchmark")
    try:
        world = world_of(shard)
        keeping = _Keeping(ledger, world, cadence)
        decided, waiting = 0, list[RecordedRound]()
        for at, events in enumerate(happenings(shard, size)):
            rounds = world.tell(events, START + at * SECOND)
            decided += sum([len(r.round.decisions) for r in rounds])
            waiting += rounds
            keeping.count(rounds)
            done = decided >= size.decisions
            if done or keeping.due or at % COMMITTED == 0:
                await commit(ledger, waiting)
                waiting.clear()
                await keeping.keep()
            if done:
                return replace(keeping.taken(), decisions=decided)
        raise AssertionError("there is no end to what happens")
    finally:
        await ledger.close()


def world_of(shard: int) -> World:
    world = World(
        shards=0,
        shard_of=lambda _: shard,
        recorded=True,
        repeat_after_s=None,
        namespace=f"shard-{shard}",
        at=START,
    )
    stream, decider = fleet_stream(shard), FleetDecider()
    world.adopt(stream, decider, decider.initial(stream), empty_head(stream))
    return world


async def commit(ledger: Ledger, rounds: Sequence[RecordedRound]) -> None:
    await ledger.ensure_streams({r.round.stream for r in rounds})
    result = await ledger.commit(
        [r.round for r in rounds], {e.id: e for r in rounds for e in r.events}
    )
    assert not result.fenced


class _Keeping:
    """The snapshots of a world, when the follower would make them."""

    def __init__(self, ledger: Ledger, world: World, cadence: SnapshotCadence) -> None:
        self._ledger, self._world, self._cadence = ledger, world, cadence
        self._rows: dict[tuple[str, bool], int] = {}
        self._bytes: dict[str, int] = {}
        self._snapshots, self._written, self._taking_s = (
            {True: 0, False: 0},
            {True: 0, False: 0},
            {True: 0.0, False: 0.0},
        )
        self.due: set[tuple[str, bool]] = set()

    def count(self, rounds: Sequence[RecordedRound]) -> None:
        for recorded in rounds:
            stream = recorded.round.stream
            running = self._world.streams[stream]
            incremental = isinstance(running.decider, Incremental)
            if isinstance(running.decider, Incremental) and (stream, False) not in self._rows:
                running.decider.note_changes(running.state, everything=True)
            price = self._bytes.get(stream, 0) // BYTES_A_ROW
            for whole, least in (
                (True, max(self._cadence.whole_rows, price)),
                (False, self._cadence.delta_rows),
            ):
                rows = (
                    self._rows.get((stream, whole), 0)
                    + len(recorded.events)
                    + len(recorded.round.decisions)
                )
                self._rows[stream, whole] = rows
                if rows >= (least if whole or incremental else max(least, price)):
                    self.due.add((stream, whole))

    async def keep(self) -> None:
        for stream, whole in sorted(self.due, key=lambda due: (due[0], not due[1])):
            if whole or (stream, True) not in self.due:
                await self._take(stream, whole)
            elif isinstance(self._world.streams[stream].decider, Incremental):
                # of one round there is one snapshot: what changed is still owed, and saved with the
                # next round
                continue
            self._rows[stream, whole] = 0
        self.due.clear()

    async def _take(self, stream: str, whole: bool) -> None:
        running = self._world.streams[stream]
        began = time.perf_counter()
        names: Mapping[str, Sequence[int]] | None = None
        if not whole and isinstance(running.decider, Incremental):
            sections, names = running.decider.changes(running.state)
        else:
            sections, names = running.decider.dump(running.state), None if whole else {}
        size = sum(map(len, sections.values()))
        digest = await self._ledger.write_snapshot(stream, running.head.round, sections, names)
        if whole or not isinstance(running.decider, Incremental):
            self._bytes[stream] = size
        if whole:
            assert digest is not None, "a round gets one snapshot here"
            running.head = replace(running.head, snapshot=digest)
        self._snapshots[whole] += 1
        self._written[whole] += size
        self._taking_s[whole] += time.perf_counter() - began

    def taken(self) -> Filled:
        return Filled(0, self._snapshots, self._written, self._taking_s)


def happenings(shard: int, size: Size) -> Iterator[list[Event[Value]]]:
    told = 0

    def event(data: Value, subject: str) -> Event[Value]:
        nonlocal told
        told += 1
        return made(
            data, id=derived_id("benchmark", shard, told), source="/benchmark", subject=subject
        )

    names = [f"cluster-{shard}{i:02d}" for i in range(size.clusters)]
    facts: list[Event[Value]] = []
    for place, name in enumerate(names):
        taints = (RESERVED,) if place % 10 == 9 else ()
        facts.append(
            event(ClusterObserved(Cluster(name, region=f"region-{place % 5}", taints=taints)), name)
        )
        found = [
            Node(f"{name}-n{i:03d}", {"cpu": 64_000, "memory": 256 * GI, "pods": 500})
            for i in range(size.nodes)
        ]
        facts += [event(said, name) for said in into_buckets(name, found, 4)]
    yield facts
    numbers, first = random.Random(7 + shard), 0
    while True:
        batch: list[Event[Value]] = []
        for _ in range(BATCH):
            at, first = (
                (first, first + 1)
                if first < size.bindings
                else (numbers.randrange(size.bindings), first)
            )
            spec = _binding(numbers, shard, at)
            batch.append(event(BindingRequested(spec), spec.name))
        yield batch


def _binding(numbers: random.Random, shard: int, at: int) -> Binding:
    """Every other time it is asked for with other replicas, and now and then with other
    requirements."""
    namespace, app = f"team-{at % 97}", f"app-{shard}-{at}"
    asked = (
        TOO_LARGE if at % 100 == 99 else CLASSES[(at + numbers.randrange(20) // 19) % len(CLASSES)]
    )
    ref = ObjectRef("apps/v1", "Deployment", app, namespace)
    return Binding(
        f"{namespace}/{app}",
        f"uid-{shard}-{at}",
        ref,
        1 + numbers.randrange(4),
        asked,
        PLACEMENTS[at % len(PLACEMENTS)],
    )
