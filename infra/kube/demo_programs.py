"""What the demonstration talks to: kubectl for the servers, `wharfinger` for the plane. Both run as
a person runs them, and what they print is shown as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from infra.kube.programs import programs

Json = dict[str, Any]

PATIENCE_S = 150.0
LOOK_S = 0.3
LINES_MAX = 24
"""Of one answer that is shown."""
WIDTH_MAX = 130
"""Of a line of it."""

NAMESPACE = "wharfinger-system"


class DemoError(Exception):
    """A step did not come true; in one line."""


def say(sentence: str, *, title: bool = False) -> None:
    if title:
        print(flush=True)
    print("\n".join(textwrap.wrap(sentence, 100)), flush=True)


def until(what: str, done: Callable[[], bool], so_far: Callable[[], str] = lambda: "") -> None:
    """DemoError, with what there is of it, where it does not come."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise DemoError(
                f"waited {PATIENCE_S:.0f} s for {what}; {so_far() or 'it did not come'}"
            )
        time.sleep(LOOK_S)


def _run(arguments: list[str], text: str | None, environment: dict[str, str] | None = None) -> str:
    run = subprocess.run(
        arguments, input=text, capture_output=True, text=True, check=False, env=environment
    )
    if run.returncode != 0:
        said = (run.stderr.strip() or run.stdout.strip()).replace("\n", " ")
        raise DemoError(f"{Path(arguments[0]).name} ended with {run.returncode}: {said[-600:]}")
    return run.stdout


def _show(command: str, answer: str, *, last: bool) -> None:
    print(f"  $ {command}", flush=True)
    lines = answer.rstrip().split("\n")
    lines = lines[-1:] if last else lines
    for line in lines[:LINES_MAX]:
        print(f"  {line}"[:WIDTH_MAX].rstrip())
    if len(lines) > LINES_MAX:
        print(f"  ... and {len(lines) - LINES_MAX} more lines")
    sys.stdout.flush()


class Server:
    """One API server, asked and changed by kubectl as its administrator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return _run(self._command(arguments), text)

    def show(self, *arguments: str, last: bool = False) -> None:
        """`last`: only the last line of the answer."""
        answer = self.kubectl(*arguments)
        shown = [one.partition("=")[0] if one.startswith("custom-") else one for one in arguments]
        _show(f"kubectl --context {self.name} {' '.join(shown)}", answer, last=last)

    def apply(self, *objects: Json) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "-f", "-", text=text)

    def get(self, kind: str, name: str, namespace: str) -> Json:
        return cast(
            Json, json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        )

    def items(self, kind: str, *arguments: str) -> list[Json]:
        return cast(
            list[Json], json.loads(self.kubectl("get", kind, "-o", "json", *arguments))["items"]
        )

    def pods(self, namespace: str) -> dict[str, str]:
        """uid -> node, of the pods that have one and do not end."""
        return {
            one["metadata"]["uid"]: one["spec"]["nodeName"]
            for one in self.items("pods", "-n", namespace)
            if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
        }

    def by_node(self, namespace: str) -> Counter[str]:
        return Counter(self.pods(namespace).values())

    def watched_least(self, look: Callable[[], int], *arguments: str) -> int:
        """The least that `look` returned while kubectl did this."""
        run = subprocess.Popen(
            self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        least = look()
        while run.poll() is None:
            least = min(least, look())
        answer = run.stdout.read() if run.stdout else ""
        if run.returncode != 0:
            raise DemoError(f"kubectl {arguments[0]}: {answer.strip()[-600:]}")
        _show(f"kubectl --context {self.name} {' '.join(arguments)}", answer, last=True)
        return least

    def token_kubeconfig(self, account: str) -> Path:
        """As one gives it to the plane: the address, the authority, and a token of the account."""
        config: Json = json.loads((self.directory / "admin.kubeconfig").read_text())
        token = self.kubectl("create", "token", account, "-n", NAMESPACE, "--duration=1h")
        config["users"][0]["user"] = {"token": token.strip()}
        path = self.directory / f"{account}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [
            str(programs() / "kubectl"),
            f"--kubeconfig={self.directory / 'admin.kubeconfig'}",
            *arguments,
        ]


class Plane:
    """A plane of its own in a directory. It ends with this process, if that is killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {
            **os.environ,
            "WHARFINGER_DATA_DIR": str(directory),
            "WHARFINGER_OWNER_PID": str(os.getpid()),
            "COLUMNS": "100",
        }

    def up(self) -> None:
        self._wharfinger("up", "--detach")

    def down(self) -> None:
        if self._directory.exists():
            self._wharfinger("down")

    def join(self, server: Server, *options: str) -> None:
        """The rights that are printed are applied; then it is joined with tokens of the two
        accounts."""
        rights = self._wharfinger("join", server.name, *options, "--print-rbac")
        server.kubectl("apply", "--server-side", "-f", "-", text=rights)
        reads = server.token_kubeconfig("wharfinger-collector")
        writes = server.token_kubeconfig("wharfinger-actuator")
        self._wharfinger(
            "join", server.name, *options, f"--kubeconfig={reads}", f"--write-kubeconfig={writes}"
        )

    def show(self, *arguments: str) -> str:
        """What it answers; DemoError where it does not end with 0."""
        answer = self._wharfinger(*arguments)
        _show(f"wharfinger {' '.join(arguments)}", answer, last=False)
        return answer

    def _wharfinger(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "wharfinger_cli", *arguments]
        try:
            return _run(command, None, self._environment)
        except DemoError as error:
            raise DemoError(f"wharfinger {arguments[0]}: {error}") from None
