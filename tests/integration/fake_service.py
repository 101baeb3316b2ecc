"""What a service process looks like from outside: a card in `run/`, an answer at `/readyz`, an end
at SIGTERM.

How it behaves is written in `<data-dir>/behaviour`: empty is well; `crash` ends at once with 70;
`gone` ends at once with 69, as a service does whose database is another one; `deaf` ignores
SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

DATA_DIR = Path(os.environ["WHARFINGER_DATA_DIR"])


class Readyz(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(
            {"ready": True, "services": {"pretender": {"ready": True, "lag": 0, "failed": ""}}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def main() -> int:
    behaviour = (DATA_DIR / "behaviour").read_text() if (DATA_DIR / "behaviour").exists() else ""
    print("born under", os.environ["WHARFINGER_BROKER_BOOT_ID"], "at", time.monotonic(), flush=True)
    if behaviour == "crash":
        print("cannot go on: the wind is wrong", flush=True)
        return 70
    if behaviour == "gone":
        print("the database is another one now", flush=True)
        return 69
    stopping = threading.Event()
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN if behaviour == "deaf" else lambda *_: stopping.set()
    )
    server = HTTPServer(("127.0.0.1", 0), Readyz)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    card = DATA_DIR / "run" / f"pretender-{os.getpid()}.json"
    card.parent.mkdir(parents=True, exist_ok=True)
    draft = card.with_suffix(".new")
    draft.write_text(
        json.dumps({"pid": os.getpid(), "http_port": server.server_port, "services": ["pretender"]})
    )
    draft.replace(card)
    stopping.wait()
    card.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
