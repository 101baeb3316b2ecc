"""What consolidating nodes costs and brings: `python -m benchmarks.consolidation`.

A fleet that was full, of many sizes and families at list prices, of which three pods in ten have
left at random. One survey of it is timed. A smaller such fleet is then consolidated to the end:
surveys are applied, one after another, until none finds anything, and what that saved is held
against the least that any packing of the same pods could cost."""

from __future__ import annotations

import csv
import gzip
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.openb import data_directory
from wharfinger.domain.instance_types import PRICE_UNIT, InstanceType, Offering
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodeBudget,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.quantities import parse_milli, parse_units
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
)
from wharfinger.engine.disruption.methods import survey
from wharfinger.engine.provisioning.bound import lower_bound
from wharfinger.engine.provisioning.problem import Problem, WantedPods

GIB = 2**30
HOUR = 3600 * 1_000_000
START = 1_770_000_000_000_000
FULL_PODS = 10 / 7
"""Before three in ten have left."""

PASSES_MAX = 200
MUST_S = {1000: 2.0, 5000: 30.0}
"""A survey, by nodes."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One fleet. `seconds`: of the first survey; `longest`, `last`: of the longest of those after
    it, and of the last one, which finds nothing any more when it is `settled`. Prices in billionths
    of a dollar an hour."""

    name: str
    nodes: int
    pods: int
    budget: str
    seconds: float
    longest: float
    last: float
    before: int
    after: int
    bound: int
    left: int
    commands: int
    passes: int
    moves: int
    settled: bool

    @property
    def reached(self) -> float:
        """Of what could be saved at most, the share that was."""
        return (self.before - self.after) / max(1, self.before - self.bound)

    @property
    def moves_a_dollar(self) -> float:
        return self.moves / max(1e-9, (self.before - self.after) / PRICE_UNIT)


@dataclass(slots=True)
class Fleet:
    """A cluster that does what it is told, at once."""

    scene: ClusterSnapshot
    types: dict[str, InstanceType]
    made: int = 0
    commands: int = 0
    moves: int = 0
    log: list[ConsolidationResult] = field(default_factory=list)

    @property
    def price(self) -> int:
        return sum(price_of(node, self.types) for node in self.scene.nodes)

    def apply(self, found: ConsolidationResult) -> None:
        """All commands of a survey, in their order."""
        nodes = {node.name: node for node in self.scene.nodes}
        pods = {pod.uid: pod for pod in self.scene.pods}
        for command in found.commands:
            self._apply(command, nodes, pods)
        at = self.scene.at + HOUR
        self.scene = replace(
            self.scene, at=at, nodes=list(nodes.values()), pods=list(pods.values())
        )

    def _apply(self, command: Command, nodes: dict[str, Node], pods: dict[str, Pod]) -> None:
        new = []
        for claim in command.replacements:
            self.made += 1
            kind = self.types[claim.instance_types[0]]
            node = node_of(
                f"new-{self.made:05d}",
                kind,
                min(kind.offerings, key=lambda o: (o.price, o.zone)).zone,
                claim.pool,
            )
            nodes[node.name] = node
            new.append(node.name)
        for move in command.moves:
            target = new[int(move.target[4:])] if move.target.startswith("new:") else move.target
            pods[move.pod] = msgspec.structs.replace(pods[move.pod], node=target)
        held = {pod.node for pod in pods.values()}
        for name in command.nodes:
            assert name not in held, "a command leaves nobody behind"
            del nodes[name]
        self.commands += 1
        self.moves += len(command.moves)


def price_of(node: Node, types: dict[str, InstanceType]) -> int:
    kind = types[node.labels[INSTANCE_TYPE_LABEL]]
    zone, bought = node.labels[ZONE_LABEL], node.labels[CAPACITY_TYPE_LABEL]
    return min(o.price for o in kind.offerings if o.zone == zone and o.capacity_type == bought)


def node_of(name: str, kind: InstanceType, zone: str, pool: str) -> Node:
    labels = {
        POOL_LABEL: pool,
        INSTANCE_TYPE_LABEL: kind.name,
        ZONE_LABEL: zone,
        CAPACITY_TYPE_LABEL: "on-demand",
        INITIALIZED_LABEL: "true",
        "kubernetes.io/hostname": name,
        **{key: values[0] for key, values in kind.labels.items()},
    }
    return Node(name, kind.allocatable, labels=labels, created_us=START - HOUR)


