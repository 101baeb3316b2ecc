"""A reflector before servers that end what they begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.kube.reflector import Reflector

LIST = b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}'


class Nothing:
    def replace(self, objects: Sequence[bytes], version: str) -> None: ...
    def upsert(self, object_: bytes, version: str) -> None: ...
    def remove(self, object_: bytes, version: str) -> None: ...
    def alive(self, version: str) -> None: ...
    def broken(self, why: str) -> None: ...


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """Lists by pages, and ends every watch at once."""

    async def answer(request: web.Request) -> web.Response:
        if request.query.get("sendInitialEvents"):
            return web.json_response({"kind": "Status", "message": "no", "code": 422}, status=422)
        return web.Response(body=b"" if request.query.get("watch") else LIST)

    app = web.Application()

    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"})

    app.router.add_get("/things", answer)
    app.router.add_get("/busy", busy)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_watches_that_end_at_once_are_begun_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def paused(seconds: float) -> None:
        if seconds:  # aiohttp sleeps too, for no time
            pauses.append(seconds)
        if len(pauses) == 5:
            enough.set()
        await sleep(0)

    async with server() as url, KubeApi(Access(url)) as api:
        monkeypatch.setattr(asyncio, "sleep", paused)
        reflector = Reflector(api, "/things", bytes, Nothing(), chance=lambda: 0.999)
        task = asyncio.create_task(reflector.run())
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    watched = pauses[1:5]  # the first one is before the list by pages
    assert watched == sorted(watched)
    assert watched[-1] >= 4 * watched[0]


async def test_a_server_that_asks_for_a_pause_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with Retry-After, as priority and fairness of requests answers."""
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def paused(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            enough.set()
        await sleep(0)

    async with server() as url, KubeApi(Access(url)) as api:
        monkeypatch.setattr(asyncio, "sleep", paused)
        task = asyncio.create_task(Reflector(api, "/busy", bytes, Nothing()).run())
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert pauses[0] == 7.0
