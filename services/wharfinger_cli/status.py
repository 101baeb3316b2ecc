"""`status`: the plane as it is this moment: who runs, who is ready and how far behind, where every
stream stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from wharfinger.answers.plane_status import NoPlaneError, PlaneStatus, status_of, status_plain
from wharfinger.domain.open_requests import OpenRequests
from wharfinger.runtime.backends import shown_database_url
from wharfinger.runtime.process_status import ServiceReport
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    as_clock,
    as_seconds,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request
from wharfinger_cli.withheld_keys import withheld_line

STREAMS_SHOWN_MAX = 40
STALLED_SHOWN_S = 10.0
"""A service that is not ready and has completed nothing for so long is stalled rather than catching
up."""


def status(request: Request) -> None:
    seen = run(look(request))
    show(request.format, status_plain(seen), seen.services, lambda: _page(seen))


async def look(request: Request) -> PlaneStatus:
    """CommandError: no plane is up."""
    if request.server:
        from wharfinger_cli.remote import Remote

        found = await asyncio.to_thread(Remote.of(request).value, "/v1/status")
        assert isinstance(found, PlaneStatus), "the route answers with its value"
        return found
    at = reached(request)
    data_dir = at.data_dir.absolute()
    async with opened_ledger(at) as ledger:
        try:
            return await status_of(ledger, data_dir)
        except NoPlaneError as error:
            raise CommandError(str(error)) from None


def _page(seen: PlaneStatus) -> Iterator[RenderableType]:
    verdict = Text("ready", GOOD) if seen.ready else Text("not ready", BAD)
    yield verdict.append(
        f": broker {seen.plane.bootstrap}, database {shown_database_url(seen.plane.database_url)}",
        "default",
    )
    yield ""
    processes = new_table("process", "pid", "memory", right=("pid", "memory"))
    for name, (pid, rss) in seen.processes.items():
        processes.add_row(name, str(pid), f"{rss / 2**20:,.0f} MB")
    yield processes
    yield ""
    services = new_table("service", "process", "state", "lag", "oldest", right=("lag", "oldest"))
    for name, (process, report) in seen.services.items():
        waiting = ("", "") if report is None else (f"{report.lag:,}", as_seconds(report.oldest_s))
        services.add_row(name, process, _state(report), *waiting)
    yield services
    yield ""
    rows = seen.freshness.unrelayed.rows
    yield f"not relayed: {count(rows, 'row')}" + (
        f", the oldest for {as_seconds(seen.freshness.oldest_unrelayed_s)}" if rows else ""
    )
    yield _requests_line(seen.requests)
    if held_back := withheld_line(seen.withheld):
        yield Text(held_back, BAD)
    yield f"clock: {seen.freshness.skew_us / 1e6:+.3f} s against the database's"
    if diverged := sum(
        report.divergences for _, report in seen.services.values() if report is not None
    ):
        yield Text(
            f"divergences: {count(diverged, 'stream')} decided otherwise in replay; "
            "run `wharfinger replay`",
            BAD,
        )
    yield ""
    streams = new_table(
        "stream",
        "round",
        "seq",
        "epoch",
        "last round",
        "snapshot",
        "hash",
        right=("round", "seq", "epoch", "snapshot"),
    )
    ages = {age.stream: seen.freshness.snapshot_age_s(age) for age in seen.freshness.snapshots}
    for head in seen.heads[:STREAMS_SHOWN_MAX]:
        last = as_clock(head.at) if head.at else ""
        streams.add_row(
            head.stream,
            f"{head.round:,}",
            f"{head.seq:,}",
            str(head.epoch),
            last,
            as_seconds(ages.get(head.stream)),
            Text(head.hash.hex()[:12], DARK),
        )
    yield streams
    if len(seen.heads) > STREAMS_SHOWN_MAX:
        yield f"and {count(len(seen.heads) - STREAMS_SHOWN_MAX, 'more stream')}; -o json has all"


def _requests_line(requests: OpenRequests | None) -> str:
    if requests is None:
        return "not decided: unknown, because a process gives no answer"
    since = f", the oldest since {as_clock(requests.since)}" if requests.count else ""
    return f"not decided: {count(requests.count, 'request')}{since}"


def _state(report: ServiceReport | None) -> Text:
    if report is None:
        return Text("no answer", BAD)
    if report.failed:
        return Text(report.failed, BAD)
    if report.ready:
        return Text("ready", GOOD)
    if report.stalled_s > STALLED_SHOWN_S:
        return Text(f"nothing completed for {as_seconds(report.stalled_s)}", BAD)
    return Text("catching up", WARN)
