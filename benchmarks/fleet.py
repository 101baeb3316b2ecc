"""What a fleet decision costs, by clusters and strategy; what a cluster's update costs while
bindings wait; and bindings a second through a whole plane.

`python -m benchmarks.fleet` prints it; `python -m benchmarks` has it among the rest. The fleets are
those of the timings of Karmada's scheduler that the figures are compared with: 101 API kinds a
cluster, four labels, ten regions, room for 10 to 99 replicas; 100 replicas (one in each cluster, if
Duplicated) by a policy with a label affinity and a toleration.

Two times are taken of each decision. *Solve* is what such a scheduler calls scheduling: filter,
estimate, select, divide, explain. *Whole* is the round that answers one request, from the event
taken in to the decision numbered, folded into the state and hashed; only the database and the
broker are not in it. *Warm*: nothing has changed since the last decision but what that took;
*cold*: a cluster's labels and its count have changed; *first*: of a policy that nobody has used
before. No cluster is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.plane import PlaneUnderTest, a_plane
from benchmarks.raw import RawLimits, raw_limits
from benchmarks.subscriber import Subscriber
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import BINDINGS, CLUSTERS, fleet_stream
from wharfinger.kernel.round import Round
from wharfinger.kernel.step import empty_head, step
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.solve import solve

SOURCE = "/benchmarks/fleet"
SIZES = (100, 1000, 5000)
REPLICAS = 100
DUPLICATED_REPLICAS = 1
"""In each cluster, so that every cluster has room for the bindings between two counts."""
PATIENCE_S = 30
"""As the service has it."""
REPEATS = 15
KINDS = (*(f"apps.group-{i:02d}.example/v1/Kind{i:02d}" for i in range(100)), "apps/v1/Deployment")
CLASS = Requirements({"cpu": 1000, "memory": 2**30})
FREE = {"cpu": 10**9, "memory": 2**50, "pods": 10**6}

MUST_MS = {100: 0.3, 1000: 0.6, 5000: 2.5}
KARMADA_MS = {100: 0.85, 1000: 9.5, 5000: 60.0}
MUST_LIVE = {100: 1000, 1000: 300}

WAITING = 1000
WAITING_POLICIES = 10
WAITING_CLASSES = 10

LIVE_BINDINGS = 4000
LIVE_REPLICAS = 3
LIVE_AT_ONCE = 500


# --- the fleet


def a_cluster(i: int, revision: str = "") -> Cluster:
    """Every cluster owns its list of kinds, as if it had just been read."""
    return Cluster(
        f"member-{i:05d}",
        {
            "env": "prod",
            "tier": "gold" if i % 2 else "tin",
            "rack": f"r{i % 5}",
            "serial": f"{i}{revision}",
        },
        "fjord",
        f"region-{i % 10}",
        (f"zone-{i % 30}",),
        (Taint("dedicated", "NoSchedule"),) if i % 7 == 0 else (),
        tuple(["".join(kind) for kind in KINDS]),
    )


def a_count(i: int, classes: Sequence[str], seq: int, more: int = 0) -> CapacityEstimated:
    return CapacityEstimated(
        f"member-{i:05d}",
        10,
        FREE,
        dict.fromkeys(classes, 10 + i % 90 + more),
        {fleet_stream(0): seq},
    )


def strategies() -> dict[str, Placement]:
    affinity = (ClusterAffinity(labels=LabelSelector({"env": "prod"})),)
    tolerations = (Toleration("dedicated", "Exists"),)
    racks = tuple(
        StaticWeight(ClusterAffinity(labels=LabelSelector({"rack": f"r{weight - 1}"})), weight)
        for weight in range(1, 6)
    )
    dynamic = ReplicaScheduling("Divided", "Weighted", dynamic=True)
    return {
        "Duplicated": Placement(affinity, tolerations),
        "static": Placement(
            affinity, tolerations, replicas=ReplicaScheduling("Divided", "Weighted", racks)
        ),
        "dynamic": Placement(affinity, tolerations, replicas=dynamic),
        "Aggregated": Placement(
            affinity, tolerations, replicas=ReplicaScheduling("Divided", "Aggregated")
        ),
        "dynamic, region 2-5, cluster 5-50": Placement(
            affinity,
            tolerations,
            (SpreadConstraint("region", "", 2, 5), SpreadConstraint("cluster", "", 5, 50)),
            dynamic,
        ),
    }


class Fleet:
    """A fleet stream by itself: rounds are stepped, nothing is stored."""

    def __init__(self, clusters: int, classes: Sequence[str]) -> None:
        self.decider = FleetDecider(patience_s=PATIENCE_S)
        self.state = self.decider.initial(fleet_stream(0))
        self.clusters, self.classes = clusters, tuple(classes)
        self._head, self._told = empty_head(fleet_stream(0)), 0
        self._at = 1_700_000_000_000_000
        self.take([ClusterObserved(a_cluster(i)) for i in range(clusters)])
        self.take([a_count(i, self.classes, 0) for i in range(clusters)])

    @property
    def seq(self) -> int:
        return self._head.seq

    def take(self, facts: Sequence[Value]) -> tuple[Round, float]:
        """One round with these inputs, and how many milliseconds it took."""
        return self._step([self._event(data) for data in facts])

    def solved(self, request: BindingRequested) -> float:
        """Milliseconds of the solution alone; the request is answered after it."""
        self._at += 1_000
        self.decider.fold_input(self.state, self._event(request), self._at)
        record = self.state.bindings[request.binding.name]
        began = time.perf_counter()
        verdict = solve(self.state, record, record.targets)
        took = time.perf_counter() - began
        assert not verdict.reason, verdict.explanation.note
        self._step([])
        return 1000 * took

    def change(self, i: int) -> None:
        """A cluster is not what it was: its labels, and what still fits."""
        place = i % self.clusters
        facts = ClusterObserved(a_cluster(place, f"-{i}"))
        self.take([facts, a_count(place, self.classes, self._head.seq, more=1 + i % 2)])

    def _step(self, events: list[Event[Value]]) -> tuple[Round, float]:
        self._at += 1_000
        began = time.perf_counter()
        round_ = step(self.decider, self.state, self._head, events, self._at, {})
        took = time.perf_counter() - began
        self._head = round_.head()
        return round_, 1000 * took

    def _event(self, data: Value) -> Event[Value]:
        self._told += 1
        return made(data, id=derived_id(SOURCE, self._told), source=SOURCE, subject="fleet")


def a_request(
    name: str, placement: Placement, replicas: int = REPLICAS, asks: Requirements = CLASS
) -> BindingRequested:
    resource = ObjectRef("apps/v1", "Deployment", name.partition("/")[2], name.partition("/")[0])
    return BindingRequested(Binding(name, f"uid-{name}", resource, replicas, asks, placement))


# --- one decision


@dataclass(slots=True)
class Times:
    """Milliseconds."""

    taken: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.taken)

    @property
    def median(self) -> float:
        return statistics.median(self.taken)


@dataclass(slots=True)
class Cost:
    """Of one decision over so many clusters."""

    strategy: str
    clusters: int
    first_ms: float = 0.0
    warm_solve: Times = field(default_factory=Times)
    warm_whole: Times = field(default_factory=Times)
    cold_solve: Times = field(default_factory=Times)
    cold_whole: Times = field(default_factory=Times)


def decisions(sizes: Sequence[int] = SIZES, repeats: int = REPEATS) -> Iterator[Cost]:
    seldom_collect()
    for clusters in sizes:
        for strategy, placement in strategies().items():
            yield decided(strategy, placement, clusters, repeats)


def decided(strategy: str, placement: Placement, clusters: int, repeats: int) -> Cost:
    fleet, cost = Fleet(clusters, (CLASS.class_key,)), Cost(strategy, clusters)
    replicas = DUPLICATED_REPLICAS if placement.replicas.type == "Duplicated" else REPLICAS
    names = (f"bench/b{i:04d}" for i in range(10**6))
    # the class has been asked about before
    fleet.solved(a_request(next(names), strategies()["Duplicated"], replicas=1))
    cost.first_ms = fleet.solved(
        a_request(next(names), msgspec.structs.replace(placement, failover="reserve"), replicas)
    )
    for i in range(repeats + 1):
        warm_solve = fleet.solved(a_request(next(names), placement, replicas))
        warm_whole = whole(fleet, a_request(next(names), placement, replicas))
        fleet.change(37 * i)
        cold_solve = fleet.solved(a_request(next(names), placement, replicas))
        fleet.change(37 * i + 11)
        cold_whole = whole(fleet, a_request(next(names), placement, replicas))
        if i:  # the first is of a policy that was never used
            cost.warm_solve.taken.append(warm_solve)
            cost.warm_whole.taken.append(warm_whole)
            cost.cold_solve.taken.append(cold_solve)
            cost.cold_whole.taken.append(cold_whole)
        # room for the next
        fleet.take([a_count(c, fleet.classes, fleet.seq) for c in range(clusters)])
        fleet.solved(a_request(next(names), placement, replicas=1))
    return cost


def whole(fleet: Fleet, request: BindingRequested) -> float:
    round_, took = fleet.take([request])
    assert [d.outcome for d in round_.decisions] == ["scheduled"], round_.decisions
    return took


def growing(costs: Sequence[Cost]) -> float:
    """By which power of the clusters the best warm solution grows between the fewest and the most
    clusters."""
    fewest, most = min(costs, key=lambda c: c.clusters), max(costs, key=lambda c: c.clusters)
    return math.log(most.warm_solve.best / fewest.warm_solve.best) / math.log(
        most.clusters / fewest.clusters
    )


# --- a cluster's update while bindings wait


@dataclass(frozen=True, slots=True)
class Update:
    """Milliseconds of one round that takes in a new count, or new labels, of one cluster while
    `waiting` bindings wait in `groups` of equal policy and class, and finds that none of them
    fits."""

    clusters: int
    waiting: int
    groups: int
    count_ms: float
    facts_ms: float


def updated(clusters: int, repeats: int = REPEATS) -> Update:
    kinds = [Requirements({"cpu": 1000 + i, "memory": 2**30}) for i in range(WAITING_CLASSES)]
    fleet = Fleet(clusters, [kind.class_key for kind in kinds])
    dynamic = strategies()["dynamic"]
    policies = [
        msgspec.structs.replace(
            dynamic, tolerations=(*dynamic.tolerations, Toleration(f"own-{i}", "Exists"))
        )
        for i in range(WAITING_POLICIES)
    ]
    fleet.take(
        [
            a_request(
                f"waits/b{i:04d}",
                policies[i % WAITING_POLICIES],
                10**6,
                kinds[i // 10 % WAITING_CLASSES],
            )
            for i in range(WAITING)
        ]
    )
    groups = len(fleet.state.waiting.groups)
    assert sum(len(group.names) for group in fleet.state.waiting.groups.values()) == WAITING
    counts, facts = Times(), Times()
    for i in range(repeats):
        place = 37 * i % clusters
        counts.taken.append(fleet.take([a_count(place, fleet.classes, fleet.seq, more=1 + i)])[1])
        facts.taken.append(fleet.take([ClusterObserved(a_cluster(place, f"-{i}"))])[1])
    return Update(clusters, WAITING, groups, counts.median, facts.median)


# --- through a plane


@dataclass(frozen=True, slots=True)
class LiveRun:
    """`seconds`: from the first binding accepted to the last decision in a subscriber's hands."""

    clusters: int
    bindings: int
    refused: int
    seconds: float
    raw: RawLimits

    @property
    def bindings_a_second(self) -> float:
        return self.bindings / self.seconds


