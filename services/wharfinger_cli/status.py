"""`status`: the plane as it is this moment: who runs, who is ready and how far behind, where every stream stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.kernel.round import Head
from wharfinger.runtime.backends import shown_database_url
from wharfinger.runtime.children import ServiceReport, process_cards
from wharfinger.runtime.plane import Plane, read_plane
from wharfinger.runtime.processes import ProcessIdentity
from wharfinger.runtime.supervisor import read_record
from wharfinger_cli.app import Request
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import BAD, DARK, GOOD, WARN, Plain, as_clock, as_time, count, new_table, show

STREAMS_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class Seen:
    """`processes`: name -> (pid, resident bytes). `services`: name -> (process, what it answered; None: no answer)."""

    data_dir: Path
    plane: Plane
    processes: dict[str, tuple[int, int]]
    services: dict[str, tuple[str, ServiceReport | None]]
    heads: list[Head]

    @property
    def ready(self) -> bool:
        return bool(self.services) and all(report is not None and report.ready for _, report in self.services.values())


def status(request: Request) -> None:
    seen = run(look(request))
    show(request.format, _plain(seen), seen.services, lambda: _page(seen))


async def look(request: Request) -> Seen:
    """CommandError: no plane is up."""
    settings = settings_of(request)
    data_dir = settings.data_dir.absolute()
    plane = read_plane(data_dir)
    if plane is None:
        raise CommandError(f"no plane is up in {data_dir}: start one with `wharfinger up`")
    cards = {path.stem: card for path, card in process_cards(data_dir) if ProcessIdentity.of(card.pid) is not None}
    named = {"supervisor": plane.supervisor_pid, **{n: p for n, p in plane.pids.items() if n in ("broker", "database")}}
    named |= {name: card.pid for name, card in cards.items()}
    record = read_record(data_dir)
    services: dict[str, tuple[str, ServiceReport | None]] = {
        service: (process, None) for process, names in (record.services if record else {}).items() for service in names
    }
    for name, card in cards.items():
        readiness = card.readiness()
        for service in card.services:
            services[service] = (name, readiness.services.get(service) if readiness is not None else None)
    async with opened_ledger(settings) as ledger:
        heads = await ledger.heads()
    return Seen(data_dir, plane, _alive(named), services, heads)


def _alive(pids: dict[str, int]) -> dict[str, tuple[int, int]]:
    found = {name: ProcessIdentity.of(pid) for name, pid in pids.items()}
    return {name: (one.pid, one.rss_bytes) for name, one in found.items() if one is not None}


def _plain(seen: Seen) -> Plain:
    return {
        "ready": seen.ready,
        "data_dir": str(seen.data_dir),
        "kafka": seen.plane.bootstrap,
        "broker_boot_id": seen.plane.boot_id,
        "database": seen.plane.database_url,
        "processes": {name: {"pid": pid, "rss_bytes": rss} for name, (pid, rss) in seen.processes.items()},
        "services": {
            name: {
                "ready": report is not None and report.ready,
                "lag": report.lag if report is not None else None,
                "pid": seen.processes[process][0] if process in seen.processes else None,
                "process": process,
            }
            for name, (process, report) in seen.services.items()
        },
        "streams": {
            head.stream: {
                "round": head.round,
                "seq": head.seq,
                "hash": head.hash.hex(),
                "epoch": head.epoch,
                "time": as_time(head.at) if head.at else None,
            }
            for head in seen.heads
        },
    }


def _page(seen: Seen) -> Iterator[RenderableType]:
    verdict = Text("ready", GOOD) if seen.ready else Text("not ready", BAD)
    yield verdict.append(
        f": broker {seen.plane.bootstrap}, database {shown_database_url(seen.plane.database_url)}", "default"
    )
    yield ""
    processes = new_table("process", "pid", "memory", right=("pid", "memory"))
    for name, (pid, rss) in seen.processes.items():
        processes.add_row(name, str(pid), f"{rss / 2**20:,.0f} MB")
    yield processes
    yield ""
    services = new_table("service", "process", "state", "lag", right=("lag",))
    for name, (process, report) in seen.services.items():
        services.add_row(name, process, _state(report), "" if report is None else f"{report.lag:,}")
    yield services
    yield ""
    streams = new_table("stream", "round", "seq", "epoch", "last round", "hash", right=("round", "seq", "epoch"))
    for head in seen.heads[:STREAMS_SHOWN_MAX]:
        last = as_clock(head.at) if head.at else ""
        streams.add_row(
            head.stream, f"{head.round:,}", f"{head.seq:,}", str(head.epoch), last, Text(head.hash.hex()[:12], DARK)
        )
    yield streams
    if len(seen.heads) > STREAMS_SHOWN_MAX:
        yield f"and {count(len(seen.heads) - STREAMS_SHOWN_MAX, 'more stream')}; -o json has all"


def _state(report: ServiceReport | None) -> Text:
    if report is None:
        return Text("no answer", BAD)
    if report.failed:
        return Text(report.failed, BAD)
    return Text("ready", GOOD) if report.ready else Text("catching up", WARN)
