"""Node utilisation, by requests or by measurement, and the thresholds for too low and too high.

Amounts are integers. Percentages are doubles, computed in the descheduler's order of operations, so
that a node exactly at its threshold is judged the same on every machine. A mean is summed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wharfinger.domain.descheduling import METRIC_RESOURCE, LowNodeUtilization
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling.view import DeschedulingCluster, Measured, allocatable

ALWAYS = ("cpu", "memory", "pods")
"""Resources that are counted besides those that the thresholds name."""

CPU_METRIC, MEMORY_METRIC = "cpu_usage_avg_5m", "mem_usage_avg_5m"
"""The metrics of the load book by which measured usage is known where the cluster's metrics API is
not read."""

Percents = dict[str, float]


class UsageUnknownError(Exception):
    """Raised when the usage needed to judge the nodes is not known. The message says which, and
    why."""


@dataclass(frozen=True, slots=True)
class NodesUsage:
    """Holds the usage and the capacity of all nodes. `used`: node -> resource -> used amount.
    `size`: node -> resource -> capacity; a resource that the node lacks has no entry. `taken`: pod
    uid -> resource -> amount; a pod whose usage is not known has no entry."""

    used: Mapping[str, dict[str, int]]
    size: Mapping[str, dict[str, int]]
    taken: Mapping[str, Mapping[str, int]]

    def percents(self, node: str) -> Percents:
        return {
            name: percent(used, self.size[node].get(name, 0))
            for name, used in self.used[node].items()
        }


def percent(used: int, size: int) -> float:
    return used / size * 100 if size else 0.0


def resources(thresholds: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*thresholds, *ALWAYS)))


def requested(cluster: DeschedulingCluster, thresholds: Iterable[str]) -> NodesUsage:
    """Returns the utilisation of all nodes by requests: for each node, the sum of the requests of
    its running pods.

    `thresholds`: names of resources to sum besides cpu, memory and number of pods. A resource that
      a node does not have is left out for that node.
    """
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
    return NodesUsage(used, size, taken)


def measured(cluster: DeschedulingCluster, args: LowNodeUtilization, strict: bool) -> NodesUsage:
    """Returns the measured utilisation of all nodes, and of the pods where it is known. The source
    depends on `args`.

    - Prometheus: whole percent for each node, nothing for pods.
    - Otherwise cpu, memory and number of pods, from the metrics API, or from the cluster's load
      book (the recorded load measurements) if the metrics API is not read. A pod without a
      measurement gets its requests as usage; with `strict` it gets no entry.

    Raises UsageUnknownError if the usage of a node is not known, or if a threshold names a resource
    that the source does not measure.
    """
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
        used[node.name] = {
            "cpu": known.get("cpu", 0),
            "memory": known.get("memory", 0),
            "pods": len(running),
        }
        for pod in running:
            if (share := _of_pod(cluster, told, pod, strict)) is not None:
                taken[pod.uid] = share
    return NodesUsage(used, size, taken)


def _of_pod(
    cluster: DeschedulingCluster, told: Measured | None, pod: Pod, strict: bool
) -> Mapping[str, int] | None:
    """Returns the measured usage of a pod; if there is none, its requests, or None with `strict`
    (the descheduler cannot move it then)."""
    found = told.pods.get(pod.uid) if told is not None else None
    if found is not None:
        return {"cpu": found.get("cpu", 0), "memory": found.get("memory", 0), "pods": 1}
    return None if strict else cluster.requests[pod.uid]


def _of_the_book(cluster: DeschedulingCluster, node: Node) -> dict[str, int] | None:
    """Returns the measured usage of a node as cpu (thousandths of a core) and memory (bytes). It is
    load times allocatable amount; the load comes from the load book, the recorded load measurements
    of the cluster, in 1/100,000.

    Returns None if there is no load book, or if the load of cpu or memory is missing or too old.
    Example: 4000m CPU allocatable and a load of 50,000 give 2000.
    """
    book, at = cluster.view.load, cluster.view.at
    if book is None:
        return None
    cpu, memory = book.load(CPU_METRIC, node.name, at), book.load(MEMORY_METRIC, node.name, at)
    if cpu is None or memory is None:
        return None
    size = allocatable(node)
    return {
        "cpu": size.get("cpu", 0) * cpu // 100_000,
        "memory": size.get("memory", 0) * memory // 100_000,
    }


def _queried(cluster: DeschedulingCluster, query: str) -> NodesUsage:
    """Returns the utilisation of all nodes in whole percent, from the result of one Prometheus
    query. The usage of pods is not known: each pod gets an empty entry.

    `query`: the text of the query. Its result is taken from `cluster.view.measured`, or from the
      load book (the recorded load measurements) if `measured` has no result. A load above 100% in
      the load book is taken as 100%.

    Raises UsageUnknownError if a query result lies outside 0..1 or names no node, or if a node has
    no result. Example: the result 0.505 gives 50.
    """
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
    return NodesUsage(used, size, taken)


def _asked(cluster: DeschedulingCluster, query: str, node: Node) -> float | None:
    """Returns the load of the node in the load book, 0..1; None if it is not known. `query` is the
    name of the metric, because the annotator queries Prometheus by metric name."""
    book = cluster.view.load
    load = book.load(query, node.name, cluster.view.at) if book is not None else None
    return None if load is None else min(load, 100_000) / 100_000


def smoothed(before: int, now: int) -> int:
    """Returns the exponential moving average after one more measurement of the metrics API, with
    the descheduler's weights: 9/10 of `before` plus 1/10 of `now`, rounded half away from zero. A
    jump reaches half of its height after 7 measurements."""
    return math.floor(before * BETA + now * (1 - BETA) + 0.5)


BETA = 0.9


# Thresholds.


@dataclass(frozen=True, slots=True)
class Bounds:
    """Holds the thresholds, resource -> percent. A node at or below all values in `low` is
    underused; a node above any value in `high` is overused."""

    low: Percents
    high: Percents


def bounds(
    low: Mapping[str, float], high: Mapping[str, float], usage: NodesUsage, deviation: bool
) -> Bounds:
    """Returns the low and the high thresholds of utilisation in percent, by resource.

    `low`, `high`: resource -> percent. Without `deviation` these are the thresholds. With
      `deviation` they are distances from the mean utilisation of all nodes: the low threshold is
      mean - low, the high threshold is mean + high, limited to 0..100.
    `usage`: the utilisation of all nodes, for the mean.

    Example with `deviation`: mean 40%, `low` 10, `high` 20: the thresholds are 30% and 60%.
    """
    if not deviation:
        return Bounds(dict(low), dict(high))
    mean = _means(usage, low)
    return Bounds(
        {name: _within(mean[name] - distance) for name, distance in low.items()},
        {name: _within(mean[name] + distance) for name, distance in high.items()},
    )


def _means(usage: NodesUsage, names: Iterable[str]) -> Percents:
    """Of no node at all the mean is 0: no node is compared with it."""
    all_percents = [usage.percents(node) for node in usage.used]
    count = max(1, len(all_percents))
    return {name: math.fsum(p.get(name, 0.0) for p in all_percents) / count for name in names}


def _within(value: float) -> float:
    return min(100.0, max(0.0, value))


def underused(percents: Percents, low: Percents) -> bool:
    return all(percents.get(name, 0.0) <= bound for name, bound in low.items())


def overused(percents: Percents, high: Percents) -> bool:
    return any(percents.get(name, 0.0) > bound for name, bound in high.items())


def cap(size: int, bound: float) -> int:
    """Returns `bound` percent of `size`, rounded down to a whole unit."""
    return int(bound * 0.01 * size)