async def live(plane: PlaneUnderTest, clusters: int, bindings: int = LIVE_BINDINGS) -> LiveRun:
    """Clusters that report totals and no nodes: the fleet stage by itself, as with schedulers of
    the clusters' own. A binding goes to three clusters, by a policy of ten."""
    where = plane.plane()
    raw = await raw_limits(where["bootstrap"], where["database_url"])
    ledger = await Ledger.open(where["database_url"], "wharfinger-bench")
    try:
        for start in range(0, clusters, LIVE_AT_ONCE):
            await ledger.accept(
                [_live_cluster(i) for i in range(start, min(clusters, start + LIVE_AT_ONCE))]
            )
        requests = [_live_request(i) for i in range(bindings)]
        async with Subscriber(where["bootstrap"]) as subscriber:
            # a first one, to see that all clusters are known
            await ledger.accept([_live_request(bindings)])
            await subscriber.until(lambda s: len(s.first_fleet) >= 1, timeout_s=60, quiet_s=3.0)
            began = time.time()
            for start in range(0, bindings, LIVE_AT_ONCE):
                await ledger.accept(requests[start : start + LIVE_AT_ONCE])
            if not await subscriber.until(lambda s: len(s.first_fleet) > bindings, timeout_s=300):
                raise RuntimeError(
                    f"{len(subscriber.seen.first_fleet)} of {bindings + 1} bindings decided "
                    "after 300 s"
                )
            seen = subscriber.seen
            seconds = max(seen.first_fleet.values()) - began
    finally:
        await ledger.close()
    return LiveRun(
        clusters, bindings, seen.types["io.wharfinger.schedule.refused.v1"], seconds, raw
    )


