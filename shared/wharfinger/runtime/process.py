"""One process of the plane: open the ledger, build the services, start them together, watch them, stop them.

The same code runs one service or all five; which ones is the caller's list of builders. While it runs, the process keeps
`<data-dir>/run/<process>.json` (pid, port of the health server), by which the supervisor and `wharfinger status` find it.
A service that says it has failed ends the process with exit code 70: the supervisor starts it anew from the ledger.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from wharfinger.events.streams import TOPICS
from wharfinger.runtime.backends import BackendError, probe
from wharfinger.runtime.groundwork import partitions
from wharfinger.runtime.health import Answering, HealthServer, Receiving
from wharfinger.runtime.ledger import Ledger, LedgerError, LedgerUnavailable
from wharfinger.runtime.memory import seldom_collect
from wharfinger.runtime.observability import configure_logging
from wharfinger.runtime.service import Builder, Service, ServiceContext
from wharfinger.runtime.settings import Settings, SettingsError, load_settings

log = structlog.get_logger()

EXIT_USAGE = 2
EXIT_FATAL = 70

WATCH_S = 0.25


def run_process(name: str, builders: Mapping[str, Builder]) -> int:
    """Run these services until SIGTERM or SIGINT. Returns the exit code: 0 stopped, 2 cannot start (one line on standard
    error), 70 failed and to be restarted."""
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format)
        return asyncio.run(_run(name, builders, settings))
    except SettingsError as error:
        print("\n".join(error.lines), file=sys.stderr)
    except (BackendError, LedgerUnavailable) as error:
        print(f"wharfinger {name}: {error}", file=sys.stderr)
    return EXIT_USAGE


async def open_context(settings: Settings, name: str) -> ServiceContext:
    """The backend is asked for a sign of life first, so that a wrong address is one line and not a traceback."""
    backend = settings.backend()
    await probe(backend)
    ledger = await Ledger.open(backend.database_url, f"wharfinger-{name}")
    incarnations = await ledger.incarnation([t.name for t in TOPICS], set(), backend.boot_id)
    counts = {t.name: partitions(t, settings) for t in TOPICS}
    return ServiceContext(settings, backend, ledger, incarnations, counts)


async def _run(name: str, builders: Mapping[str, Builder], settings: Settings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stopping.set)
    context = await open_context(settings, name)
    services = [build(context) for build in builders.values()]
    seldom_collect()
    pages = {path: page for s in services if isinstance(s, Answering) for path, page in s.pages().items()}
    doors = {path: door for s in services if isinstance(s, Receiving) for path, door in s.doors().items()}
    health = HealthServer(lambda: services, pages=pages, doors=doors)
    port = await health.start(settings.http_host, settings.http_port)
    card = settings.data_dir / "run" / f"{name}.json"
    _write_card(card, name, port, services)
    try:
        await asyncio.gather(*(s.start() for s in services))
        log.info("process.started", process=name, services=[s.name for s in services], http_port=port)
        failure = await _watch(services, stopping)
    finally:
        card.unlink(missing_ok=True)
    if failure:
        log.error("process.failed", process=name, why=failure)
        # Not a clean stop: what failed may hang, and everything that matters is in the ledger.
        sys.stderr.flush()
        os._exit(EXIT_FATAL)
    await _stop(services)
    await health.stop()
    await context.ledger.close()
    log.info("process.stopped", process=name)
    return 0


async def _watch(services: Sequence[Service], stopping: asyncio.Event) -> str:
    """Until told to stop ("") or a service has failed (why)."""
    while not stopping.is_set():
        for service in services:
            if why := service.failed():
                return f"{service.name}: {why}"
        try:
            async with asyncio.timeout(WATCH_S):
                await stopping.wait()
        except TimeoutError:
            continue
    return ""


async def _stop(services: Sequence[Service]) -> None:
    """All at once and not for ever: a service that does not stop in time loses nothing by being cut off."""
    try:
        async with asyncio.timeout(10):
            results = await asyncio.gather(*(s.stop() for s in services), return_exceptions=True)
    except TimeoutError:
        log.warning("process.stop_cut_off")
        return
    for service, result in zip(services, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, LedgerError):
            log.warning("service.stop_failed", service=service.name, why=f"{type(result).__name__}: {result}")


def _write_card(path: Path, name: str, port: int, services: Sequence[Service]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    card = {"process": name, "pid": os.getpid(), "http_port": port, "services": [s.name for s in services]}
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(card, sort_keys=True) + "\n")
    draft.replace(path)
