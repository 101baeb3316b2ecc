"""Replay: decide the recorded history again and compare bytes. Reads the ledger, and writes nothing
anywhere.

The stages' deciders are handed in by prefix of stream, so that this module knows none.
`replay_ranges` says where each piece begins; several processes take pieces at once. Rounds of
another version of the engine are decided again too: what it did otherwise is reported apart, since
that is what versions are for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.util import Finalize
from typing import Any, ClassVar

from wharfinger.kernel.audit import Audit, AuditResult, EngineResult
from wharfinger.kernel.decider import Decider, Micros
from wharfinger.kernel.divergence import Divergence
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.runtime.ledger import CorruptLedger, Ledger
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.snapshot_points import digest_of
from wharfinger.runtime.replay_ranges import Range, RangeError, ReplayRange, ranges_of, shares_of

__all__ = [
    "Deciders",
    "EngineReplay",
    "Range",
    "RangeError",
    "ReplayRange",
    "ReplayResult",
    "joined",
    "plan_replay",
    "replay",
    "replay_ranges",
    "worker_pool",
]

Deciders = Mapping[str, Callable[[str], Decider[Any]]]
"""Prefix of stream -> what makes the decider of a recorded profile; the default one where the
profile is unknown, which the replay then says. With more than one worker the makers must be
importable functions."""

RECOVERED_MAX = 16
"""So often a range is brought back to what was recorded after the decider has decided otherwise.
Each time costs a recovery from the range's start; beyond it, what differs is marked as possibly a
consequence."""

SHARES_A_WORKER = 4
"""Smaller shares end at about the same time, and more often there is something to be said of how
far it is."""


@dataclass(frozen=True, slots=True)
class EngineReplay:
    """What another version of the engine decided, decided again by this one. `divergences`: where
    the two differ. `reworded_rounds`: those with the same decisions and other explanations."""

    engine: str
    rounds: int
    decisions: int
    differing_rounds: int
    reworded_rounds: int = 0
    divergences: tuple[Divergence, ...] = ()

    @property
    def same(self) -> bool:
        return not self.differing_rounds


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`streams`: those replayed, in order of name. Streams without a decider (the intake decides
    nothing) are not among them.

    `divergences`: in order of stream and round; what only another version of the engine decided
    otherwise is not among them but in `other_engines`. `ranges`: in how many pieces it was done.
    `seconds`: on the wall.
    """

    streams: tuple[str, ...] = ()
    ranges: int = 0
    rounds: int = 0
    decisions: int = 0
    inputs: int = 0
    divergences: tuple[Divergence, ...] = ()
    other_engines: tuple[EngineReplay, ...] = ()
    seconds: float = 0.0

    @property
    def decisions_per_s(self) -> float:
        return self.decisions / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Task:
    database_url: str
    deadlines: Deadlines
    ranges: tuple[Range, ...]
    deciders: Deciders = field(repr=False)


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor | None]:
    """Processes for `replay`, forked now, with all that is imported: call it before anything is
    opened. None for one."""
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
    from_round: int | None = None,
    to_round: int | None = None,
    workers: int = 1,
    on_range: Callable[[AuditResult], object] | None = None,
    pool: Executor | None = None,
    *,
    since: Micros | None = None,
    until: Micros | None = None,
) -> ReplayResult:
    """Replay rounds `from_round` to `to_round`, or what was decided from `since` to `until`, of the
    stream `prefix` or of all whose names begin with it. `on_range` hears of each piece done.

    RangeError: no such stream, round or time. `pool`: processes made by `worker_pool` before the
    ledger was opened; without it `workers` are started here, which costs half a second.
    """
    asked = ReplayRange(prefix, from_round, to_round, since, until)
    return await replay_ranges(
        ledger,
        deciders,
        await plan_replay(ledger, deciders, asked, workers),
        workers,
        on_range,
        pool,
    )


