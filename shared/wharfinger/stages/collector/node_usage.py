"""What nodes use by the metrics API of their cluster, as the load of nodes.

The metrics API says what a node uses at the moment, of which a single value is noise. Kept are the
values of the last five minutes; their mean, in shares of what the node offers to pods, is the load
by the names that load policies and LowNodeUtilization use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node
from wharfinger.domain.time import Micros
from wharfinger.engine.descheduling.usage import CPU_METRIC, MEMORY_METRIC
from wharfinger.engine.load.node_loads import LOAD_MAX
from wharfinger.events.node_load import NodeLoadObserved

WINDOW_US = 5 * 60 * 1_000_000
"""How long a value counts: the names of both metrics say five minutes."""

WHOLE = 100_000
"""Loads are integers in parts of this."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node uses. `measured`: when, in the words of the cluster; a value that was measured at
    the same time as the one before it is the same value. `cpu`: thousandths of a core; `memory`:
    bytes."""

    node: str
    measured: str
    cpu: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Sample:
    at: Micros
    usage: NodeUsage


class NodeUsageWindow:
    """Keeps the measured values of one cluster for five minutes."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}
        self._newest: dict[str, str] = {}
        """Node -> when its newest value was measured. One that is not measured again grows old, and
        is not counted twice."""

    def observe(self, usages: Sequence[NodeUsage], at: Micros) -> None:
        """Adds the values of one answer, and forgets those that are too old. A node that is not
        measured any more keeps its values until then."""
        for usage in usages:
            if self._newest.get(usage.node) != usage.measured:
                self._newest[usage.node] = usage.measured
                self._samples.setdefault(usage.node, deque()).append(_Sample(at, usage))
        told = {usage.node for usage in usages}
        for name, samples in list(self._samples.items()):
            while samples and at - samples[0].at >= WINDOW_US:
                samples.popleft()
            if not samples:
                del self._samples[name]
        for name in [n for n in self._newest if n not in told and n not in self._samples]:
            del self._newest[name]

    def loads(
        self, cluster: str, node: Callable[[str], Node | None], period_s: int, at: Micros
    ) -> list[NodeLoadObserved]:
        """Returns one measurement for each of the two metrics; none if no node has a value.

        `node`: the node of a name; None: there is no such node. A node without allocatable CPU or
        memory has no load of it. `period_s`: how often this is called.
        """
        used = {
            name: (found.allocatable, samples)
            for name, samples in sorted(self._samples.items())
            if (found := node(name)) is not None
        }
        cpu = _shares(used, "cpu", lambda usage: usage.cpu)
        memory = _shares(used, "memory", lambda usage: usage.memory)
        return [
            NodeLoadObserved(cluster, metric, period_s, at, loads)
            for metric, loads in ((CPU_METRIC, cpu), (MEMORY_METRIC, memory))
            if loads
        ]


def _shares(
    used: Mapping[str, tuple[Mapping[str, int], deque[_Sample]]],
    resource: str,
    amount: Callable[[NodeUsage], int],
) -> dict[str, int]:
    """Returns node -> mean used share of the allocatable amount, rounded down."""
    loads: dict[str, int] = {}
    for name, (allocatable, samples) in used.items():
        size = allocatable.get(resource, 0) * len(samples)
        if size > 0:
            total = sum(amount(sample.usage) for sample in samples)
            loads[name] = min(LOAD_MAX, total * WHOLE // size)
    return loads
