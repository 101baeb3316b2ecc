"""The API as a process: opens the database, listens, and ends with its plane.

It reads PostgreSQL only. So it starts and answers while Kafka is away, unlike the other services
(`runtime.process`), and keeps the same card in `run/`, by which the supervisor and `status` find
it. Exit codes are theirs: 0 stopped, 2 cannot start, 69 its plane is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from pathlib import Path

import structlog
import uvicorn

from wharfinger.runtime.ledger import LedgerUnavailable
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.tokens import make_token, revoke_codes
from wharfinger.runtime.memory import seldom_collect
from wharfinger.runtime.observability import configure_logging
from wharfinger.runtime.owner_watch import EXIT_GONE, Lifeline, PlaneGoneError
from wharfinger.runtime.plane import another_database
from wharfinger.runtime.process import EXIT_USAGE, WATCH_S
from wharfinger.runtime.process_status import RUN_DIR
from wharfinger.runtime.settings import Settings, SettingsError, load_settings
from wharfinger_api.access import Role
from wharfinger_api.app import Api, create
from wharfinger_api.events import Hub
from wharfinger_api.identities import Identities
from wharfinger_api.limits import RequestLimits
from wharfinger_api.recording import AccessRecorder

NAME = "api"
LOGIN_FILE = "api.login"
"""In `run/`: a code that is good once, for the user who has started the plane."""

LOGIN_CODE_S = 86_400
STARTED_BY = "local:up"
DRAIN_S = 5
POOL = 8

log = structlog.get_logger()


def run() -> int:
    """Until SIGTERM or SIGINT."""
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format)
        return asyncio.run(_run(settings))
    except SettingsError as error:
        print("\n".join(error.lines), file=sys.stderr)
    except PlaneGoneError as error:
        print(f"wharfinger {NAME}: {error}", file=sys.stderr)
        return EXIT_GONE
    except (LedgerUnavailable, OSError) as error:
        print(f"wharfinger {NAME}: {error}", file=sys.stderr)
    return EXIT_USAGE


async def _run(settings: Settings) -> int:
    if settings.database is None:
        raise SettingsError("database: not set, and no plane is up: set WHARFINGER_DATABASE")
    past = PastDatabase(settings.database, f"wharfinger-{NAME}", POOL, settings.deadlines())
    try:
        await past.require_version()
        found = past.present.identity
        if settings.database_identity and found != settings.database_identity:
            raise PlaneGoneError(another_database(settings.database_identity, found))
        return await _serve(settings, past)
    finally:
        await past.close()


async def _serve(settings: Settings, past: PastDatabase) -> int:
    hub = Hub(past.present)
    recorder = AccessRecorder(past.present)
    limits = RequestLimits(settings.api_requests_per_s, settings.api_requests_burst)
    app = create(Api(past, Identities(past.present), hub, recorder, limits, settings.data_dir))
    listening = _listening(settings.http_host, settings.http_port)
    port = int(listening.getsockname()[1])
    run_dir = settings.data_dir / RUN_DIR
    await _leave_login(settings, past, run_dir)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
            lifespan="off",
            h11_max_incomplete_event_size=65_536,
        )
    )
    seldom_collect()
    card = run_dir / f"{NAME}.json"
    _write(card, json.dumps(_card(port), sort_keys=True) + "\n")
    watching = asyncio.create_task(_watch(settings, past, server), name="lifeline")
    try:
        log.info("process.started", process=NAME, http_port=port)
        await server.serve(sockets=[listening])
    finally:
        card.unlink(missing_ok=True)
        (run_dir / LOGIN_FILE).unlink(missing_ok=True)
        watching.cancel()
        await hub.stop()
        await recorder.stop()
    if watching.done() and not watching.cancelled():
        watching.result()
    log.info("process.stopped", process=NAME)
    return 0


def _listening(host: str, port: int) -> socket.socket:
    """OSError: the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.set_inheritable(False)
    return listening


async def _leave_login(settings: Settings, past: PastDatabase, run_dir: Path) -> None:
    """A code for the user who has started the plane, on loopback only. It is in a file of theirs,
    and in no log and no command line."""
    if settings.http_host not in ("127.0.0.1", "::1", "localhost"):
        return
    await revoke_codes(past.present, STARTED_BY)
    code, _ = await make_token(
        past.present,
        "up",
        [Role.VIEWER, Role.OPERATOR, Role.AUDITOR, Role.ADMIN],
        STARTED_BY,
        lifetime_s=LOGIN_CODE_S,
        once=True,
    )
    _write(run_dir / LOGIN_FILE, code + "\n")


async def _watch(settings: Settings, past: PastDatabase, server: uvicorn.Server) -> None:
    """PlaneGoneError: what the process serves is gone."""
    lifeline = Lifeline(settings.data_dir.absolute(), settings.owner_pid)
    while True:
        if gone := lifeline.broken() or past.present.replaced:
            server.should_exit = True
            raise PlaneGoneError(gone)
        await asyncio.sleep(WATCH_S)


def _card(port: int) -> dict[str, object]:
    return {"process": NAME, "pid": os.getpid(), "http_port": port, "services": [NAME]}


def _write(path: Path, text: str) -> None:
    """Readable by their owner only, and whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    draft.replace(path)