async def plan_replay(
    ledger: Ledger, deciders: Deciders, asked: ReplayRange, workers: int = 1
) -> list[Range]:
    """What `replay` would go through, in pieces for so many workers. RangeError: no such stream,
    round or time."""
    return await ranges_of(ledger, asked, deciders, workers)


async def replay_ranges(
    ledger: Ledger,
    deciders: Deciders,
    ranges: Sequence[Range],
    workers: int = 1,
    on_range: Callable[[AuditResult], object] | None = None,
    pool: Executor | None = None,
) -> ReplayResult:
    """Replay what `plan_replay` found."""
    seldom_collect()
    began = time.perf_counter()
    results: list[AuditResult] = []

    def done(result: AuditResult) -> None:
        results.append(result)
        if on_range is not None:
            on_range(result)

    if workers <= 1 or len(ranges) <= 1:
        for piece in ranges:
            done(await _replay_range(ledger, deciders, piece))
    else:
        shares = shares_of(ranges, SHARES_A_WORKER * workers)
        tasks = [
            _Task(ledger.database.url, ledger.database.deadlines, tuple(share), deciders)
            for share in shares
        ]
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            # Spawned, not forked: a fork would share the sockets of the ledger that is open here.
            hands = pool or stack.enter_context(
                ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
            )
            for share_done in asyncio.as_completed(
                [loop.run_in_executor(hands, _replay_share, t) for t in tasks]
            ):
                for result in await share_done:
                    done(result)
    return joined(results, time.perf_counter() - began)


async def _replay_range(ledger: Ledger, deciders: Deciders, piece: Range) -> AuditResult:
    stream, make = piece.stream, _maker(deciders, piece.stream)
    decider = make("")
    audit = Audit(decider, None, await ledger.head_at(stream, piece.start), make)
    recovered = 0
    try:
        audit.resume(await _state_at_start(ledger, decider, piece))
        async for recorded in ledger.recorded_rounds(
            stream, piece.start + 1, piece.last, judged_from=piece.first
        ):
            if recorded.round.number < piece.first:
                _fold(audit.decider, audit.state, recorded)
                audit.head = recorded.round.head()
                continue
            audit.replay(recorded)
            if audit.parted and recovered < RECOVERED_MAX:
                recovered += 1
                audit.resume(
                    await _state_after(ledger, audit.decider, piece, recorded.round.number)
                )
        if piece.arrives:
            await _arrived(ledger, audit, piece)
    except CorruptLedger as error:
        # what cannot be read cannot be decided again; the other streams can
        audit.result.divergences.append(
            Divergence(stream, error.round, error.seq, "unreadable", error.what, "")
        )
    return audit.result


async def _state_at_start(ledger: Ledger, decider: Decider[Any], piece: Range) -> Any:
    if not piece.start:
        return decider.initial(piece.stream)
    return await _stored_state(ledger, decider, piece.stream, piece.start)


async def _stored_state(ledger: Ledger, decider: Decider[Any], stream: str, number: int) -> Any:
    """What the snapshot of this round says. CorruptLedger: it is not there, or says no state."""
    snapshot = await ledger.latest_snapshot(stream, number)
    if snapshot is None or snapshot.round != number:
        raise CorruptLedger(stream, number, 0, "snapshot: it is no longer there")
    try:
        return decider.load(stream, snapshot.sections)
    except Exception as error:
        raise CorruptLedger(stream, number, 0, f"snapshot: {_said(error)}") from None


async def _state_after(ledger: Ledger, decider: Decider[Any], piece: Range, number: int) -> Any:
    """As it was recorded: nothing is decided on the way."""
    state = await _state_at_start(ledger, decider, piece)
    async for recorded in ledger.recorded_rounds(piece.stream, piece.start + 1, number):
        state = _fold(decider, state, recorded)
    return state


def _fold(decider: Decider[Any], state: Any, recorded: RecordedRound) -> Any:
    """A record that was changed may say what a state refuses."""
    try:
        return recover(decider, state, (recorded,))
    except Exception as error:
        r = recorded.round
        raise CorruptLedger(
            r.stream, r.number, r.first_seq, f"cannot be folded: {_said(error)}"
        ) from None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


