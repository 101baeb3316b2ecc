"""What one placement of clusters costs: decided, grouped, and held against what stands, with
nothing to write.

The placement asks for a label, scores by Balance, Steady and allocatable memory, and takes half of
the clusters; what it took before stands, and so do the decisions of twenty others. `warm`: nothing
has changed since the last decision. `one cluster changed`: one cluster has reported other memory,
so that every column it is in is mended. `made anew`: the placement itself was changed, so that it
is compiled again. Nothing is sampled: all clusters are looked at each time.

`python -m benchmarks.placement` prints the table.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table
from tests.reference.ocm_objects import DecisionObject, difference

from wharfinger.domain.cluster import Cluster, ManagedClusterFacts
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    ClusterSet,
    Condition,
    Predicate,
    Priority,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.engine.cluster_sets.fleet import PlacementFleet
from wharfinger.engine.cluster_sets.select import choose

SIZES = (100, 1000, 5000)
MUST_MS = {100: 0.3, 1000: 0.6, 5000: 2.5}
AIM_MS = {100: 0.1, 1000: 0.25, 5000: 1.0}
OCM_MS = {100: 0.82, 1000: 8.7, 5000: 54.0}
"""A whole reconcile with nothing to write by OCM v1.3, measured on one core of such a machine."""
OTHERS = 20
RUNS = 200

SET = "all"
NAMESPACE, NAME = "shop", "half"


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds a decision."""

    median_ms: float
    best_ms: float


@dataclass(frozen=True, slots=True)
class Costs:
    clusters: int
    warm: Cost
    one_changed: Cost
    made_anew: Cost


def a_cluster(number: int, gibibytes: int) -> Cluster:
    memory = {"memory": f"{gibibytes}Gi", "cpu": str(number % 64 + 1)}
    return Cluster(
        f"cluster-{number:05}",
        labels={"env": "prod", "region": f"r{number % 7}", "tier": f"t{number % 3}"},
        managed=ManagedClusterFacts(
            claims={"id": str(number)}, allocatable=memory, capacity=memory
        ),
    )


def a_placement(clusters: int, wanted: int | None = None) -> Policy:
    selection = Selection(
        wanted=clusters // 2 if wanted is None else wanted,
        predicates=(Predicate(Selector({"env": "prod"}, (Condition("region", "Exists"),))),),
        priorities=(Priority(builtin="ResourceAllocatableMemory"),),
    )
    return Policy("Placement", NAME, NAMESPACE, selection=selection)


def a_fleet(clusters: int) -> PlacementFleet:
    fleet = PlacementFleet()
    for number in range(clusters):
        fleet.observe(a_cluster(number, 16 + number * 7919 % 512))
    fleet.apply(
        Policy("ManagedClusterSet", SET, cluster_set=ClusterSet("LabelSelector", Selector()))
    )
    fleet.apply(Policy("ManagedClusterSetBinding", SET, NAMESPACE, set_binding=SetBinding(SET)))
    for other in range(OTHERS):
        fleet.decided(
            f"other/p{other}", [f"cluster-{n:05}" for n in range(other, clusters, OTHERS)]
        )
    return fleet


class Reconciled:
    """A fleet, a placement in it, and what stands of it."""

    def __init__(self, clusters: int) -> None:
        self.clusters = clusters
        self.fleet = a_fleet(clusters)
        self.placement = a_placement(clusters)
        self.fleet.apply(self.placement)
        self.standing: tuple[DecisionObject, ...] = ()
        self.memory = 16
        while self.reconcile():
            pass

    def reconcile(self) -> int:
        """How much there was to write."""
        choice = choose(self.fleet, self.placement, at=0)
        left = difference(choice, self.standing)
        if left.writes:
            self.standing = left.after
            self.fleet.decided(choice.key, choice.selected)
        return len(left.writes)

    def change_one(self) -> None:
        """The first cluster, which is not taken whatever memory it has in this range."""
        self.memory = 17 if self.memory == 16 else 16
        self.fleet.observe(a_cluster(0, self.memory))

    def change_placement(self) -> None:
        """Another window: it means nothing here, but the placement is another."""
        selection = self.placement.selection
        assert selection is not None, "a placement selects"
        changed = msgspec.structs.replace(selection, window_s=selection.window_s + 1)
        self.placement = msgspec.structs.replace(self.placement, selection=changed)
        self.fleet.apply(self.placement)


def costs(clusters: int, runs: int = RUNS) -> Costs:
    world = Reconciled(clusters)
    return Costs(
        clusters,
        timed(world, runs, lambda: None),
        timed(world, runs, world.change_one),
        timed(world, runs, world.change_placement),
    )


def timed(world: Reconciled, runs: int, before: Callable[[], None]) -> Cost:
    """`before` is done ahead of each run, and not counted. Without collections in between: they are
    the process' business."""
    taken: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            before()
            begun = time.perf_counter()
            written = world.reconcile()
            taken.append((time.perf_counter() - begun) * 1000)
            assert not written, "a decision that nothing has changed writes nothing"
    finally:
        gc.enable()
    return Cost(median(taken), min(taken))


def table(found: Sequence[Costs]) -> Table:
    shown = Table(title="one placement of clusters, decided with nothing to write (ms)")
    for column in (
        "clusters",
        "OCM (Go)",
        "must",
        "aim",
        "warm",
        "one cluster changed",
        "made anew",
    ):
        shown.add_column(column, justify="right")
    for cost in found:
        n = cost.clusters
        said = [
            f"{c.median_ms:.3f} (best {c.best_ms:.3f})"
            for c in (cost.warm, cost.one_changed, cost.made_anew)
        ]
        shown.add_row(f"{n:,}", str(OCM_MS[n]), str(MUST_MS[n]), str(AIM_MS[n]), *said)
    return shown


def main() -> int:
    found = [costs(size) for size in SIZES]
    Console().print(table(found))
    return 1 if any(cost.one_changed.median_ms > MUST_MS[cost.clusters] for cost in found) else 0


if __name__ == "__main__":
    sys.exit(main())
