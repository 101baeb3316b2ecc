"""`ledger export` and `replay FILE`: the history taken along, and decided again where there is no
ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.history.export import Exported, FileReplay
from wharfinger.history.export import export as export_history
from wharfinger.history.export import replay_file as replay_history
from wharfinger.history.export_file import Header, StreamRange
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.history import replayed_page, replayed_plain
from wharfinger_cli.output import (
    DARK,
    GOOD,
    Plain,
    as_clock,
    as_time,
    count,
    messages,
    new_table,
    show,
)
from wharfinger_cli.request import Request

STREAMS_SHOWN_MAX = 20


def export(
    request: Request, file: Path, stream: str, from_: str, to: str, redact: Path | None
) -> None:
    """`from_`, `to`: points as people write them; empty: from the beginning, to the end. `redact`:
    the file with the key."""
    now = time.time_ns() // 1000
    begin = point_of(from_, now) if from_ else None
    end = point_of(to, now) if to else None
    _refuse_backwards(begin, end)
    key = None if redact is None else _key(redact)
    done = run(_export(request, file, stream, begin, end, key))
    show(request.format, _exported_plain(done), [str(done.path)], lambda: _exported_page(done))


def replay_file(request: Request, file: Path) -> None:
    with messages().status(f"replaying {file}"):
        replayed = replay_history(file)
    result = replayed.result
    show(
        request.format,
        _replayed_plain(replayed),
        result.streams,
        lambda: _replayed_page(file, replayed),
    )
    if result.divergences:
        raise SystemExit(DIFFERENCE)


async def _export(
    request: Request,
    file: Path,
    stream: str,
    begin: HistoryPoint | None,
    end: HistoryPoint | None,
    key: bytes | None,
) -> Exported:
    async with opened_ledger(reached(request)) as ledger:
        with messages().status(f"exporting to {file}"):
            return await export_history(ledger, file, stream=stream, begin=begin, end=end, key=key)


def _refuse_backwards(begin: HistoryPoint | None, end: HistoryPoint | None) -> None:
    if begin is None or end is None:
        return
    rounds = begin.stream == end.stream and (begin.round or 0) > (end.round or begin.round or 0)
    if rounds or (begin.at is not None and end.at is not None and begin.at > end.at):
        raise CommandError(
            f"ledger export: expected --from to be at most --to, got {begin.text} and {end.text}"
        )


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    if not key.strip():
        raise CommandError(f"{path}: the key is empty: with it everybody could try names out")
    return key


# --- what is shown


def _exported_plain(done: Exported) -> Plain:
    return {"file": str(done.path), "bytes": done.bytes, **_header_plain(done.header)}


def _replayed_plain(replayed: FileReplay) -> Plain:
    return {**replayed_plain(replayed.result), "file": _header_plain(replayed.header)}


def _header_plain(header: Header) -> Plain:
    return {
        "plane": header.plane,
        "made_by": header.made_by,
        "redacted": header.redacted,
        "ranges": [
            {
                "stream": r.stream,
                "first": r.first,
                "last": r.last,
                "from": as_time(r.first_at),
                "to": as_time(r.last_at),
                "rounds": r.rounds,
                "inputs": r.inputs,
                "decisions": r.decisions,
            }
            for r in header.streams
        ],
    }


def _exported_page(done: Exported) -> Iterator[RenderableType]:
    header = done.header
    decisions = sum(r.decisions for r in header.streams)
    rounds = sum(r.rounds for r in header.streams)
    yield Text(str(done.path), "bold").append(
        f": {count(decisions, 'decision')} in {count(rounds, 'round')} of "
        f"{count(len(header.streams), 'stream')},"
        f" {count(done.bytes, 'byte')}",
        "not bold",
    )
    if done.replayed is not None:
        yield Text("names replaced; decided again under the new names: ").append("the same", GOOD)
    yield from _ranges(header.streams)


def _replayed_page(file: Path, replayed: FileReplay) -> Iterator[RenderableType]:
    header = replayed.header
    names = (
        "names replaced" if header.redacted else f"plane {header.plane[:16] or 'without an intake'}"
    )
    yield Text(f"{file}: whole, by {header.made_by}, {names}", DARK)
    yield from _ranges(header.streams)
    yield from replayed_page(replayed.result)


def _ranges(ranges: tuple[StreamRange, ...]) -> Iterator[RenderableType]:
    table = new_table(
        "stream",
        "rounds",
        "decisions",
        "inputs",
        "from",
        "to",
        right=("rounds", "decisions", "inputs"),
    )
    for r in ranges[:STREAMS_SHOWN_MAX]:
        table.add_row(
            r.stream,
            f"{r.first}-{r.last}",
            f"{r.decisions:,}",
            f"{r.inputs:,}",
            as_clock(r.first_at),
            as_clock(r.last_at),
        )
    yield table
    if len(ranges) > STREAMS_SHOWN_MAX:
        yield Text(f"and {count(len(ranges) - STREAMS_SHOWN_MAX, 'stream')} more", DARK)
