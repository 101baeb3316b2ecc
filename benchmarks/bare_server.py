"""A server that answers with so many bytes and does nothing else: the raw limit of the HTTP API.

It is the same server program with the same protocol code (uvicorn, httptools), in a process of its
own. `/bytes/N` answers N bytes; `/frames/COUNT/BYTES` answers COUNT server-sent events of BYTES
each, in parts as large as the pages of the API.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import uvicorn
from starlette.types import Receive, Scope, Send

from benchmarks.child import a_child

FRAMES_A_PART = 500
_FRAME = b"id: 1\nevent: none\ndata: %s\n\n"


@contextmanager
def bare_server() -> Iterator[int]:
    """Its port."""
    with a_child(_run) as pipe:
        try:
            yield int(pipe.recv())
        except EOFError:
            raise RuntimeError("the bare server ended by itself") from None


def _run(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            answer,
            http="httptools",
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
    )
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pipe.fileno())
        server.should_exit = True

    with socket.create_server(("127.0.0.1", 0)) as listening:
        pipe.send(listening.getsockname()[1])
        loop.add_reader(pipe.fileno(), ended)  # nothing is sent to it
        await server.serve(sockets=[listening])


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    what, *numbers = scope["path"].strip("/").split("/")
    headers = [(b"content-type", b"application/octet-stream")]
    if what == "bytes":
        (size,) = map(int, numbers)
        headers.append((b"content-length", b"%d" % size))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size)})
        return
    count, size = map(int, numbers)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    frame = _FRAME % (b"x" * max(0, size - len(_FRAME % b"")))
    await _body(send, b"retry: 1\nevent: opened\ndata: {}\n\n")
    while count > 0:
        await _body(send, frame * min(count, FRAMES_A_PART))
        count -= FRAMES_A_PART
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})
