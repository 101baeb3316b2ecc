"""`status`: the plane as it is this moment: who runs, who is ready and how far behind, where every
stream stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.kernel.round import Head
from wharfinger.runtime.backends import shown_database_url
from wharfinger.runtime.ledger import Freshness, Withheld
from wharfinger.runtime.plane import Plane, read_plane
from wharfinger.runtime.process_status import Readiness, ServiceReport, process_cards, read_record
from wharfinger.runtime.processes import ProcessIdentity
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Plain,
    as_clock,
    as_seconds,
    as_time,
    count,
    new_table,
    show,
)
from wharfinger_cli.request import Request
from wharfinger_cli.withheld_keys import withheld_line, withheld_now, withheld_plain

STREAMS_SHOWN_MAX = 40
STALLED_SHOWN_S = 10.0
"""A service that is not ready and has completed nothing for so long is stalled rather than catching
up."""


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """`processes`: name -> (pid, resident bytes). `services`: name -> (process, what it answered;
    None: no answer). `requests`: those about bindings that the fleet stage left open in its last
    rounds, as its processes report them; None: a process gave no answer."""

    data_dir: Path
    plane: Plane
    processes: dict[str, tuple[int, int]]
    services: dict[str, tuple[str, ServiceReport | None]]
    heads: list[Head]
    freshness: Freshness
    withheld: Mapping[Withheld, int] = field(default_factory=dict)
    requests: OpenRequests | None = NONE_OPEN

    @property
    def ready(self) -> bool:
        return bool(self.services) and all(
            report is not None and report.ready for _, report in self.services.values()
        )


def status(request: Request) -> None:
    seen = run(look(request))
    show(request.format, _plain(seen), seen.services, lambda: _page(seen))


async def look(request: Request) -> PlaneStatus:
    """CommandError: no plane is up."""
    at = reached(request)
    data_dir = at.data_dir.absolute()
    plane = read_plane(data_dir)
    if plane is None:
        raise CommandError(f"no plane is up in {data_dir}: start one with `wharfinger up`")
    cards = {
        path.stem: card
        for path, card in process_cards(data_dir)
        if ProcessIdentity.of(card.pid) is not None
    }
    named = {
        "supervisor": plane.supervisor_pid,
        **{n: p for n, p in plane.pids.items() if n in ("broker", "database")},
    }
    named |= {name: card.pid for name, card in cards.items()}
    record = read_record(data_dir)
    services: dict[str, tuple[str, ServiceReport | None]] = {
        service: (process, None)
        for process, names in (record.services if record else {}).items()
        for service in names
    }
    answers: list[Readiness | None] = []
    for name, card in cards.items():
        readiness = card.readiness()
        answers.append(readiness)
        for service in card.services:
            services[service] = (
                name,
                readiness.services.get(service) if readiness is not None else None,
            )
    async with opened_ledger(at) as ledger:
        heads = await ledger.heads()
        freshness = await ledger.freshness()
        withheld = await withheld_now(ledger)
    return PlaneStatus(
        data_dir,
        plane,
        _alive(named),
        services,
        heads,
        freshness,
        withheld,
        _open_requests(answers),
    )


def _open_requests(answers: Iterable[Readiness | None]) -> OpenRequests | None:
    found = NONE_OPEN
    for answer in answers:
        if answer is None:
            return None
        for report in answer.services.values():
            found = found.plus(OpenRequests(report.requests, report.requests_since_us))
    return found


def _alive(pids: dict[str, int]) -> dict[str, tuple[int, int]]:
    found = {name: ProcessIdentity.of(pid) for name, pid in pids.items()}
    return {name: (one.pid, one.rss_bytes) for name, one in found.items() if one is not None}


def _plain(seen: PlaneStatus) -> Plain:
    return {
        "ready": seen.ready,
        "data_dir": str(seen.data_dir),
        "kafka": seen.plane.bootstrap,
        "broker_boot_id": seen.plane.boot_id,
        "database": seen.plane.database_url,
        "processes": {
            name: {"pid": pid, "rss_bytes": rss} for name, (pid, rss) in seen.processes.items()
        },
        "services": {
            name: {
                "ready": report is not None and report.ready,
                "lag": report.lag if report is not None else None,
                "pid": seen.processes[process][0] if process in seen.processes else None,
                "process": process,
                "stalled_s": report.stalled_s if report is not None else None,
                "oldest_waiting_s": report.oldest_s if report is not None else None,
                "divergences": report.divergences if report is not None else None,
            }
            for name, (process, report) in seen.services.items()
        },
        "relay": {
            "rows_waiting": seen.freshness.unrelayed.rows,
            "oldest_waiting_s": round(seen.freshness.oldest_unrelayed_s, 3),
            "held_back": withheld_plain(seen.withheld),
        },
        "requests": _requests_plain(seen.requests),
        "clock_skew_s": round(seen.freshness.skew_us / 1e6, 6),
        "streams": {
            head.stream: {
                "round": head.round,
                "seq": head.seq,
                "hash": head.hash.hex(),
                "epoch": head.epoch,
                "time": as_time(head.at) if head.at else None,
                **_snapshot(seen, head.stream),
            }
            for head in seen.heads
        },
    }


def _requests_plain(requests: OpenRequests | None) -> Plain:
    if requests is None:
        return {"waiting": None, "oldest_since": None}
    since = as_time(requests.since) if requests.count else None
    return {"waiting": requests.count, "oldest_since": since}


def _snapshot(seen: PlaneStatus, stream: str) -> Plain:
    """Empty for the intake, which needs no snapshot."""
    found = next((age for age in seen.freshness.snapshots if age.stream == stream), None)
    if found is None:
        return {}
    age_s = seen.freshness.snapshot_age_s(found)
    return {
        "snapshot_age_s": None if age_s is None else round(age_s, 3),
        "rows_since_snapshot": found.rows,
    }


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
