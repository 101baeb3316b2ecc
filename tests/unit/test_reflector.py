"""A reflector before servers that end what they begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from wharfinger.runtime.kube import api as api_module
from wharfinger.runtime.kube import reflector as reflector_module
from wharfinger.runtime.kube.api import KubeApi, UnreachableError
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.kube.reflector import PAUSE_S_MIN, Reflector

LIST = b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}'


class Nothing:
    def replace(self, objects: Sequence[bytes], version: str) -> None: ...
    def upsert(self, object_: bytes, version: str) -> None: ...
    def remove(self, object_: bytes, version: str) -> None: ...
    def alive(self, version: str) -> None: ...
    def broken(self, why: str) -> None: ...


class Alive(Nothing):
    """After the list."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def alive(self, version: str) -> None:
        self.heard.append("alive")

    def broken(self, why: str) -> None:
        self.heard.append("broken")


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

    async def quiet(request: web.Request) -> web.StreamResponse:
        """Open until somebody in between cuts it."""
        if not request.query.get("watch") or request.query.get("sendInitialEvents"):
            return await answer(request)
        stream = web.StreamResponse()
        await stream.prepare(request)
        cut = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, cut.set)
        await cut.wait()
        assert request.transport is not None
        request.transport.abort()
        return stream

    async def endless(request: web.Request) -> web.StreamResponse:
        """Packed: a thousandth of it goes over the wire."""
        if request.query.get("sendInitialEvents"):
            return await answer(request)
        stream = web.StreamResponse()
        stream.enable_compression(web.ContentCoding.gzip)
        await stream.prepare(request)
        while True:
            await stream.write(b" " * 2**20)

    app.router.add_get("/things", answer)
    app.router.add_get("/endless", endless)
    app.router.add_get("/quiet", quiet)
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


async def test_a_watch_that_worked_is_begun_again_after_the_shortest_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a kind that does not change, each connection is cut after it was open for some time: no
    version is seen in it."""
    monkeypatch.setattr(reflector_module, "WATCH_S_MIN", 0.02)
    pauses: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep
    sink = Alive()

    async def paused(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        if len(pauses) == 6:
            enough.set()
        await sleep(0)

    async with server() as url, KubeApi(Access(url)) as api:
        monkeypatch.setattr(asyncio, "sleep", paused)
        reflector = Reflector(api, "/quiet", bytes, sink, chance=lambda: 0.999)
        task = asyncio.create_task(reflector.run())
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert max(pauses[1:]) <= PAUSE_S_MIN  # the first one is before the list by pages
    assert sink.heard[:4] == ["alive", "broken"] * 2, "whole again without a bookmark"


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


class Broken(Nothing):
    def __init__(self) -> None:
        self.why: asyncio.Queue[str] = asyncio.Queue()

    def broken(self, why: str) -> None:
        self.why.put_nowait(why)


async def test_an_answer_without_end_is_an_error_and_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_module, "ANSWER_BYTES_MAX", 3 * 2**20)
    monkeypatch.setattr(reflector_module, "EVENT_BYTES_MAX", 2 * 2**20)
    async with server() as url, KubeApi(Access(url)) as api:
        with pytest.raises(UnreachableError, match=f"{url}/endless: expected at most 3 MiB"):
            await api.request("GET", "/endless")
        sink = Broken()
        reflector = Reflector(api, "/endless", bytes, sink)
        reflector._version = "7"  # so that it watches
        task = asyncio.create_task(reflector.run())
        assert await sink.why.get() == "an event of more than 2 MiB"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
