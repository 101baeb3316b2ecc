"""`--wait`: a command that changes something ends when the plane has done it, or says what is
missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wharfinger.domain.text import count
from wharfinger.history.points import span_s
from wharfinger_cli.command_line import LEVELS, Level
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, CommandError
from wharfinger_cli.output import BAD, GOOD, Format, Plain, print_parts, show
from wharfinger_cli.request import Request

if TYPE_CHECKING:  # loaded where something is waited for
    from rich.console import RenderableType

    from wharfinger.answers.barrier import BarrierReport, FactKey

REQUEST_S = 20.0
"""How long one request to a server waits."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Until which level, and for how many seconds at most."""

    until: Level
    seconds: float


def wait_of(level: str, timeout: str) -> Wait | None:
    """What `--wait` and `--timeout` say; None: nothing is waited for. CommandError: no level, or no
    span."""
    if not level:
        return None
    found = next((one for one in LEVELS if one == level), None)
    if found is None:
        raise CommandError(f"--wait: expected {', '.join(LEVELS[:-1])} or placed, got {level!r}")
    seconds = span_s(timeout)
    if seconds is None:
        raise CommandError(f"--timeout: expected a span such as 30s or 5m, got {timeout!r}")
    return Wait(found, seconds)


def show_and_wait(
    request: Request,
    value: Plain,
    names: Sequence[str],
    page: Callable[[], Iterable[RenderableType]],
    wait: Wait | None,
    facts: Sequence[FactKey],
    bindings: Collection[str] = (),
) -> None:
    """Show what was changed and then, with `wait`, what became of it: as JSON one object, with the
    member `wait`. Ends with 1 where something was refused. CommandError: the time is over."""
    if wait is None or not facts:
        show(request.format, value, names, page)
        return
    from wharfinger.answers.barrier import barrier_plain

    table = request.format in (Format.TABLE, Format.WIDE)
    if table:
        print_parts(page())
    report = _waited(request, wait, facts, bindings)
    if table:
        print_parts(_page(report))
    else:
        show(request.format, {**value, "wait": barrier_plain(report)}, names, page)
    if not report.reached:
        more = report.pending_count - len(report.pending)
        raise CommandError(
            f"--wait={wait.until}: not reached within {wait.seconds:g} s",
            *(f"{one.subject} {one.state}" for one in report.pending),
            *([f"and {count(more, 'more')}"] if more else ()),
        )
    if report.refused_count:
        raise SystemExit(DIFFERENCE)


def _waited(
    request: Request, wait: Wait, facts: Sequence[FactKey], bindings: Collection[str]
) -> BarrierReport:
    if request.server:
        return _over_server(request, wait, facts, bindings)
    return run(_in_ledger(request, wait, facts, bindings))


async def _in_ledger(
    request: Request, wait: Wait, facts: Sequence[FactKey], bindings: Collection[str]
) -> BarrierReport:
    from wharfinger.answers.barrier import Barrier

    async with opened_ledger(reached(request)) as ledger:
        return await Barrier(ledger, wait.until, facts, bindings).wait(wait.seconds)


def _over_server(
    request: Request, wait: Wait, facts: Sequence[FactKey], bindings: Collection[str]
) -> BarrierReport:
    from wharfinger.answers.barrier import BarrierReport
    from wharfinger_cli.remote import Remote

    remote = Remote.of(request)
    body = {
        "until": wait.until,
        "facts": [{"topic": topic, "key": key} for topic, key in facts],
        "bindings": list(bindings),
    }
    end = time.monotonic() + wait.seconds
    while True:
        left = max(0.0, min(REQUEST_S, end - time.monotonic()))
        report = remote.change(f"/v1/barrier?wait={left:.3f}", body)
        assert isinstance(report, BarrierReport), "the route answers with its value"
        if report.reached or time.monotonic() >= end:
            return report


def _page(report: BarrierReport) -> Iterator[RenderableType]:
    from rich.text import Text

    where = "" if report.position is None else f" through position {report.position:,}"
    if report.reached:
        bindings = f": {count(report.bindings, 'binding')}" if report.bindings else ""
        yield Text(f"{report.until}{bindings}{where}", GOOD)
    for one in report.refused:
        yield Text(f"refused {one.binding}: {one.said}", BAD)
    if (more := report.refused_count - len(report.refused)) > 0:
        yield Text(f"and {count(more, 'more refused', 'more refused')}", BAD)