def _live_cluster(i: int) -> Submission:
    facts = msgspec.structs.replace(
        a_cluster(i),
        summary=ResourceSummary(
            {"cpu": 10_000_000, "memory": 2**50, "pods": 100_000}, {"cpu": 1000 * i}
        ),
    )
    return _submission(ClusterObserved(facts), CLUSTERS.name, facts.name)


def _live_request(i: int) -> Submission:
    dynamic = strategies()["dynamic"]
    policy = msgspec.structs.replace(
        dynamic, tolerations=(*dynamic.tolerations, Toleration(f"own-{i % 10}", "Exists"))
    )
    name = f"live/b{i:05d}"
    return _submission(a_request(name, policy, LIVE_REPLICAS), BINDINGS.name, name)


def _submission(data: Value, topic: str, key: str) -> Submission:
    return Submission(
        made(data, id=derived_id(SOURCE, key), source=SOURCE, subject=key), topic, key, key
    )


async def through_planes(processes: str, sizes: Sequence[int] = tuple(MUST_LIVE)) -> list[LiveRun]:
    """A plane of its own for every size."""
    runs = []
    for clusters in sizes:
        with a_plane() as plane:
            await asyncio.to_thread(plane.up, "--processes", processes)
            runs.append(await live(plane, clusters))
    return runs


