"""One service of a test's plane in a process of its own, which can be killed again and again.

`python -m tests.kube.service_process` gets what it is from its standard input. Then each line there
forks one life of the service, and an answer names its process: what takes long, the imports, is
done once. A life ends by itself where a service has failed, as a process of the plane does.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from tests.apps import begun_services

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.processes import die_with_parent, last_lines
from wharfinger.runtime.settings import Settings
from wharfinger_cli.one import BUILDERS


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """`directory`: of the joined clusters. `log`: what it writes, of all its lives."""

    name: str
    backend: Backend
    database_url: str
    prefix: str
    directory: Path
    log: Path


class ServiceProcess:
    """Its first life begins when it was made."""

    def __init__(self, start: ServiceStart) -> None:
        self.name = start.name
        self._log = start.log
        self._lives = 0
        self._forks = subprocess.Popen(
            [sys.executable, "-m", "tests.kube.service_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        assert self._forks.stdin is not None, "it is a pipe"
        pickle.dump(start, self._forks.stdin)
        self.start()

    def start(self, backend: Backend | None = None) -> None:
        """A new life. `backend`: with another broker, from now on."""
        self._lives += 1
        if backend is not None:
            where = f"{backend.bootstrap} {backend.boot_id}"
            assert int(self._asked(f"broker {where}\n".encode())) == 0
        self._pid = int(self._asked(b"start\n"))

    def kill(self) -> bool:
        """kill -9, in the middle of what it does. False: it had ended by itself before."""
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return int(self._asked(b"end\n")) == signal.SIGKILL

    def freeze(self) -> None:
        """It does nothing until it is thawed; its connections stay."""
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        """For good."""
        self.kill()
        self._forks.kill()
        self._forks.wait()

    def ready(self) -> bool:
        """Whether this life has become ready."""
        return self._log.exists() and self._log.read_text().count(READY) == self._lives

    def skip(self) -> None:
        """This life was ended before it was ready."""
        if not self.ready():
            self._lives -= 1

    def log(self) -> str:
        """All that it has written, of all its lives."""
        return self._log.read_text() if self._log.exists() else ""

    def words(self) -> str:
        """The end of what it has written."""
        return f"{self.name}: {last_lines(self._log.read_text(), 30)}"

    def _asked(self, command: bytes) -> bytes:
        pipe, answers = self._forks.stdin, self._forks.stdout
        assert pipe is not None, "it is a pipe"
        assert answers is not None, "it is a pipe"
        pipe.write(command)
        pipe.flush()
        return answers.readline()


READY = "this life is ready"


WATCH_S = 0.2

LOADED_LATE = (
    "wharfinger.runtime.fetch_pacing",
    "wharfinger.runtime.unpacking",
    "wharfinger_actuator.copier",
    "wharfinger_actuator.hub",
    "wharfinger_actuator.writer",
    "wharfinger_collector.hub",
    "wharfinger_collector.member",
)
"""What a service loads once it has work."""


def services_of(process: str) -> tuple[str, ...]:
    """Such as `scheduler-fleet` and `scheduler-cluster`."""
    return tuple(name for name in BUILDERS if name.partition("-")[0] == process)


async def _serve(start: ServiceStart) -> None:
    settings = Settings(fleet_shards=1, clusters=start.directory)
    names = services_of(start.name)
    begun = begun_services(start.backend, start.database_url, start.prefix, settings, names)
    async with begun as (_, services):
        print(READY, flush=True)
        while not (failed := [why for service in services if (why := service.failed())]):  # noqa: ASYNC110 - a service does not report its failure
            await asyncio.sleep(WATCH_S)
        # Not a clean stop, as `runtime.process` ends: what failed may hang.
        print(f"failed: {failed}", flush=True)
        os._exit(1)


def _live(start: ServiceStart) -> None:
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    die_with_parent(signal.SIGKILL)()
    try:
        asyncio.run(_serve(start))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def main() -> None:
    start, pid = pickle.load(sys.stdin.buffer), 0
    for module in LOADED_LATE:
        import_module(module)
    for line in sys.stdin.buffer:
        match line.decode().split():
            case ["start"]:
                pid = os.fork()
                if pid == 0:
                    _live(start)
                print(pid, flush=True)
            case ["broker", bootstrap, boot_id]:
                there = replace(start.backend, bootstrap=bootstrap, boot_id=boot_id)
                start = replace(start, backend=there)
                print(0, flush=True)
            case _:
                _, status = os.waitpid(pid, 0)
                print(os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
