"""Real load goes up and down, and no workload is sent to and fro for it.

The series are played over a fleet as the load of its nodes, five minutes a step, through the load
book; what each pass names is moved at once, and takes its part of the load with it. A move A-B-A is
one that brings a workload back to a node that it was taken off before.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from msgspec import structs
from tests.planes import data_file

from wharfinger.domain.descheduling import (
    CraneWatermarks,
    DeschedulerProfile,
    DeschedulingPolicy,
    LowNodeUtilization,
    Strategy,
    Watermark,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.policy import LoadPolicy, SyncPeriod
from wharfinger.domain.workload import Requirements
from wharfinger.engine.descheduling.run import run
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.view import ClusterView, Measured
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.events.node_load import NodeLoadObserved

STEP_US = 300_000_000
METRIC = "cpu_usage_avg_5m"
CORES = 16_000
PODS, PART = 4, 5
"""Pods on each node at first, and how many percent of a node's cpu each of them uses."""

GOOGLE = data_file("google2011_vm_usage", "cpu_pct.csv.gz")
NAB = data_file("nab_cloudwatch", "anomaly_windows.json")

BY_LOAD = CraneWatermarks((Watermark(METRIC, 70_000, 50_000),))
BY_USE = LowNodeUtilization({"cpu": 40.0}, {"cpu": 70.0}, source="KubernetesMetrics")

real = pytest.mark.skipif(
    GOOGLE is None or NAB is None, reason="the series are not at hand: set WHARFINGER_DATA"
)


