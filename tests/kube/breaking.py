"""A TCP proxy in front of a real API server that cuts connections, refuses new ones, or lets them
stand still."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Self
from urllib.parse import urlsplit

from tests.kube.member import Member

from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig


class Breaking:
    """`access`: of the server, through the proxy."""

    def __init__(self, member: Member, user: str = "admin") -> None:
        self._direct = read_kubeconfig(member.kubeconfig(user))
        server = urlsplit(self._direct.server)
        assert server.hostname is not None
        assert server.port is not None
        self._target = server.hostname, server.port
        self._server: asyncio.Server | None = None
        self._closed = False
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
        return replace(self._direct, server=f"https://127.0.0.1:{self._port}")

    def cut(self) -> None:
        """Reset every connection that there is."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self) -> None:
        """Reset all and every new one at once, until `open`."""
        self._closed = True
        self.cut()

    def open(self) -> None:
        self._closed = False

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
            task = asyncio.create_task(_pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()