# --- by itself


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="clusters")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--processes", choices=("one", "each"), default="one")
    parser.add_argument("--skip-live", action="store_true", help="leave out the planes")
    options = parser.parse_args()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    costs = list(decisions(options.sizes, options.repeats))
    console.print(table(costs))
    for strategy in strategies():
        own = [c for c in costs if c.strategy == strategy]
        if len(own) > 1:
            console.print(f"{strategy}: grows with clusters to the power of {growing(own):.2f}")
    for clusters in options.sizes:
        said = updated(clusters)
        console.print(
            f"{clusters:,} clusters, {said.waiting:,} bindings waiting in {said.groups} groups: "
            f"a cluster's count {said.count_ms:.2f} ms, its labels {said.facts_ms:.2f} ms"
        )
    if not options.skip_live:
        for run in asyncio.run(through_planes(options.processes)):
            rate = run.bindings_a_second
            console.print(
                f"{run.clusters:,} clusters, through the plane: {rate:,.0f} bindings/s "
                f"({rate / run.raw.produce:.1%} of produce, {rate / run.raw.copy_rows:.1%} of "
                f"COPY), {run.refused} refused"
            )
    return 0


def table(costs: Sequence[Cost]) -> Table:
    shown = Table(title="One fleet decision, ms, best / median", title_justify="left")
    for column in (
        "strategy",
        "clusters",
        "solve warm",
        "solve cold",
        "whole warm",
        "whole cold",
        "first",
        "must",
        "Karmada",
    ):
        shown.add_column(column, justify="left" if column == "strategy" else "right")
    for cost in costs:
        times = (cost.warm_solve, cost.cold_solve, cost.warm_whole, cost.cold_whole)
        must, karmada = MUST_MS.get(cost.clusters), KARMADA_MS.get(cost.clusters)
        shown.add_row(
            cost.strategy,
            f"{cost.clusters:,}",
            *(f"{t.best:.2f} / {t.median:.2f}" for t in times),
            f"{cost.first_ms:.1f}",
            "" if must is None else f"{must}",
            "" if karmada is None else f"{karmada}",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
