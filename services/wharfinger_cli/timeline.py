"""`history`: a binding's decisions in the order in which they were taken, and why each was."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from wharfinger.answers.event_text import because
from wharfinger.answers.timeline import history_plain
from wharfinger.events.decisions import as_decision
from wharfinger.history.timeline import Timeline, timeline
from wharfinger.kernel.decider import Micros
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.decisions import styled_outcome
from wharfinger_cli.output import DARK, as_clock, count, new_table, show
from wharfinger_cli.request import Request

UNITS: tuple[tuple[str, int], ...] = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
)


def history(request: Request, binding: str, limit: int) -> None:
    found = run(_history(request, binding, limit))
    ids = [str(entry.row.id) for entry in found.entries]
    show(request.format, history_plain(found), ids, lambda: history_page(found))


async def _history(request: Request, binding: str, limit: int) -> Timeline:
    if request.server:
        from wharfinger_cli.remote import Remote

        remote = Remote.of(request)
        answer: Timeline = remote.value(f"{remote.binding(binding)}/history", limit=limit)
        return answer
    async with opened_ledger(reached(request)) as ledger:
        return await timeline(ledger, binding, limit)


def history_page(found: Timeline) -> Iterator[RenderableType]:
    shown = len(found.entries)
    more = f", the last {shown:,} of them" if shown < found.total else ""
    yield Text(found.binding, "bold").append(
        f"  {count(found.total, 'decision')}{more}", "not bold " + DARK
    )
    yield ""
    table = new_table(
        "taken", "after", "stream", "seq", "outcome", "", "because", right=("after", "seq")
    )
    for entry in found.entries:
        row = entry.row
        table.add_row(
            as_clock(row.at),
            Text("" if entry.after is None else f"+{span(entry.after)}", DARK),
            row.stream,
            f"{row.seq:,}",
            styled_outcome(row.outcome),
            as_decision(row.data()).sentence(),
            Text(because(entry.cause), DARK),
        )
    yield table


def span(micros: Micros) -> str:
    """`40 ms`, `2.5 s`, `3 min`, `5 h`, `12 d`."""
    if micros < 1_000_000:
        return f"{micros / 1000:.0f} ms"
    if micros < 10_000_000:
        return f"{micros / 1_000_000:.1f} s"
    unit, size = next((unit, size) for unit, size in UNITS if micros >= 2 * size)
    return f"{micros // size:,} {unit}"
