"""Replay: decide the recorded history again and compare bytes, each stream by itself.

The stages' deciders are handed in by prefix of stream, so that this module knows none. A stream begins at its nearest
snapshot, or at its genesis; what lies between there and the first round asked for is recovered, not judged. Streams are
independent, so more workers are simply more streams at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from wharfinger.kernel.audit import Audit, AuditResult, Divergence
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.recover import recover
from wharfinger.runtime.ledger.errors import CorruptLedger
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.memory import seldom_collect

Deciders = Mapping[str, Callable[[str], Decider[Any]]]
"""Prefix of stream -> what makes the decider of a recorded profile; the default one where the profile is unknown, which the
replay then says. With more than one worker the makers must be importable functions."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`streams`: those replayed. Streams without a decider (the intake decides nothing) are not among them."""

    streams: tuple[str, ...] = ()
    rounds: int = 0
    decisions: int = 0
    inputs: int = 0
    divergences: tuple[Divergence, ...] = ()
    seconds: float = 0.0

    @property
    def decisions_per_s(self) -> float:
        return self.decisions / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Task:
    database_url: str
    streams: tuple[str, ...]
    deciders: Deciders = field(repr=False)
    from_round: int
    to_round: int | None


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor | None]:
    """Processes for `replay`, forked now, with all that is imported: call it before anything is opened. None for one."""
    if workers <= 1:
        yield None
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        pool.submit(seldom_collect).result()  # the first task starts all of them
        yield pool


async def replay(
    ledger: Ledger,
    deciders: Deciders,
    prefix: str = "",
    from_round: int = 1,
    to_round: int | None = None,
    workers: int = 1,
    on_stream: Callable[[AuditResult], object] | None = None,
    pool: Executor | None = None,
) -> ReplayResult:
    """Replay the rounds `from_round` to `to_round` of a stream, or of all with a prefix. `on_stream` hears of each done.

    `pool`: processes made by `worker_pool` before the ledger was opened; without it `workers` are started here, which costs
    half a second.
    """
    seldom_collect()
    began = time.perf_counter()
    heads = {head.stream: head for head in await ledger.heads()}
    streams = [name for name in selected(list(heads), prefix) if _maker(deciders, name) is not None]
    results: list[AuditResult] = []

    def done(result: AuditResult) -> None:
        results.append(result)
        if on_stream is not None:
            on_stream(result)

    if workers <= 1 or len(streams) <= 1:
        for name in streams:
            done(await _replay_stream(ledger, deciders, name, from_round, to_round))
    else:
        shares = _shares({name: heads[name].seq + heads[name].round for name in streams}, workers)
        tasks = [_Task(ledger.database.url, tuple(share), deciders, from_round, to_round) for share in shares]
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            # Spawned, not forked: a fork would share the sockets of the ledger that is open here.
            workers_ = pool or stack.enter_context(ProcessPoolExecutor(len(tasks), mp_context=get_context("spawn")))
            for share_done in asyncio.as_completed([loop.run_in_executor(workers_, _replay_share, t) for t in tasks]):
                for result in await share_done:
                    done(result)
    results.sort(key=lambda result: result.stream)
    return ReplayResult(
        tuple(result.stream for result in results),
        sum(result.rounds for result in results),
        sum(result.decisions for result in results),
        sum(result.inputs for result in results),
        tuple(divergence for result in results for divergence in result.divergences),
        time.perf_counter() - began,
    )


async def _replay_stream(
    ledger: Ledger, deciders: Deciders, stream: str, from_round: int, to_round: int | None
) -> AuditResult:
    make = _maker(deciders, stream)
    assert make is not None
    decider = make("")
    first = max(1, from_round)
    snapshot = await ledger.latest_snapshot(stream, first - 1)
    if snapshot is None:
        state, at_round = decider.initial(stream), 0
    else:
        state, at_round = decider.load(stream, snapshot.sections), snapshot.round
    audit = Audit(decider, state, await ledger.head_at(stream, at_round), make)
    try:
        async for recorded in ledger.recorded_rounds(stream, at_round + 1, to_round, judged_from=first):
            if recorded.round.number < first:
                recover(decider, state, (recorded,))
                audit.head = recorded.round.head()
            else:
                audit.replay(recorded)
    except CorruptLedger as error:  # what cannot be read cannot be decided again; the other streams can
        audit.result.divergences.append(Divergence(stream, error.round, error.seq, "unreadable", error.what, ""))
    return audit.result


def _replay_share(task: _Task) -> list[AuditResult]:
    """In a process of its own."""
    seldom_collect()

    async def run() -> list[AuditResult]:
        ledger = await Ledger.open(task.database_url, "wharfinger-replay", pool_size=1)
        try:
            return [
                await _replay_stream(ledger, task.deciders, name, task.from_round, task.to_round)
                for name in task.streams
            ]
        finally:
            await ledger.close()

    return asyncio.run(run())


def _maker(deciders: Deciders, stream: str) -> Callable[[str], Decider[Any]] | None:
    """Of the longest prefix that fits."""
    fitting = [prefix for prefix in deciders if stream.startswith(prefix)]
    return deciders[max(fitting, key=len)] if fitting else None


def _shares(weights: Mapping[str, int], workers: int) -> list[list[str]]:
    """Heaviest first, each to whoever has the least: about equal work, the same on every run."""
    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(workers, len(weights)))]
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        least = min(range(len(shares)), key=lambda place: shares[place][0])
        load, names = shares[least]
        names.append(name)
        shares[least] = (load + weights[name], names)
    return [names for _, names in shares]
