"""A receiver of webhooks on a loopback port: keeps what it gets, and answers as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass(slots=True)
class Got:
    """One request. `status`: how it was answered; 0: not at all."""

    headers: dict[str, str]
    body: bytes
    event: dict[str, Any]
    status: int
    at: float

    def verify(self, secret: str) -> None:
        """As the reference library does it."""
        Webhook(secret).verify(self.body, self.headers)


@dataclass(slots=True)
class Answering:
    """`status` of each event, and how long it takes."""

    status: Callable[[dict[str, Any]], int] = lambda event: 200
    wait_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


class Receiver:
    def __init__(self) -> None:
        self.answering = Answering()
        self.got: list[Got] = []
        self.lock = threading.Lock()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def taken(self) -> list[Got]:
        """Those that were answered as delivered."""
        with self.lock:
            return [one for one in self.got if 200 <= one.status < 300]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            event = json.loads(body)
            now = receiver.answering
            status = now.status(event)
            headers = {name.lower(): value for name, value in self.headers.items()}
            with receiver.lock:
                receiver.got.append(Got(headers, body, event, status, time.time()))
            time.sleep(now.wait_s)
            if not status:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(status)
            for name, value in now.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args: object) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except (OSError, ValueError):
                pass  # who sends was killed

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
