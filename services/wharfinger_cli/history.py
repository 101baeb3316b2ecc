"""`replay`: does the history follow from what was known?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from wharfinger.history.deciders import DECIDERS
from wharfinger.history.points import HistoryPoint, moment_of, point_of
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.divergence import Divergence
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.replay import (
    EngineReplay,
    ReplayRange,
    ReplayResult,
    plan_replay,
    replay_ranges,
    worker_pool,
)
from wharfinger_cli.bulk import bar
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import BAD, DARK, GOOD, WARN, Plain, count, new_table, show
from wharfinger_cli.request import Request

DIVERGENCES_SHOWN_MAX = 20


def replay(
    request: Request, stream: str, from_: str, to: str, workers: int | None, *, strict_engine: bool
) -> None:
    """`from_`, `to`: rounds or times as people write them; empty: from the beginning, to the
    end."""
    points = _point(from_), _point(to)
    _refuse_backwards(*points)
    share = workers or os.cpu_count() or 1
    with worker_pool(share) as pool:
        result = run(_replay(request, stream, *points, share, pool))
    show(request.format, replayed_plain(result), result.streams, lambda: replayed_page(result))
    if result.divergences or (
        strict_engine and not all(engine.same for engine in result.other_engines)
    ):
        raise SystemExit(DIFFERENCE)


async def _replay(
    request: Request,
    stream: str,
    from_: HistoryPoint | None,
    to: HistoryPoint | None,
    workers: int,
    pool: Executor | None,
) -> ReplayResult:
    async with opened_ledger(reached(request)) as ledger:
        return await watched_replay(ledger, await _asked(ledger, stream, from_, to), workers, pool)


def _point(text: str) -> HistoryPoint | None:
    """None: nothing was said. PointError: it is no round and no time."""
    if not text:
        return None
    now = time.time_ns() // 1000
    point = point_of(text, now)
    if point.round == 0:
        raise CommandError("replay: rounds are numbered from 1, got 0")
    return replace(point, at=now) if point.round is None and point.at is None else point


def _refuse_backwards(from_: HistoryPoint | None, to: HistoryPoint | None) -> None:
    if from_ is None or to is None:
        return
    rounds = from_.stream == to.stream and (from_.round or 0) > (to.round or from_.round or 0)
    if rounds or (from_.at is not None and to.at is not None and from_.at > to.at):
        raise CommandError(
            f"replay: expected --from to be at most --to, got {from_.text} and {to.text}"
        )


async def _asked(
    ledger: Ledger, stream: str, from_: HistoryPoint | None, to: HistoryPoint | None
) -> ReplayRange:
    """A bare number is a round of every stream asked for; one with its stream (`fleet/0:12`) is a
    moment for the others."""
    asked = ReplayRange(stream)
    if from_ is not None:
        number, at = await _place(ledger, from_, stream)
        asked = replace(asked, from_round=number, since=at)
    if to is not None:
        number, at = await _place(ledger, to, stream)
        asked = replace(asked, to_round=number, until=at)
    return asked


async def _place(
    ledger: Ledger, point: HistoryPoint, stream: str
) -> tuple[int | None, Micros | None]:
    """(round, time): one of them, or neither, which is now."""
    if point.round is not None and point.stream in ("", stream):
        return point.round, None
    return None, await moment_of(ledger, point)


async def watched_replay(
    ledger: Ledger, asked: ReplayRange | None = None, workers: int = 1, pool: Executor | None = None
) -> ReplayResult:
    """Replay with a bar that counts rounds."""
    ranges = await plan_replay(ledger, DECIDERS, asked or ReplayRange(), workers)
    with bar("replaying", sum([piece.rounds for piece in ranges])) as step:
        return await replay_ranges(
            ledger, DECIDERS, ranges, workers, lambda done: step(done.rounds), pool
        )


def replayed_plain(result: ReplayResult) -> Plain:
    return {
        "streams": len(result.streams),
        "ranges": result.ranges,
        "rounds": result.rounds,
        "decisions": result.decisions,
        "inputs": result.inputs,
        "divergences": len(result.divergences),
        "seconds": round(result.seconds, 3),
        "decisions_per_s": round(result.decisions_per_s),
        "first_divergences": [
            _divergence_plain(d) for d in result.divergences[:DIVERGENCES_SHOWN_MAX]
        ],
        "other_engines": [_engine_plain(engine) for engine in result.other_engines],
    }


def _engine_plain(engine: EngineReplay) -> Plain:
    return {
        "engine": engine.engine,
        "rounds": engine.rounds,
        "decisions": engine.decisions,
        "same": engine.same,
        "differing_rounds": engine.differing_rounds,
        "reworded_rounds": engine.reworded_rounds,
        "first_divergences": [
            _divergence_plain(d) for d in engine.divergences[:DIVERGENCES_SHOWN_MAX]
        ],
    }


def _divergence_plain(d: Divergence) -> Plain:
    return {
        "stream": d.stream,
        "round": d.round,
        "seq": d.seq,
        "subject": d.subject,
        "step": d.step,
        "recorded": d.recorded,
        "replayed": d.replayed,
        "blame": d.blame,
        "engine": d.engine,
        "follows": d.follows,
    }


def replayed_page(result: ReplayResult) -> Iterator[RenderableType]:
    same = not result.divergences
    verdict = (
        Text("decided again, byte for byte the same", GOOD)
        if same
        else Text("decided differently", BAD)
    )
    yield verdict.append(
        f": {count(result.decisions, 'decision')} in {count(result.rounds, 'round')} of"
        f" {count(len(result.streams), 'stream')} in {result.seconds:.1f} s "
        f"({result.decisions_per_s:,.0f}/s)",
        "default",
    )
    yield from _differences(result.divergences)
    for engine in result.other_engines:
        yield from _engine_page(engine)


def _engine_page(engine: EngineReplay) -> Iterator[RenderableType]:
    verdict = (
        Text("the same", GOOD)
        if engine.same
        else Text(f"{count(engine.differing_rounds, 'round')} otherwise", WARN)
    )
    line = Text(f"{count(engine.rounds, 'round')} decided by {engine.engine}: ").append(verdict)
    line.append(f" ({count(engine.decisions, 'decision')})", "default")
    if engine.reworded_rounds:
        rounds = count(engine.reworded_rounds, "round")
        line.append(f"; only explanations differ in {rounds}", "default")
    yield line
    yield from _differences(engine.divergences)


def _differences(divergences: Sequence[Divergence]) -> Iterator[RenderableType]:
    if not divergences:
        return
    table = new_table(
        "stream",
        "round",
        "seq",
        "about",
        "step",
        "recorded",
        "replayed",
        "why",
        right=("round", "seq"),
    )
    for d in divergences[:DIVERGENCES_SHOWN_MAX]:
        table.add_row(
            d.stream,
            str(d.round),
            str(d.seq or ""),
            d.subject,
            d.step,
            d.recorded,
            d.replayed,
            _why(d),
        )
    yield table
    more = len(divergences) - DIVERGENCES_SHOWN_MAX
    yield Text(
        count(len(divergences), "divergence")
        + (f", the first {DIVERGENCES_SHOWN_MAX} shown" if more > 0 else "")
    )


def _why(d: Divergence) -> Text:
    """Who is to blame, and whether it is perhaps only a consequence."""
    why = "the record was changed" if d.blame == "record" else "the decider decides otherwise"
    return Text(
        f"{why}, perhaps as a consequence" if d.follows else why, DARK if d.follows else "default"
    )
