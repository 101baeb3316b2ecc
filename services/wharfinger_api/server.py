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
import signal
import ssl
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.fernet import Fernet

from wharfinger.domain.text import one_line
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.interpreter import fast_loops, one_heap, seldom_collect, short_turns
from wharfinger.runtime.kube.kubeconfig import KubeconfigError, in_cluster, read_kubeconfig
from wharfinger.runtime.ledger import LedgerUnavailable
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.tokens import make_token, revoke_codes
from wharfinger.runtime.log_setup import configure_logging
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.owner_watch import EXIT_GONE, EXIT_USAGE, WATCH_S, Lifeline, PlaneGoneError
from wharfinger.runtime.plane import another_database
from wharfinger.runtime.process_status import RUN_DIR
from wharfinger.runtime.settings import Settings, SettingsError, load_settings
from wharfinger_api.access import Role
from wharfinger_api.app import Api, create
from wharfinger_api.connections import Connection, listening_socket
from wharfinger_api.events import Hub
from wharfinger_api.grants import Grants, GrantsError
from wharfinger_api.identities import Identities, Providers
from wharfinger_api.limits import RequestLimits
from wharfinger_api.operations import Operations
from wharfinger_api.present import Present
from wharfinger_api.recording import AccessRecorder
from wharfinger_api.webhook_delivery import WebhookDelivery
from wharfinger_api.webhook_receivers import SealedSecrets, SealError, WebhookSender

NAME = "api"
LOGIN_FILE = "api.login"
"""In `run/`: a code that is good once, for the user who has started the plane."""

WEBHOOK_KEY_FILE = "webhooks.key"
"""In the directory of the plane."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOGIN_CODE_S = 86_400
STARTED_BY = "local:up"
DRAIN_S = 5
IN_CLUSTER = "in-cluster"
POOL = 8

log = get_logger()


def run() -> int:
    """Until SIGTERM or SIGINT."""
    one_heap()
    fast_loops()
    short_turns()
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
    hub, present = Hub(past.present), Present(past)
    recorder = AccessRecorder(past.present)
    limits = RequestLimits(settings.api_requests_per_s, settings.api_requests_burst)
    operations = Operations(past.present)
    providers = providers_of(settings)
    identities = Identities(past.present, providers)
    sealed = _seals(settings)
    webhooks = None
    if sealed is not None:
        listed = tuple(ip_network(one) for one in settings.api_webhook_networks.split(",") if one)
        webhooks = WebhookDelivery(hub, WebhookSender(listed), sealed, providers.grants)
    made = Api(
        past,
        identities,
        hub,
        present,
        recorder,
        limits,
        operations,
        settings.data_dir,
        webhooks,
        believed=BelievedSources.parse(settings.believed_sources),
    )
    app = create(made)
    tls = _tls(settings)
    listening = listening_socket(settings.http_host, settings.http_port)
    port = int(listening.getsockname()[1])
    run_dir = settings.data_dir / RUN_DIR
    await _leave_login(settings, past, run_dir)
    server = ApiServer(configured(app, tls))
    if webhooks is not None:
        webhooks.start()
    seldom_collect()
    card = run_dir / f"{NAME}.json"
    _write(card, json.dumps(_card(port, tls is not None), sort_keys=True) + "\n")
    watching = asyncio.create_task(_watch(settings, past, server, tls), name="lifeline")
    try:
        log.info("process.started", process=NAME, http_port=port)
        await server.serve(sockets=[listening])
    finally:
        card.unlink(missing_ok=True)
        (run_dir / LOGIN_FILE).unlink(missing_ok=True)
        watching.cancel()
        await operations.stop()
        if webhooks is not None:
            await webhooks.stop()
        await hub.stop()
        await present.stop()
        await recorder.stop()
        if providers.reviews is not None:
            await providers.reviews.stop()
    if watching.done() and not watching.cancelled():
        watching.result()
    log.info("process.stopped", process=NAME)
    return 0


DATE_EVERY_S = 1.0
"""How often the date that answers have is renewed: it has whole seconds."""


class ApiServer(uvicorn.Server):
    """Ends by SIGTERM and SIGINT as other processes do: uvicorn's own would raise the signal again
    at the end, and what is under way here would not be put away. It wakes once a second and when it
    is to end: uvicorn's own looks ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._exit = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, exits: bool) -> None:
        (self._exit.set if exits else self._exit.clear)()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_EVERY_S):
                    await self._exit.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(one)


def configured(app: Any, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ssl_context_factory=None if tls is None else lambda *_: tls,
        # else who connects from this machine could pretend to be at another address
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
        lifespan="off",
    )


def providers_of(settings: Settings) -> Providers:
    """SettingsError: a file that they name cannot be used."""
    try:
        grants = Grants(settings.api_grants)
    except GrantsError as error:
        raise SettingsError(f"api_grants: {error}") from None
    openid = None
    if settings.api_oidc_issuer is not None:
        from wharfinger_api.openid import OpenId  # loads an HTTP client, as TokenReviews does

        openid = OpenId(
            settings.api_oidc_issuer,
            settings.api_oidc_audience,
            settings.api_oidc_algorithms.split(","),
            settings.api_oidc_name_claim,
            settings.api_oidc_groups_claim,
            settings.api_oidc_ca_file,
        )
    reviews = None
    if settings.api_kubernetes is not None:
        from wharfinger_api.token_review import TokenReviews

        try:
            named = settings.api_kubernetes
            access = in_cluster() if str(named) == IN_CLUSTER else read_kubeconfig(named)
        except KubeconfigError as error:
            raise SettingsError(f"api_kubernetes: {error}") from None
        reviews = TokenReviews(access, settings.api_kubernetes_audience)
    proxies = tuple(ip_network(one) for one in settings.api_proxies.split(",") if one)
    return Providers(grants, openid, reviews, proxies)


def _seals(settings: Settings) -> SealedSecrets | None:
    """None: there is no key. A plane of one machine makes its own. SettingsError: the file cannot
    be used."""
    file = settings.api_webhook_key_file
    if file is None:
        if settings.http_host not in LOOPBACK:
            return None
        file = settings.data_dir / WEBHOOK_KEY_FILE
        if not file.exists():
            _write(file, Fernet.generate_key().decode() + "\n")
    try:
        return SealedSecrets(file.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError, SealError) as error:
        said = getattr(error, "strerror", None) or one_line(error)
        raise SettingsError(f"api_webhook_key_file: {file}: {said}") from None


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """SettingsError: the files cannot be used."""
    if settings.api_tls_cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.api_tls_cert_file, settings.api_tls_key_file)
    except OSError as error:
        raise SettingsError(f"api_tls_cert_file: {one_line(error)}") from None
    if (authority := settings.api_tls_client_ca_file) is not None:
        try:
            context.load_verify_locations(authority)
        except OSError as error:
            raise SettingsError(f"api_tls_client_ca_file: {one_line(error)}") from None
        # who has no certificate may bring a token
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def _leave_login(settings: Settings, past: PastDatabase, run_dir: Path) -> None:
    """A code for the user who has started the plane, on loopback only. It is in a file of theirs,
    and in no log and no command line."""
    if settings.http_host not in LOOPBACK:
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


async def _watch(
    settings: Settings, past: PastDatabase, server: uvicorn.Server, tls: ssl.SSLContext | None
) -> None:
    """PlaneGoneError: what the process serves is gone."""
    lifeline = Lifeline(settings.data_dir.absolute(), settings.owner_pid)
    shown = _changed_at(settings)
    while True:
        if tls is not None and (found := _changed_at(settings)) != shown:
            shown = found
            _renew(settings, tls)
        if gone := lifeline.broken() or past.present.replaced:
            server.should_exit = True
            raise PlaneGoneError(gone)
        await asyncio.sleep(WATCH_S)


def _changed_at(settings: Settings) -> tuple[int, ...]:
    """Of our certificate and its key."""
    files = (settings.api_tls_cert_file, settings.api_tls_key_file)
    return tuple(file.stat().st_mtime_ns for file in files if file is not None and file.exists())


def _renew(settings: Settings, tls: ssl.SSLContext) -> None:
    """New connections are shown the certificate that the files have now. Two files are not replaced
    at once: where they do not fit, the one of before is shown until they do."""
    assert settings.api_tls_cert_file is not None
    try:
        tls.load_cert_chain(settings.api_tls_cert_file, settings.api_tls_key_file)
        log.info("tls.renewed")
    except OSError as error:
        log.error("tls.not_renewed", reason=one_line(error))


def _card(port: int, tls: bool) -> dict[str, object]:
    card: dict[str, object] = {"process": NAME, "pid": os.getpid(), "http_port": port}
    return {**card, "services": [NAME], "tls": tls}


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