# --- catalogues


def aws(data: Path, region: str = "us-east-1") -> tuple[InstanceType, ...]:
    """General, compute and memory types of the last generations, three zones at one price."""
    with (data / "aws_ec2" / "on_demand_prices.csv").open() as file:
        prices = {
            row["instance_type"]: row["price_per_hour"]
            for row in csv.DictReader(file)
            if row["region"] == region
        }
    found = []
    with (data / "aws_ec2" / "instance_types.csv").open() as file:
        for row in csv.DictReader(file):
            name = row["instance_type"]
            usual = (
                row["category"] in "cmr"
                and row["arch"] == "amd64"
                and int(row["generation"]) >= 5
                and not row["gpu_name"]
            )
            if name not in prices or not usual or "metal" in name or not row["alloc_cpu"]:
                continue
            price = nano(prices[name])
            capacity = {
                "cpu": parse_milli(row["alloc_cpu"]),
                "memory": parse_units(row["alloc_memory"]),
                "pods": int(row["alloc_pods"]),
            }
            offerings = tuple(Offering(f"{region}{zone}", "on-demand", price) for zone in "abc")
            found.append(
                InstanceType(
                    name, capacity, labels={"kubernetes.io/arch": ("amd64",)}, offerings=offerings
                )
            )
    return tuple(sorted(found, key=lambda t: t.name))


def kwok(data: Path) -> tuple[InstanceType, ...]:
    """Karpenter's made up ones, on demand, linux on amd64."""
    found: dict[str, InstanceType] = {}
    with gzip.open(data / "kwok_instance_types" / "offerings.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if (
                row["arch"] != "amd64"
                or row["os"] != "linux"
                or row["capacity_type"] != "on-demand"
            ):
                continue
            name = row["instance_type"]
            capacity = {
                "cpu": parse_milli(row["cpu"]),
                "memory": parse_units(row["memory"]),
                "pods": int(row["pods"]),
            }
            kind = found.get(name) or InstanceType(
                name, capacity, labels={"kubernetes.io/arch": ("amd64",)}
            )
            offering = Offering(row["zone"], "on-demand", nano(row["price_per_hour"]))
            found[name] = msgspec.structs.replace(kind, offerings=(*kind.offerings, offering))
    return tuple(found[name] for name in sorted(found))


def nano(price: str) -> int:
    return round(float(price) * PRICE_UNIT)


# --- a fleet that was full


def fleet(types: Sequence[InstanceType], nodes: int, budget: str, seed: int = 42) -> Fleet:
    chance = random.Random(seed)
    zones = sorted({o.zone for kind in types for o in kind.offerings})
    usual = [
        kind
        for kind in types
        if 3_500 <= kind.allocatable["cpu"] <= 33_000 and kind.allocatable["pods"] >= 29
    ]
    workloads = [_workload(chance, number) for number in range(400)]
    kept: list[Pod] = []
    there: list[Node] = []
    wanted, count = [], 0
    while len(there) < nodes:
        kind = chance.choice(usual)
        node = node_of(f"node-{len(there):05d}", kind, chance.choice(zones), "general")
        free = dict(kind.allocatable)
        misses = 0
        while misses < 8:
            said = chance.choice(workloads)
            asked = {**said.requests, "pods": 1}
            if any(free[name] < amount for name, amount in asked.items()):
                misses += 1
                continue
            for name, amount in asked.items():
                free[name] -= amount
            count += 1
            wanted.append((node.name, said))
        there.append(node)
    upkeep = PodUpkeep(owners=(Owner("ReplicaSet", "rs"),))
    for number, (name, said) in enumerate(wanted):
        if chance.random() < 0.7:
            kept.append(Pod(f"uid-{number:06d}", f"pod-{number:06d}", said, name, upkeep=upkeep))
    pool = NodePoolPolicy(
        "general",
        30,
        consolidation="WhenEmptyOrUnderutilized",
        budgets=(NodeBudget(budget),),
        requirements=(PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("on-demand",)),),
    )
    scene = ClusterSnapshot(START, there, kept, (pool,), {"default": tuple(types)})
    return Fleet(scene, {kind.name: kind for kind in types})


