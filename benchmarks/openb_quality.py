"""`make bench-openb`: how full the GPUs of the openb trace get, by strategy and list of pods,
beside what others have published.

The protocol is the paper's (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): all nodes
empty; the list of pods shuffled by the seed, pods appended or dropped until they ask for 130 % of
the cluster's GPUs; they arrive one at a time, never leave, and one that fits nowhere fails. What is
shown is the part of all GPUs that is allocated in the end. Nobody looks ahead; *fragmentation* and
*expected-fill* know how often which pods are asked for, as in the paper, and not in which order
they come.

Apart from that: expected-fill when it has to learn from what has arrived so far which pods are
asked for, as a live cluster does; and, not to be compared with the others because whom to refuse is
chosen there, the same pods as one batch in sight of each other, and what no strategy can exceed
(`bound`).
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from infra.kernels.compile import jitted
from rich.console import Console
from rich.table import Table

from benchmarks.openb import NODES, data_directory
from wharfinger.domain.resources import DEVICE_MILLI, GPU, DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices import kernels
from wharfinger.engine.devices.columns import DeviceScorer
from wharfinger.engine.devices.strategies import STRATEGIES
from wharfinger.engine.devices.workload import ClusterDemand, DeviceWorkload
from wharfinger_cli.failures import CommandError
from wharfinger_cli.openb import MEBIBYTE, TracePod, read_nodes, read_pods

LISTS = ("default", "gpuspec33", "gpushare40", "multigpu20", "cpu050", "cpu250")
ARRIVING = 130
"""Percent of the cluster's GPUs that the pods ask for together."""

SEEDS = 10
PUBLISHED = {"best-fit": "BestFit", "fragmentation": "FGD"}
SECONDS_MAX = 2.0

Column = npt.NDArray[np.int64]


# --- the trace as columns


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes, all empty. Columns int64: milli-cpu, bytes, thousandths and group of each device
    (-1: no device)."""

    cpu: Column
    memory: Column
    free: Column
    groups_of: Column
    groups: tuple[tuple[str, str], ...]

    @property
    def thousandths(self) -> int:
        return int((self.free >= 0).sum()) * DEVICE_MILLI

    @property
    def largest(self) -> tuple[int, int, int]:
        return int(self.cpu.max()), int(self.memory.max()), int((self.free >= 0).sum(axis=1).max())


@dataclass(frozen=True, slots=True)
class Pods:
    """`classes`: distinct requirements; `listed`: the class of each pod in the list's order."""

    classes: tuple[Requirements, ...]
    listed: tuple[int, ...]

    @property
    def workload(self) -> DeviceWorkload:
        counts = Counter(self.listed)
        return DeviceWorkload.of(
            (requirements, counts[c]) for c, requirements in enumerate(self.classes)
        )

    def asked(self, cls: int) -> int:
        """Thousandths of devices."""
        return sum(r.count * r.milli for r in self.classes[cls].devices)


def cluster_of(path: Path) -> Cluster:
    nodes = read_nodes(path)
    models = sorted({node.model for node in nodes if node.gpus})
    groups = tuple((GPU, model) for model in models)
    widest = max(node.gpus for node in nodes)
    free, codes = np.full((2, len(nodes), widest), -1, dtype=np.int64)
    for n, node in enumerate(nodes):
        free[n, : node.gpus] = DEVICE_MILLI
        codes[n, : node.gpus] = models.index(node.model) if node.gpus else -1
    return Cluster(
        np.array([node.cpu_milli for node in nodes], dtype=np.int64),
        np.array([node.memory_mib * MEBIBYTE for node in nodes], dtype=np.int64),
        free,
        codes,
        groups,
    )


def pods_of(path: Path) -> Pods:
    classes: list[Requirements] = []
    codes: dict[tuple[int, int, int, int, str], int] = {}
    listed: list[int] = []
    for pod in read_pods(path):
        key = (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models)
        if key not in codes:
            codes[key] = len(classes)
            classes.append(_requirements(pod))
        listed.append(codes[key])
    return Pods(tuple(classes), tuple(listed))


def _requirements(pod: TracePod) -> Requirements:
    models = tuple(pod.models.split("|")) if pod.models else ()
    return Requirements(
        {"cpu": pod.cpu_milli, "memory": pod.memory_mib * MEBIBYTE},
        (DeviceRequest(pod.gpus, pod.gpu_milli, models),) if pod.gpus else (),
    )


def list_path(data: Path, name: str) -> Path:
    plain = data / "openb" / f"openb_pod_list_{name}.csv"
    return plain if plain.exists() else plain.with_name(plain.name + ".gz")


