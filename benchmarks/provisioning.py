"""What making nodes for pods costs: Karpenter's generator of diverse pods, in time and in dollars,
and how far that is from a bound.

The generator is Karpenter's: 400 instance types, the i-th of i cpus, twice as many GiB and ten
times as many pods, of which 100m and 10 MiB are kept back, for 0.1 dollars a cpu and 0.1 a
gigabyte, in five offerings over three zones; a fifth each of plain pods, spread over zones, spread
over nodes, together in a zone, and each on a node of its own; amounts and labels drawn evenly, seed
42. The draws are Python's, so single pods differ from those that Go draws. Karpenter reports pods a
second and nodes; nodes are as many as there are pods that keep each other away, whoever packs, so
here the cost is told, too.

`first-fit` is Karpenter's way to pack, by the same loops. The gap is to the bound that knows which
pods keep each other away. Each time is the best of three, after the loops have been read or
compiled. `python -m benchmarks.provisioning` prints the table."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.openb import data_directory
from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node_pool import ZONE_LABEL, NodePoolPolicy
from wharfinger.domain.pod_traits import (
    PodTerm,
    PodTraits,
    TopologySpread,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.bound import PriceBounds, lower_bound
from wharfinger.engine.provisioning.problem import Problem, Solution, SolveOptions, WantedPods
from wharfinger.engine.provisioning.solve import solve
from wharfinger_cli.catalogue_clouds import aws
from wharfinger_cli.catalogue_tables import kwok
from wharfinger_cli.catalogue_terms import CatalogueTerms

SIZES = (1, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
MUST_S = {5_000: 2.0, 20_000: 10.0}
AIM_S = {5_000: 0.5, 20_000: 2.0}
GAP_MUST = 0.05
KARPENTER_S = {1_000: 0.78, 2_000: 1.54, 5_000: 3.74, 10_000: 8.11, 20_000: 20.2}
"""As published for five workers on an M3 Pro."""
PREFERENCE_PODS = 4_000
RUNS = 3
SEED = 42

HOSTNAME = "kubernetes.io/hostname"
MI, GI = 1 << 20, 1 << 30
CPU_MILLI = (100, 250, 500, 1000, 1500)
MEMORY_MI = (100, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Cost:
    """Prices in billionths of a dollar an hour."""

    name: str
    pods: int
    seconds: float
    first_fit_seconds: float
    nodes: int
    price: int
    first_fit_price: int
    bound: PriceBounds

    @property
    def gap(self) -> float:
        return self.bound.gap(self.price)


def generated_types(count: int = 400) -> tuple[InstanceType, ...]:
    found = []
    for n in range(1, count + 1):
        price = 100_000_000 * n + 2 * n * GI // 10
        bought = (("spot", 1), ("spot", 2), ("on-demand", 1), ("on-demand", 2), ("on-demand", 3))
        offers = tuple(
            Offering(f"test-zone-{zone}", mode, price)  # type: ignore[arg-type]
            for mode, zone in bought
        )
        capacity = {"cpu": 1000 * n, "memory": 2 * n * GI, "pods": 10 * n}
        kept_back = {"cpu": 100, "memory": 10 * MI}
        found.append(
            InstanceType(
                f"fake-it-{n - 1}", capacity, kept_back, {"kubernetes.io/arch": ("amd64",)}, offers
            )
        )
    return tuple(found)


class Generator:
    """Pods as Karpenter's benchmark makes them."""

    def __init__(self, seed: int = SEED) -> None:
        self.random = random.Random(seed)

    def diverse(self, count: int) -> tuple[WantedPods, ...]:
        fifth = count // 5
        traits = [PodTraits("default", self._label("my-label")) for _ in range(fifth)]
        traits += [self._spread(ZONE_LABEL) for _ in range(fifth)]
        traits += [self._spread(HOSTNAME) for _ in range(fifth)]
        traits += [self._together(ZONE_LABEL) for _ in range(fifth)]
        traits += [self._apart(HOSTNAME) for _ in range(fifth)]
        traits += [
            PodTraits("default", self._label("my-label")) for _ in range(count - len(traits))
        ]
        return self._wanted(traits)

    def preferring(self, count: int) -> tuple[WantedPods, ...]:
        """A zone, which can be had; a zone of its own, which cannot; a node of its own, which
        can."""
        labels = {"app": "nginx"}
        zone = WeightedNodeTerm(1, NodeTerm((Requirement(ZONE_LABEL, "In", ("test-zone-1",)),)))
        away = tuple(
            WeightedPodTerm(weight, PodTerm(key, LabelSelector(labels)))
            for weight, key in ((10, ZONE_LABEL), (1, HOSTNAME))
        )
        return self._wanted(
            [PodTraits("default", labels, preferences=(zone,), preferred_anti_affinity=away)]
            * count
        )

    def _wanted(self, traits: Sequence[PodTraits]) -> tuple[WantedPods, ...]:
        return tuple(
            WantedPods(f"pod-{n:05}", Requirements(self._amounts(), pod=one))
            for n, one in enumerate(traits)
        )

    def _amounts(self) -> dict[str, int]:
        return {"cpu": self.random.choice(CPU_MILLI), "memory": self.random.choice(MEMORY_MI) * MI}

    def _label(self, key: str) -> dict[str, str]:
        return {key: self.random.choice("abcdefg")}

    def _spread(self, key: str) -> PodTraits:
        labels, selector = self._label("my-label"), LabelSelector(self._label("my-label"))
        return PodTraits("default", labels, spread=(TopologySpread(key, 1, selector=selector),))

    def _together(self, key: str) -> PodTraits:
        labels = self._label("my-affinity")
        return PodTraits("default", labels, affinity=(PodTerm(key, LabelSelector(labels)),))

    def _apart(self, key: str) -> PodTraits:
        labels = {"app": "nginx"}
        return PodTraits("default", labels, anti_affinity=(PodTerm(key, LabelSelector(labels)),))


def a_problem(
    wanted: Sequence[WantedPods], types: Sequence[InstanceType], options: SolveOptions | None = None
) -> Problem:
    """Without limits: each claim counts against them as the largest type it may become, and clouds
    sell types of 32 TiB."""
    return Problem(
        wanted, (NodePoolPolicy("general"),), {"default": types}, options=options or SolveOptions()
    )


def cost(name: str, problem: Problem, runs: int = RUNS) -> Cost:
    first_fit_s, first_fit = _timed(
        replace(problem, options=replace(problem.options, packing="first-fit")), runs
    )
    seconds, solution = _timed(problem, runs)
    assert not solution.unplaced, f"{name}: {solution.unplaced[0]}"
    return Cost(
        name,
        sum(w.count for w in problem.wanted),
        seconds,
        first_fit_s,
        len(solution.claims),
        solution.price,
        first_fit.price,
        lower_bound(problem),
    )


def _timed(problem: Problem, runs: int) -> tuple[float, Solution]:
    best, solution = float("inf"), None
    for _ in range(runs):
        gc.collect()
        begun = time.perf_counter()
        solution = solve(problem)
        best = min(best, time.perf_counter() - begun)
    assert solution is not None, "no run"
    return best, solution


def measured(sizes: Sequence[int] = SIZES) -> list[Cost]:
    types = generated_types()
    found = [cost(f"{n:,} diverse", a_problem(Generator().diverse(n), types)) for n in sizes]
    for preferences in ("Respect", "Ignore"):
        options = SolveOptions(preferences=preferences)
        wanted = Generator().preferring(PREFERENCE_PODS)
        found.append(
            cost(
                f"{PREFERENCE_PODS:,} with preferences, {preferences}",
                a_problem(wanted, types, options),
            )
        )
    return found + of_clouds()


def of_clouds(count: int = 5_000) -> list[Cost]:
    """The same pods on types that somebody sells, and on those of Karpenter's own test provider."""
    data = data_directory()
    if data is None:
        return []
    catalogues = (
        ("AWS us-east-1", _aws(data / "aws_ec2")),
        ("kwok", kwok([data / "kwok_instance_types" / "offerings.csv.gz"], CatalogueTerms()).types),
    )
    return [
        cost(
            f"{count:,} diverse, {name}, {len(types)} types",
            a_problem(Generator().diverse(count), types),
        )
        for name, types in catalogues
    ]


def _aws(directory: Path) -> tuple[InstanceType, ...]:
    files = [directory / "instance_types.csv", directory / "on_demand_prices.csv"]
    return aws(files, CatalogueTerms(region="us-east-1")).types


def table(costs: Sequence[Cost]) -> Table:
    made = Table(title="nodes made for pods, 400 types where nothing else is said")
    for column in (
        "pods",
        "s",
        "pods/s",
        "Karpenter s",
        "nodes",
        "$/h",
        "bound $/h",
        "gap",
        "first-fit $/h",
        "first-fit s",
    ):
        made.add_column(column, justify="left" if column == "pods" else "right")
    for c in costs:
        theirs = KARPENTER_S.get(c.pods, 0) if c.name.endswith(" diverse") else 0
        made.add_row(
            c.name,
            f"{c.seconds:.3f}",
            f"{c.pods / c.seconds:,.0f}",
            f"{theirs:g}" if theirs else "",
            f"{c.nodes:,}",
            _dollars(c.price),
            _dollars(c.bound.with_anti_affinity),
            f"{c.gap:.1%}",
            _dollars(c.first_fit_price),
            f"{c.first_fit_seconds:.3f}",
        )
    return made


def _dollars(price: int) -> str:
    return f"{price / 1e9:,.2f}"


def main() -> int:
    sizes = tuple(int(size) for size in sys.argv[1:]) or SIZES
    console = Console(width=150 if not sys.stdout.isatty() else None)
    console.print(table(measured(sizes)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