@dataclass(slots=True)
class Replay:
    """`series`: node -> its own load in percent, step by step. `moves`: (step, workload, from,
    to)."""

    series: dict[str, Sequence[float]]
    policy: DeschedulingPolicy
    memory: Memory | None
    pods: list[Pod] = field(default_factory=list)
    moves: list[tuple[int, str, str, str]] = field(default_factory=list)

    def play(self) -> Replay:
        self.pods = [a_pod(f"{node}-{i}", node) for node in self.series for i in range(PODS)]
        for step in range(min(len(s) for s in self.series.values())):
            self._step(step)
        return self

    def _step(self, step: int) -> None:
        at = (step + 1) * STEP_US
        here = {node: sum(pod.node == node for pod in self.pods) for node in self.series}
        loads = {
            n: round(1000 * max(0.0, min(100.0, s[step]) + PART * (here[n] - PODS)))
            for n, s in self.series.items()
        }
        book = LoadBook({}, LoadPolicy(sync=(SyncPeriod(METRIC, 300),)))
        book.observe(NodeLoadObserved("c", METRIC, STEP_US // 1_000_000, at, loads))
        used = {n: {"cpu": load * CORES // 100_000, "memory": 0} for n, load in loads.items()}
        parts = {pod.uid: {"cpu": CORES * PART // 100, "memory": 0} for pod in self.pods}
        nodes = [Node(n, {"cpu": CORES, "memory": 2**36, "pods": 110}) for n in self.series]
        view = ClusterView(at, nodes, tuple(self.pods), load=book, measured=Measured(used, parts))
        for found in run(self.policy, view, self.memory):
            i = next(i for i, pod in enumerate(self.pods) if pod.uid == found.pod)
            self.moves.append((step, found.pod, found.node, found.target))
            self.pods[i] = structs.replace(self.pods[i], node=found.target)

    def returns(self) -> int:
        """Moves that bring a workload back to where it was taken off before."""
        left: set[tuple[str, str]] = set()
        found = 0
        for _, workload, source, target in self.moves:
            found += (workload, target) in left
            left.add((workload, source))
        return found


def a_pod(name: str, node: str) -> Pod:
    upkeep = PodUpkeep(owners=(Owner("ReplicaSet", name, name),), phase="Running")
    return Pod(name, name, Requirements({"cpu": 100}), node, upkeep=upkeep)


def replayed(series: dict[str, Sequence[float]], strategy: Strategy, calm: bool) -> Replay:
    """`calm`: with what a policy says unless told otherwise; else every breath is followed."""
    if isinstance(strategy, CraneWatermarks) and not calm:
        strategy = structs.replace(strategy, samples=1)
    policy = DeschedulingPolicy((DeschedulerProfile("p", balance=(strategy,)),))
    return Replay(series, policy, Memory() if calm else None).play()


def google(count: int) -> dict[str, Sequence[float]]:
    """The machines whose load swings most, 24 hours."""
    assert GOOGLE is not None
    with gzip.open(GOOGLE, "rt") as file:
        rows = list(csv.reader(file))[1:]
    series = {row[0]: [float(v) for v in row[1:]] for row in rows}
    swinging = sorted(series, key=lambda vm: (min(series[vm]) - max(series[vm]), vm))
    return {vm: series[vm] for vm in sorted(swinging[:count])}


def nab() -> tuple[dict[str, Sequence[float]], dict[str, list[int]]]:
    """The cpu series, two weeks each, and of each the steps that are labelled as anomalous."""
    assert NAB is not None
    windows = json.loads(NAB.read_text())
    series: dict[str, Sequence[float]] = {}
    labelled: dict[str, list[int]] = {}
    for file in sorted(NAB.parent.glob("*cpu_utilization_*.csv.gz")):
        name = file.name.removesuffix(".csv.gz")
        with gzip.open(file, "rt") as text:
            rows = list(csv.reader(text))[1:]
        series[name] = [float(value) for _, value in rows]
        spans: list[list[str]] = next((found for key, found in windows.items() if name in key), [])
        labelled[name] = [
            i for i, (when, _) in enumerate(rows) if any(inside(when, a, b) for a, b in spans)
        ]
    return series, labelled


def inside(when: str, start: str, end: str) -> bool:
    return moment(start) <= moment(when) <= moment(end)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def strategies() -> list[object]:
    return [pytest.param(BY_LOAD, id="watermarks"), pytest.param(BY_USE, id="low node utilisation")]


def waves(days: int) -> dict[str, Sequence[float]]:
    """Two nodes that are loaded by turns, two hours each."""
    up, down = [80.0] * 24, [10.0] * 24
    return {"day": (up + down) * 6 * days, "night": (down + up) * 6 * days}


@pytest.mark.parametrize("strategy", strategies())
def test_nodes_that_are_loaded_by_turns_do_not_hand_their_pods_to_each_other(
    strategy: Strategy,
) -> None:
    """Who follows every breath does."""
    assert replayed(waves(2), strategy, calm=False).returns() > 0
    assert replayed(waves(2), strategy, calm=True).returns() == 0


@real
@pytest.mark.data
@pytest.mark.parametrize("strategy", strategies())
def test_a_day_of_google_sends_nothing_to_and_fro(strategy: Strategy) -> None:
    series = google(60)
    calm = replayed(series, strategy, calm=True)
    nervous = replayed(series, strategy, calm=False)
    print(
        f"google: {len(calm.moves)} moves, {calm.returns()} A-B-A; "
        f"without memory {len(nervous.moves)}, {nervous.returns()}"
    )
    assert calm.returns() == 0
    assert nervous.returns() > 0, "who follows every breath does"
    assert calm.moves, "nodes that stay too full are relieved all the same"


@real
@pytest.mark.data
@pytest.mark.parametrize("strategy", strategies())
def test_two_weeks_of_amazon_send_nothing_to_and_fro(strategy: Strategy) -> None:
    series, labelled = nab()
    calm = replayed(series, strategy, calm=True)
    outside = sum(step not in set(labelled[source]) for step, _, source, _ in calm.moves)
    print(
        f"nab: {len(calm.moves)} moves, {outside} outside labelled windows, {calm.returns()} A-B-A"
    )
    assert calm.returns() == 0
