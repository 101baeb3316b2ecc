"""Connections of clients: how much is kept for one that does not read, and for how long.

Closing a connection waits until the client has read what was written, and one that never reads
would keep it for as long as it lives. So the kernel ends a connection that has taken nothing for
`SLOW_S`, of an event stream as well as of an answer with an end. It does so for all connections
that a socket with these options accepts.

Requests are read by llhttp, which bounds nothing. A client that sends a head without an end, or
lines behind a body, is refused.
"""

from __future__ import annotations

import socket
from asyncio import BaseTransport, Transport
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wharfinger_api.certificates import SCOPE_KEY as CERTIFICATE_KEY

SLOW_S = 30.0
UNSENT_MAX = 128 * 1024
"""Bytes that the kernel takes for a client beyond those that are on their way to it. Without it, it
takes as much as it may send at once, up to several megabytes, for a client that never reads too."""

UNFINISHED_MAX = 64 * 1024
"""Bytes beyond the first ones of a part of a request, of which nothing could be handed on: of its
head, of what describes a piece of its body, or of lines behind its body."""

SCOPE_KEY = "wharfinger.connection"


class Connection(HttpToolsProtocol):
    """uvicorn gives an application nothing of the connection. This puts itself into the scope of
    each request, and the certificate that the client has proven."""

    slow = False
    """It has ended because the client took nothing."""

    _handed_on = False
    _unfinished = 0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self.app = _with(self.app, self, certificate or None)

    def data_received(self, data: bytes) -> None:
        self._handed_on = False
        super().data_received(data)
        self._unfinished = 0 if self._handed_on else self._unfinished + len(data)
        if self._unfinished > UNFINISHED_MAX and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        self._handed_on = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._handed_on = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._handed_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._handed_on = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.slow = isinstance(exc, TimeoutError)
        super().connection_lost(exc)


def _with(app: Any, connection: Connection, certificate: bytes | None) -> Any:
    inner: ASGIApp = app

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        scope[SCOPE_KEY] = connection
        if certificate is not None:
            scope[CERTIFICATE_KEY] = certificate
        await inner(scope, receive, send)

    return known


def ended_as_slow(scope: Scope) -> bool:
    """Whether the connection of a request has ended because its client took nothing."""
    connection: Connection | None = scope.get(SCOPE_KEY)
    return connection is not None and connection.slow


def listening_socket(host: str, port: int, slow_s: float = SLOW_S) -> socket.socket:
    """Connections that it accepts inherit its options. Systems other than Linux lack some of them:
    there a client that takes nothing keeps its connection. OSError: the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", int(1000 * slow_s)),
        ("TCP_NOTSENT_LOWAT", UNSENT_MAX),
    ):
        if (option := getattr(socket, name, None)) is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
    listening.bind((host, port))
    listening.set_inheritable(False)
    return listening
