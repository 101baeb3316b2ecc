#!/usr/bin/env python3
"""A real Apache Kafka on this machine, without Docker and without root.

The jars come from Maven (`pom.xml` beside this file), the broker is one KRaft process on free
loopback ports, and what it holds lies under the directory given. Tests use it by name, like any
other broker:

    # start, run the command, stop
    python infra/kafka/local.py run build/kafka -- pytest -m integration
    # start, print host:port
    python infra/kafka/local.py start build/kafka
    python infra/kafka/local.py stop build/kafka

`run` sets WHARFINGER_TEST_KAFKA for the command and hands its exit code on. Only the standard
library, so that it runs before anything is installed. Needs Java 17 or later and Maven.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from uuid import uuid4

HERE = Path(__file__).resolve().parent
HEAP = "512m"
START_S_MAX = 300.0
STOP_S_MAX = 60.0
STARTED = "Kafka Server started"


class LocalKafkaError(Exception):
    """One line for a person."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="A real Apache Kafka on this machine, from Maven's jars."
    )
    parser.add_argument("action", choices=["start", "stop", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="for run: -- COMMAND ...")
    options = parser.parse_args(arguments)
    directory = options.directory.resolve()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        match options.action:
            case "start":
                print(start(directory))
            case "stop":
                stop(directory)
            case "run" if command:
                return run(directory, command)
            case _:
                parser.error("run needs a command after --")
    except LocalKafkaError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 2
    return 0


def run(directory: Path, command: list[str]) -> int:
    """The command's exit code. The broker is stopped however the command ends."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    bootstrap = start(directory)
    try:
        return subprocess.run(
            command, env={**os.environ, "WHARFINGER_TEST_KAFKA": bootstrap}, check=False
        ).returncode
    finally:
        stop(directory)


def start(
    directory: Path,
    configured: Callable[[Path], str] | None = None,
    format_arguments: Sequence[str] = (),
) -> str:
    """host:port of a broker that is ready. One that runs there already is taken as it is.
    `configured`: writes its properties, instead of `configure`. `format_arguments`: of Kafka's own,
    such as users with their passwords."""
    directory.mkdir(parents=True, exist_ok=True)
    if (running := find(directory)) is not None:
        return running[1]
    classpath = f"{jars(directory)}/*"
    for attempt in range(3):  # a port that was free when asked for may be taken when used
        bootstrap = (configured or configure)(directory)
        format_storage(directory, classpath, format_arguments)
        if launch(directory, classpath, bootstrap):
            return bootstrap
        if "Address already in use" not in log_tail(directory) or attempt == 2:
            break
    raise LocalKafkaError(
        f"the broker did not start; the end of {directory / 'broker.log'}:\n{log_tail(directory)}"
    )


def stop(directory: Path) -> None:
    """Ask by signal, then insist. Nothing is done where nothing of ours runs."""
    if (running := find(directory)) is not None:
        pid = running[0]
        os.kill(pid, signal.SIGTERM)
        if not wait_until_gone(directory, STOP_S_MAX):
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(directory, STOP_S_MAX)
    (directory / "broker.json").unlink(missing_ok=True)


def find(directory: Path) -> tuple[int, str] | None:
    """(pid, host:port) of the broker of this directory. A pid that by now belongs to another
    program is not it."""
    try:
        state = json.loads((directory / "broker.json").read_text())
    except FileNotFoundError:
        return None
    ps = subprocess.run(
        ["ps", "-ww", "-o", "stat=,args=", "-p", str(state["pid"])],
        capture_output=True,
        text=True,
        check=False,
    )
    alive = not ps.stdout.startswith("Z") and str(properties(directory)) in ps.stdout
    return (state["pid"], state["bootstrap"]) if alive else None


def jars(directory: Path) -> Path:
    """The directory of the jars that pom.xml names, fetched once."""
    pom = HERE / "pom.xml"
    libs = directory / f"libs-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if libs.is_dir():
        return libs
    partial = libs.with_suffix(".partial")
    goal = [
        "dependency:copy-dependencies",
        f"-DoutputDirectory={partial}",
        "-DincludeScope=runtime",
    ]
    print("kafka: fetching the broker with Maven", file=sys.stderr)
    maven = subprocess.run(
        [tool("mvn"), "-q", "-B", "-ntp", "-f", str(pom), *goal],
        capture_output=True,
        text=True,
        check=False,
    )
    if maven.returncode != 0:
        raise LocalKafkaError(
            f"Maven could not fetch the broker:\n{maven.stdout[-2000:]}{maven.stderr[-2000:]}"
        )
    partial.rename(libs)
    return libs


def configure(directory: Path) -> str:
    """Write the properties of the next start; host:port of its listener."""
    (client,) = write_properties(directory, ["PLAINTEXT"])
    return client


def write_properties(
    directory: Path, listeners: Sequence[str], lines: Iterable[str] = ()
) -> list[str]:
    """host:port of each listener, on free ports. `lines`: further properties; where one is in
    `server.properties` too, the line counts."""
    *ports, controller = free_ports(len(listeners) + 1)
    clients = [f"127.0.0.1:{port}" for port in ports]
    named = ",".join(f"{name}://{at}" for name, at in zip(listeners, clients, strict=True))
    (directory / "data").mkdir(exist_ok=True)
    text = [
        (HERE / "server.properties").read_text(),
        f"listeners={named},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners={named}",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"log.dirs={directory / 'data'}",
        *lines,
    ]
    properties(directory).write_text("\n".join(text) + "\n")
    return clients


def format_storage(directory: Path, classpath: str, arguments: Sequence[str] = ()) -> None:
    """Once."""
    if (directory / "data" / "meta.properties").exists():
        return
    storage = [tool("java"), "-cp", classpath, "kafka.tools.StorageTool"]
    made = subprocess.run(
        [
            *storage,
            "format",
            f"--cluster-id={new_cluster_id()}",
            f"--config={properties(directory)}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise LocalKafkaError(
            f"storage cannot be formatted (is this Java 17 or later?):\n{made.stderr[-2000:]}"
        )


def launch(directory: Path, classpath: str, bootstrap: str) -> bool:
    """True when the broker says that it is started; False when it ended or took too long."""
    with (directory / "broker.log").open("wb") as log:
        broker = subprocess.Popen(
            [
                tool("java"),
                f"-Xmx{HEAP}",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classpath,
                "kafka.Kafka",
                str(properties(directory)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )
    (directory / "broker.json").write_text(json.dumps({"pid": broker.pid, "bootstrap": bootstrap}))
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and broker.poll() is None:
        if STARTED in (directory / "broker.log").read_text(errors="replace"):
            return True
        time.sleep(0.1)
    broker.kill()
    broker.wait()
    return False


def wait_until_gone(directory: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if find(directory) is None:
            return True
        time.sleep(0.1)
    return False


def properties(directory: Path) -> Path:
    return directory / "server.properties"


def log_tail(directory: Path) -> str:
    return (directory / "broker.log").read_text(errors="replace")[-2000:]


def new_cluster_id() -> str:
    """A UUID as Kafka spells it: 22 characters of URL-safe base64. The first may be a hyphen."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise LocalKafkaError(f"{name} is not on PATH: the broker needs Java 17 or later and Maven")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
