"""The worst cases of the engines, on one core and in memory, in processor time.

*A label*: a round that takes in one cluster's new label that no policy reads, while sixty bindings
are in all of 5,000 clusters. *Duplicated*: the whole decision on a binding that goes to all of
5,000 clusters. *All renewed*: every cluster has reported a new count since the last decision; the
whole next decision, by the policy of the one before or by one of its own, and the round that takes
the counts in. *Fifty bindings*: rounds of fifty bindings of one replica and one class on 5,000 and
on 50,000 nodes, from the assignments to numbered and hashed decisions. *One binding*: the same with
one binding in a round on 500 nodes, beside what kube-scheduler takes for a pod there.

`python -m benchmarks.worst` prints it; `python -m benchmarks` has it among the rest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import fleet, nodes
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, SpreadConstraint
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import cluster_stream, fleet_stream
from wharfinger.kernel.round import Round
from wharfinger.kernel.step import empty_head, step
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.stages.cluster import ClusterDecider

CLUSTERS = 5000
FEW_NODES = 500
STANDING = 60
AT_ONCE = 50
REPEATS = 9
SMALL = Requirements({"cpu": 1, "memory": 2**10})

LABEL_MUST_MS = 20.0
DUPLICATED_MUST_MS = 5.0
RENEWED_TIMES_MUST = {100: 5, 1000: 15, 5000: 25}
OWN_TIMES_MUST = {100: 4, 1000: 12, 5000: 20}
POD_MUST_US = {5000: 100.0, 50_000: 500.0}
"""By nodes."""
KUBE_TIMES_MUST = 10


@dataclass(frozen=True, slots=True)
class Worst:
    """One figure: the median of processor time, in `unit`. `must`: what is wanted at most; None:
    nothing is wanted of it. `beside`: what it is compared with."""

    name: str
    value: float
    unit: str
    must: float | None
    beside: str = ""


def measured(repeats: int = REPEATS) -> Iterator[Worst]:
    """Every worst case, one after the other."""
    seldom_collect()
    for kind, placement in standing().items():
        yield a_label(kind, placement, repeats)
    yield from duplicated(repeats)
    for clusters in fleet.SIZES:
        yield from renewed(clusters, repeats)
        yield uncertain(clusters, repeats)
    for many, must_us in POD_MUST_US.items():
        for kind, requirements in constrained().items():
            yield fifty_bindings(kind, requirements, many, must_us, repeats)
    for workload in nodes.WORKLOADS:
        yield one_binding(workload, 5 * repeats)


# --- a label that no policy reads


def standing() -> dict[str, tuple[Placement, int, Requirements]]:
    """Sorts of bindings that go to every feasible cluster: placement, replicas, requirements."""
    plain = fleet.strategies()["Duplicated"]
    terms = tuple(
        ClusterAffinity(tier, labels=LabelSelector({"tier": tier})) for tier in ("gold", "tin")
    )
    spread = (SpreadConstraint("cluster", "", 1, 4 * CLUSTERS // 5),)
    return {
        "Duplicated": (plain, 1, SMALL),
        "objects without replicas": (plain, 0, Requirements()),
        "two affinity terms": (msgspec.structs.replace(plain, affinities=terms), 1, SMALL),
        "a spread constraint": (msgspec.structs.replace(plain, spread=spread), 1, SMALL),
    }


def a_label(kind: str, of: tuple[Placement, int, Requirements], repeats: int) -> Worst:
    """A new label of one cluster while sixty such bindings stand: milliseconds of the round."""
    placement, replicas, asks = of
    here = fleet.Fleet(CLUSTERS, [])
    names = [f"stands/b{i:02d}" for i in range(STANDING)]
    here.take([fleet.a_request(name, placement, replicas, asks) for name in names])
    assert not any(here.state.bindings[name].refused for name in names)
    _a_label_round(here, CLUSTERS)  # what was decided just before is looked at once
    times = [_a_label_round(here, i) for i in range(repeats)]
    name = f"{CLUSTERS:,} clusters: a label no policy reads, {STANDING} bindings, {kind}"
    return Worst(name, statistics.median(times), "ms", LABEL_MUST_MS)


def _a_label_round(here: fleet.Fleet, i: int) -> float:
    fact = ClusterObserved(fleet.a_cluster(37 * i % CLUSTERS, f"-{i}"))
    round_, took = in_processor_ms(lambda: here.take([fact])[0])
    assert not round_.decisions
    return took


# --- Duplicated


def duplicated(repeats: int) -> Iterator[Worst]:
    """A binding that goes to 5,000 clusters: milliseconds of the whole decision, where every
    cluster has room, and where each gets as many replicas as it has room for and the others wait.
    """
    here = fleet.Fleet(CLUSTERS, [])
    placement = fleet.strategies()["Duplicated"]
    here.take([fleet.a_request("every/first", placement, 1, SMALL)])
    times = [
        in_processor_ms(partial(here.take, [fleet.a_request(f"every/b{i}", placement, 1, SMALL)]))[
            1
        ]
        for i in range(repeats)
    ]
    name = f"{CLUSTERS:,} clusters: a Duplicated binding, whole decision"
    yield Worst(name, statistics.median(times), "ms", DUPLICATED_MUST_MS)
    here = fleet.Fleet(CLUSTERS, (fleet.CLASS.class_key,))
    here.take([fleet.a_request("every/first", placement)])
    times.clear()
    for i in range(repeats):
        _renew(here, i)
        request = fleet.a_request(f"every/full-{i}", placement)
        (round_, _), took = in_processor_ms(partial(here.take, [request]))
        assert [d.outcome for d in round_.decisions][:1] == ["refused"]
        times.append(took)
    name += ", of more replicas than fit"
    yield Worst(name, statistics.median(times), "ms", DUPLICATED_MUST_MS)


# --- all counts renewed


def renewed(clusters: int, repeats: int) -> Iterator[Worst]:
    """All counts of the clusters are renewed before each decision by dynamic weights."""
    here = fleet.Fleet(clusters, (fleet.CLASS.class_key,))
    dynamic = fleet.strategies()["dynamic"]
    here.take([fleet.a_request("renewed/first", dynamic)])
    counting: list[float] = []
    for own, must in ((False, RENEWED_TIMES_MUST), (True, OWN_TIMES_MUST)):
        times: list[float] = []
        for i in range(repeats):
            policy = dynamic
            if own:
                more = (*dynamic.tolerations, Toleration(f"own-{i}", "Exists"))
                policy = msgspec.structs.replace(dynamic, tolerations=more)
            counting.append(_renew(here, i) / clusters)
            request = fleet.a_request(f"renewed/{own}-{i}", policy)
            (round_, _), took = in_processor_ms(partial(here.take, [request]))
            assert [d.outcome for d in round_.decisions] == ["scheduled"]
            times.append(took)
        median, karmada = statistics.median(times), fleet.KARMADA_MS[clusters]
        yield Worst(
            f"{clusters:,} clusters: all counts renewed, the next decision"
            + (" by a policy of its own" if own else ""),
            median,
            "ms",
            karmada / must[clusters],
            f"Karmada {karmada:g} ms: {karmada / median:.1f} times",
        )
    yield Worst(
        f"{clusters:,} clusters: all counts renewed, taking one in",
        1000 * statistics.median(counting),
        "µs",
        None,
    )


def uncertain(clusters: int, repeats: int) -> Worst:
    """Bindings of sixty classes, one after the other, between two counts. For most of them the best
    cluster has room by its count, but not for certain: each is divided a second time."""
    random = Random(1)
    kinds = [Requirements({"cpu": 500 + 37 * i, "memory": (1 + i % 7) * 2**28}) for i in range(60)]
    here = fleet.Fleet(clusters, [kind.class_key for kind in kinds])
    aggregated = fleet.strategies()["Aggregated"]
    times: list[float] = []
    for i in range(40 * repeats):
        asks, replicas = random.choice(kinds), random.choice((1, 2, 5, 20))
        request = fleet.a_request(f"uncertain/b{i:04d}", aggregated, replicas, asks)
        times.append(in_processor_ms(partial(here.take, [request]))[1])
    name = f"{clusters:,} clusters: Aggregated, room in the best cluster is not certain"
    return Worst(name, statistics.median(times), "ms", None)


def _renew(here: fleet.Fleet, i: int) -> float:
    counts = [fleet.a_count(c, here.classes, here.seq, more=i % 3) for c in range(here.clusters)]
    return in_processor_ms(lambda: here.take(counts))[1]


# --- fifty bindings of one replica


def constrained() -> dict[str, Requirements]:
    return {
        "hard topology spread": nodes.SPREAD,
        "hostname anti-affinity": nodes.APART,
        "zone affinity": nodes.TOGETHER,
        "preferred affinity": nodes.LIKES,
    }


class Stage:
    """A cluster stream by itself: rounds are stepped, nothing is stored."""

    def __init__(self, many: int) -> None:
        stream = cluster_stream("member")
        self._decider = ClusterDecider()
        self._state, self._head = self._decider.initial(stream), empty_head(stream)
        self._at, self._seq = 1_700_000_000_000_000, 0
        self._take(NodesObserved("member", 0, 1, tuple([_a_node(n) for n in range(many)])))

    def assign(self, pods: Sequence[Requirements]) -> float:
        """One round with a binding of one replica for each. Microseconds of processor time a
        binding."""
        items: list[Assigned] = []
        for asks in pods:
            self._seq += 1
            name = f"work/b{self._seq:06d}"
            id = str(derived_id("benchmarks/worst", self._seq))
            items.append(Assigned(self._seq, id, name, f"uid-{name}", 1, asks))
        fact = AssignmentsDecided("member", fleet_stream(0), self._seq, tuple(items))
        round_, took = self._take(fact)
        assert [d.outcome for d in round_.decisions] == ["placed"] * len(pods)
        return 1000 * took / len(pods)

    def _take(self, fact: Value) -> tuple[Round, float]:
        self._at += 1_000
        id = derived_id("benchmarks/worst", self._at)
        event = made(fact, id=id, source="/benchmarks/worst", subject="member")
        round_, took = in_processor_ms(
            lambda: step(self._decider, self._state, self._head, [event], self._at, {})
        )
        self._head = round_.head()
        return round_, took


def _a_node(n: int) -> Node:
    labels = {nodes.HOSTNAME: f"node-{n:05}", nodes.ZONE: f"zone-{n % nodes.ZONES}"}
    return Node(f"node-{n:05}", {"cpu": 4000, "memory": 32 * nodes.GIB, "pods": 110}, labels=labels)


def fifty_bindings(
    kind: str, requirements: Requirements, many: int, must_us: float, repeats: int
) -> Worst:
    """Rounds of fifty bindings of one replica and one class: microseconds a pod."""
    stage = Stage(many)
    stage.assign([requirements] * AT_ONCE)
    times = [stage.assign([requirements] * AT_ONCE) for _ in range(repeats)]
    name = f"{many:,} nodes: rounds of {AT_ONCE} bindings of one replica, {kind}"
    return Worst(name, statistics.median(times), "µs", must_us)


# --- one binding at a time


def one_binding(workload: nodes.Workload, repeats: int) -> Worst:
    """Rounds of one binding on 500 nodes, as they come under a light load: microseconds a pod.
    kube-scheduler's are those of its algorithm alone: it records nothing."""
    stage = Stage(FEW_NODES)
    first, *others = workload.pods(repeats + 1)
    stage.assign([first])
    median = statistics.median([stage.assign([asks]) for asks in others])
    kube_us = 1e6 / workload.kube[FEW_NODES]
    return Worst(
        f"{FEW_NODES} nodes: a round of one binding, {workload.name}",
        median,
        "µs",
        kube_us / KUBE_TIMES_MUST,
        f"kube-scheduler {kube_us:.0f} µs: {kube_us / median:.1f} times",
    )


# --- by itself

T = TypeVar("T")


def in_processor_ms(work: Callable[[], T]) -> tuple[T, float]:
    """What the work returns, and its processor time in milliseconds."""
    began = time.process_time_ns()
    found = work()
    return found, (time.process_time_ns() - began) / 1e6


def table(found: Sequence[Worst]) -> Table:
    shown = Table(title="Worst cases, processor time, median", title_justify="left")
    for column in ("what", "measured", "at most", "beside"):
        shown.add_column(column, justify="right" if column in ("measured", "at most") else "left")
    for one in found:
        must = "" if one.must is None else f"{one.must:.3g} {one.unit}"
        shown.add_row(one.name, f"{one.value:,.2f} {one.unit}", must, one.beside)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worst", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    console.print(table(list(measured(options.repeats))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
