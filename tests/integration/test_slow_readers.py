"""Readers that take nothing, over real connections: each is cut, what is kept for it is bounded,
and no other reader waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.patience import PATIENCE_S, eventually
from tests.providers import Authority

from wharfinger.runtime.observability import METRICS
from wharfinger_api.connections import listening_socket
from wharfinger_api.events import SSE, StreamedAnswer
from wharfinger_api.server import ApiServer, configured

pytestmark = pytest.mark.integration

SLOW_S = 1.0
PART = b"data: " + bytes(10_000) + b"\n\n"
WHOLE = 4_000_000
RECEIVED_MAX = 4096
KEPT_MAX = 1024 * 1024
"""What lies in the buffers of both ends."""


class Answers:
    """`/parts` without an end, `/whole` with one."""

    def __init__(self) -> None:
        self.made = 0
        """Bytes of parts."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/parts":
            await StreamedAnswer(self._parts(), 0, SSE)(scope, receive, send)
        else:
            await Response(bytes(WHOLE))(scope, receive, send)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        while True:
            self.made += len(PART)
            yield PART
            await asyncio.sleep(0)


@asynccontextmanager
async def served(answers: Answers, tls: ssl.SSLContext | None) -> AsyncIterator[ApiServer]:
    with listening_socket("127.0.0.1", 0, SLOW_S) as listening:
        server = ApiServer(configured(answers, tls))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await eventually(lambda: server.started)
        try:
            yield server
        finally:
            server.should_exit = True
            await serving


def port_of(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


def closed(why: str) -> float:
    return METRICS.registry.get_sample_value("wharfinger_sse_closed_total", {"why": why}) or 0.0


async def asking(port: int, path: str, tls: ssl.SSLContext | None) -> socket.socket:
    """A connection that has asked, and does not read."""
    connection: socket.socket = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_MAX)

    def ask() -> socket.socket:
        connection.connect(("127.0.0.1", port))
        talking = connection
        if tls is not None:
            talking = tls.wrap_socket(connection, server_hostname="127.0.0.1")
        talking.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        return talking

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("secured", [False, True])
async def test_a_reader_that_takes_nothing_is_cut(tmp_path: Path, secured: bool) -> None:
    """Its connection too, with what was written to it: closing would wait until that is read."""
    answers, slow_before = Answers(), closed("slow")
    server_tls = client_tls = None
    if secured:
        certificate, key = Authority(tmp_path).certificate("server")
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(certificate, key)
        client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client_tls.check_hostname, client_tls.verify_mode = False, ssl.CERT_NONE
    async with served(answers, server_tls) as server:
        with await asking(port_of(server), "/parts", client_tls):
            state = server.server_state
            await eventually(lambda: closed("slow") > slow_before, lambda: answers.made)
            await eventually(lambda: not state.connections and not state.tasks)
    assert answers.made < KEPT_MAX


async def test_an_answer_that_is_not_read_is_given_up() -> None:
    async with served(Answers(), None) as server:
        with await asking(port_of(server), "/whole", None):
            await eventually(lambda: server.server_state.total_requests == 1)
            await eventually(lambda: not server.server_state.connections)


async def test_readers_that_take_nothing_hold_up_no_other() -> None:
    answers = Answers()
    async with served(answers, None) as server:
        port = port_of(server)
        with ExitStack() as deaf:
            for _ in range(20):
                deaf.enter_context(await asking(port, "/parts", None))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /parts HTTP/1.1\r\nHost: here\r\n\r\n")
            wanted = 10 * KEPT_MAX
            async with asyncio.timeout(PATIENCE_S):
                while wanted > 0:
                    wanted -= len(await reader.read(65_536))
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await eventually(lambda: not server.server_state.connections)
    assert answers.made < 31 * KEPT_MAX
