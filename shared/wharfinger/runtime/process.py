"""One process of the plane: open the ledger, build the services, start them together, watch them,
stop them.

The same code runs one service or all of them; which ones is the caller's list of builders. While it
runs, the process keeps `<data-dir>/run/<process>.json` (pid, port of the health server), by which
the supervisor and `wharfinger status` find it. A service that says it has failed ends the process
with exit code 70: the supervisor starts it again from the ledger. A plane that is gone (its
directory, its database, the process it was started for) ends it with exit code 69, and nothing is
started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from wharfinger.events.origin import of_service
from wharfinger.events.streams import TOPICS
from wharfinger.runtime.backends import BackendError, notice_lost_connections, probe
from wharfinger.runtime.fleet_shards import with_fleet_shards
from wharfinger.runtime.health import Answering, HealthServer, Receiving
from wharfinger.runtime.incarnation_watch import (
    IDS_EVERY_S,
    WATCH_EVERY_S,
    TopicWatch,
    begin_topics,
)
from wharfinger.runtime.interpreter import fast_loops, one_heap, seldom_collect, short_turns
from wharfinger.runtime.ledger import Ledger, LedgerError, LedgerUnavailable
from wharfinger.runtime.log_setup import configure_logging
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.owner_watch import (
    EXIT_GONE,
    EXIT_USAGE,
    WATCH_S,
    Lifeline,
    PlaneGoneError,
    Servers,
)
from wharfinger.runtime.plane import another_database
from wharfinger.runtime.sent_elsewhere import SentElsewhere
from wharfinger.runtime.service import Builder, Service, ServiceContext
from wharfinger.runtime.settings import Settings, SettingsError, load_settings
from wharfinger.runtime.timeline import reconciled
from wharfinger.runtime.topic_setup import partitions
from wharfinger.runtime.topics import PUBLISHER

log = get_logger()


class MayFail(Protocol):
    """`failed()` gives the reason why the process has to end; empty: it need not."""

    name: str

    def failed(self) -> str: ...


EXIT_FATAL = 70

CLOCK_EVERY_S = 5.0
# a server that is down refuses at once; one that is slow to answer is busy, as at a cold start
PROBE_TIMEOUT_S = 30.0


def run_process(name: str, builders: Mapping[str, Builder]) -> int:
    """Run these services until SIGTERM or SIGINT. Returns the exit code: 0 stopped, 2 cannot start
    (one line on standard error), 69 its plane is gone, 70 failed and to be restarted."""
    one_heap()
    fast_loops()
    notice_lost_connections()
    short_turns()
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format)
        return asyncio.run(_run(name, builders, settings))
    except SettingsError as error:
        print("\n".join(error.lines), file=sys.stderr)
    except PlaneGoneError as error:
        print(f"wharfinger {name}: {error}", file=sys.stderr)
        return EXIT_GONE
    except (BackendError, LedgerUnavailable) as error:
        print(f"wharfinger {name}: {error}", file=sys.stderr)
    return EXIT_USAGE


async def open_context(settings: Settings, name: str) -> ServiceContext:
    """The backend is asked for a sign of life first, so that a wrong address is one line and not a
    traceback."""
    backend = settings.backend()
    await probe(backend, PROBE_TIMEOUT_S)
    ledger = await Ledger.open(
        backend.database_url,
        f"wharfinger-{name}",
        deadlines=settings.deadlines(),
        origin=of_service(name),
    )
    found = ledger.database.identity
    if settings.database_identity and found != settings.database_identity:
        await ledger.close()
        raise PlaneGoneError(another_database(settings.database_identity, found))
    try:
        settings = await with_fleet_shards(ledger, settings, begin=True)
    except LedgerUnavailable:
        await ledger.close()
        raise
    incarnations = await begin_topics(ledger, backend, settings)
    counts = {t.name: partitions(t, settings) for t in TOPICS}
    await ledger.read_clock()
    # Before anything is decided or published: a database that went back has to begin its next
    # incarnation first.
    went_back = await reconciled(ledger, backend, lambda topic: topic)
    return ServiceContext(
        settings, backend, ledger, incarnations, counts, went_back=went_back, clock=ledger.clock
    )


async def _run(name: str, builders: Mapping[str, Builder], settings: Settings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stopping.set)
    context = await open_context(settings, name)
    services = [build(context) for build in builders.values()]
    seldom_collect()
    pages = {
        path: page for s in services if isinstance(s, Answering) for path, page in s.pages().items()
    }
    doors = {
        path: door for s in services if isinstance(s, Receiving) for path, door in s.doors().items()
    }
    health = HealthServer(lambda: services, pages=pages, doors=doors)
    port = await health.start(settings.http_host, settings.http_port)
    card = settings.data_dir / "run" / f"{name}.json"
    _write_card(card, name, port, services)
    beside = [asyncio.create_task(_watch_clock(context.ledger), name="clock")]
    if settings.processes in ("two", "each") and context.backend.capabilities.idle_poll_ms:
        elsewhere = SentElsewhere(settings.data_dir / "run", name, context.signals)
        beside += [
            asyncio.create_task(elsewhere.run(), name="sent elsewhere"),
            asyncio.create_task(_expect_records(context, elsewhere), name="expecting"),
        ]
    lifeline = Lifeline(settings.data_dir.absolute(), settings.owner_pid)
    servers = Servers.of(settings.data_dir.absolute())
    topics = TopicWatch(
        context.ledger,
        context.backend,
        context.incarnations,
        ids_every_s=IDS_EVERY_S if PUBLISHER in builders else WATCH_EVERY_S,
    )
    beside.append(asyncio.create_task(topics.run(), name="topics"))
    try:
        await asyncio.gather(*(s.start() for s in services))
        log.info(
            "process.started", process=name, services=[s.name for s in services], http_port=port
        )
        failure = await _watch([*services, topics], stopping, lifeline, context.ledger)
    except PlaneGoneError as gone:
        _end_with_the_plane(name, gone, servers, settings)
    finally:
        for task in beside:
            task.cancel()
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


async def _watch(
    services: Sequence[MayFail], stopping: asyncio.Event, lifeline: Lifeline, ledger: Ledger
) -> str:
    """Waits until the process is asked to stop (returns "") or a service has failed (returns why).
    PlaneGoneError: the plane that the process serves is gone."""
    while not stopping.is_set():
        if gone := lifeline.broken() or ledger.database.replaced:
            raise PlaneGoneError(gone)
        for service in services:
            if why := service.failed():
                return f"{service.name}: {why}"
        try:
            async with asyncio.timeout(WATCH_S):
                await stopping.wait()
        except TimeoutError:
            continue
    return ""


async def _expect_records(context: ServiceContext, elsewhere: SentElsewhere) -> None:
    """What other processes decide is soon on the topics. Where they do not say when
    it is there, readers ask for it."""
    committed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(context.ledger.notifications(committed, decided=True))
        while True:
            await committed.wait()
            committed.clear()
            if not elsewhere.fresh:
                context.signals.expect()


async def _watch_clock(ledger: Ledger) -> None:
    """Rounds are stamped by the database's clock: it is followed. How far this machine's own is
    from it is a figure."""
    while True:
        await asyncio.sleep(CLOCK_EVERY_S)
        try:
            await ledger.read_clock()
            METRICS.clock_skew.set(ledger.clock.skew_us / 1e6)
        except LedgerError as error:
            log.info("clock.not_read", why=str(error))


def _end_with_the_plane(
    name: str, gone: PlaneGoneError, servers: Servers, settings: Settings
) -> NoReturn:
    """End at once: what could still be written would go to a directory or a database that is not
    ours. A supervisor does the rest; where it was killed, broker and database are ended here.
    `servers`: as recorded when this process started."""
    log.error("process.plane_gone", process=name, why=str(gone))
    print(f"wharfinger {name}: {gone}", file=sys.stderr, flush=True)
    now = Servers.of(settings.data_dir.absolute())
    for known in (servers, now):
        known.end_orphans()
    os._exit(EXIT_GONE)


async def _stop(services: Sequence[Service]) -> None:
    """Stops all services at the same time, with a time limit. A service that is cut off at the
    limit loses nothing."""
    try:
        async with asyncio.timeout(10):
            results = await asyncio.gather(*(s.stop() for s in services), return_exceptions=True)
    except TimeoutError:
        log.warning("process.stop_cut_off")
        return
    for service, result in zip(services, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, LedgerError):
            log.warning(
                "service.stop_failed",
                service=service.name,
                why=f"{type(result).__name__}: {result}",
            )


def _write_card(path: Path, name: str, port: int, services: Sequence[Service]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    card = {
        "process": name,
        "pid": os.getpid(),
        "http_port": port,
        "services": [s.name for s in services],
    }
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(card, sort_keys=True) + "\n")
    draft.replace(path)
