"""The HTTP API over a ledger of a test, without a process: requests go to the application
itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache

import httpx
from fastapi import FastAPI

from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.tokens import make_token
from wharfinger_api.app import Api, create
from wharfinger_api.identities import Identities

BASE = "http://api"


class Client:
    """Requests as one principal. `secret` empty: as nobody."""

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

    def nobody(self) -> Client:
        return Client(self.http)


@cache
def _made() -> tuple[Api, FastAPI]:
    """Making the routes takes a third of a second, so it is done once for all tests."""
    api = Api.__new__(Api)
    return api, create(api)


@asynccontextmanager
async def serving(database_url: str) -> AsyncIterator[ApiUnderTest]:
    past = PastDatabase(database_url, "tests")
    api, app = _made()
    api.past, api.identities = past, Identities(past.present)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            yield ApiUnderTest(past, http, api)
    finally:
        await past.close()
