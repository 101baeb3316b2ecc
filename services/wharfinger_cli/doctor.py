"""`doctor`: everything the plane needs, checked one by one, with what to do about what is wrong."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from wharfinger.engine.machine_code import MODULES, why_plain
from wharfinger.runtime.backends import (
    BackendError,
    probe_broker,
    probe_database,
    shown_database_url,
)
from wharfinger.runtime.embedded_broker import broker_executable
from wharfinger.runtime.embedded_postgres import binaries
from wharfinger.runtime.fleet_shards import with_fleet_shards
from wharfinger.runtime.incarnation_watch import changed
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.standbys import replication
from wharfinger.runtime.plane import PlaneError, read_plane
from wharfinger.runtime.process_status import ServiceReport, process_cards
from wharfinger.runtime.processes import ProcessIdentity
from wharfinger.runtime.settings import Settings, SettingsError, load_settings, unknown_environment
from wharfinger.runtime.topic_ids import TopicIds
from wharfinger.runtime.topic_setup import topic_specs
from wharfinger.runtime.topics import check_topics
from wharfinger_cli.connection import APPLICATION, opened_ledger, run
from wharfinger_cli.failures import DIFFERENCE
from wharfinger_cli.output import BAD, DARK, GOOD, as_seconds, count, new_table, show
from wharfinger_cli.request import Request
from wharfinger_cli.withheld_keys import withheld_line, withheld_now

PYTHON_MIN = (3, 11)
FREE_MB_MIN = 512
CLOCK_SKEW_S_MAX = 1.0
SNAPSHOT_OVERDUE = 10  # times the rows after which a whole snapshot is due


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
    findings = [_python(), _machine_code(), _environment()]
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
        return [
            *findings,
            Finding(
                "broker, database, services", None, "not asked: no plane is up and none is named"
            ),
        ]
    return [
        *findings,
        await _asked("broker", settings.kafka, lambda: probe_broker(settings.backend())),
        await _asked(
            "topics", f"{len(topic_specs(settings))} as they must be", lambda: _topics(settings)
        ),
        await _asked(
            "database",
            shown_database_url(settings.database),
            lambda: probe_database(settings.database or ""),
        ),
        await _asked("schema", "of this version", lambda: _schema(settings)),
        await _standbys(settings),
        _checkpoints(settings),
        await _topic_lives(settings),
        *await _freshness(settings),
        *_services(settings),
        *await _writes(settings),
    ]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding(
        "python", sys.version_info >= PYTHON_MIN, f"{found}; {wanted} or later is needed"
    )


def _machine_code() -> Finding:
    """Without it everything works, and placing is much slower."""
    reasons = [why for why in map(why_plain, MODULES) if why]
    return Finding(
        "machine code",
        None if reasons else True,
        reasons[0] if reasons else "of this version and processor",
    )


def _environment() -> Finding:
    unknown = unknown_environment()
    return Finding(
        "environment",
        not unknown,
        f"unknown variables: {', '.join(unknown)}" if unknown else "no unknown variables",
    )


def _data_dir(settings: Settings) -> Finding:
    data_dir = settings.data_dir.absolute()
    standing = next(d for d in (data_dir, *data_dir.parents) if d.exists())
    if not os.access(standing, os.W_OK | os.X_OK):
        return Finding(
            "data directory", False, f"{standing} cannot be written: choose another --data-dir"
        )
    free_mb = shutil.disk_usage(standing).free >> 20
    return Finding(
        "data directory",
        free_mb >= FREE_MB_MIN,
        f"{data_dir}, {free_mb:,} MB free; {FREE_MB_MIN} are needed",
    )


def _broker_binary() -> Finding:
    try:
        return Finding("embedded broker", True, broker_executable())
    except BackendError as error:
        return Finding("embedded broker", False, str(error))


def _database_binaries() -> Finding:
    try:
        postgres = binaries() / "postgres"
    except BackendError as error:
        return Finding("embedded database", False, str(error))
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
            "plane",
            False,
            f"its supervisor (pid {plane.supervisor_pid}) is gone: run `wharfinger up` again",
        )
    return Finding("plane", True, f"up, supervisor pid {plane.supervisor_pid}")


async def _freshness(settings: Settings) -> list[Finding]:
    """How far behind the plane is. Nothing where the database does not answer: that was said
    above."""
    try:
        async with opened_ledger(settings) as ledger:
            found = await ledger.freshness()
            held_back = withheld_line(await withheld_now(ledger))
            wrong = await ledger.wrong_times()
    except LedgerError:
        return []
    rows, oldest_s = found.unrelayed.rows, found.oldest_unrelayed_s
    waiting = (
        f"{count(rows, 'row')} not relayed, the oldest for {as_seconds(oldest_s)}"
        if rows
        else "nothing waits"
    )
    skew_s = found.skew_us / 1e6
    behind = max(found.snapshots, key=lambda age: (age.rows, age.stream), default=None)
    said = (
        "no stream yet"
        if behind is None
        else f"{behind.stream}: {count(behind.rows, 'row')} since the newest"
    )
    age_s = found.snapshot_age_s(behind) if behind is not None else None
    return [
        Finding("relay", oldest_s <= settings.stalled_after_s, waiting),
        Finding("records", not held_back, held_back or "all are sent"),
        Finding(
            "clock",
            abs(skew_s) <= CLOCK_SKEW_S_MAX,
            f"{skew_s:+.3f} s against the database's; at most {CLOCK_SKEW_S_MAX:g} s are expected",
        ),
        Finding(
            "times",
            not wrong.streams,
            f"{count(len(wrong.streams), 'stream')} ahead of the database's clock, "
            f"by up to {as_seconds(-wrong.by / 1e6)}: "
            "see `wharfinger ledger rebase`"
            if wrong.streams
            else "no stream is ahead of the database's clock",
        ),
        Finding(
            "snapshots",
            behind is None or behind.rows <= SNAPSHOT_OVERDUE * settings.snapshot_rows,
            said if age_s is None else f"{said}, made {as_seconds(age_s)} ago",
        ),
    ]


def _services(settings: Settings) -> Iterator[Finding]:
    for path, card in process_cards(settings.data_dir):
        readiness = card.readiness()
        if readiness is None:
            yield Finding(
                f"process {path.stem}",
                False,
                f"pid {card.pid} gives no answer on port {card.http_port}",
            )
            continue
        wrong = [_wrong(name, service) for name, service in readiness.services.items()]
        said = "; ".join(filter(None, wrong))
        yield Finding(
            f"process {path.stem}", not said, said or f"{len(readiness.services)} services ready"
        )


async def _writes(settings: Settings) -> list[Finding]:
    """Of joined clusters that may be changed. Nothing is loaded for it where none is joined."""
    if not any(settings.clusters_dir().glob("*.yaml")):
        return []
    from wharfinger_cli.doctor_writes import write_states

    try:
        found = await write_states(settings)
    except LedgerError:
        return []  # said above
    return [Finding(f"writes to {one.name}", one.ok, one.said) for one in found]


def _wrong(name: str, service: ServiceReport) -> str:
    if not service.ready:
        stalled = service.stalled_s > 0
        return f"{name} is not ready" + (
            f": nothing completed for {as_seconds(service.stalled_s)}" if stalled else ""
        )
    if service.divergences:
        return (
            f"{name}: {count(service.divergences, 'stream')} decided otherwise in replay, "
            "run `wharfinger replay`"
        )
    return ""


async def _asked(what: str, good: str, ask: Callable[[], Awaitable[None]]) -> Finding:
    try:
        await ask()
    except (BackendError, LedgerError) as error:
        return Finding(what, False, str(error))
    return Finding(what, True, good)


async def _topics(settings: Settings) -> None:
    ledger = await Ledger.open(settings.database or "", APPLICATION, deadlines=settings.deadlines())
    try:
        settings = await with_fleet_shards(ledger, settings, begin=False)
    finally:
        await ledger.close()
    await check_topics(settings.backend(), topic_specs(settings))


async def _schema(settings: Settings) -> None:
    ledger = await Ledger.open(settings.database or "", APPLICATION, deadlines=settings.deadlines())
    await ledger.close()


async def _topic_lives(settings: Settings) -> Finding:
    """Whether the topics are still those that the ledger has read and written."""
    what = "topics and ledger"
    try:
        ledger = await Ledger.open(settings.database or "", APPLICATION)
        try:
            incarnations, backend, why = await ledger.incarnations(), settings.backend(), ""
            if incarnations:
                async with aclosing(TopicIds(backend)) as ids:
                    why = await changed(ledger, backend, incarnations, "", ids)
        finally:
            await ledger.close()
    except (BackendError, LedgerError) as error:
        return Finding(what, None, f"not asked: {error}")
    again = "; it is filled again when the services have started again"
    return Finding(
        what, not why, f"{why}{again}" if why else "the topics are those that were read and written"
    )


def _checkpoints(settings: Settings) -> Finding:
    """Whether somebody else than the database's owner knows where the ledger stood."""
    what = "checkpoints"
    if not settings.checkpoints:
        return Finding(
            what, None, "none are shipped: set WHARFINGER_CHECKPOINTS and WHARFINGER_CHECKPOINT_KEY"
        )
    if settings.checkpoint_key is None:
        return Finding(
            what,
            False,
            "no key, so none are shipped: make one with `wharfinger audit key` and set "
            "WHARFINGER_CHECKPOINT_KEY",
        )
    try:
        # only who signs loads the cryptography
        from wharfinger.history.checkpoint import fingerprint, private_key

        key = private_key(str(settings.checkpoint_key), settings.checkpoint_key.read_bytes())
    except OSError as error:
        return Finding(what, False, f"{settings.checkpoint_key}: {error.strerror}")
    except LedgerError as error:
        return Finding(what, False, str(error))
    return Finding(
        what,
        True,
        f"every {settings.checkpoint_every_s:g} s to {settings.checkpoints}, "
        f"signed by {fingerprint(key.public_key())}",
    )


async def _standbys(settings: Settings) -> Finding:
    """Whether a failover can lose what was committed; see
    docs/runbooks/restored-from-a-backup.md."""
    try:
        database = Database(settings.database or "", APPLICATION, pool_size=1)
        try:
            found = await replication(database)
        finally:
            await database.close()
    except LedgerError as error:
        return Finding("standbys", None, f"not asked: {error}")
    return Finding(
        "standbys", not found.loses, f"{found.loses}; {found.told}" if found.loses else found.told
    )


def _page(findings: list[Finding]) -> Iterator[RenderableType]:
    marks = {True: Text("ok", GOOD), False: Text("wrong", BAD), None: Text("-", DARK)}
    table = new_table("check", "", "")
    for finding in findings:
        table.add_row(finding.what, marks[finding.ok], finding.said)
    yield table
