"""`decisions`: the ledger's decisions as they stand there, and as they come."""

from __future__ import annotations

import asyncio
import time

from rich.text import Text

from wharfinger.answers.decisions import TYPES as TYPES
from wharfinger.answers.decisions import as_line, as_plain, short_type
from wharfinger.domain.text import as_time
from wharfinger.events.decisions import as_decision
from wharfinger.events.streams import INTAKE
from wharfinger.history.points import time_in
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import BAD, DARK, GOOD, WARN, Format, as_clock, as_yaml, console, write
from wharfinger_cli.request import Request

POLL_S = 1.0  # the safety net under notifications, which are hints
WIDTHS = {"time": 19, "stream": 16, "seq": 6, "decision": 20, "subject": 32}
OUTCOME_STYLES = {
    "scheduled": GOOD,
    "placed": GOOD,
    "refused": BAD,
    "returned": WARN,
    "silenced": WARN,
    "released": WARN,
    "selected": GOOD,
    "unsatisfied": WARN,
    "misconfigured": BAD,
    "claimed": WARN,
    "registered": GOOD,
    "timed-out": BAD,
    "failed": BAD,
    "disrupting": WARN,
    "done": GOOD,
    "rolled-back": BAD,
}


def decisions(
    request: Request, *, follow: bool, stream: str, since: str, limit: int | None
) -> None:
    query = DecisionQuery(
        stream, since=since_micros(since, time.time_ns() // 1000) if since else None, limit=limit
    )
    if stream != INTAKE:
        # what was accepted is no decision about anything; it is shown to those who ask for it
        query = DecisionQuery(query.stream, query.since, types=TYPES, limit=limit)
    run(_print(request, query, follow=follow))


async def _print(request: Request, query: DecisionQuery, *, follow: bool) -> None:
    printer = _Printer(request.format)
    if request.server:
        from wharfinger_cli.remote import Remote

        if follow:
            raise CommandError("--follow: needs the database")
        since = as_time(query.since) if query.since is not None else ""
        for row in Remote.of(request).decisions(
            stream=query.stream, since=since, limit=query.limit
        ):
            printer.print(row)
        return
    async with opened_ledger(reached(request)) as ledger:
        after: dict[str, int] = {}
        await _print_rows(ledger, query, after, printer)
        if not follow:
            return
        wakeup = asyncio.Event()
        listening = asyncio.create_task(ledger.notifications(wakeup))
        try:
            while query.limit is None or printer.printed < query.limit:
                _heed_interrupt()
                try:
                    # Not `wait_for`: where both come at once it forgets the cancellation, and with
                    # it Ctrl-C.
                    async with asyncio.timeout(POLL_S):
                        await wakeup.wait()
                except TimeoutError:
                    pass
                wakeup.clear()
                left = None if query.limit is None else query.limit - printer.printed
                await _print_rows(
                    ledger,
                    DecisionQuery(query.stream, query.since, query.types, limit=left),
                    after,
                    printer,
                )
        finally:
            listening.cancel()


def _heed_interrupt() -> None:
    """Ctrl-C cancels this task once, and a driver that had its answer at the same moment may have
    kept that to itself."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _print_rows(
    ledger: Ledger, query: DecisionQuery, after: dict[str, int], printer: _Printer
) -> None:
    """Prints what the query finds beyond `after`, and moves `after` along."""
    beyond = DecisionQuery(
        query.stream, query.since, query.types, after=dict(after), limit=query.limit
    )
    async for row in ledger.decisions(beyond):
        printer.print(row)
        after[row.stream] = row.seq


def styled_outcome(outcome: str) -> Text:
    return Text(outcome, style=OUTCOME_STYLES.get(outcome, ""))


def since_micros(text: str, now: Micros, option: str = "--since") -> Micros:
    """What `history.points.time_in` reads. CommandError: the option says no time."""
    at = time_in(text, now)
    if at is None:
        raise CommandError(
            f"{option}: expected a time such as 2026-11-21T05:00:00Z or an age such as 10m, "
            f"got {text!r}"
        )
    return at


class _Printer:
    """Prints rows one by one: a history may be longer than memory, and with --follow it has no
    end."""

    def __init__(self, format_: Format) -> None:
        self.printed = 0
        self._format = format_
        self._console = console() if format_ is Format.TABLE else None

    def print(self, row: LedgerRow) -> None:
        match self._format:
            case Format.TABLE:
                self._print_line(row)
            case Format.JSON:
                write(as_line(row))
            case Format.YAML:
                write("---\n" + as_yaml(as_plain(row)))
            case Format.NAME:
                write(str(row.id))
        self.printed += 1

    def _print_line(self, row: LedgerRow) -> None:
        assert self._console is not None
        if self.printed == 0:
            heads = [name.ljust(width) for name, width in WIDTHS.items()]
            self._console.print(
                Text("  ".join([*heads, "outcome"]), style="bold " + DARK), soft_wrap=True
            )
        cells = (
            as_clock(row.at),
            row.stream,
            f"{row.seq:>{WIDTHS['seq']}}",
            short_type(row.type),
            row.subject,
        )
        line = Text(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS.values(), strict=True))
            + "  "
        )
        line.append_text(styled_outcome(row.outcome))
        line.append("  " + as_decision(row.data()).sentence(), style=DARK)
        self._console.print(line, soft_wrap=True)
