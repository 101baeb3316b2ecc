"""LowNodeUtilization and HighNodeUtilization: from nodes that are too full to those with room, or off those that are
nearly empty.

Both judge all nodes first, then walk the sources and stop as soon as the destinations together have no room left.
They differ in what a source is: a node above a target, which gives until it is below; or a node below all thresholds,
which gives everything.

The descheduler orders sources by the plain sum of milli-cores, bytes and pods, in which memory is all that counts,
and pools the room of the destinations. Where the policy is not strict, sources go by how far they are from their
bounds in percent; a pod is named only when one destination takes it without going above its own bound itself, so that
every move lowers the excess and the moves end; and a node without a resource that the thresholds name is no
destination for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wharfinger.domain.descheduling import HighNodeUtilization, LowNodeUtilization
from wharfinger.domain.node import Node, Pod
from wharfinger.engine.descheduling import usage as measure
from wharfinger.engine.descheduling.evictor import Answer, Evictor
from wharfinger.engine.descheduling.sorting import least_important_first
from wharfinger.engine.descheduling.usage import Bounds, Percents, Usage, cap

WHOLE = 100.0
PARTS = 100_000

Amounts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Survey:
    """How the nodes were judged. `percents`: node -> resource -> percent; `low`, `high`: the nodes of the two groups, in order;
    `bounds`: None of a strategy that stopped before it had any."""

    strategy: str
    percents: dict[str, Percents]
    bounds: Bounds
    low: tuple[str, ...]
    high: tuple[str, ...]


@dataclass(slots=True)
class Balancing:
    """One run. `room`: resource -> how much of it the destinations have left together. `caps`: node -> resource ->
    how much of it may be used there; `used` follows the moves. `gives`: whether a source still has to give."""

    evictor: Evictor
    usage: Usage
    used: dict[str, dict[str, int]]
    caps: dict[str, dict[str, int]]
    room: dict[str, int]
    destinations: list[Node]
    excluded: tuple[str, ...]
    per_node: int | None
    gives: Callable[[str], bool]
    wanted: Callable[[Pod], bool]
    why: Callable[[str], str]
    table: tuple[Amounts, Amounts, Amounts] | None = None

    @property
    def strict(self) -> bool:
        return self.evictor.going.strict

    def empty(self, sources: list[Node]) -> None:
        for node in sources:
            if self._empty_one(node) is Answer.TOTAL_LIMIT:
                return

    def _empty_one(self, node: Node) -> Answer:
        cluster = self.evictor.going.cluster
        pods = [pod for pod in cluster.on(node) if self.wanted(pod) and self.evictor.may(pod)]
        evicted = 0
        for pod in least_important_first(pods, self.strict):
            if not self._go_on(node.name):
                break
            if self.per_node is not None and evicted >= self.per_node:
                break
            answer = self._try(pod)
            if answer in (Answer.NODE_LIMIT, Answer.TOTAL_LIMIT):
                return answer
            evicted += answer is Answer.EVICTED
        return Answer.STAYS

    def _go_on(self, node: str) -> bool:
        return all(left > 0 for left in self.room.values()) and self.gives(node)

    def _try(self, pod: Pod) -> Answer:
        taken = self.usage.taken.get(pod.uid)
        if taken is None:
            return Answer.STAYS
        if self.strict and not any(as_the_descheduler_tolerates(pod, node) for node in self.destinations):
            return Answer.STAYS
        if pod.requirements.traits.home in self.excluded:
            return Answer.STAYS
        answer = self._evict_to_room(pod) if not self.strict else self._evict(pod)
        if answer is Answer.EVICTED:
            self._book(pod.node, -1, pod)
            for name in self.room:
                self.room[name] -= taken.get(name, 0)
        return answer

    def _evict(self, pod: Pod) -> Answer:
        if not self.evictor.lets_go(pod):
            return Answer.STAYS
        return self.evictor.evict(pod, self.why(pod.node))

    def _evict_to_room(self, pod: Pod) -> Answer:
        """To the destination that stays furthest below its bounds with it; the first listed of equals."""
        fit = self.evictor.going.fit
        rows, rest = self._rest(pod)
        if self.evictor.fit_wanted:
            rest = np.where(self.evictor.places(pod)[rows], rest, -1)
        best = int(rest.argmax())
        if rest[best] < 0:
            return Answer.STAYS
        row = int(rows[best])
        answer = self.evictor.evict(pod, self.why(pod.node), target=row)
        if answer is Answer.EVICTED:
            self._book(fit.nodes[row].name, 1, pod)
        return answer

    def _rest(self, pod: Pod) -> tuple[Amounts, Amounts]:
        """int64[destinations]: their rows, and what would be left to the cap of the scarcest resource with the pod there, in
        hundred-thousandths of what the node has; below zero: too much. Kept up to date for the one that a pod went to."""
        taken = self.usage.taken[pod.uid]
        names = list(self.room)
        if self.table is None:
            rows = [self.evictor.going.fit.position[node.name] for node in self.destinations]
            rest = [[self._left(node.name, n) for n in names] for node in self.destinations]
            size = [[max(1, self.usage.size[node.name].get(n, 0)) for n in names] for node in self.destinations]
            self.table = np.array(rows), np.array(rest, dtype=np.int64), np.array(size, dtype=np.int64)
        rows_of, left, sizes = self.table
        asked = np.array([taken.get(n, 0) for n in names], dtype=np.int64)
        return rows_of, ((left - asked) * PARTS // sizes).min(axis=1)

    def _left(self, node: str, name: str) -> int:
        return self.caps[node].get(name, 0) - self.used[node].get(name, 0)

    def _book(self, node: str, sign: int, pod: Pod) -> None:
        used = self.used[node]
        for name, amount in self.usage.taken[pod.uid].items():
            if name in used:
                used[name] += sign * amount
        if self.table is not None:
            row = self.evictor.going.fit.position[node]
            at = np.nonzero(self.table[0] == row)[0]
            self.table[1][at] = [self._left(node, n) for n in self.room]


def as_the_descheduler_tolerates(pod: Pod, node: Node) -> bool:
    """By number first: a pod with fewer tolerations than the node has taints is not looked at any further; and soft
    taints count."""
    tolerations = pod.requirements.tolerations
    return len(tolerations) >= len(node.taints) and all(
        any(t.tolerates(taint) for t in tolerations) for taint in node.taints
    )


# Low.


def low(args: LowNodeUtilization, evictor: Evictor) -> Survey:
    """Raises UsageUnknownError."""
    going = evictor.going
    if args.source == "requests":
        usage = measure.requested(going.cluster, args.thresholds)
    else:
        usage = measure.measured(going.cluster, args, going.strict)
    bounds = measure.bounds(args.thresholds, args.targets, usage, args.deviation)
    percents = {node.name: usage.percents(node.name) for node in going.cluster.nodes}
    under = [n for n in going.cluster.nodes if measure.underused(percents[n.name], bounds.low) and not n.unschedulable]
    names = {n.name for n in under}
    over = [n for n in going.cluster.nodes if n.name not in names and measure.overused(percents[n.name], bounds.high)]
    survey = _surveyed(evictor, percents, bounds, under, over)
    sources = _steady(evictor, over)
    if not _worth_it(going.cluster.nodes, under, args.number_of_nodes) or not sources:
        return survey
    run = _balancing(evictor, usage, bounds.high, _having(under, args.thresholds, usage, going.strict), args.excluded)
    run.per_node = args.per_node
    if args.source == "Prometheus" and run.per_node is None:
        run.per_node = 1  # nothing is known of what a pod takes away
    run.gives = lambda node: any(run.used[node].get(n, 0) > limit for n, limit in run.caps[node].items())
    run.why = lambda node: f"{_said(percents[node], bounds.high, args.targets)} on {node}, above its target"
    run.empty(_ordered(sources, usage, percents, bounds.high, going.strict, fullest_first=True))
    return survey


# High.


def high(args: HighNodeUtilization, evictor: Evictor) -> Survey:
    going = evictor.going
    usage = measure.requested(going.cluster, args.thresholds)
    bounds = Bounds(dict(args.thresholds), dict.fromkeys(args.thresholds, WHOLE))
    percents = {node.name: usage.percents(node.name) for node in going.cluster.nodes}
    under = [n for n in going.cluster.nodes if measure.underused(percents[n.name], bounds.low)]
    names = {n.name for n in under}
    rest = [n for n in going.cluster.nodes if n.name not in names and not n.unschedulable]
    survey = _surveyed(evictor, percents, bounds, under, rest)
    sources = _steady(evictor, under)
    if not _worth_it(going.cluster.nodes, under, args.number_of_nodes) or not rest or not sources:
        return survey
    run = _balancing(evictor, usage, {}, rest, args.excluded)
    run.why = lambda node: f"{_said(percents[node], bounds.low, bounds.low)} on {node}, which could be empty"
    if args.only_thresholding:
        run.wanted = lambda pod: any(name in pod.requirements.requests for name in args.thresholds)
    run.empty(_ordered(sources, usage, percents, bounds.low, going.strict, fullest_first=False))
    return survey


# What both do.


def _surveyed(evictor: Evictor, percents: dict[str, Percents], bounds: Bounds, a: list[Node], b: list[Node]) -> Survey:
    return Survey(evictor.strategy, percents, bounds, tuple(n.name for n in a), tuple(n.name for n in b))


def _steady(evictor: Evictor, nodes: list[Node]) -> list[Node]:
    """Those that were found before, too, where that is asked."""
    memory = evictor.going.memory
    if memory is None:
        return nodes
    steady = set(memory.steadily(evictor.profile, evictor.strategy, [node.name for node in nodes]))
    return [node for node in nodes if node.name in steady]


def _worth_it(nodes: list[Node], under: list[Node], more_than: int) -> bool:
    return bool(under) and len(under) > more_than and len(under) < len(nodes)


def _having(nodes: list[Node], thresholds: dict[str, float], usage: Usage, strict: bool) -> list[Node]:
    """To the descheduler a node that lacks a resource uses none of it."""
    if strict:
        return nodes
    return [node for node in nodes if all(name in usage.used[node.name] for name in thresholds)]


def _balancing(
    evictor: Evictor, usage: Usage, targets: Percents, destinations: list[Node], excluded: tuple[str, ...]
) -> Balancing:
    caps = {
        name: {r: cap(size, targets.get(r, WHOLE)) for r, size in usage.size[name].items() if r in used}
        for name, used in usage.used.items()
    }
    resources = dict.fromkeys(r for node in destinations for r in caps[node.name])
    resources.update(dict.fromkeys(targets))
    room = {r: sum(caps[n.name].get(r, 0) - usage.used[n.name].get(r, 0) for n in destinations) for r in resources}
    return Balancing(
        evictor,
        usage,
        {name: dict(used) for name, used in usage.used.items()},
        caps,
        room,
        destinations,
        excluded,
        None,
        lambda node: True,
        lambda pod: True,
        lambda node: "",
    )


def _ordered(
    nodes: list[Node], usage: Usage, percents: dict[str, Percents], by: Percents, strict: bool, fullest_first: bool
) -> list[Node]:
    def fullness(node: Node) -> float:
        if strict:
            return sum(usage.used[node.name].values())
        return max(percents[node.name].get(name, 0.0) - bound for name, bound in by.items())

    return sorted(nodes, key=fullness, reverse=fullest_first)


def _said(percents: Percents, by: Percents, names: dict[str, float]) -> str:
    """`cpu 87.5 % (50 %)`: how much is used of what counts, and the bound."""
    return ", ".join(f"{name} {percents.get(name, 0.0):.4g} % ({by[name]:.4g} %)" for name in names)
