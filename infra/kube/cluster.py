"""One Kubernetes control plane on loopback: etcd and the API server, and what else is asked for.

RBAC is on, every user has a certificate and a kubeconfig of its own, and the audit log says what
each of them called. Nodes exist only as objects; KWOK, where it runs, keeps them ready and their
pods running.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from infra.kube.certificates import Authority, Pair, signing_key
from infra.kube.programs import KubeError, programs

from wharfinger.runtime.processes import (
    ProcessIdentity,
    die_with_parent,
    end,
    last_lines,
    wait_until,
)

READY_S_MAX = 180.0
STOP_S_MAX = 20.0
LOOPBACK = "127.0.0.1"

CONTROLLERS, HUB_CONTROLLERS = "controllers", "hub-controllers"
SCHEDULER, KWOK = "scheduler", "kwok"
OPTIONAL = (CONTROLLERS, HUB_CONTROLLERS, SCHEDULER, KWOK)

CONTROLLERS_OF_A_HUB = ("namespace", "garbagecollector", "serviceaccount-token")
"""Those of Kubernetes that Karmada runs on its own API server and that objects of a test need. A
Deployment there is a template: nothing makes pods of it."""

USERS = {
    "admin": "system:masters",
    "kube-controller-manager": "",
    "kube-scheduler": "",
    "kwok": "system:masters",
    "karpenter": "system:masters",
    "collector": "",
    "actuator": "",
}
"""File name of a kubeconfig -> the user's group. The two of ours have no right that a test did not
give them."""

_SYSTEM_USERS = {"kube-controller-manager", "kube-scheduler"}

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager, system:kube-scheduler, kwok]
- level: Metadata
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane that runs. `directory` has `<user>.kubeconfig`, `audit.log` and a log of each
    process."""

    directory: Path
    port: int
    processes: dict[str, ProcessIdentity]
    commands: dict[str, list[str]]
    """Name of a process -> the flags that it was started with."""

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    def kubeconfig(self, user: str = "admin") -> Path:
        return self.directory / f"{user}.kubeconfig"


def find(directory: Path) -> Cluster | None:
    """What runs there; None where nothing does, or not all of it."""
    found = _recorded(directory)
    return found if found and all(process.alive for process in found.processes.values()) else None


