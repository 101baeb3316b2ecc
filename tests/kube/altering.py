"""A proxy that reads the requests to a real API server, and answers some of them in its place: that
a version is gone, as a status before a watch begins or as an event within it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Self

import aiohttp
from aiohttp import web
from tests.kube.member import Member

from wharfinger.runtime.kube.credentials import tls_context
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig

GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version: 1 (2)",
    "reason": "Expired",
    "code": 410,
}
"""As kube-apiserver says it."""

_KEPT = ("Accept", "Content-Type", "User-Agent")


class Altering:
    """`user`: with whose certificate the server is asked. `lists`: path -> how many lists the
    server began to answer, streaming lists too; of a list in pages only the first page counts.
    `refused`: path -> how many requests it answered with 403. `altered`: path -> how many requests
    were answered, and watches ended, here."""

    def __init__(self, member: Member, user: str = "admin") -> None:
        self._direct = read_kubeconfig(member.kubeconfig(user))
        self.lists: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.altered: Counter[str] = Counter()
        self._gone_at_start: set[str] = set()
        self._gone_next_page = False
        self._open: dict[asyncio.Event, str] = {}
        self._port = 0

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=tls_context(self._direct), limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answered)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    @property
    def access(self) -> Access:
        """Of the server, through the proxy, which has the credentials."""
        return Access(f"http://127.0.0.1:{self._port}")

    @property
    def watched(self) -> frozenset[str]:
        """Paths of which a watch is open."""
        return frozenset(self._open.values())

    def gone_at_start(self) -> None:
        """The next watch of each path that is watched is answered with a status 410."""
        self._gone_at_start = set(self._open.values())

    def gone_within(self) -> None:
        """All open watches get an ERROR event with 410, and end."""
        for gone in self._open:
            gone.set()

    def gone_on_the_next_page(self) -> None:
        """The next page of a list, which is not its first one, is answered with a status 410."""
        self._gone_next_page = True

    def _is_gone(self, request: web.Request) -> bool:
        if "continue" in request.query:
            gone, self._gone_next_page = self._gone_next_page, False
            return gone
        if _watches(request) and request.path in self._gone_at_start:
            self._gone_at_start.discard(request.path)
            return True
        return False

    def _count(self, request: web.Request, status: int) -> None:
        if status == 403:
            self.refused[request.path] += 1
        if status == 200 and _lists(request):
            self.lists[request.path] += 1

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        if self._is_gone(request):
            self.altered[request.path] += 1
            return web.json_response(GONE, status=410)
        try:
            async with self._session.request(
                request.method,
                self._direct.server + request.path_qs,
                headers={name: request.headers[name] for name in _KEPT if name in request.headers},
                data=await request.read() or None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            ) as found:
                self._count(request, found.status)
                answer = web.StreamResponse(status=found.status)
                answer.content_type = found.content_type
                await answer.prepare(request)
                if "watch" in request.query and found.status == 200:
                    await self._pass_on(request.path, found, answer)
                else:
                    await answer.write(await found.read())
                return answer
        except (aiohttp.ClientError, OSError):
            # The server is away: so is the connection.
            if request.transport is not None:
                request.transport.abort()
            raise

    async def _pass_on(
        self, path: str, found: aiohttp.ClientResponse, answer: web.StreamResponse
    ) -> None:
        """Whole lines of a watch, until the version is to be gone."""
        gone = asyncio.Event()
        self._open[gone] = path
        ended = asyncio.create_task(gone.wait())
        rest = b""
        try:
            while True:
                reading = asyncio.ensure_future(found.content.readany())
                await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
                if gone.is_set():
                    reading.cancel()
                    self.altered[path] += 1
                    event = {"type": "ERROR", "object": GONE}
                    await answer.write(json.dumps(event).encode() + b"\n")
                    return
                data = reading.result()
                if not data:
                    await answer.write(rest)
                    return
                whole, line_end, rest = (rest + data).rpartition(b"\n")
                await answer.write(whole + line_end)
        finally:
            ended.cancel()
            del self._open[gone]


def _lists(request: web.Request) -> bool:
    streaming = "sendInitialEvents" in request.query
    return streaming or ("limit" in request.query and "continue" not in request.query)


def _watches(request: web.Request) -> bool:
    """From a version on."""
    return "watch" in request.query and not _lists(request)
