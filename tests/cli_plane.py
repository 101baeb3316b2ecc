"""A plane with a small fleet, and the commands that a user runs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.commands import in_process
from tests.patience import PATIENCE_S, until
from tests.processes import lives

FLEET = (
    "generate",
    "fleet",
    "--clusters",
    "4",
    "--nodes",
    "40",
    "--bindings",
    "60",
    "--seed",
    "5",
    "--apply",
)

READING = ("status", "decisions", "get", "explain", "history", "lineage", "dead-letters")
"""Commands that only read, or send again what was read."""

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: quay, annotations: {{wharfinger.io/placement: any}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: web, resources: {{requests: {{cpu: 10m}}}}}}]}}
"""


def environment() -> dict[str, str]:
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("WHARFINGER_")
    }
    return {
        **plain,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": "120",
        "WHARFINGER_OWNER_PID": str(os.getpid()),
    }


class Cli:
    """`wharfinger --data-dir ...`. What only reads runs in this process: a command that is started
    costs half a processor second. `test_cli.py` and `unit/test_cli.py` compare the two."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def command(self, *arguments: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "wharfinger_cli",
            "--data-dir",
            str(self.data_dir),
            *arguments,
        ]

    def run(self, *arguments: str, stdin: str = "", code: int | None = 0) -> str:
        here = arguments[0] in READING
        done = (self.in_process if here else self.started)(*arguments, stdin=stdin)
        assert done.returncode in ((0, 1) if code is None else (code,)), done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        return done.stdout if code != 2 else done.stderr

    def in_process(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return in_process(["--data-dir", str(self.data_dir), *arguments], environment(), stdin)

    def started(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def json(self, *arguments: str, stdin: str = "", code: int | None = 0) -> Any:
        return json.loads(self.run(*arguments, "-o", "json", stdin=stdin, code=code))

    def decisions(self, *arguments: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.run("decisions", "-o", "json", *arguments).splitlines()
        ]

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def settle(self, bindings: int = 0) -> None:
        """Until the fleet has a decision for each of so many bindings, no stream has moved for a
        second and no service lags. On a busy machine records may lie on a topic for longer than
        that before they are fetched."""
        before, since = None, time.monotonic()

        def calm() -> bool:
            nonlocal before, since
            status = self.json("status")
            now = {name: head["hash"] for name, head in status["streams"].items()}
            decided = status["streams"].get("fleet/0", {"seq": 0})["seq"]
            if (
                now != before
                or decided < bindings
                or not all(s["ready"] and s["lag"] == 0 for s in status["services"].values())
            ):
                before, since = now, time.monotonic()
            return time.monotonic() - since > 1.0

        until(calm)


def living(pids: Sequence[int]) -> list[int]:
    return [p for p in pids if lives(p)]


@contextmanager
def a_fleet(data_dir: Path) -> Iterator[Cli]:
    """A plane with a small fleet whose bindings have all been decided."""
    cli = Cli(data_dir)
    try:
        cli.run("up", "--detach")
        cli.run(*FLEET)
        cli.settle(int(FLEET[FLEET.index("--bindings") + 1]))
        yield cli
    finally:
        cli.run("down")
