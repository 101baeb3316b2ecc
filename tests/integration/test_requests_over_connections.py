"""What the server makes of bytes that are no proper request, or do not end: one answer, and the
connection is closed. Over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.patience import PATIENCE_S, eventually

from wharfinger_api.connections import listening_socket
from wharfinger_api.server import ApiServer, configured

pytestmark = pytest.mark.integration

FLOOD = 64 * 1024 * 1024


async def telling(scope: Scope, receive: Receive, send: Send) -> None:
    """What was asked, with the size of its body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    said = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "headers": sorted(name.decode() for name, _ in scope["headers"]),
        "size": size,
    }
    await Response(json.dumps(said), media_type="application/json")(scope, receive, send)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[ApiServer, int]]:
    with listening_socket("127.0.0.1", 0) as listening:
        server = ApiServer(configured(telling, None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await eventually(lambda: server.started)
        try:
            yield server, int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await serving


async def said_to(port: int, parts: Iterator[bytes]) -> tuple[bytes, int]:
    """All that was answered until the connection was closed, and how much was sent to it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            try:
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    sent += len(part)
            except ConnectionError:
                pass
            try:
                return await reader.read(), sent
            except ConnectionError:
                return b"", sent  # it was closed before all of ours was read
    finally:
        writer.transport.abort()


def endless(begin: bytes, more: bytes) -> Iterator[bytes]:
    yield begin
    piece = more * (16_384 // len(more))
    for _ in range(FLOOD // len(piece)):
        yield piece


CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nHost: here\r\na: ", b"b"),
        (b"GET / HTTP/1.1\r\nHost: here\r\n", b"a: b\r\n"),
        (b"GET / HTTP/1.1\r\nHost: here\r\n", b"a" * 64),
        (CHUNKED + b"1;", b"a"),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n"),
        (CHUNKED + b"1\r\nx\r\n0\r\na: ", b"b"),
    ],
)
async def test_a_part_of_a_request_without_an_end_is_refused(begin: bytes, more: bytes) -> None:
    async with served() as (server, port):
        answer, sent = await said_to(port, endless(begin, more))
        await eventually(lambda: not server.server_state.connections)
        await eventually(lambda: not server.server_state.tasks)
    assert answer.startswith(b"HTTP/1.1 400 ") or not answer
    assert sent < FLOOD


@pytest.mark.parametrize(
    "request_",
    [
        b"no request\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: here\r\n\r\n",
        b"CONNECT here:1 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: here\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\nHost : here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: he\x00re\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost: here\n\n",
    ],
)
async def test_what_is_no_request_is_refused(request_: bytes) -> None:
    """Also where two servers could understand it differently."""
    async with served() as (server, port):
        answer, _ = await said_to(port, iter([request_]))
        await eventually(lambda: not server.server_state.connections)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_requests_come_in_pieces_of_any_size_and_one_behind_the_other() -> None:
    body = b"x" * 300_000
    head = b"POST /a%20b?c=d HTTP/1.1\r\nHost: here\r\nContent-Length: 300000\r\n\r\n"
    last = b"GET /last HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    chunked = CHUNKED + b"3\r\nabc\r\n0\r\nbehind: it\r\n\r\n"
    whole = head + body + chunked + last
    for size in (7, 1000, len(whole)):
        pieces = (whole[at : at + size] for at in range(0, len(whole), size))
        if size == 7:  # of a body that is as small
            whole_small = chunked + last
            pieces = (whole_small[at : at + size] for at in range(0, len(whole_small), size))
        async with served() as (_, port):
            answer, _ = await said_to(port, pieces)
        found = [json.loads(one.split(b"\r\n\r\n")[1]) for one in answer.split(b"HTTP/1.1 200")[1:]]
        if size != 7:
            first = found.pop(0)
            assert (first["method"], first["path"], first["query"]) == ("POST", "/a b", "c=d")
            assert first["size"] == len(body)
        assert [(one["path"], one["size"]) for one in found] == [("/", 3), ("/last", 0)]