def arrivals(pods: Pods, capacity: int, seed: int, percent: int = ARRIVING) -> Column:
    """Classes in order of arrival: shuffled by the seed, then as many dropped from the end, or more
    drawn from the list, as make `percent` of `capacity` (thousandths)."""
    chance = random.Random(seed)
    order = list(pods.listed)
    chance.shuffle(order)
    wanted = capacity * percent // 100
    asked = sum(pods.asked(c) for c in order)
    while asked > wanted:
        asked -= pods.asked(order.pop())
    while asked < wanted:
        order.append(pods.listed[chance.randrange(len(pods.listed))])
        asked += pods.asked(order[-1])
    return np.array(order, dtype=np.int64)


# --- one run


@dataclass(frozen=True, slots=True)
class Run:
    """`allocated`: percent of all devices. `failed`: pods that fitted nowhere."""

    allocated: float
    failed: int
    seconds: float
    taken: Column


class Simulation:
    """One cluster, one list of pods, one strategy."""

    def __init__(self, cluster: Cluster, pods: Pods, strategy: str) -> None:
        self._cluster = cluster
        self._pods = pods
        self._strategy = strategy
        needs = [self._scorer(DeviceWorkload()).need(requirements) for requirements in pods.classes]
        self._needs = np.array([need.amounts for need in needs])
        self._parts = np.array([_one(need.parts, 2) for need in needs])
        self._allowed = np.array([_one(need.allowed, len(cluster.groups) + 1) for need in needs])
        self._memory_asked = np.array([r.requests["memory"] for r in pods.classes], dtype=np.int64)
        self._any = needs[0]

    def run(self, order: Column) -> Run:
        """With the workload of the whole list, as in the paper."""
        return self._through([(order, self._pods.workload)])

    def run_learning(self, order: Column) -> Run:
        """With the workload that a live cluster has by then: what has arrived so far, in steps."""
        demand = ClusterDemand()
        parts: list[tuple[Column, DeviceWorkload]] = []
        begun = 0
        for at, cls in enumerate(order.tolist()):
            known = demand.workload
            if demand.ask(self._pods.classes[cls], 1) and at > begun:
                parts.append((order[begun:at], known))
                begun = at
        return self._through([*parts, (order[begun:], demand.workload)])

    def _through(self, parts: Sequence[tuple[Column, DeviceWorkload]]) -> Run:
        cluster = self._cluster
        cpu, memory, free = cluster.cpu.copy(), cluster.memory.copy(), cluster.free.copy()
        seconds, taken = 0.0, []
        for order, workload in parts:
            typical = self._scorer(workload).arguments(self._any)[3:]
            arrive = _arrive()
            began = time.process_time()
            taken.append(
                arrive(
                    order,
                    kernels.CODES[self._strategy],
                    cpu,
                    memory,
                    free,
                    cluster.groups_of,
                    self._memory_asked,
                    self._needs,
                    self._parts,
                    self._allowed,
                    *typical,
                )
            )
            seconds += time.process_time() - began
        left = int(free[free > 0].sum())
        refused = sum(int((part == 0).sum()) for part in taken)
        return Run(100 - 100 * left / cluster.thousandths, refused, seconds, np.concatenate(taken))

    def _scorer(self, workload: DeviceWorkload) -> DeviceScorer:
        return DeviceScorer(self._strategy, workload, self._cluster.groups, self._cluster.largest)


def _one(rows: Column, width: int) -> Column:
    """A pod's one part; without devices a part of none."""
    return rows if len(rows) else np.zeros((1, width), dtype=np.int64)


_made: list[Callable[..., Column]] = []


def _arrive() -> Callable[..., Column]:
    """`arrive` as machine code, with the engine's own functions in it; compiled once a process."""
    if not _made:
        import numba

        engine = jitted(kernels)
        _made.append(numba.njit(_arriving(engine.worth, engine.cost, engine.settle)))
    return _made[0]


def _arriving(worth: Any, cost: Any, settle: Any) -> Callable[..., Column]:
    def arrive(  # type: ignore[no-untyped-def]
        order,
        strategy,
        cpu,
        memory,
        free,
        groups,
        memory_asked,
        needs,
        parts,
        parts_allowed,
        asks,
        allowed,
        fill,
        terms,
        levels,
        largest,
    ):
        """Pods arrive one after another; the first node of the lowest cost takes each. Costs are
        kept by class and node and taken again where the node has changed since. -> 1 for each pod
        that was taken."""
        nodes, classes = len(cpu), len(needs)
        nowhere = np.int64(1) << 62
        changed = np.zeros(nodes, dtype=np.int64)
        seen = np.full((classes, nodes), -1, dtype=np.int64)
        known = np.zeros((classes, nodes), dtype=np.int64)
        worths = np.zeros(nodes, dtype=np.int64)
        room = np.zeros((6, free.shape[1]), dtype=np.int64)
        taken = np.zeros(len(order), dtype=np.int64)
        for n in range(nodes):
            worths[n] = worth(
                strategy,
                cpu[n],
                memory[n] >> 10,
                free[n],
                groups[n],
                asks,
                allowed,
                fill,
                terms,
                room,
            )
        for at in range(len(order)):
            c = order[at]
            best = -1
            lowest = nowhere
            for n in range(nodes):
                if seen[c, n] != changed[n]:
                    seen[c, n] = changed[n]
                    known[c, n] = nowhere
                    if cpu[n] >= needs[c, 0] and memory[n] >= memory_asked[c]:
                        known[c, n] = cost(
                            strategy,
                            worths[n],
                            cpu[n],
                            memory[n] >> 10,
                            free[n],
                            groups[n],
                            needs[c],
                            parts[c],
                            parts_allowed[c],
                            asks,
                            allowed,
                            fill,
                            terms,
                            levels,
                            largest,
                            room,
                        )
                if known[c, n] < lowest:
                    best = n
                    lowest = known[c, n]
            if best < 0:
                continue
            settle(free[best], groups[best], parts[c], parts_allowed[c], room[0])
            free[best] = room[0]
            cpu[best] -= needs[c, 0]
            memory[best] -= memory_asked[c]
            changed[best] += 1
            worths[best] = worth(
                strategy,
                cpu[best],
                memory[best] >> 10,
                free[best],
                groups[best],
                asks,
                allowed,
                fill,
                terms,
                room,
            )
            taken[at] = 1
        return taken

    return arrive


# --- not to be compared: a batch in sight of each other, and the bound


def in_sight(pods: Pods, order: Column) -> Column:
    """The same pods, known all at once: those that ask for several devices first, then whole ones,
    then shares from the largest to the smallest, of equals the one with the most cpu; pods without
    devices last."""

    def size(cls: int) -> tuple[int, ...]:
        requirements = pods.classes[cls]
        device = requirements.devices[0] if requirements.devices else DeviceRequest(0, 0)
        return (-device.count, -device.milli, not device.models, -requirements.requests["cpu"], cls)

    return np.array(sorted(order.tolist(), key=size), dtype=np.int64)


def bound(
    cluster: Cluster, pods: Pods, order: Column, forced_percent: int, steps: int = 1500
) -> float:
    """A percentage that no placement of these pods on these devices exceeds, even if it knows them
    all and cpu and memory are free.

    `forced_percent`: all pods that arrive before that much of the cluster was asked for are placed,
    whatever they are; 0: pods can be refused at will. The linear programme of filling devices with
    patterns of shares, bounded by prices of pods (Lagrangian relaxation: any prices give a bound,
    subgradient steps look for good ones)."""
    sizes, supply, forced = _sizes(pods, order, cluster.thousandths * forced_percent // 100)
    unit = int(np.gcd.reduce([*(milli for milli, _ in sizes), DEVICE_MILLI]))
    devices = np.bincount(cluster.groups_of[cluster.groups_of >= 0], minlength=len(cluster.groups))
    milli = np.array([m for m, _ in sizes], dtype=np.float64)
    fits = np.array(
        [[not models or model in models for _, models in sizes] for _, model in cluster.groups]
    )
    prices = np.zeros(len(sizes))
    lowest = float(cluster.thousandths)
    for step in range(steps):
        value = float(np.where(prices >= 0, prices * supply, prices * forced).sum())
        slope = np.where(prices >= 0, supply, forced).astype(np.float64)
        for group, count in enumerate(devices):
            best, pattern = _pattern(
                milli / unit, np.where(fits[group], milli - prices, -1.0), DEVICE_MILLI // unit
            )
            value += count * best
            slope -= count * pattern
        lowest = min(lowest, value)
        norm = float((slope**2).sum())
        if norm == 0:
            break
        prices -= slope * (max(value - 0.9 * lowest, 1.0) * 0.5 / (1 + step / 30) / norm)
    return 100 * lowest / cluster.thousandths


def _sizes(
    pods: Pods, order: Column, forced: int
) -> tuple[list[tuple[int, tuple[str, ...]]], Column, Column]:
    """Distinct (thousandths of a device, models), how many devices' worth of each arrive, and how
    many of them by `forced`."""
    supply: Counter[tuple[int, tuple[str, ...]]] = Counter()
    early: Counter[tuple[int, tuple[str, ...]]] = Counter()
    asked = 0
    for c in order.tolist():
        for device in pods.classes[c].devices:
            supply[device.milli, device.models] += device.count
            asked += device.count * device.milli
            if asked <= forced:
                early[device.milli, device.models] += device.count
    sizes = sorted(supply)
    return sizes, np.array([supply[s] for s in sizes]), np.array([early[s] for s in sizes])


def _pattern(
    weights: npt.NDArray[np.float64], values: npt.NDArray[np.float64], room: int
) -> tuple[float, Column]:
    """The most valuable filling of one device, by dynamic programming: its value and how many of
    each size."""
    best, last = [0.0] * (room + 1), [-1] * (room + 1)
    items = [
        (i, int(w), float(v)) for i, (w, v) in enumerate(zip(weights, values, strict=True)) if v > 0
    ]
    for left in range(1, room + 1):
        best[left], last[left] = best[left - 1], -2
        for i, weight, value in items:
            if weight <= left and best[left - weight] + value > best[left]:
                best[left], last[left] = best[left - weight] + value, i
    pattern = np.zeros(len(values), dtype=np.int64)
    left = room
    while left > 0 and last[left] != -1:
        if last[left] == -2:
            left -= 1
        else:
            pattern[last[left]] += 1
            left -= int(weights[last[left]])
    return best[room], pattern


# --- the table


@dataclass(frozen=True, slots=True)
class Quality:
    pods: str
    strategy: str
    runs: tuple[Run, ...]
    published: float | None

    @property
    def mean(self) -> float:
        return statistics.fmean(run.allocated for run in self.runs)

    @property
    def deviation(self) -> float:
        return statistics.pstdev(run.allocated for run in self.runs)

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)


def measured(data: Path, name: str, strategy: str, seeds: Sequence[int]) -> Quality:
    cluster, pods = cluster_of(data / "openb" / NODES), pods_of(list_path(data, name))
    simulation = Simulation(cluster, pods, strategy)
    simulation.run(np.zeros(1, dtype=np.int64))  # compiled before it is timed
    runs = tuple(simulation.run(arrivals(pods, cluster.thousandths, seed)) for seed in seeds)
    return Quality(name, strategy, runs, published(data).get((name, PUBLISHED.get(strategy, ""))))


def published(data: Path) -> dict[tuple[str, str], float]:
    """(list, policy) -> the paper's mean at 130 %."""
    path = data / "openb" / "published_policy_results.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        return {
            (row["pod_list"].removeprefix("openb_pod_list_"), row["policy"]): float(
                row["gpu_alloc_pct_mean"]
            )
            for row in csv.DictReader(lines)
            if row["arrived_gpu_pct"] == str(ARRIVING)
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb_quality", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="runs a list and strategy, seeds 0 to n-1"
    )
    parser.add_argument("--lists", nargs="+", choices=LISTS, default=LISTS)
    options = parser.parse_args()
    data = data_directory()
    if data is None:
        print(
            "the openb trace is not here: set WHARFINGER_DATA to the directory that holds openb/",
            file=sys.stderr,
        )
        return 2
    try:
        show(data, options.lists, range(options.seeds))
    except CommandError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def show(data: Path, lists: Sequence[str], seeds: Sequence[int]) -> None:
    console = Console(width=150 if not sys.stdout.isatty() else None)
    shown = Table(
        title=f"GPUs allocated, % of all, when {ARRIVING} % were asked for", title_justify="left"
    )
    for column in ("pods", "strategy", "mean", "±", "published", "least", "most", "CPU s a run"):
        shown.add_column(column, justify="left" if column in ("pods", "strategy") else "right")
    for name in lists:
        for strategy in STRATEGIES:
            found = measured(data, name, strategy, seeds)
            said = [run.allocated for run in found.runs]
            shown.add_row(
                name,
                strategy,
                f"{found.mean:.2f}",
                f"{found.deviation:.2f}",
                "" if found.published is None else f"{found.published:.2f}",
                f"{min(said):.2f}",
                f"{max(said):.2f}",
                f"{found.seconds:.2f}",
            )
    console.print(shown)
    console.print(_limits(data, lists, list(seeds)[:2]))


def _limits(data: Path, lists: Sequence[str], seeds: Sequence[int]) -> Table:
    shown = Table(
        title="expected-fill: what it knows, and what cannot be exceeded", title_justify="left"
    )
    for column in (
        "pods",
        "learning",
        "one batch, all in sight",
        "bound, all of the first 95 % taken",
        "bound, refusing at will",
    ):
        shown.add_column(column, justify="left" if column == "pods" else "right")
    cluster = cluster_of(data / "openb" / NODES)
    for name in lists:
        pods = pods_of(list_path(data, name))
        simulation = Simulation(cluster, pods, "expected-fill")
        orders = [arrivals(pods, cluster.thousandths, seed) for seed in seeds]
        learning = [simulation.run_learning(order).allocated for order in orders]
        batches = [simulation.run(in_sight(pods, order)).allocated for order in orders]
        bounds = [[bound(cluster, pods, order, forced) for order in orders] for forced in (95, 0)]
        shown.add_row(
            name, *(f"{statistics.fmean(values):.2f}" for values in (learning, batches, *bounds))
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