def _workload(chance: random.Random, number: int) -> Requirements:
    cpu = chance.choice((100, 150, 200, 250, 300, 400, 500, 600, 750, 1000, 1500))
    memory = chance.choice((128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)) * 2**20
    labels = {"app": f"app-{number}"}
    return Requirements(
        {"cpu": cpu, "memory": memory}, pod=PodTraits("default", labels, owner="ReplicaSet")
    )


# --- measured


def ran(
    name: str, types: Sequence[InstanceType], nodes: int, budget: str, passes_max: int = PASSES_MAX
) -> Ran:
    there = fleet(types, nodes, budget)
    scene = there.scene
    before = there.price
    seconds, found = _timed(scene)
    passes, longest, last = 0, 0.0, 0.0
    while found.commands:
        there.apply(found)
        passes += 1
        if passes >= passes_max:
            break
        last, found = _timed(there.scene)
        longest = max(longest, last)
    return Ran(
        name,
        len(scene.nodes),
        len(scene.pods),
        budget,
        seconds,
        longest,
        last,
        before,
        there.price,
        _bound(scene),
        len(there.scene.nodes),
        there.commands,
        passes,
        there.moves,
        not found.commands,
    )


def measured(data: Path) -> list[Ran]:
    of_aws = aws(data)
    survey(fleet(of_aws, 20, "100%").scene)  # what is laid out once, of a catalogue, is not timed
    return [
        ran("AWS, two passes", of_aws, 1000, "10%", 2),
        ran("AWS, two passes", of_aws, 1000, "100%", 2),
        ran("AWS, one pass", of_aws, 5000, "10%", 1),
        ran("AWS, to the end", of_aws, 300, "100%"),
        ran("kwok, to the end", kwok(data), 150, "100%"),
    ]


def _timed(scene: ClusterSnapshot) -> tuple[float, ConsolidationResult]:
    """In seconds of one processor, which is all that a survey uses: whatever else runs on the
    machine counts for nothing."""
    begun = time.process_time()
    found = survey(scene)
    return time.process_time() - begun, found


def _bound(scene: ClusterSnapshot) -> int:
    """Of packing all pods again."""
    counts: dict[int, tuple[Requirements, int]] = {}
    for pod in scene.pods:
        said, count = counts.get(id(pod.requirements), (pod.requirements, 0))
        counts[id(pod.requirements)] = (said, count + 1)
    wanted = [WantedPods(str(i), said, count) for i, (said, count) in enumerate(counts.values())]
    return lower_bound(Problem(wanted, scene.pools, scene.types)).resources_only


def table(runs: Sequence[Ran]) -> Table:
    shown = Table(
        title="consolidation: three pods in ten have left a full fleet (surveys in seconds of a "
        "processor)"
    )
    heads = (
        "fleet",
        "nodes",
        "pods",
        "budget",
        "first survey",
        "longest after",
        "last",
        "$/h before",
        "after",
        "bound",
        "of what could be saved",
        "nodes left",
        "commands",
        "passes",
        "moves",
        "moves per $/h",
    )
    for head in heads:
        shown.add_column(head, justify="left" if head == "fleet" else "right")
    for r in runs:
        shown.add_row(
            r.name,
            f"{r.nodes:,}",
            f"{r.pods:,}",
            r.budget,
            f"{r.seconds:.2f} s",
            *(f"{s:.2f} s" if s else "" for s in (r.longest, r.last)),
            *(f"{price / PRICE_UNIT:,.1f}" for price in (r.before, r.after, r.bound)),
            f"{r.reached:.1%}",
            f"{r.left:,}",
            f"{r.commands:,}",
            f"{r.passes}",
            f"{r.moves:,}",
            f"{r.moves_a_dollar:,.0f}",
        )
    return shown


def main() -> int:
    data = data_directory()
    if data is None:
        print(
            "the catalogues are not here: set WHARFINGER_DATA to the directory that holds aws_ec2/",
            file=sys.stderr,
        )
        return 2
    runs = measured(data)
    Console(width=200).print(table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
