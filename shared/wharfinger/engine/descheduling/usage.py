"""How full nodes are, by requests or by measurement, and by which thresholds that is too much or little.

Amounts are integers; percentages are doubles that are divided and multiplied once, in the descheduler's order of operations, so
that a node exactly at its threshold is judged as there, on every machine. A mean is summed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wharfinger.domain.descheduling import METRIC_RESOURCE, LowNodeUtilization
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.view import Cluster, Measured, allocatable

ALWAYS = ("cpu", "memory", "pods")
"""What is looked at besides the resources that the thresholds name."""

CPU_METRIC, MEMORY_METRIC = "cpu_usage_avg_5m", "mem_usage_avg_5m"
"""The metrics of the load book by which measured usage is known where the cluster's metrics API is not read."""

Percents = dict[str, float]


class UsageUnknownError(Exception):
    """Usage is not known well enough to judge any node. The sentence says whose, and why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of all nodes. `used`: node -> resource -> amount; `size`: what there is of it (absent: the node has no such
    thing). `taken`: uid -> what a pod is of that; absent: nobody knows."""

    used: Mapping[str, dict[str, int]]
    size: Mapping[str, dict[str, int]]
    taken: Mapping[str, Mapping[str, int]]

    def percents(self, node: str) -> Percents:
        return {name: percent(used, self.size[node].get(name, 0)) for name, used in self.used[node].items()}


def percent(used: int, size: int) -> float:
    return used / size * 100 if size else 0.0


def resources(thresholds: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*thresholds, *ALWAYS)))


def requested(cluster: Cluster, thresholds: Iterable[str]) -> Usage:
    """What running pods request."""
    names = resources(thresholds)
    used: dict[str, dict[str, int]] = {}
    size: dict[str, dict[str, int]] = {}
    taken: dict[str, dict[str, int]] = {}
    for node in cluster.nodes:
        size[node.name] = allocatable(node)
        total = {name: 0 for name in names if name in size[node.name]}
        for pod in cluster.running[node.name]:
            asked = cluster.requests[pod.uid]
            taken[pod.uid] = asked
            for name in total:
                total[name] += asked.get(name, 0)
        used[node.name] = total
    return Usage(used, size, taken)


def measured(cluster: Cluster, args: LowNodeUtilization, strict: bool) -> Usage:
    """What is really used. Raises UsageUnknownError."""
    if args.source == "Prometheus":
        return _queried(cluster, args.query)
    unknown = [name for name in args.thresholds if name not in ALWAYS]
    if unknown:
        raise UsageUnknownError(f"nothing measures {', '.join(unknown)}")
    used: dict[str, dict[str, int]] = {}
    size: dict[str, dict[str, int]] = {}
    taken: dict[str, Mapping[str, int]] = {}
    told = cluster.view.measured
    for node in cluster.nodes:
        size[node.name] = allocatable(node)
        known = told.nodes.get(node.name) if told is not None else _of_the_book(cluster, node)
        if known is None:
            raise UsageUnknownError(f"the usage of node {node.name} is not known")
        running = cluster.running[node.name]
        used[node.name] = {"cpu": known.get("cpu", 0), "memory": known.get("memory", 0), "pods": len(running)}
        for pod in running:
            if (share := _of_pod(cluster, told, pod, strict)) is not None:
                taken[pod.uid] = share
    return Usage(used, size, taken)


def _of_pod(cluster: Cluster, told: Measured | None, pod: Pod, strict: bool) -> Mapping[str, int] | None:
    """Where a pod is not measured it counts as what it requests; to the descheduler it cannot be moved then."""
    found = told.pods.get(pod.uid) if told is not None else None
    if found is not None:
        return {"cpu": found.get("cpu", 0), "memory": found.get("memory", 0), "pods": 1}
    return None if strict else cluster.requests[pod.uid]


def _of_the_book(cluster: Cluster, node: Node) -> dict[str, int] | None:
    """Shares of the load book as amounts; None where one is missing or too old."""
    book, at = cluster.view.load, cluster.view.at
    if book is None:
        return None
    cpu, memory = book.load(CPU_METRIC, node.name, at), book.load(MEMORY_METRIC, node.name, at)
    if cpu is None or memory is None:
        return None
    size = allocatable(node)
    return {"cpu": size.get("cpu", 0) * cpu // 100_000, "memory": size.get("memory", 0) * memory // 100_000}


def _queried(cluster: Cluster, query: str) -> Usage:
    """Usage in whole percent of one thing, and nothing known of pods. A load beyond the whole counts as the whole,
    but an answer of the query that is none is none."""
    told = cluster.view.measured
    shares = told.shares.get(query) if told is not None else None
    for name, share in (shares or {}).items():
        if not name:
            raise UsageUnknownError("the query tells of something without saying of which node")
        if not 0 <= share <= 1:
            raise UsageUnknownError(f"the query says {share:g} of {name}; expected 0 to 1")
    used: dict[str, dict[str, int]] = {}
    for node in cluster.nodes:
        part = shares.get(node.name) if shares is not None else _asked(cluster, query, node)
        if part is None:
            raise UsageUnknownError(f"the query tells nothing of node {node.name}")
        used[node.name] = {METRIC_RESOURCE: int(part * 100)}
    size = {node.name: {METRIC_RESOURCE: 100} for node in cluster.nodes}
    nothing: dict[str, int] = {}
    taken = {pod.uid: nothing for pod in cluster.everywhere()}
    return Usage(used, size, taken)


def _asked(cluster: Cluster, query: str, node: Node) -> float | None:
    """The load book knows what the annotator asks: a query is known by the name of its metric."""
    book = cluster.view.load
    load = book.load(query, node.name, cluster.view.at) if book is not None else None
    return None if load is None else min(load, 100_000) / 100_000


def smoothed(before: int, now: int) -> int:
    """One more measurement of the metrics API taken into the average, as the descheduler's collector does it: nine
    tenths of what was, one tenth of what is, rounded half away from zero. A jump reaches half its height after 7
    rounds."""
    return math.floor(before * BETA + now * (1 - BETA) + 0.5)


BETA = 0.9


# Thresholds.


@dataclass(frozen=True, slots=True)
class Bounds:
    """Percent by resource: at or below all of `low` a node is underused, above any of `high` it is overused."""

    low: Percents
    high: Percents


def bounds(low: Mapping[str, float], high: Mapping[str, float], usage: Usage, deviation: bool) -> Bounds:
    """With `deviation` the numbers are distances from the mean of all nodes."""
    if not deviation:
        return Bounds(dict(low), dict(high))
    mean = _means(usage, low)
    return Bounds(
        {name: _within(mean[name] - distance) for name, distance in low.items()},
        {name: _within(mean[name] + distance) for name, distance in high.items()},
    )


def _means(usage: Usage, names: Iterable[str]) -> Percents:
    all_percents = [usage.percents(node) for node in usage.used]
    return {name: math.fsum(p.get(name, 0.0) for p in all_percents) / len(all_percents) for name in names}


def _within(value: float) -> float:
    return min(100.0, max(0.0, value))


def underused(percents: Percents, low: Percents) -> bool:
    return all(percents.get(name, 0.0) <= bound for name, bound in low.items())


def overused(percents: Percents, high: Percents) -> bool:
    return any(percents.get(name, 0.0) > bound for name, bound in high.items())


def cap(size: int, bound: float) -> int:
    """How much of `size` the percentage is, cut off to whole units."""
    return int(bound * 0.01 * size)
