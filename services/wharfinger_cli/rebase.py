"""`ledger rebase`: set the time of streams right that a wrong clock has put ahead. Without
`--apply` it only shows them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from wharfinger.events.decisions import TimeCorrection
from wharfinger.runtime.ledger.streams_ahead import Wrong
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import (
    DARK,
    GOOD,
    Plain,
    as_clock,
    as_seconds,
    as_time,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request


def rebase(request: Request, stream: str, reason: str, apply: bool) -> None:
    if apply and not reason:
        raise CommandError("ledger rebase: --apply needs --reason TEXT, which is recorded")
    wrong, done = run(_rebase(request, stream, reason, apply))
    show(request.format, _plain(wrong, done), (), lambda: _page(wrong, done))


async def _rebase(
    request: Request, stream: str, reason: str, apply: bool
) -> tuple[Wrong, TimeCorrection | None]:
    async with opened_ledger(reached(request)) as ledger:
        if stream and stream not in {head.stream for head in await ledger.heads()}:
            raise NotFoundError(f"no stream is named {stream}")
        wrong = await ledger.wrong_times(stream)
        return wrong, await ledger.rebase(reason, stream) if apply else None


def _plain(wrong: Wrong, done: TimeCorrection | None) -> Plain:
    return {
        "database_time": as_time(wrong.now),
        "rebased": done is not None,
        "reason": "" if done is None else done.reason,
        "streams": {
            one.stream: {
                "round": one.head.round,
                "time": as_time(one.head.at),
                "wrong_since": as_time(one.since),
                "ahead_s": (one.head.at - wrong.now) / 1e6,
            }
            for one in wrong.streams
        },
    }


def _page(wrong: Wrong, done: TimeCorrection | None) -> Iterator[RenderableType]:
    if not wrong.streams:
        yield Text("no stream is ahead of the database's clock", GOOD)
        return
    table = new_table(
        "stream", "round", "its time", "ahead", "wrong since", right=("round", "ahead")
    )
    for one in wrong.streams:
        ahead = as_seconds((one.head.at - wrong.now) / 1e6)
        table.add_row(
            one.stream, f"{one.head.round:,}", as_clock(one.head.at), ahead, as_clock(one.since)
        )
    yield table
    yield Text(f"the database's clock shows {as_clock(wrong.now)}", DARK)
    streams = count(len(wrong.streams), "stream")
    if done is None:
        yield Text(
            f"nothing was changed: --apply --reason TEXT sets {streams} back by "
            f"{as_seconds(-wrong.by / 1e6)}. "
            "Do it once the database's clock is right",
            DARK,
        )
    else:
        yield Text(
            f"{streams} set back by {as_seconds(-done.by_us / 1e6)}, to {as_clock(done.to_us)}",
            GOOD,
        )
