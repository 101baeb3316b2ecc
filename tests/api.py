"""The HTTP API over a ledger of a test, without a process: requests go to the application
itself."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI
from tests.patience import until

from wharfinger.runtime.believed_sources import ALL_BELIEVED
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.tokens import make_token
from wharfinger_api.app import Api, create
from wharfinger_api.events import Hub
from wharfinger_api.identities import Identities, Providers
from wharfinger_api.limits import RequestLimits
from wharfinger_api.operations import Operations
from wharfinger_api.present import Present
from wharfinger_api.recording import AccessRecorder

BASE = "http://api"


class Client:
    """Requests as one principal. `secret` empty: without a token."""

    def __init__(self, http: httpx.AsyncClient, secret: str = "") -> None:
        self._http = http
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self._http.get(path, headers={**self.headers, **headers})

    async def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> httpx.Response:
        return await self._http.request(
            method, path, json=body, headers={**self.headers, **headers}
        )


class ApiUnderTest:
    def __init__(self, past: PastDatabase, http: httpx.AsyncClient, api: Api) -> None:
        self.past = past
        self.http = http
        self.api = api

    async def as_(
        self, *roles: str, namespaces: Iterable[str] = (), name: str = "someone"
    ) -> Client:
        """A client with a token of its own."""
        secret, _ = await make_token(
            self.past.present, name, roles, "tests", lifetime_s=3600, namespaces=tuple(namespaces)
        )
        return Client(self.http, secret)

    def anonymous(self) -> Client:
        return Client(self.http)


@cache
def _made() -> tuple[Api, FastAPI]:
    """Making the routes takes a third of a second, so it is done once for all tests."""
    api = Api.__new__(Api)
    return api, create(api)


@asynccontextmanager
async def serving(
    database_url: str, providers: Providers | None = None
) -> AsyncIterator[ApiUnderTest]:
    past = PastDatabase(database_url, "tests")
    api, app = _made()
    api.past, api.hub, api.present = past, Hub(past.present), Present(past)
    api.identities = Identities(past.present, providers)
    api.recorder, api.limits = AccessRecorder(past.present), RequestLimits(1e6, 1_000_000)
    api.behind_s, api.data_dir = 0.2, None
    api.believed = ALL_BELIEVED
    api.operations, api.webhooks = Operations(past.present), None
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            yield ApiUnderTest(past, http, api)
    finally:
        await api.operations.stop()
        if api.webhooks is not None:
            await api.webhooks.stop()
        await api.hub.stop()
        await api.present.stop()
        await api.recorder.stop()
        await past.close()


@contextmanager
def in_a_thread(
    database_url: str,
    *roles: str,
    data_dir: Path | None = None,
    limits: RequestLimits | None = None,
) -> Iterator[tuple[str, str]]:
    """The address of a server on a loopback port, and a token with the roles; without any, of a
    viewer."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    found: Future[str] = Future()
    server: list[uvicorn.Server] = []

    async def serve() -> None:
        past = PastDatabase(database_url, "tests")
        try:
            secret, _ = await make_token(
                past.present, "cli", roles or ["viewer"], "tests", lifetime_s=3600
            )
            recorder = AccessRecorder(past.present)
            hub, present = Hub(past.present), Present(past)
            bounds = limits or RequestLimits(100.0, 500)
            operations = Operations(past.present)
            api = Api(
                past, Identities(past.present), hub, present, recorder, bounds, operations, data_dir
            )
            app = create(api)
            config = uvicorn.Config(app, log_config=None, lifespan="off")
            server.append(uvicorn.Server(config))
            found.set_result(secret)
            await server[0].serve(sockets=[listening])
            await operations.stop()
            await present.stop()
        finally:
            await past.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="api", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", found.result()
    finally:
        server[0].should_exit = True
        thread.join()


def api_process(database: str, data_dir: Path) -> subprocess.Popen[bytes]:
    """The service in a process of its own, once it listens: `run/api.json` has its port."""
    card = data_dir / "run" / "api.json"
    card.unlink(missing_ok=True)
    env = {
        **os.environ,
        "WHARFINGER_DATABASE": database,
        "WHARFINGER_DATA_DIR": str(data_dir),
        "WHARFINGER_API_WEBHOOK_NETWORKS": "127.0.0.0/8",
    }
    process = subprocess.Popen([sys.executable, "-m", "wharfinger_api"], env=env)
    until(lambda: card.exists() or process.poll() is not None)
    assert process.poll() is None
    return process