async def _arrived(ledger: Ledger, audit: Audit[Any], piece: Range) -> None:
    """The next range begins at the snapshot of this one's last round: it must be what was decided
    here. Another version may have written the same state in other bytes."""
    sections = audit.decider.dump(audit.state)
    digest = digest_of(sections)
    if digest != piece.arrives and sections != await _as_dumped_now(ledger, audit.decider, piece):
        audit.result.divergences.append(
            Divergence(
                piece.stream,
                piece.last,
                0,
                "snapshot",
                f"state {piece.arrives.hex()[:16]}",
                f"state {digest.hex()[:16]}",
                follows=audit.parted,
            )
        )


async def _as_dumped_now(
    ledger: Ledger, decider: Decider[Any], piece: Range
) -> Mapping[str, bytes] | None:
    """The snapshot of the last round, loaded and dumped by this version; None: it cannot be."""
    try:
        return decider.dump(await _stored_state(ledger, decider, piece.stream, piece.last))
    except CorruptLedger:
        return None


def _replay_share(task: _Task) -> list[AuditResult]:
    """In a process of its own."""
    if _Hand.mine is None or _Hand.mine.url != task.database_url:
        _Hand.mine = _Hand(task.database_url, task.deadlines)
    return _Hand.mine.run(task)


class _Hand:
    """What a worker keeps between its shares: a loop, and a connection, which costs more to open
    than many a share to replay.

    It does not look whether there is a ledger: the process that sent it has.
    """

    mine: ClassVar[_Hand | None] = None

    def __init__(self, url: str, deadlines: Deadlines) -> None:
        seldom_collect()
        self.url = url
        self._runner = asyncio.Runner()
        self._ledger = Ledger(
            Database(url, "wharfinger-replay", 1, replace(deadlines, call_s=deadlines.fetch_s))
        )
        # a worker leaves without running what `atexit` knows of
        Finalize(None, self._close, exitpriority=1)

    def run(self, task: _Task) -> list[AuditResult]:
        async def work() -> list[AuditResult]:
            return [
                await _replay_range(self._ledger, task.deciders, piece) for piece in task.ranges
            ]

        return self._runner.run(work())

    def _close(self) -> None:
        self._runner.run(self._ledger.close())
        self._runner.close()


def joined(results: Sequence[AuditResult], seconds: float) -> ReplayResult:
    """What came of pieces that were replayed apart, as one answer."""
    found = [d for result in results for d in result.divergences]
    found.sort(key=lambda d: (d.stream, d.round, d.seq))
    theirs = [d for d in found if d.blame == "decider" and d.engine != ENGINE]
    apart = set(map(id, theirs))
    return ReplayResult(
        tuple(sorted({result.stream for result in results})),
        len(results),
        sum([result.rounds for result in results]),
        sum([result.decisions for result in results]),
        sum([result.inputs for result in results]),
        tuple([d for d in found if id(d) not in apart]),
        _by_engine(results, theirs),
        seconds,
    )


def _by_engine(
    results: Sequence[AuditResult], theirs: Sequence[Divergence]
) -> tuple[EngineReplay, ...]:
    tallies: dict[str, list[EngineResult]] = {}
    for result in results:
        for engine, tally in result.engines.items():
            if engine != ENGINE:
                tallies.setdefault(engine, []).append(tally)
    return tuple(
        EngineReplay(
            engine,
            sum([t.rounds for t in tallies[engine]]),
            sum([t.decisions for t in tallies[engine]]),
            sum([t.differing for t in tallies[engine]]),
            sum([t.reworded for t in tallies[engine]]),
            tuple([d for d in theirs if d.engine == engine]),
        )
        for engine in sorted(tallies)
    )


def _maker(deciders: Deciders, stream: str) -> Callable[[str], Decider[Any]]:
    """Of the longest prefix that fits; a range is only made of streams that have one."""
    return deciders[max([prefix for prefix in deciders if stream.startswith(prefix)], key=len)]
