"""What positions in the feed cost: `python -m benchmarks.feed --decisions 20000`.

The stages decide, a transaction commits, the appender gives positions, in turns within one run, so
that what else runs on the machine slows all three alike. Told is processor time, of this process
and of all processes of the database, for each decision. Each turn commits the rounds of one moment,
about as many decisions as a turn of the publisher takes under load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.explain_history import SECOND, START, Size, commit, happenings, world_of
from wharfinger.runtime.embedded import Embedded
from wharfinger.runtime.ledger import FeedAppender, Ledger
from wharfinger.runtime.ledger.migration import migrate

WARM = 5
"""Turns before anything is measured: connections, code and statements are there."""


class Used:
    """Processor seconds by step: of this process, and of the database's."""

    def __init__(self, postmaster: psutil.Process) -> None:
        self._postmaster = postmaster
        self._processes: dict[int, float] = {}
        self.seconds: dict[str, tuple[float, float]] = {}

    @contextmanager
    def by(self, step: str) -> Iterator[None]:
        here, there = time.process_time(), self._database()
        yield
        mine, its = self.seconds.get(step, (0.0, 0.0))
        self.seconds[step] = (mine + time.process_time() - here, its + self._database() - there)

    def _database(self) -> float:
        """What a process that has ended had used when it was last seen stays counted."""
        for process in (self._postmaster, *self._postmaster.children()):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._processes[process.pid] = times.user + times.system
        return sum(self._processes.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feed", description=__doc__)
    parser.add_argument("--decisions", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wharfinger-bench-") as directory:
        # the embedded database runs as a user of its own where we are root
        os.chmod(directory, 0o755)
        embedded = Embedded.under(Path(directory), die_with_parent=True)
        try:
            url = embedded.start().database_url
            asyncio.run(migrate(url))
            (pid_file,) = Path(directory).rglob("postmaster.pid")
            postmaster = psutil.Process(int(pid_file.read_text().splitlines()[0]))
            decided, seconds = asyncio.run(measured(url, options.decisions, Used(postmaster)))
        finally:
            embedded.stop()
    print(f"{decided:,} decisions; microseconds of processor time a decision")
    for step, (mine, its) in seconds.items():
        print(f"{step:10} {1e6 * mine / decided:8.1f}  database {1e6 * its / decided:8.1f}")


async def measured(
    url: str, decisions: int, used: Used
) -> tuple[int, dict[str, tuple[float, float]]]:
    ledger, other = await Ledger.open(url, "benchmark"), await Ledger.open(url, "feed")
    try:
        world, appender = world_of(0), FeedAppender(other.database)
        await appender.begin()
        decided = 0
        for turn, events in enumerate(happenings(0, Size(decisions, decisions // 10, 25, 50))):
            if turn == WARM:
                decided = 0
                used.seconds.clear()
            with used.by("decide"):
                rounds = world.tell(events, START + turn * SECOND)
            with used.by("commit"):
                await commit(ledger, rounds)
            count = sum(len(recorded.round.decisions) for recorded in rounds)
            with used.by("positions"):
                given = 0
                while given < count:
                    given += await appender.append()
            decided += count
            if decided >= decisions and turn > WARM:
                return decided, used.seconds
        raise AssertionError("there is no end to what happens")
    finally:
        await ledger.close()
        await other.close()


if __name__ == "__main__":
    main()
