"""The plane as it is this moment: who runs, who is ready and how far behind, where every stream
stands.

Read on the machine of the plane: from its files, from its processes and from the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from wharfinger.answers.decisions import Plain
from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.domain.text import as_time
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Freshness, Ledger, Withheld
from wharfinger.runtime.ledger.freshness import PUBLISHER
from wharfinger.runtime.plane import Plane, read_plane
from wharfinger.runtime.process_status import Readiness, ServiceReport, process_cards, read_record
from wharfinger.runtime.processes import ProcessIdentity


class NoPlaneError(Exception):
    """One line: where none is up."""


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """`processes`: name -> (pid, resident bytes). `services`: name -> (process, what it answered;
    None: no answer). `requests`: those about bindings that the fleet stage left open in its last
    rounds, as its processes report them; None: a process gave no answer."""

    data_dir: str
    plane: Plane
    processes: Mapping[str, tuple[int, int]]
    services: Mapping[str, tuple[str, ServiceReport | None]]
    heads: Sequence[Head]
    freshness: Freshness
    withheld: Mapping[Withheld, int] = field(default_factory=dict)
    requests: OpenRequests | None = NONE_OPEN

    @property
    def ready(self) -> bool:
        return bool(self.services) and all(
            report is not None and report.ready for _, report in self.services.values()
        )


def without_password(seen: PlaneStatus) -> PlaneStatus:
    """As it is sent: who reads it does not reach the database by it."""
    parts = urlsplit(seen.plane.database_url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    open_query = [(name, value) for name, value in query if "pass" not in name.lower()]
    if parts.password is None and len(open_query) == len(query):
        return seen
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    netloc = f"{name}@{host}" if name else host
    url = urlunsplit(parts._replace(netloc=netloc, query=urlencode(open_query, safe="/")))
    return replace(seen, plane=replace(seen.plane, database_url=url))


async def status_of(ledger: Ledger, data_dir: Path) -> PlaneStatus:
    """NoPlaneError: none is up there."""
    plane = read_plane(data_dir)
    if plane is None:
        raise NoPlaneError(f"no plane is up in {data_dir}: start one with `wharfinger up`")
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
        # in a thread: one of the processes may be the one that asks
        readiness = await asyncio.to_thread(card.readiness)
        answers.append(readiness)
        for service in card.services:
            services[service] = (
                name,
                readiness.services.get(service) if readiness is not None else None,
            )
    heads = await ledger.heads()
    freshness = await ledger.freshness()
    withheld = await withheld_now(ledger)
    return PlaneStatus(
        str(data_dir),
        plane,
        _alive(named),
        services,
        heads,
        freshness,
        withheld,
        open_requests_of(answers),
    )


async def withheld_now(ledger: Ledger) -> dict[Withheld, int]:
    """What is held back -> since which seq of its stream."""
    return await ledger.withheld(PUBLISHER, max((await ledger.lives()).values(), default=0))


def open_requests_of(answers: Iterable[Readiness | None]) -> OpenRequests | None:
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


def status_plain(seen: PlaneStatus) -> Plain:
    return {
        "ready": seen.ready,
        "data_dir": seen.data_dir,
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


def withheld_plain(withheld: Mapping[Withheld, int]) -> list[Plain]:
    return [
        {"topic": w.topic, "key": w.key, "stream": w.stream, "since_seq": seq}
        for w, seq in withheld.items()
    ]
