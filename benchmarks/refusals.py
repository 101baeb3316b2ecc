"""What a fleet that is asked for more than it holds refuses, and how much of it is used.

`generate fleet --clusters 20 --nodes 400 --bindings 3000 --seed 2`, through all stages in one
deterministic order (`stages.world`): in one batch; one binding at a time, with every count awaited;
and in one batch as Karmada has it, all policies `compat: strict` and nothing waiting for
counts. Beside them the CPU that a linear program could place: replicas are cut, a cluster's nodes
of one kind are one heap, spread constraints and priorities are left out.

`python -m benchmarks.refusals` prints the table.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import highspy
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.fleet import PATIENCE_S
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.taints import first_untolerated
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.registry import type_of
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World
from wharfinger_cli.generate import FleetPlan, generate

PLAN = FleetPlan(clusters=20, nodes=400, bindings=3000, seed=2)
SECOND = 1_000_000
REFUSED_MUST = 2.0
"""Percent of what clusters answer."""
PLACED_MUST = 97.0
"""Percent of the CPU that is placed one at a time."""
DEVICES = "thousandths of devices"


@dataclass(slots=True)
class Ran:
    """`answers`: of clusters, placed, refused or returned; `refusals`: of requests by clusters, by
    reason; `returns`: decisions that give back only replicas that had a node, by why they lost it;
    `released`: replicas that were preempted; `fleet_refusals`: of the fleet stage, by reason;
    `twice`: bindings that a cluster refused twice for the same reason, without a placement or a
    release in that cluster between."""

    name: str
    answers: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    returns: Counter[str] = field(default_factory=Counter)
    released: int = 0
    fleet_refusals: Counter[str] = field(default_factory=Counter)
    twice: int = 0
    waiting: int = 0
    cpu_milli: int = 0
    seconds: float = 0.0

    unchanged: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def refused_percent(self) -> float:
        return 100 * sum(self.refusals.values()) / max(1, self.answers)

    @property
    def returned_percent(self) -> float:
        return 100 * sum(self.returns.values()) / max(1, self.answers)


@dataclass(frozen=True, slots=True)
class Measured:
    asked_milli: int
    bound_milli: int
    runs: tuple[Ran, ...]


def measured(plan: FleetPlan = PLAN) -> Measured:
    events = [
        Event(derived_id("refusals", str(i)), type_of(a.data), "/b", a.subject, a.data, b"", b"")
        for i, a in enumerate(generate(plan))
    ]
    requests = [e for e in events if isinstance(e.data, BindingRequested)]
    facts = [e for e in events if not isinstance(e.data, BindingRequested)]
    bindings = [e.data.binding for e in requests if isinstance(e.data, BindingRequested)]
    patient = FleetDecider(patience_s=PATIENCE_S)
    return Measured(
        sum(b.replicas * b.requirements.requests["cpu"] for b in bindings),
        bound_milli([e.data for e in facts], bindings),
        (
            ran("one batch", patient, [events]),
            ran("one at a time", patient, [facts, *[[e] for e in requests]]),
            ran("one batch, as Karmada", FleetDecider(), [facts, [_strict(e) for e in requests]]),
        ),
    )


def ran(name: str, decider: FleetDecider, batches: Iterable[Sequence[Event[Value]]]) -> Ran:
    world, begin, at = World(repeat_after_s=None, fleet=decider), time.perf_counter(), 0
    found = Ran(name)
    for batch in (*batches, ()):
        at += SECOND if batch else 2 * PATIENCE_S * SECOND
        for told in world.tell(batch, at):
            for decision in told.round.decisions:
                _count(found, decision.data)
    found.seconds = time.perf_counter() - begin
    for state in world.fleet_states():
        found.waiting += sum(bool(b.refused) for b in state.bindings.values())
    for cluster in world.cluster_states():
        for held in cluster.book.held.values():
            found.cpu_milli += len(held.placed) * held.cls.requirements.requests.get("cpu", 0)
    return found


def _count(found: Ran, data: Value) -> None:
    match data:
        case ReplicasPlaced():
            found.answers += 1
            _changed(found, data.cluster)
        case ReplicasRefused():
            found.answers += 1
            if data.is_return:
                found.returns[data.refusal()] += 1
                return
            found.refusals[data.reason] += 1
            key = (data.cluster, data.binding)
            found.twice += found.unchanged.get(key) == data.reason
            found.unchanged[key] = data.reason
        case ReplicasReleased():
            found.released += sum(len(share.ordinals) for share in data.released)
            _changed(found, data.cluster)
        case ScheduleRefused():
            found.fleet_refusals[data.reason] += 1
        case _:
            pass


def _changed(found: Ran, cluster: str) -> None:
    for key in [key for key in found.unchanged if key[0] == cluster]:
        del found.unchanged[key]


def _strict(event: Event[Value]) -> Event[Value]:
    assert isinstance(event.data, BindingRequested), "requests only"
    binding = event.data.binding
    placement = msgspec.structs.replace(binding.placement, strict=True)
    data = BindingRequested(msgspec.structs.replace(binding, placement=placement))
    return msgspec.structs.replace(event, data=data)


# The bound


@dataclass(slots=True)
class _Heap:
    """Nodes of a cluster that admit the same pods. `free`: sums over them."""

    cluster: Cluster
    like: Node
    free: Counter[str] = field(default_factory=Counter)


def bound_milli(facts: Iterable[Value], bindings: Iterable[Binding]) -> int:
    """The most CPU that any placement has, in milli-cores: a linear program."""
    heaps, program = _heaps(list(facts)), _Program()
    used: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for example, replicas in _kinds(bindings):
        needs = _needs(example)
        by_cluster: dict[str, list[int]] = {}
        for at, heap in enumerate(heaps):
            if not _admits(example, heap) or any(not heap.free[name] for name in needs):
                continue
            column = program.column(example.requirements.requests["cpu"])
            by_cluster.setdefault(heap.cluster.name, []).append(column)
            for name, amount in needs.items():
                used.setdefault((at, name), []).append((column, amount / heap.free[name]))
        everywhere = [column for columns in by_cluster.values() for column in columns]
        copies = example.placement.replicas.type == "Duplicated"
        for columns in by_cluster.values() if copies else [everywhere]:
            program.row(replicas, [(column, 1.0) for column in columns])
    for parts in used.values():
        program.row(1.0, parts)
    return program.most()


@dataclass(slots=True)
class _Program:
    """Columns from zero on, rows that are at most so much, and the largest value."""

    values: list[float] = field(default_factory=list)
    rows: list[tuple[float, Sequence[tuple[int, float]]]] = field(default_factory=list)

    def column(self, value: float) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def row(self, most: float, parts: Sequence[tuple[int, float]]) -> None:
        if parts:
            self.rows.append((most, parts))

    def most(self) -> int:
        solver, lp = highspy.Highs(), highspy.HighsLp()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.num_col_, lp.num_row_ = len(self.values), len(self.rows)
        lp.col_cost_ = np.array(self.values)
        lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, np.inf)
        lp.row_lower_ = np.full(lp.num_row_, -np.inf)
        lp.row_upper_ = np.array([most for most, _ in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(parts) for _, parts in self.rows)])
        lp.a_matrix_.index_ = np.array([c for _, parts in self.rows for c, _ in parts], np.int32)
        lp.a_matrix_.value_ = np.array([v for _, parts in self.rows for _, v in parts])
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError("the linear program has no solution")
        return math.ceil(solver.getInfo().objective_function_value)


def _heaps(facts: Sequence[Value]) -> list[_Heap]:
    clusters = {f.cluster.name: f.cluster for f in facts if isinstance(f, ClusterObserved)}
    heaps: dict[tuple[object, ...], _Heap] = {}
    for fact in [fact for fact in facts if isinstance(fact, NodesObserved)]:
        for node in fact.nodes:
            if node.unschedulable:
                continue
            models = tuple(sorted({d.model for d in node.devices}))
            heap = heaps.setdefault(
                (fact.cluster, node.taints, models), _Heap(clusters[fact.cluster], node)
            )
            heap.free.update(node.allocatable)
            heap.free[DEVICES] += DEVICE_MILLI * len(node.devices)
    return list(heaps.values())


def _kinds(bindings: Iterable[Binding]) -> Iterator[tuple[Binding, int]]:
    """Bindings that may be in the same places and ask for the same, and their replicas together."""
    found: dict[tuple[object, ...], tuple[Binding, int]] = {}
    for binding in bindings:
        key = (binding.policy, binding.requirements.class_key)
        example, replicas = found.get(key, (binding, 0))
        found[key] = (example, replicas + binding.replicas)
    yield from found.values()


def _needs(binding: Binding) -> dict[str, int]:
    needs = {"pods": 1, **binding.requirements.requests}
    for device in binding.requirements.devices:
        needs[DEVICES] = needs.get(DEVICES, 0) + device.count * device.milli
    return needs


def _admits(binding: Binding, heap: _Heap) -> bool:
    """Whether the binding may be in the cluster, and its pods on such nodes."""
    placement, requirements = binding.placement, binding.requirements
    query = ClusterQuery(placement, placement.terms[0], binding.resource.gvk)
    if first_refusal(query, heap.cluster) is not None:
        return False
    if first_untolerated(heap.like.taints, requirements.tolerations, ("NoSchedule",)) is not None:
        return False
    models = {d.model for d in heap.like.devices}
    return all(not device.models or models & {*device.models} for device in requirements.devices)


# The table


def table(found: Measured) -> Table:
    shown = Table(
        "asked for at once",
        "CPU placed",
        "of the bound",
        "clusters refuse",
        "of their answers",
        "twice",
        "clusters return",
        "of their answers",
        "preempted",
        "the fleet refuses",
        "wait at the end",
        "s",
        title=(
            f"{PLAN.bindings:,} bindings that ask for {found.asked_milli / 1000:,.0f} CPUs; "
            f"at most {found.bound_milli / 1000:,.0f} can be placed (linear program)"
        ),
    )
    for run in found.runs:
        shown.add_row(
            run.name,
            f"{run.cpu_milli / 1000:,.0f}",
            f"{100 * run.cpu_milli / found.bound_milli:.1f} %",
            _causes(run.refusals),
            f"{run.refused_percent:.1f} %",
            f"{run.twice:,}",
            _causes(run.returns),
            f"{run.returned_percent:.1f} %",
            f"{run.released:,}",
            _causes(run.fleet_refusals),
            f"{run.waiting:,}",
            f"{run.seconds:.1f}",
        )
    return shown


def _causes(counts: Counter[str]) -> str:
    return ", ".join([f"{reason} {n:,}" for reason, n in counts.most_common()]) or "0"


def main() -> int:
    Console(width=210 if not sys.stdout.isatty() else None).print(table(measured()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
