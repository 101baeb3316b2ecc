"""A member cluster in tests, asked and changed by kubectl: the referee is never our own client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from infra.kube import cluster
from infra.kube.programs import programs
from tests.patience import until

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
            self.command(*arguments, user=user),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def command(self, *arguments: str, user: str = "admin") -> list[str]:
        """What runs kubectl."""
        return [str(self._kubectl), f"--kubeconfig={self.kubeconfig(user)}", *arguments]

    def restart(self, process: str) -> None:
        """Kill -9 and start again, until it answers. On the main thread: with the thread that
        starts it, it ends."""
        cluster.restart(self.directory, process)

    def items(self, kind: str, *arguments: str) -> list[Json]:
        found: list[Json] = json.loads(self.kubectl("get", kind, "-o", "json", *arguments))["items"]
        return found

    def apply(self, *objects: Json) -> None:
        """Created or changed, in one call. It is repeated until the controller manager has made
        the default service accounts of new namespaces: pods are refused before."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})

        def applied() -> bool:
            try:
                self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
            except RuntimeError as error:
                if "error looking up service account" not in str(error):
                    raise
                return False
            return True

        until(applied)

    def await_nodes(self, names: Collection[str]) -> list[Json]:
        """These nodes once KWOK and the controllers are done with all of them: they are ready, and
        the taint of a new node is gone. Until then pods go elsewhere."""
        found: list[Json] = []

        def settled() -> bool:
            nodes = [node for node in self.items("nodes") if node["metadata"]["name"] in names]
            found[:] = [node for node in nodes if _is_settled(node)]
            return len(found) == len(names)

        until(settled)
        return found

    def empty(self) -> None:
        """Remove what other tests have left: all nodes, all pods, and what controllers make pods
        of. Those would come again, and a scheduler would place them."""
        makers = "deployments,statefulsets,daemonsets,replicasets,jobs"
        self.kubectl("delete", makers, "--all", "--all-namespaces")

        def gone() -> bool:
            found = ("pods", "--all", "--all-namespaces", "--force", "--grace-period=0")
            self.kubectl("delete", *found)
            return not self.items("pods", "--all-namespaces")

        until(gone, every_s=0.5)
        self.kubectl("delete", "nodes", "--all")

    def audit(self, user: str) -> list[Json]:
        """What a user called, in order, as the server's audit log has it. A request that was cut
        off early has no user."""
        # The last line may be half written.
        lines = (self.directory / "audit.log").read_text().split("\n")[:-1]
        entries: list[Json] = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["user"].get("username") == user]


def _is_settled(node: Json) -> bool:
    conditions = node["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not any("kubernetes.io" in t["key"] for t in node["spec"].get("taints", ()))


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(namespace: str, name: str, **data: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }
