"""`replay`: does the history follow from what was known?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from rich.console import RenderableType
from rich.text import Text

from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.deciders import DECIDERS
from wharfinger.kernel.audit import AuditResult, Divergence
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.replay import ReplayResult, worker_pool
from wharfinger.runtime.replay import replay as replay_history
from wharfinger_cli.app import Request
from wharfinger_cli.bulk import bar
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.failures import DIFFERENCE, CommandError, NotFoundError
from wharfinger_cli.output import BAD, GOOD, Plain, count, new_table, show

DIVERGENCES_SHOWN_MAX = 20


def replay(request: Request, stream: str, from_round: int | None, to_round: int | None, workers: int | None) -> None:
    if from_round is not None and to_round is not None and from_round > to_round:
        raise CommandError(f"replay: expected --from to be at most --to, got {from_round} and {to_round}")
    share = workers or os.cpu_count() or 1
    with worker_pool(share) as pool:
        result = run(_replay(request, stream, from_round or 1, to_round, share, pool))
    show(request.format, replayed_plain(result), result.streams, lambda: replayed_page(result))
    if result.divergences:
        raise SystemExit(DIFFERENCE)


async def _replay(
    request: Request, stream: str, from_round: int, to_round: int | None, workers: int, pool: Executor | None
) -> ReplayResult:
    async with opened_ledger(settings_of(request)) as ledger:
        result = await watched_replay(ledger, stream, from_round, to_round, workers, pool)
    if stream and not result.streams:
        raise NotFoundError(f"no stream of decisions is named {stream} or begins with it")
    return result


async def watched_replay(
    ledger: Ledger,
    stream: str = "",
    from_round: int = 1,
    to_round: int | None = None,
    workers: int = 1,
    pool: Executor | None = None,
) -> ReplayResult:
    """Replay with a bar that counts streams."""
    streams = [h.stream for h in await ledger.heads(stream) if h.stream.startswith((FLEET, CLUSTER))]
    with bar("replaying", len(streams)) as step:
        return await replay_history(ledger, DECIDERS, stream, from_round, to_round, workers, _counting(step), pool)


def _counting(step: Callable[[int], None]) -> Callable[[AuditResult], object]:
    return lambda _: step(1)


def replayed_plain(result: ReplayResult) -> Plain:
    return {
        "streams": len(result.streams),
        "rounds": result.rounds,
        "decisions": result.decisions,
        "inputs": result.inputs,
        "divergences": len(result.divergences),
        "seconds": round(result.seconds, 3),
        "decisions_per_s": round(result.decisions_per_s),
        "first_divergences": [_divergence_plain(d) for d in result.divergences[:DIVERGENCES_SHOWN_MAX]],
    }


def _divergence_plain(d: Divergence) -> Plain:
    return {
        "stream": d.stream, "round": d.round, "seq": d.seq, "step": d.step, "recorded": d.recorded,
        "replayed": d.replayed,
    }  # fmt: skip


def replayed_page(result: ReplayResult) -> Iterator[RenderableType]:
    same = not result.divergences
    verdict = Text("decided again, byte for byte the same", GOOD) if same else Text("decided differently", BAD)
    yield verdict.append(
        f": {count(result.decisions, 'decision')} in {count(result.rounds, 'round')} of"
        f" {count(len(result.streams), 'stream')} in {result.seconds:.1f} s ({result.decisions_per_s:,.0f}/s)",
        "default",
    )
    if not same:
        table = new_table("stream", "round", "seq", "what", "recorded", "replayed", right=("round", "seq"))
        for d in result.divergences[:DIVERGENCES_SHOWN_MAX]:
            table.add_row(d.stream, str(d.round), str(d.seq), d.step, d.recorded, d.replayed)
        yield table
        yield count(len(result.divergences), "divergence")
