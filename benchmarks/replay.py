"""The recorded openb run decided again, and folded: two of the things a ledger is for, at their
rates.

Decided again: every round of every stream, bytes compared, as `wharfinger replay` does it. Folded:
recovery of every stream from its first round, read and decoded from the database, nothing decided,
as a service does it that starts: ids and hashes of the inputs are those of their rows, and
explanations are left unread, since no fold looks at them.

What is counted there are *domain events*: an event that carries several (the items of assignments
and outcomes, the nodes of a bucket, the pods of a node) counts as so many, every other as one, and
so does a decision.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import ClassVar

from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.history.deciders import DECIDERS, decider_of
from wharfinger.kernel.recover import recover
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.replay import Range, ReplayRange, plan_replay, replay_ranges, worker_pool
from wharfinger.runtime.replay_ranges import shares_of

RUNS = 3
"""The best of so many is told: what else the machine does can only make it slower."""


@dataclass(frozen=True, slots=True)
class ReplayRates:
    """`replayed`: decisions a second; `folded`: domain events a second; both with `workers`
    processes, `alone` with one."""

    workers: int
    decisions: int
    divergences: int
    replayed: float
    replayed_alone: float
    events: int
    folded: float
    folded_alone: float


def measure(database_url: str, workers: int | None = None) -> ReplayRates:
    """Of the ledger as it stands; nothing is written."""
    workers = workers or os.cpu_count() or 1
    with worker_pool(workers) as pool:
        decisions, divergences, replayed, replayed_alone = asyncio.run(
            _replayed(database_url, workers, pool)
        )
        events, folded = asyncio.run(_folded(database_url, workers, pool))
    _, folded_alone = asyncio.run(_folded(database_url, 1, None))
    return ReplayRates(
        workers, decisions, divergences, replayed, replayed_alone, events, folded, folded_alone
    )


async def _replayed(
    database_url: str, workers: int, pool: Executor | None
) -> tuple[int, int, float, float]:
    ledger = await Ledger.open(database_url, "bench")
    try:
        shared = [
            await replay_ranges(
                ledger,
                DECIDERS,
                await plan_replay(ledger, DECIDERS, ReplayRange(), workers),
                workers,
                pool=pool,
            )
            for _ in range(RUNS)
        ]
        alone = [
            await replay_ranges(
                ledger, DECIDERS, await plan_replay(ledger, DECIDERS, ReplayRange())
            )
            for _ in range(RUNS)
        ]
    finally:
        await ledger.close()
    found = shared[0]
    best, best_alone = (
        max(result.decisions_per_s for result in results) for results in (shared, alone)
    )
    return found.decisions, len(found.divergences), best, best_alone


async def _folded(database_url: str, workers: int, pool: Executor | None) -> tuple[int, float]:
    seldom_collect()
    ledger = await Ledger.open(database_url, "bench")
    try:
        ranges = await plan_replay(ledger, DECIDERS, ReplayRange())
        shares = shares_of(ranges, workers)
        loop = asyncio.get_running_loop()
        best = 0.0
        for _ in range(RUNS):
            began = time.perf_counter()
            if pool is None:
                counts = [await _fold(ledger, share) for share in shares]
            else:
                counts = await asyncio.gather(
                    *[
                        loop.run_in_executor(pool, _fold_share, database_url, tuple(share))
                        for share in shares
                    ]
                )
            best = max(best, sum(counts) / (time.perf_counter() - began))
    finally:
        await ledger.close()
    return sum(counts), best


class _Hand:
    """What a worker keeps from one run to the next: a loop and a connection, as a service has them
    when it recovers."""

    mine: ClassVar[_Hand | None] = None

    def __init__(self, database_url: str) -> None:
        seldom_collect()
        self.url = database_url
        self.runner = asyncio.Runner()
        self.ledger = self.runner.run(Ledger.open(database_url, "bench", pool_size=1))
        # a worker leaves without running what `atexit` knows of
        Finalize(None, self.close, exitpriority=1)

    def close(self) -> None:
        self.runner.run(self.ledger.close())
        self.runner.close()


def _fold_share(database_url: str, ranges: Sequence[Range]) -> int:
    """In a process of its own."""
    if _Hand.mine is None or _Hand.mine.url != database_url:
        _Hand.mine = _Hand(database_url)
    return _Hand.mine.runner.run(_fold(_Hand.mine.ledger, ranges))


async def _fold(ledger: Ledger, ranges: Sequence[Range]) -> int:
    """Bring each stream from its beginning to its head. How many domain events that took."""
    folded = 0
    for piece in ranges:
        decider = decider_of(piece.stream)
        assert decider is not None, "ranges are made of streams that decide"
        state = decider.initial(piece.stream)
        async for recorded in ledger.recorded_rounds(
            piece.stream, piece.start + 1, piece.last, on_trust=True
        ):
            state = recover(decider, state, (recorded,))
            folded += len(recorded.round.decisions) + sum(
                [events_in(event.data) for event in recorded.events]
            )
    return folded


def events_in(data: Value) -> int:
    """How many domain events one message carries."""
    match data:
        case AssignmentsDecided() | OutcomesDecided():
            return len(data.items)
        case NodesObserved():
            return len(data.nodes)
        case PodsObserved():
            return len(data.pods)
        case _:
            return 1


if __name__ == "__main__":
    import sys

    print(measure(sys.argv[1]))
