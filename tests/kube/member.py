"""A member cluster in tests, asked and changed by kubectl: the referee is never our own client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from infra.kube import cluster
from infra.kube.programs import programs

Json = dict[str, Any]


class Member:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name
        self._kubectl = programs() / "kubectl"

    def kubeconfig(self, user: str = "admin") -> Path:
        return self.directory / f"{user}.kubeconfig"

    def kubectl(self, *arguments: str, stdin: str | None = None, user: str = "admin") -> str:
        """What it prints; an error of kubectl is a RuntimeError with its words."""
        done = subprocess.run(
            [str(self._kubectl), f"--kubeconfig={self.kubeconfig(user)}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def restart(self, process: str) -> None:
        """Kill -9 and start again, until it answers. On the main thread: with the thread that
        starts it, it ends."""
        cluster.restart(self.directory, process)

    def items(self, kind: str, *arguments: str) -> list[Json]:
        found: list[Json] = json.loads(self.kubectl("get", kind, "-o", "json", *arguments))["items"]
        return found

    def apply(self, *objects: Json) -> None:
        """Created or changed, in one call."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def audit(self, user: str) -> list[Json]:
        """What a user called, in order, as the server's audit log has it. A request that was cut
        off early has no user."""
        # The last line may be half written.
        lines = (self.directory / "audit.log").read_text().split("\n")[:-1]
        entries: list[Json] = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["user"].get("username") == user]


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(namespace: str, name: str, **data: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }
