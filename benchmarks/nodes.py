"""What placing pods on the nodes of one cluster costs, every node looked at for every pod.

A cluster as kube-scheduler was measured with: nodes of 4 cpu and 32 GiB in three zones, as many pods running as there
are nodes, and a batch of pods to place, each in sight of the last. `equal`: one class of pods; all others are one
class with the constraint they are named for, but `all different`, where no two pods ask the same and each is compiled
in the measured time. A run is what a stage does: classes, nodes, counters, choices as values; the table is charged
with all of it, too. kube-scheduler 1.34 looks at a tenth of 5,000 nodes.

The raw limit beside it is a plain compiled loop over the same arrays with fit, least-allocated and balanced
allocation, one pod at a time, without names, values or constraints.

`python -m benchmarks.nodes` prints the tables."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread, WeightedPodTerm
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.nodes.classes import PodClass, compile_class
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.place import COMPILER, Placer

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
    """`kube`: pods a second of kube-scheduler 1.34 by nodes. `must`, `aim`: at 5,000 nodes. `running`: pods that run
    already."""

    name: str
    pods: Callable[[int], list[Requirements]]
    running: Callable[[int], list[tuple[int, Requirements]]]
    kube: dict[int, int]
    must: dict[int, int]
    aim: dict[int, int]


def a_pod(**traits: object) -> Requirements:
    return Requirements({"cpu": 100, "memory": 500 * MIB}, pod=PodTraits(labels=APP, **traits))  # type: ignore[arg-type]


def equal(requirements: Requirements) -> Callable[[int], list[Requirements]]:
    return lambda pods: [requirements] * pods


def different(pods: int) -> list[Requirements]:
    traits = PodTraits(labels=APP)
    return [Requirements({"cpu": 50 + i, "memory": (300 + 7 * i % 211) * MIB}, pod=traits) for i in range(pods)]


def one_each(nodes: int) -> list[tuple[int, Requirements]]:
    return [(n, RUNNING) for n in range(nodes)]


def a_fifth(requirements: Requirements, nodes: int) -> list[tuple[int, Requirements]]:
    return [*((n, RUNNING) for n in range(nodes)), *((n, requirements) for n in range(0, nodes, 5))]


IN_ONE_ZONE = Requirements({"cpu": 100, "memory": 500 * MIB}, node_selector={ZONE: "zone-1"}, pod=PodTraits(labels=APP))
SPREAD = a_pod(spread=(TopologySpread(ZONE, 1, selector=SELECTS_APP),))
APART = a_pod(anti_affinity=(PodTerm(HOSTNAME, SELECTS_APP),))
TOGETHER = a_pod(affinity=(PodTerm(ZONE, SELECTS_APP),))
LIKES = a_pod(preferred_affinity=(WeightedPodTerm(10, PodTerm(HOSTNAME, SELECTS_APP)),))

WORKLOADS = (
    Workload("basic, equal pods", equal(a_pod()), one_each, {500: 2800, 1000: 1540, 5000: 980},
             {500: 28_000, 1000: 15_400, 5000: 100_000}, {5000: 500_000}),
    Workload("basic, all different", different, one_each, {500: 2800, 1000: 1540, 5000: 980},
             {500: 28_000, 1000: 15_400, 5000: 15_000}, {5000: 40_000}),
    Workload("required node affinity", equal(IN_ONE_ZONE), one_each, {500: 2010, 1000: 1180, 5000: 840}, {5000: 15_000},
             {5000: 40_000}),
    Workload("hard topology spread", equal(SPREAD), one_each, {500: 2030, 1000: 1200, 5000: 660}, {5000: 10_000}, {5000: 30_000}),
    Workload("hostname anti-affinity", equal(APART), partial(a_fifth, APART), {500: 1280, 1000: 740, 5000: 270}, {5000: 10_000},
             {5000: 30_000}),
    Workload("zone affinity", equal(TOGETHER), partial(a_fifth, TOGETHER), {500: 740, 1000: 460, 5000: 107}, {5000: 10_000},
             {5000: 30_000}),
    Workload("preferred affinity", equal(LIKES), partial(a_fifth, LIKES), {500: 770, 1000: 450, 5000: 82}, {5000: 5_000},
             {5000: 20_000}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rate:
    """Pods a second: `placed` found nodes for; `charged` with the table charged by each as well."""

    workload: Workload
    nodes: int
    placed: float
    charged: float


class Cluster:
    """A table of `nodes` nodes with what runs on them."""

    def __init__(self, nodes: int, running: Sequence[tuple[int, Requirements]], labels: bool = True) -> None:
        self.table = NodeTable()
        self.classes: dict[str, PodClass] = {}
        held: list[dict[PodClass, int]] = [{} for _ in range(nodes)]
        rows = [
            self.table.put(
                Node(f"node-{n:05}", {"cpu": 4000, "memory": 32 * GIB, "pods": 110},
                     labels={HOSTNAME: f"node-{n:05}", ZONE: f"zone-{n % ZONES}"} if labels else {}),
                closed=False,
            )
            for n in range(nodes)
        ]  # fmt: skip
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
            cls = self.classes[key] = compile_class(self.table, requirements, requirements.class_key, key)
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
    pods = min(pods, nodes * 4 // 5)  # where each wants a node of its own, a fifth of them are taken
    wanted = workload.pods(pods)
    for _ in range(runs):
        cluster = Cluster(nodes, workload.running(nodes))
        gc.collect()
        begun = time.perf_counter()
        requests = cluster.batch(wanted)
        found = cluster.placer.place_batch(requests)
        placed = time.perf_counter() - begun
        for (cls, _), choices in zip(requests, found, strict=True):
            for choice in choices:
                cluster.table.charge(choice.row, cls, 1, choice.devices)
        charged = time.perf_counter() - begun
        assert sum(map(len, found)) == pods, f"{workload.name}: the cluster has room for all"
        best_placed, best_charged = min(best_placed, placed), min(best_charged, charged)
    return Rate(workload, nodes, pods / best_placed, pods / best_charged)


def main() -> int:
    COMPILER.compile_now()
    table = Table(title="pods placed on nodes, every node looked at (pods/s, best of 3)", title_justify="left")
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
        table.add_column(column, justify="left" if column == "workload" else "right")
    failed = False
    for nodes in SIZES:
        for workload in WORKLOADS:
            r = rate(workload, nodes)
            must = workload.must.get(nodes)
            failed |= must is not None and r.placed < must
            table.add_row(
                workload.name, f"{nodes:,}", f"{workload.kube[nodes]:,}", f"{must:,}" if must else "",
                f"{workload.aim[nodes]:,}" if nodes in workload.aim else "", f"{r.placed:,.0f}", f"{r.charged:,.0f}",
                f"{r.placed / workload.kube[nodes]:,.0f}",
            )  # fmt: skip
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
