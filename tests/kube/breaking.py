"""A TCP proxy in front of a real API server that cuts connections and refuses new ones; and the
compaction of the storage behind the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self
from urllib.parse import urlsplit

from infra.kube import cluster
from tests.kube.member import Member
from tests.patience import eventually

from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig

FIRST_CUT_S, LAST_CUT = 0.1, 7


class Breaking:
    """`access`: of the server, through the proxy. One that is given leads to another proxy behind
    this one."""

    def __init__(self, member: Member, user: str = "admin", access: Access | None = None) -> None:
        self._direct = access or read_kubeconfig(member.kubeconfig(user))
        server = urlsplit(self._direct.server)
        assert server.hostname is not None
        assert server.port is not None
        self._target = server.hostname, server.port
        self._server: asyncio.Server | None = None
        self._closed = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def access(self) -> Access:
        scheme = urlsplit(self._direct.server).scheme
        return replace(self._direct, server=f"{scheme}://127.0.0.1:{self._port}")

    def cut(self) -> None:
        """Reset every connection that there is."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def cut_until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Cut again and again until it holds, each time with twice the time to connect and ask."""
        pauses_s = (FIRST_CUT_S * 2**number for number in range(LAST_CUT))

        async def holds() -> bool:
            self.cut()
            await asyncio.sleep(next(pauses_s, FIRST_CUT_S * 2**LAST_CUT))
            return await condition()

        await eventually(holds)

    def close(self) -> None:
        """Reset all and every new one at once, until `open`."""
        self._closed = True
        self.cut()

    def open(self) -> None:
        self._closed = False

    def hold(self) -> None:
        """Connections stay, and nothing more arrives at either end, until `pass_on`."""
        self._passing.clear()

    def pass_on(self) -> None:
        self._passing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await self._passing.wait()
                target.write(data)
                await target.drain()
        target.close()


def compacted(member: Member) -> None:
    """All versions but the newest are gone from the storage."""
    found = cluster.find(member.directory)
    assert found is not None
    flag = next(f for f in found.commands["etcd"] if f.startswith("--listen-client-urls="))
    url = flag.partition("=")[2] + "/v3/kv/"

    def call(what: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(url + what, json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            said: dict[str, dict[str, str]] = json.loads(answer.read())
            return said

    revision = call("range", {"key": "AA==", "keys_only": True})["header"]["revision"]
    call("compaction", {"revision": revision, "physical": True})