def _recorded(directory: Path) -> Cluster | None:
    """What was started there last and not stopped since, whether it runs or not."""
    try:
        state = json.loads((directory / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    processes = {name: ProcessIdentity(*identity) for name, identity in state["processes"].items()}
    return Cluster(directory, state["port"], processes, state["commands"])


def start(directory: Path, wanted: Sequence[str] = (), *, with_parent: bool = False) -> Cluster:
    """A control plane that answers. What is stored in the directory is kept. `wanted`: of
    `OPTIONAL`. `with_parent`: its processes end with the one that calls."""
    if unknown := set(wanted) - set(OPTIONAL):
        raise KubeError(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(OPTIONAL)}")
    if (running := find(directory)) is not None:
        return running
    stop(directory)
    directory.mkdir(parents=True, exist_ok=True)
    starting = _Start(directory, programs(), with_parent)
    try:
        return starting.cluster(wanted)
    except BaseException:
        starting.end()
        raise


def restart(directory: Path, *names: str, between: Callable[[], None] = lambda: None) -> None:
    """Kill processes of a cluster that runs and start them again as they were, in this order, with
    the one that calls as their parent. What they held in memory is lost; the API server answers
    again when this returns. `between`: called while they do not run."""
    found = _recorded(directory)
    if found is None:
        raise KubeError(f"no cluster was started in {directory}")
    for name in reversed(names):
        end(found.processes[name], (signal.SIGKILL,), STOP_S_MAX)
    between()
    _Start(directory, programs(), with_parent=True).again(names, found)


def stop(directory: Path) -> None:
    """End what the directory names, the API server before etcd."""
    if (found := _recorded(directory)) is None:
        return
    for process in reversed(found.processes.values()):
        end(process, (signal.SIGTERM, signal.SIGKILL), STOP_S_MAX)
    (directory / "cluster.json").unlink()


class _Start:
    def __init__(self, directory: Path, built: Path, with_parent: bool) -> None:
        self._directory = directory
        self._built = built
        self._with_parent = with_parent
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._port = 0
        self._running: dict[str, ProcessIdentity] = {}
        self._commands: dict[str, list[str]] = {}

    def cluster(self, wanted: Sequence[str]) -> Cluster:
        files = self._files()
        client, peer = _free_port(), _free_port()
        self._launch("etcd", *self._etcd(client, peer))
        self._port = _free_port()
        self._kubeconfigs(files)
        self._launch("kube-apiserver", *self._api_server(files, client, wanted))
        self._until_ready()
        if CONTROLLERS in wanted:
            self._launch("kube-controller-manager", *self._controllers(files))
        if HUB_CONTROLLERS in wanted:
            chosen = f"--controllers={','.join(CONTROLLERS_OF_A_HUB)}"
            self._launch("kube-controller-manager", *self._controllers(files), chosen)
        if SCHEDULER in wanted:
            self._launch("kube-scheduler", *_kube_scheduler_flags(self._directory))
        if KWOK in wanted:
            self._launch(
                "kwok",
                f"--kubeconfig={self._directory / 'kwok.kubeconfig'}",
                f"--config={self._built / 'stages.yaml'}",
                "--manage-all-nodes=true",
                "--node-lease-duration-seconds=40",
                "--node-port=0",
            )
        return Cluster(self._directory, self._port, self._running, self._commands)

    def again(self, names: Sequence[str], found: Cluster) -> None:
        self._port, self._commands = found.port, found.commands
        self._running = dict(found.processes)
        for name in names:
            # A process whose main thread is gone may still close its sockets.
            for port in self._ports(name):
                if not wait_until(partial(_is_free, port), STOP_S_MAX):
                    raise KubeError(f"port {port} of {name} is still in use")
            self._launch(name, *self._commands[name])
        self._until_ready()

    def _ports(self, name: str) -> list[int]:
        """On which a process listens that others find by its port."""
        if name == "kube-apiserver":
            return [self._port]
        listens = [flag for flag in self._commands[name] if flag.startswith("--listen-")]
        return [int(flag.rpartition(":")[2]) for flag in listens]

    def end(self) -> None:
        for child in reversed(self._children.values()):
            child.kill()
            child.wait()
        (self._directory / "cluster.json").unlink(missing_ok=True)

    # --- what each of them is started with

    def _etcd(self, client: int, peer: int) -> list[str]:
        here = f"http://{LOOPBACK}:{client}"
        return [
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls=http://{LOOPBACK}:{peer}",
            f"--initial-advertise-peer-urls=http://{LOOPBACK}:{peer}",
            f"--initial-cluster=default=http://{LOOPBACK}:{peer}",
            "--force-new-cluster=true",
            "--unsafe-no-fsync=true",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
        ]

    def _api_server(self, files: dict[str, Path], etcd: int, wanted: Sequence[str]) -> list[str]:
        flags = [
            f"--etcd-servers=http://{LOOPBACK}:{etcd}",
            f"--secure-port={self._port}",
            f"--bind-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._directory}",
            f"--tls-cert-file={files['server.crt']}",
            f"--tls-private-key-file={files['server.key']}",
            f"--client-ca-file={files['authority.crt']}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=true",
            f"--service-account-key-file={files['accounts.crt']}",
            f"--service-account-signing-key-file={files['accounts.key']}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--audit-policy-file={files['audit.yaml']}",
            f"--audit-log-path={self._directory / 'audit.log'}",
            "--audit-log-maxsize=1000",
            "--profiling=false",
            "--allow-privileged=true",
        ]
        if CONTROLLERS not in wanted:  # nobody would make the accounts that pods need
            flags.append("--disable-admission-plugins=ServiceAccount")
        return flags

    def _controllers(self, files: dict[str, Path]) -> list[str]:
        config = self._directory / "kube-controller-manager.kubeconfig"
        return [
            f"--kubeconfig={config}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={files['accounts.key']}",
            f"--root-ca-file={files['authority.crt']}",
            "--use-service-account-credentials=true",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        ]

    # --- files

    def _files(self) -> dict[str, Path]:
        """Certificates and keys, new at each start, but for the key of the service accounts: what
        it signed is stored."""
        authority = Authority(self._directory.name)
        self._authority = authority
        files: dict[str, Path] = {}
        pairs: dict[str, Pair] = {
            "authority": authority.pair,
            "server": authority.server("localhost", LOOPBACK),
        }
        if not (self._directory / "accounts.key").exists():
            pairs["accounts"] = signing_key()
        for name, pair in pairs.items():
            pair.write(self._directory, name)
        for name in ("authority", "server", "accounts"):
            files[f"{name}.crt"], files[f"{name}.key"] = (
                self._directory / f"{name}.{end}" for end in ("crt", "key")
            )
        files["audit.yaml"] = self._directory / "audit.yaml"
        files["audit.yaml"].write_text(_AUDIT_POLICY)
        return files

    def _kubeconfigs(self, files: dict[str, Path]) -> None:
        for user, group in USERS.items():
            pair = self._authority.user(f"system:{user}" if user in _SYSTEM_USERS else user, group)
            target = self._directory / f"{user}.kubeconfig"
            target.touch(mode=0o600)
            target.write_text(
                json.dumps(
                    _kubeconfig(
                        self._directory.name, self._port, files["authority.crt"], pair, user
                    )
                )
            )

    def _record(self) -> None:
        processes = {name: (p.pid, p.started) for name, p in self._running.items()}
        state = {"port": self._port, "processes": processes, "commands": self._commands}
        (self._directory / "cluster.json").write_text(json.dumps(state))

    # --- processes

    def _launch(self, name: str, *flags: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(
                [str(self._built / name), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self._directory)},
                start_new_session=not self._with_parent,
                preexec_fn=die_with_parent(signal.SIGKILL) if self._with_parent else None,
            )
        self._running[name] = _identity(self._children[name])
        self._commands[name] = list(flags)
        self._record()

    def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        context = ssl.create_default_context(cafile=str(self._directory / "authority.crt"))
        url = f"https://{LOOPBACK}:{self._port}/readyz"
        while time.monotonic() < deadline:
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise KubeError(
                        f"{name} ended with code {child.returncode}: {self._last_lines(name)}"
                    )
            try:
                with urllib.request.urlopen(url, context=context, timeout=5.0):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise KubeError(
            f"the API server is not ready after {READY_S_MAX:g} s: "
            f"{self._last_lines('kube-apiserver')}"
        )

    def _last_lines(self, name: str) -> str:
        return last_lines((self._directory / f"{name}.log").read_text(errors="replace"), 3)


def _free_port() -> int:
    """Below the ports that the kernel gives to clients: while a server is restarted, a client that
    keeps trying to connect can be given the server's own port and then talks to itself."""
    for _ in range(1000):
        port = random.randrange(20_000, 32_000)
        if _is_free(port):
            return port
    raise KubeError("no free port between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _kube_scheduler_flags(directory: Path, requests_a_second: int = 1000) -> list[str]:
    return [
        f"--kubeconfig={directory / 'kube-scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--kube-api-qps={requests_a_second}",
        f"--kube-api-burst={requests_a_second}",
    ]


@contextmanager
def kube_scheduler(directory: Path, requests_a_second: int = 1000) -> Iterator[psutil.Process]:
    """A kube-scheduler of a cluster that was started without one. It ends with the context."""
    with (directory / "kube-scheduler.log").open("ab") as log:
        scheduler = subprocess.Popen(
            [
                str(programs() / "kube-scheduler"),
                *_kube_scheduler_flags(directory, requests_a_second),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:
        yield psutil.Process(scheduler.pid)
    finally:
        scheduler.kill()
        scheduler.wait()


def _identity(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    return ProcessIdentity.of(child.pid) or ProcessIdentity(child.pid, 0.0)


def _kubeconfig(
    cluster: str, port: int, authority: Path, pair: Pair, user: str
) -> dict[str, object]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {
                    "server": f"https://{LOOPBACK}:{port}",
                    "certificate-authority-data": text(authority.read_bytes()),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": text(pair.certificate),
                    "client-key-data": text(pair.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
