"""What more scheduler processes give: a burst of bindings decided by one, two and four of them,
with the processor time of each part of the plane.

Every service has a process of its own, and the plane has four fleet shards. The processor time a
decision says where the next limit is: a part that cannot be divided ends at one core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.openb import first_accepted
from benchmarks.plane import PlaneUnderTest, a_plane, service_of
from benchmarks.processor import processor_seconds, used_between
from benchmarks.subscriber import Subscriber

COUNTS = (1, 2, 4)
SHARDS = 4
CLUSTERS, NODES, BINDINGS = 16, 640, 4000
QUIET_S = 3.0
TIMEOUT_S = 900.0
RESTS = 0.2
"""Of a core; a plane whose parts together use less has started."""

Used = dict[tuple[str, int], float]
"""(service or part, pid) -> processor seconds."""

NAMED = """
import sys
from wharfinger.runtime.process import run_process
from wharfinger_scheduler.app import BUILDERS
sys.exit(run_process(sys.argv[1], BUILDERS))
"""
"""A scheduler process under another name, so that its files are its own."""


@dataclass(frozen=True, slots=True)
class SchedulersRun:
    """`used`: microseconds of processor time a decision, by part; `by_process`: of each scheduler
    process, the largest share first."""

    schedulers: int
    decisions: int
    seconds: float
    used: Mapping[str, float]
    by_process: Sequence[float]

    @property
    def decisions_a_second(self) -> float:
        return self.decisions / self.seconds


def measured(schedulers: int, kafka: str | None) -> SchedulersRun:
    """A plane of its own. `kafka`: `host:port` of a broker with no topics of a plane; None: the
    embedded one."""
    environment = {"WHARFINGER_FLEET_SHARDS": str(SHARDS)}
    if kafka is not None:
        environment["WHARFINGER_KAFKA"] = kafka
    with a_plane(environment) as plane:
        plane.up("--processes", "each")
        with more_schedulers(plane, schedulers - 1) as added:
            return asyncio.run(_burst(plane, schedulers, added))


@contextmanager
def more_schedulers(plane: PlaneUnderTest, count: int) -> Iterator[Sequence[psutil.Process]]:
    """In the environment of the scheduler that the plane has. They are stopped at the end."""
    first = psutil.Process(int(plane.plane()["pids"]["scheduler"]))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", NAMED, f"scheduler-{number + 2}"],
            env=first.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(count)
    ]
    try:
        yield [psutil.Process(one.pid) for one in started]
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait()


async def _burst(
    plane: PlaneUnderTest, schedulers: int, added: Sequence[psutil.Process]
) -> SchedulersRun:
    where = plane.plane()

    def used() -> Used:
        found = processor_seconds(plane, service_of)
        for process in added:
            times = process.cpu_times()
            found["scheduler", process.pid] = times.user + times.system
        return found

    size = ("--clusters", str(CLUSTERS), "--nodes", str(NODES), "--bindings", str(BINDINGS))
    async with Subscriber(where["bootstrap"]) as subscriber:
        before = await _at_rest(used)
        await asyncio.to_thread(plane.command, "generate", "fleet", *size, "--seed", "2", "--apply")
        if not await subscriber.until(
            lambda seen: len(seen.first_fleet) >= BINDINGS, TIMEOUT_S, QUIET_S
        ):
            raise RuntimeError(
                f"{len(subscriber.seen.first_fleet)} of {BINDINGS} bindings were decided"
            )
        after, seen = used(), subscriber.seen
    decisions = sum(seen.ids.values())
    seconds = seen.last_at - await first_accepted(where["database_url"])
    shares = [
        1e6 * (spent - before.get(key, 0.0)) / decisions
        for key, spent in after.items()
        if key[0] == "scheduler"
    ]
    return SchedulersRun(
        schedulers,
        decisions,
        seconds,
        used_between(before, after, decisions),
        sorted(shares, reverse=True),
    )


async def _at_rest(used: Callable[[], Used]) -> Used:
    """Once the plane has been at rest for a second: all have started, and the shards are
    divided."""
    last = used()
    while True:
        await asyncio.sleep(1.0)
        now = used()
        if sum(now.values()) - sum(last.values()) < RESTS:
            return now
        last = now


def table(runs: Sequence[SchedulersRun], broker: str) -> Table:
    title = f"A burst of {BINDINGS:,} bindings, {SHARDS} fleet shards, {broker}"
    shown = Table(title=title, title_justify="left")
    shown.add_column("scheduler processes")
    for run in runs:
        shown.add_column(str(run.schedulers), justify="right")
    shown.add_row("decisions a second", *(f"{run.decisions_a_second:,.0f}" for run in runs))
    for part in sorted({part for run in runs for part in run.used}):
        shown.add_row(
            f"{part}, a decision", *(f"{run.used.get(part, 0.0):,.0f} µs" for run in runs)
        )
    shown.add_row("the busiest scheduler", *(f"{run.by_process[0]:,.0f} µs" for run in runs))
    # there is one at a time, however many processes of it run
    limits = [f"{1e6 / run.used['publisher']:,.0f} /s" for run in runs]
    shown.add_row("one publisher is a core at", *limits)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedulers", description=__doc__)
    parser.add_argument(
        "--counts", type=int, nargs="+", default=COUNTS, help="how many scheduler processes"
    )
    parser.add_argument(
        "--kafka",
        default=os.environ.get("WHARFINGER_TEST_KAFKA"),
        help="host:port of an Apache Kafka; the embedded broker without",
    )
    options = parser.parse_args()
    runs = [measured(count, options.kafka) for count in options.counts]
    broker = "embedded broker" if options.kafka is None else "Apache Kafka"
    Console(width=100).print(table(runs, broker))
    return 0


if __name__ == "__main__":
    sys.exit(main())
