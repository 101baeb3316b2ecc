"""What placing pods on the nodes of one cluster costs, every node looked at for every pod.

A cluster as kube-scheduler was measured with: nodes of 4 cpu and 32 GiB in three zones, as many
pods running as there are nodes, and a batch of pods to place, each in sight of the last. `equal`:
one class of pods; all others are one class with the constraint they are named for, but `all
different`, where no two pods ask the same and each is compiled in the measured time. A run is what
a stage does: classes, nodes, counters, choices as values; the table is charged with all of it, too.
kube-scheduler 1.34 looks at a tenth of 5,000 nodes.

The raw limit beside it is a plain compiled loop over the same arrays with fit, least-allocated and
balanced allocation, one pod at a time, without names, values or constraints.

`python -m benchmarks.nodes` prints the tables."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread, WeightedPodTerm
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.load.columns import LoadColumns
from wharfinger.engine.nodes.classes import PodClass, compile_class
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.place import Placer

SIZES = (500, 1000, 5000)
PODS = 1000
RUNS = 3
ZONES = 3
GIB = 2**30
MIB = 2**20
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

APP = {"app": "bench"}
SELECTS_APP = LabelSelector(APP)
RUNNING = Requirements({"cpu": 100, "memory": 200 * MIB}, pod=PodTraits(labels={"app": "running"}))


@dataclass(frozen=True, slots=True)
class Workload:
    """`kube`: pods a second of kube-scheduler 1.34 by nodes. `must`, `aim`: at 5,000 nodes.
    `running`: pods that run already."""

    name: str
    pods: Callable[[int], list[Requirements]]
    running: Callable[[int], list[tuple[int, Requirements]]]
    kube: dict[int, int]
    must: dict[int, int]
    aim: dict[int, int]


def a_pod(**traits: object) -> Requirements:
    pod = PodTraits(labels=APP, **traits)  # type: ignore[arg-type]
    return Requirements({"cpu": 100, "memory": 500 * MIB}, pod=pod)


def equal(requirements: Requirements) -> Callable[[int], list[Requirements]]:
    return lambda pods: [requirements] * pods


def different(pods: int) -> list[Requirements]:
    traits = PodTraits(labels=APP)
    return [
        Requirements({"cpu": 50 + i, "memory": (300 + 7 * i % 211) * MIB}, pod=traits)
        for i in range(pods)
    ]


def one_each(nodes: int) -> list[tuple[int, Requirements]]:
    return [(n, RUNNING) for n in range(nodes)]


def a_fifth(requirements: Requirements, nodes: int) -> list[tuple[int, Requirements]]:
    return [*((n, RUNNING) for n in range(nodes)), *((n, requirements) for n in range(0, nodes, 5))]


IN_ONE_ZONE = Requirements(
    {"cpu": 100, "memory": 500 * MIB}, node_selector={ZONE: "zone-1"}, pod=PodTraits(labels=APP)
)
SPREAD = a_pod(spread=(TopologySpread(ZONE, 1, selector=SELECTS_APP),))
APART = a_pod(anti_affinity=(PodTerm(HOSTNAME, SELECTS_APP),))
TOGETHER = a_pod(affinity=(PodTerm(ZONE, SELECTS_APP),))
LIKES = a_pod(preferred_affinity=(WeightedPodTerm(10, PodTerm(HOSTNAME, SELECTS_APP)),))

WORKLOADS = (
    Workload(
        "basic, equal pods",
        equal(a_pod()),
        one_each,
        {500: 2800, 1000: 1540, 5000: 980},
        {500: 28_000, 1000: 15_400, 5000: 100_000},
        {5000: 500_000},
    ),
    Workload(
        "basic, all different",
        different,
        one_each,
        {500: 2800, 1000: 1540, 5000: 980},
        {500: 28_000, 1000: 15_400, 5000: 15_000},
        {5000: 40_000},
    ),
    Workload(
        "required node affinity",
        equal(IN_ONE_ZONE),
        one_each,
        {500: 2010, 1000: 1180, 5000: 840},
        {5000: 15_000},
        {5000: 40_000},
    ),
    Workload(
        "hard topology spread",
        equal(SPREAD),
        one_each,
        {500: 2030, 1000: 1200, 5000: 660},
        {5000: 10_000},
        {5000: 30_000},
    ),
    Workload(
        "hostname anti-affinity",
        equal(APART),
        partial(a_fifth, APART),
        {500: 1280, 1000: 740, 5000: 270},
        {5000: 10_000},
        {5000: 30_000},
    ),
    Workload(
        "zone affinity",
        equal(TOGETHER),
        partial(a_fifth, TOGETHER),
        {500: 740, 1000: 460, 5000: 107},
        {5000: 10_000},
        {5000: 30_000},
    ),
    Workload(
        "preferred affinity",
        equal(LIKES),
        partial(a_fifth, LIKES),
        {500: 770, 1000: 450, 5000: 82},
        {5000: 5_000},
        {5000: 20_000},
    ),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """Pods a second: `placed` found nodes for; `charged` with the table charged by each as well."""

    workload: Workload
    nodes: int
    placed: float
    charged: float


class Cluster:
    """A table of `nodes` nodes with what runs on them."""

    def __init__(
        self, nodes: int, running: Sequence[tuple[int, Requirements]], labels: bool = True
    ) -> None:
        self.table = NodeTable()
        self.classes: dict[str, PodClass] = {}
        held: list[dict[PodClass, int]] = [{} for _ in range(nodes)]
        rows = [
            self.table.put(
                Node(
                    f"node-{n:05}",
                    {"cpu": 4000, "memory": 32 * GIB, "pods": 110},
                    labels={HOSTNAME: f"node-{n:05}", ZONE: f"zone-{n % ZONES}"} if labels else {},
                ),
                closed=False,
            )
            for n in range(nodes)
        ]
        for n, requirements in running:
            cls = self.class_of(requirements)
            held[n][cls] = held[n].get(cls, 0) + 1
        for row, holds in zip(rows, held, strict=True):
            self.table.set_usage(row, holds, ())
        self.placer = Placer(self.table, default_profile())

    def class_of(self, requirements: Requirements) -> PodClass:
        key = requirements.pod_key
        cls = self.classes.get(key)
        if cls is None:
            cls = self.classes[key] = compile_class(
                self.table, requirements, requirements.class_key, key
            )
        return cls

    def batch(self, pods: Sequence[Requirements]) -> list[tuple[PodClass, int]]:
        """Equal pods that follow each other as one class."""
        requests: list[tuple[PodClass, int]] = []
        last: Requirements | None = None
        for requirements in pods:
            if requirements is last:
                cls, count = requests[-1]
                requests[-1] = (cls, count + 1)
            else:
                requests.append((self.class_of(requirements), 1))
                last = requirements
        return requests


def rate(workload: Workload, nodes: int, pods: int = PODS, runs: int = RUNS) -> Rate:
    """The best of some runs, each from the same cluster."""
    best_placed = best_charged = float("inf")
    # where each wants a node of its own, a fifth of them are taken
    pods = min(pods, nodes * 4 // 5)
    wanted = workload.pods(pods)
    for _ in range(runs):
        cluster = Cluster(nodes, workload.running(nodes))
        gc.collect()
        gc.disable()  # collections are the process' business
        begun = time.perf_counter()
        requests = cluster.batch(wanted)
        found = cluster.placer.place_batch(requests)
        placed = time.perf_counter() - begun
        for (cls, _), choices in zip(requests, found, strict=True):
            for choice in choices:
                cluster.table.charge(choice.row, cls, 1, choice.devices)
        charged = time.perf_counter() - begun
        gc.enable()
        assert sum(map(len, found)) == pods, f"{workload.name}: the cluster has room for all"
        best_placed, best_charged = min(best_placed, placed), min(best_charged, charged)
    return Rate(workload, nodes, pods / best_placed, pods / best_charged)


@dataclass(frozen=True, slots=True)
class Growth:
    """Microseconds a pod takes with `nodes` nodes of which each has `running` pods: to choose its
    node, and to charge it."""

    nodes: int
    running: int
    choose_us: float
    charge_us: float


def growth(requirements: Requirements, nodes: int, running: int, runs: int = 100) -> Growth:
    """One pod that minds others, as the cost grows: by nodes, and not by the pods that run on
    them."""
    there = [
        (n, requirements if i == 0 and n % 5 == 0 else RUNNING)
        for n in range(nodes)
        for i in range(running)
    ]
    cluster = Cluster(nodes, there)
    cls, placer = cluster.class_of(requirements), cluster.placer
    choices: list[float] = []
    charges: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        choice = placer.choose(cls)
        chosen = time.perf_counter()
        assert choice is not None, "there is room"
        cluster.table.charge(choice.row, cls, 1, choice.devices)
        choices.append(chosen - begun)
        charges.append(time.perf_counter() - chosen)
    return Growth(nodes, running, median(choices) * 1e6, median(charges) * 1e6)


def by_load(nodes: int = 5000, runs: int = 200) -> float:
    """Milliseconds for one pod when measured load filters and scores, with all that the default
    profile asks besides."""
    cluster = Cluster(nodes, one_each(nodes))
    base = np.arange(nodes, dtype=np.int64) * 7919 % 101
    verdict = (np.arange(nodes, dtype=np.int64) % 17 == 0).astype(np.int64)
    recent = np.arange(2 * nodes, dtype=np.int64).reshape(2, nodes) % 9
    metric = np.where(verdict == 0, -1, 0)
    loads = LoadColumns(
        verdict, metric, base, recent, np.array([5, 2], dtype=np.int64), ("cpu_usage_avg_5m",)
    )
    cluster.placer.set_loads(loads)
    cls = cluster.class_of(a_pod())
    times: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        choice = cluster.placer.choose(cls)
        times.append(time.perf_counter() - begun)
        assert choice is not None, "some nodes are not hot"
        cluster.table.charge(choice.row, cls, 1, choice.devices)
    return median(times) * 1e3


def memory_mb(nodes: int = 10_000) -> float:
    """What a table of so many nodes, a pod on each, and what a placer keeps of it take."""
    gc.collect()
    tracemalloc.start()
    cluster = Cluster(nodes, one_each(nodes))
    cluster.placer.place_batch(cluster.batch([a_pod(), SPREAD, APART, TOGETHER, LIKES]))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 2**20


def raw_limit(nodes: int = 5000, pods: int = PODS) -> float:
    """Pods a second of the plainest compiled loop: fit, least-allocated and balance of different
    pods, no names, no values."""
    import numba

    loop = numba.njit(_plain_loop)
    whole = np.array([[4000] * nodes, [32 * GIB] * nodes], dtype=np.int64)
    asks = np.array([(50 + i, (300 + 7 * i % 211) * MIB) for i in range(pods)], dtype=np.int64)
    best = float("inf")
    loop(whole, whole.copy(), asks[:1])
    for _ in range(RUNS):
        free = whole - np.array([[100], [200 * MIB]], dtype=np.int64)
        begun = time.perf_counter()
        loop(whole, free, asks)
        best = min(best, time.perf_counter() - begun)
    return pods / best


def _plain_loop(whole, free, asks):  # type: ignore[no-untyped-def]
    for p in range(len(asks)):
        best, top = -1, -1
        for n in range(whole.shape[1]):
            cpu, memory = free[0, n] - asks[p, 0], free[1, n] - asks[p, 1]
            if cpu < 0 or memory < 0:
                continue
            score = (cpu * 100 // whole[0, n] + memory * 100 // whole[1, n]) // 2
            score += int((1 - abs((1 - cpu / whole[0, n]) - (1 - memory / whole[1, n])) / 2) * 100)
            if score > top:
                best, top = n, score
        free[0, best] -= asks[p, 0]
        free[1, best] -= asks[p, 1]


def main() -> int:
    console = Console(width=150 if not sys.stdout.isatty() else None)
    rates = measured()
    console.print(table(rates))
    console.print(costs())
    return int(any(r.placed < r.workload.must.get(r.nodes, 0) for r in rates))


def measured() -> list[Rate]:
    """Every workload at every size."""
    return [rate(workload, nodes) for nodes in SIZES for workload in WORKLOADS]


def costs() -> Table:
    """What one pod costs as clusters grow, and what they take."""
    shown = Table(title="one pod, and the room of a cluster", title_justify="left")
    for column in ("what", "measured", "must", "aim"):
        shown.add_column(column, justify="left" if column == "what" else "right")
    shown.add_row("raw limit: a plain loop, 5,000 nodes, pods/s", f"{raw_limit():,.0f}")
    for nodes, running in ((1000, 1), (5000, 1), (5000, 10), (10_000, 1)):
        g = growth(LIKES, nodes, running)
        name = f"preferred affinity, {nodes:,} nodes of {running} pods: choose + charge, us"
        shown.add_row(name, f"{g.choose_us:,.0f} + {g.charge_us:.1f}")
    shown.add_row(
        "measured load filters and scores, 5,000 nodes (crane in Go: 13 ms), ms",
        f"{by_load():.3f}",
        "0.5",
        "0.1",
    )
    shown.add_row("memory of 10,000 nodes with a pod each, MiB", f"{memory_mb():.1f}")
    return shown


def table(rates: Sequence[Rate]) -> Table:
    shown = Table(
        title="pods placed on nodes, every node looked at (pods/s, best of 3)", title_justify="left"
    )
    for column in (
        "workload",
        "nodes",
        "kube-scheduler",
        "must",
        "aim",
        "placed",
        "and charged",
        "times kube-scheduler",
    ):
        shown.add_column(column, justify="left" if column == "workload" else "right")
    for r in rates:
        of = r.workload
        bounds = [
            f"{bound[r.nodes]:,}" if r.nodes in bound else ""
            for bound in (of.kube, of.must, of.aim)
        ]
        times = f"{r.placed / of.kube[r.nodes]:,.0f}"
        shown.add_row(
            of.name, f"{r.nodes:,}", *bounds, f"{r.placed:,.0f}", f"{r.charged:,.0f}", times
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
