"""`python -m benchmarks`: every figure of docs/performance.md, measured now on this machine.

`--only openb` (or `latency`, `idle`) measures one part. Each run keeps its figures, with the raw
limits of the same run, in `benchmarks/history`; with `--no-record` it does not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import (
    consolidation,
    fleet,
    idle,
    load,
    nodes,
    placement,
    provisioning,
    refusals,
    replay,
    worst,
)
from benchmarks.growth import growth
from benchmarks.history import Figure, commit_now
from benchmarks.latency import latency
from benchmarks.openb import data_directory, openb
from benchmarks.plane import PlaneUnderTest, a_plane
from benchmarks.processor import processor_seconds, used_between
from benchmarks.raw import RawLimits, raw_limits
from benchmarks.report import finish
from benchmarks.verify import verified


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--processes", choices=("auto", "one", "two", "each"), default="auto")
    parser.add_argument(
        "--skip-latency", action="store_true", help="leave out the minute at 50 bindings a second"
    )
    parser.add_argument("--only", choices=("openb", "latency", "idle"), help="measure one part")
    parser.add_argument(
        "--no-record", action="store_true", help="keep no record in benchmarks/history"
    )
    options = parser.parse_args()
    data = data_directory()
    if data is None:
        print(
            "the openb trace is not here: set WHARFINGER_DATA to the directory that holds openb/",
            file=sys.stderr,
        )
        return 2
    figures: list[Figure] = []
    commit = None if options.no_record else commit_now()  # the tree may change while it runs
    if options.only:
        measure_only(options.only, figures, options.processes)
        finish(figures, commit)
        return 0
    with a_plane() as plane:
        asyncio.run(measure(plane, figures, options.processes, not options.skip_latency))
    measure_idle(figures, options.processes)
    costs = measure_fleet(figures, options.processes)
    selections = measure_placements(figures)
    rates = measure_nodes(figures)
    measure_load(figures)
    solved = measure_provisioning(figures)
    emptied = measure_consolidation(figures, data)
    refused = measure_refusals(figures)
    measure_worst(figures)
    finish(figures, commit)
    console = Console(width=210 if not sys.stdout.isatty() else None)
    console.print(fleet.table(costs))
    console.print(placement.table(selections))
    console.print(nodes.table(rates))
    console.print(nodes.costs())
    console.print(provisioning.table(solved))
    console.print(consolidation.table(emptied))
    console.print(refusals.table(refused))
    return 0


def measure_only(part: str, figures: list[Figure], processes: str) -> None:
    """One part on a plane of its own, with the raw limits before it."""
    if part == "idle":
        measure_idle(figures, processes)
        return
    with a_plane() as plane:
        plane.up("--processes", processes)
        asyncio.run(_measure_part(plane, figures, part))


async def _measure_part(plane: PlaneUnderTest, figures: list[Figure], part: str) -> None:
    raw = await measure_raw(plane, figures)
    if part == "openb":
        data = data_directory()
        assert data is not None, "main has looked"
        await measure_openb(plane, figures, raw, data)
    else:
        await measure_latency(plane, figures)


def measure_idle(figures: list[Figure], processes: str) -> None:
    """What a plane takes of a core while its bindings stand still."""
    Console(stderr=True).print("an idle plane ...")
    found = idle.idle(processes)
    for part, share in sorted(found.share.items()):
        must = idle.MUST.get(part)
        figures.append(
            Figure(f"idle: {part}, of a core", share, "%", must, False, f"{found.period_s:.0f} s")
        )


def measure_placements(figures: list[Figure]) -> list[placement.Costs]:
    """A placement of clusters looked at after one of its clusters has changed."""
    found = [placement.costs(clusters) for clusters in placement.SIZES]
    for cost in found:
        n = cost.clusters
        figures.append(
            Figure(
                f"{n:,} clusters: a placement, one cluster changed",
                cost.one_changed.median_ms,
                "ms",
                placement.MUST_MS[n],
                False,
                f"OCM {placement.OCM_MS[n]:g} ms",
            )
        )
    return found


def measure_load(figures: list[Figure]) -> None:
    """Load awareness at 5,000 nodes: a pod judged, a batch begun, and what a minute of the
    annotator takes."""
    cost = load.measured()
    n = f"{cost.nodes:,} nodes"
    figures += [
        Figure(
            f"{n}: load filter and score of a pod",
            cost.judged_ms,
            "ms",
            load.MUST_MS,
            False,
            f"crane {load.CRANE_MS:g} ms",
        ),
        Figure(f"{n}: load at the begin of a batch", cost.batch_ms, "ms"),
        Figure(
            f"{n}: every metric measured once, processor",
            cost.minute_s,
            "s",
            60,
            False,
            "each minute",
        ),
    ]


def measure_consolidation(figures: list[Figure], data: Path) -> list[consolidation.Ran]:
    """One survey of a fleet that three pods in ten have left, and what is saved until no more is
    found."""
    found = consolidation.measured(data)
    for ran in found:
        name, must = (
            f"{ran.nodes:,} nodes, {ran.name}, budget {ran.budget}",
            consolidation.MUST_S.get(ran.nodes),
        )
        figures.append(
            Figure(f"{name}: a survey", ran.seconds, "s", must, False, "Karpenter is cut at 60 s")
        )
        if ran.longest:
            figures.append(
                Figure(f"{name}: the longest survey after it", ran.longest, "s", must, False)
            )
        if ran.settled:
            least = 95 if ran.name.startswith("AWS") else None
            figures.append(Figure(f"{name}: of what could be saved", 100 * ran.reached, "%", least))
        figures.append(
            Figure(f"{name}: moves per saved dollar an hour", ran.moves_a_dollar, "", None, False)
        )
    return found


def measure_refusals(figures: list[Figure]) -> refusals.Measured:
    """A fleet asked for more than it holds: what clusters refuse, and how much CPU is placed."""
    Console(stderr=True).print("a fleet that is asked for more than it holds ...")
    found = refusals.measured()
    batch, single, _ = found.runs
    bound = f"{100 * batch.cpu_milli / found.bound_milli:.1f} % of the bound"
    figures += [
        Figure(
            "burst: refusals of what clusters answer",
            batch.refused_percent,
            "%",
            refusals.REFUSED_MUST,
            False,
        ),
        Figure(
            "burst: CPU placed, of what is placed one at a time",
            100 * batch.cpu_milli / single.cpu_milli,
            "%",
            refusals.PLACED_MUST,
            ratio=bound,
        ),
        Figure(
            "one at a time: refused requests of what clusters answer",
            single.refused_percent,
            "%",
            refusals.REFUSED_MUST,
            False,
        ),
        Figure("one at a time: refused twice for an unchanged cause", single.twice, "", 0, False),
    ]
    return found


def measure_worst(figures: list[Figure]) -> None:
    """The worst cases of the engines, in processor time."""
    Console(stderr=True).print("worst cases of the engines ...")
    figures += [
        Figure(one.name, one.value, one.unit, one.must, False, one.beside)
        for one in worst.measured()
    ]


def measure_provisioning(figures: list[Figure]) -> list[provisioning.Cost]:
    """Nodes made for Karpenter's diverse pods: how long it takes, and how far the price is from the
    bound."""
    Console(stderr=True).print("nodes for pods ...")
    found = provisioning.measured()
    for cost in found:
        if cost.pods in provisioning.MUST_S and cost.name.endswith(" diverse"):
            theirs = f"Karpenter {provisioning.KARPENTER_S[cost.pods]:g} s"
            must = provisioning.MUST_S[cost.pods]
            figures += [
                Figure(f"nodes made for {cost.name} pods", cost.seconds, "s", must, False, theirs),
                Figure(
                    f"nodes made for {cost.name} pods: price above the bound",
                    100 * cost.gap,
                    "%",
                    100 * provisioning.GAP_MUST,
                    False,
                    f"first-fit {100 * cost.bound.gap(cost.first_fit_price):.0f} %",
                ),
            ]
    return found


def measure_nodes(figures: list[Figure]) -> list[nodes.Rate]:
    """Pods placed on the nodes of one cluster, all nodes looked at for each."""
    Console(stderr=True).print("pods on nodes ...")
    rates = nodes.measured()
    figures += [
        Figure(
            f"{r.nodes:,} nodes: {r.workload.name}, placed",
            r.placed,
            "pods/s",
            r.workload.must[r.nodes],
            ratio=f"kube-scheduler {r.workload.kube[r.nodes]:,}",
        )
        for r in rates
        if r.nodes in r.workload.must
    ]
    return rates


def measure_fleet(figures: list[Figure], processes: str) -> list[fleet.Cost]:
    """Fleet decisions by clusters and strategy, a cluster's update while bindings wait, and
    bindings a second through planes."""
    say = Console(stderr=True).print
    say("fleet decisions ...")
    costs = list(fleet.decisions())
    for clusters, must in fleet.MUST_MS.items():
        slowest = max((c for c in costs if c.clusters == clusters), key=lambda c: c.warm_solve.best)
        figures.append(
            Figure(
                f"{clusters:,} clusters: a fleet decision solved, best of the slowest strategy",
                slowest.warm_solve.best,
                "ms",
                must,
                False,
                f"{slowest.strategy}; Karmada {fleet.KARMADA_MS[clusters]:g} ms, "
                f"{growth_of(costs, slowest)}",
            )
        )
    for clusters in fleet.SIZES:
        said = fleet.updated(clusters)
        waiting = f"{said.waiting:,} bindings waiting in {said.groups} groups"
        figures += [
            Figure(
                f"{clusters:,} clusters: a cluster's new count taken in",
                said.count_ms,
                "ms",
                ratio=waiting,
            ),
            Figure(
                f"{clusters:,} clusters: a cluster's new labels taken in",
                said.facts_ms,
                "ms",
                ratio=waiting,
            ),
        ]
    say("fleets through planes of their own ...")
    for run in asyncio.run(fleet.through_planes(processes)):
        rate = run.bindings_a_second
        ratio = f"{rate / run.raw.produce:.1%} of produce, {rate / run.raw.copy_rows:.1%} of COPY"
        figures.append(
            Figure(
                f"{run.clusters:,} clusters: bindings through the plane",
                rate,
                "/s",
                fleet.MUST_LIVE[run.clusters],
                ratio=ratio,
            )
        )
    return costs


def growth_of(costs: list[fleet.Cost], of: fleet.Cost) -> str:
    return (
        "grows by the power "
        f"{fleet.growing([c for c in costs if c.strategy == of.strategy]):.2f} of the clusters"
    )


async def measure(
    plane: PlaneUnderTest, figures: list[Figure], processes: str, with_latency: bool
) -> None:
    data = data_directory()
    assert data is not None, "main has looked"
    say = Console(stderr=True).print
    say("starting a plane for the first time ...")
    figures.append(
        Figure("up, first time", plane.up("--processes", processes), "s", 20, higher=False)
    )
    plane.down()
    say("starting it again ...")
    figures.append(
        Figure("up, initialised data dir", plane.up("--processes", processes), "s", 8, higher=False)
    )
    raw = await measure_raw(plane, figures)
    live = await measure_openb(plane, figures, raw, data)
    memory = plane.memory_mb()
    parts = ", ".join(f"{name} {mb:.0f}" for name, mb in sorted(memory.items()))
    figures.append(
        Figure(
            "memory of the whole plane after it (PSS)",
            sum(memory.values()),
            "MB",
            600,
            False,
            parts,
        )
    )
    grown = await growth(plane.plane()["database_url"])
    figures += [
        Figure(
            "ledger: bytes a decision, with its share of the round",
            grown.decision,
            "B",
            ratio=f"{grown.decision_plain:,.0f} without zstd",
        ),
        Figure(
            "ledger: bytes an input, with its body",
            grown.input,
            "B",
            ratio=f"{grown.input_plain:,.0f} without zstd",
        ),
        Figure(
            "ledger: bodies, saved by zstd",
            100 * grown.saved,
            "%",
            ratio=f"{grown.bodies / 2**20:,.0f} of {grown.bodies_plain / 2**20:,.0f} MiB",
        ),
    ]
    say("verify and replay ...")
    audit = await verified(plane)
    figures += [
        Figure(
            "audit verify: rows (rounds, inputs, decisions)",
            audit.rows_per_s,
            "/s",
            100_000,
            ratio=f"{audit.rows:,} rows, {'all as they were written' if audit.ok else 'BROKEN'}",
        ),
        Figure("audit verify: rows, one process", audit.alone_rows_per_s, "/s"),
        Figure(
            "audit verify --topic --checkpoint, the whole command",
            audit.topic_s,
            "s",
            ratio=f"{audit.covered:,} decisions on the topic",
        ),
    ]
    rates = await asyncio.to_thread(replay.measure, plane.plane()["database_url"])
    both = f"{rates.workers} processes"
    figures += [
        Figure(
            "replay: decisions, bytes compared",
            rates.replayed,
            "/s",
            max(15_000, 5 * live),
            ratio=f"{rates.replayed / live:.1f} times live, {both}",
        ),
        Figure("replay: decisions, one process", rates.replayed_alone, "/s"),
        Figure("replay: divergences", rates.divergences, "", 0, higher=False),
        Figure("fold: domain events, decoding included", rates.folded, "/s", 200_000, ratio=both),
        Figure("fold: domain events, one process", rates.folded_alone, "/s"),
    ]
    if with_latency:
        say("50 bindings a second ...")
        plane.down()
        plane.up("--processes", processes)
        await measure_latency(plane, figures)


async def measure_raw(plane: PlaneUnderTest, figures: list[Figure]) -> RawLimits:
    """What broker and database do without us."""
    Console(stderr=True).print("raw limits ...")
    where = plane.plane()
    raw = await raw_limits(where["bootstrap"], where["database_url"])
    figures += [
        Figure("raw: broker produce, 400 B", raw.produce, "/s"),
        Figure("raw: broker consume, 400 B", raw.consume, "/s"),
        Figure("raw: COPY 400 B rows, 1000 a durable commit", raw.copy_rows, "/s"),
    ]
    return raw


async def measure_openb(
    plane: PlaneUnderTest, figures: list[Figure], raw: RawLimits, data: Path
) -> float:
    """The openb trace, with the processor time of each part. Returns decisions a second."""
    Console(stderr=True).print("the openb trace ...")
    before = processor_seconds(plane)
    run = await openb(plane, data)
    live = run.decisions_a_second
    used = used_between(before, processor_seconds(plane), run.decisions)
    figures += [
        Figure(
            "openb: decisions (fleet + node) durable and published",
            live,
            "/s",
            2000,
            ratio=f"{live / raw.produce:.1%} of produce, {live / raw.copy_rows:.1%} of COPY",
            processor_us=used,
        ),
        Figure(
            "openb: processor a decision",
            sum(used.values()),
            "µs",
            ratio=", ".join(f"{part} {us:.0f}" for part, us in used.items()),
        ),
        Figure("openb: bindings", run.bindings_a_second, "/s"),
        Figure("openb: bindings with an outcome", run.bindings, "", run.bindings),
        Figure("openb: replicas placed", run.placed, ""),
        Figure("openb: ids more than once on the topic", run.duplicates, "", 0, higher=False),
    ]
    return live


async def measure_latency(plane: PlaneUnderTest, figures: list[Figure]) -> None:
    """50 bindings a second, open loop, with the processor time of each part a binding."""
    where, before = plane.plane(), processor_seconds(plane)
    found = await latency(where["bootstrap"], where["database_url"])
    used = used_between(before, processor_seconds(plane), found.bindings)
    figures += [
        Figure("50/s: fleet decision p50", found.fleet.p50, "ms", 25, False, processor_us=used),
        Figure("50/s: fleet decision p99", found.fleet.p99, "ms", 100, higher=False),
        Figure("50/s: node decision p50", found.node.p50, "ms", 45, higher=False),
        Figure("50/s: node decision p99", found.node.p99, "ms", 150, higher=False),
    ]


if __name__ == "__main__":
    sys.exit(main())
