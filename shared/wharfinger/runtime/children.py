"""The supervisor's children: the processes that run services, and the short-lived one that sets
up the topics.

A service process is named, logs to a file of its own, says in `run/<process>.json` who it is, and
answers `/readyz`. It is started again whenever it ends, at once the first time and with growing
pauses after that: a plane that cannot work keeps trying, slowly, because what it waits for (a
database, a disk) usually comes back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import psutil

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.owner_watch import EXIT_GONE
from wharfinger.runtime.process_status import ProcessCard, process_cards
from wharfinger.runtime.processes import ProcessIdentity, end, last_lines, wait_until

LOG_DIR = "log"
LOG_BYTES_MAX = 16 << 20  # a longer log of an earlier life is set aside once
PAUSE_S_FIRST = 0.1
PAUSE_S_MAX = 10.0
STEADY_S = 30.0  # who ran that long did not fail at starting
STOP_PATIENCE_S = 15.0  # a process gives its own services 10 s
KILL_PATIENCE_S = 2.0

ONE = "one"
CONTROLLERS = "controllers"
API = "api"
"""A process of its own in every plane: it needs no broker, and no round of a stage keeps it
waiting."""

Layout = Literal["one", "two", "each"]
"""How the services of a plane are divided into processes."""

MODULES: Mapping[str, str] = {
    ONE: "wharfinger_cli.one",
    CONTROLLERS: "wharfinger_cli.controllers",
    "actuator": "wharfinger_actuator",
    "annotator": "wharfinger_annotator",
    "collector": "wharfinger_collector",
    "estimator": "wharfinger_estimator",
    "scheduler": "wharfinger_scheduler",
    "descheduler": "wharfinger_descheduler",
    "publisher": "wharfinger_publisher",
    API: "wharfinger_api",
}
"""What runs under each process name. `one` runs all the others' services in one process, but the
API's; `controllers` all but those of scheduler and API."""

EACH: tuple[str, ...] = tuple(name for name in MODULES if name not in (ONE, CONTROLLERS))

_FEW: Mapping[Layout, tuple[str, ...]] = {"one": (ONE, API), "two": (CONTROLLERS, API, "scheduler")}
"""With a fixed first port the API has the same one in `one` and `two`."""

log = get_logger(__name__)


def process_names(layout: Layout) -> tuple[str, ...]:
    return EACH if layout == "each" else _FEW[layout]


def layout_for(processes: Literal["auto"] | Layout, cores: float) -> Layout:
    """`processes`: as the settings have it. `auto`: on less than two cores a second interpreter
    takes memory and gives nothing; on two it gives half as many decisions again (ADR 0131)."""
    if processes != "auto":
        return processes
    return "two" if cores >= 2 else "one"


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """How many cores this process may use: those that the system may run it on, or less where its
    control group has a quota. `quota`: the file of the kernel that has it (cgroup v2)."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        limit, period = quota.read_text().split()
        return min(cores, int(limit) / int(period))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def is_service_of(pid: int, data_dir: Path) -> bool:
    """Whether that process runs services for this data directory. Its command line and its
    environment show it."""
    try:
        process = psutil.Process(pid)
        modules = set(process.cmdline()[1:]) & set(MODULES.values())
        return bool(modules) and process.environ().get("WHARFINGER_DATA_DIR") == str(data_dir)
    except psutil.Error:
        return False


def open_log(data_dir: Path, name: str) -> BinaryIO:
    path = data_dir / LOG_DIR / f"{name}.log"
    # never the data directory itself: it may have been removed on purpose
    path.parent.mkdir(exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
    return path.open("ab", buffering=0)


@dataclass(slots=True)
class ServiceProcess:
    """One child, kept running. All times are of the monotonic clock, in seconds."""

    name: str
    data_dir: Path
    restarts: int = 0
    gone: bool = False  # it has ended because its plane is gone, and is not started again
    _child: subprocess.Popen[bytes] | None = None
    _identity: ProcessIdentity | None = None
    _started_at: float = 0.0
    _failures: int = 0  # in a row
    _not_before: float = 0.0
    _log_from: int = 0
    _was_ready: bool = False

    @property
    def identity(self) -> ProcessIdentity | None:
        return self._identity

    @property
    def failures(self) -> int:
        return self._failures

    def cpu_s(self) -> float:
        """Processor seconds that the child has used; 0 where none runs."""
        try:
            times = (
                psutil.Process(self._identity.pid).cpu_times()
                if self._identity is not None
                else None
            )
        except psutil.Error:
            return 0.0
        return float(times.user + times.system) if times is not None else 0.0

    def keep_running(self, environment: Mapping[str, str]) -> None:
        """Start it when it does not run and its pause is over."""
        now = time.monotonic()
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                if now - self._started_at > STEADY_S:
                    self._failures = 0
                return
            self._note_end(code, now)
        if now >= self._not_before and not self.gone:
            self._launch(environment, now)

    @property
    def pid(self) -> int | None:
        """Of the process that was started last; None: there was none."""
        return None if self._child is None else self._child.pid

    def card(self) -> ProcessCard | None:
        """The card of the process that runs now; None before it has one."""
        child = self._child
        if child is None or child.poll() is not None:
            return None
        return next(
            (card for _, card in process_cards(self.data_dir) if card.pid == child.pid), None
        )

    def ready(self) -> bool:
        """Whether all its services are; once they were, only its end takes that back: a busy
        process may answer late."""
        if not self._was_ready and (card := self.card()) is not None:
            readiness = card.readiness()
            self._was_ready = readiness is not None and readiness.ready
        return self._was_ready

    def unready(self) -> str:
        """Who of it is not ready, by name, for a message."""
        card = self.card()
        readiness = card.readiness() if card is not None else None
        if readiness is None:
            return f"process {self.name} gives no answer"
        slow = [name for name, service in readiness.services.items() if not service.ready]
        return f"process {self.name}: {', '.join(slow)}"

    def ask_to_stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def make_stop(self, patience_s: float) -> None:
        """Wait for the end that was asked for; without patience left, end it."""
        if self._child is None:
            return
        try:
            self._child.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            log.warning(
                "process_killed", process=self.name, pid=self._child.pid, after_s=patience_s
            )
            self._child.kill()
            self._child.wait()
        self._forget()
        self._failures, self._not_before = 0, 0.0

    def last_words(self) -> str:
        """The end of what its present life wrote to its log."""
        try:
            with (self.data_dir / LOG_DIR / f"{self.name}.log").open("rb") as file:
                file.seek(self._log_from)
                return last_lines(file.read().decode(errors="replace"))
        except OSError:
            return ""

    def _launch(self, environment: Mapping[str, str], now: float) -> None:
        with open_log(self.data_dir, self.name) as output:
            self._log_from = os.fstat(output.fileno()).st_size
            self._child = subprocess.Popen(
                [sys.executable, "-m", MODULES[self.name]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,  # Ctrl-C at the terminal is the supervisor's to hear
            )
        self._identity = ProcessIdentity.of(self._child.pid)
        self._started_at = now
        log.info("process_started", process=self.name, pid=self._child.pid)

    def _note_end(self, code: int, now: float) -> None:
        pause_s = (
            0.0 if self._failures == 0 else min(PAUSE_S_MAX, PAUSE_S_FIRST * 2.0**self._failures)
        )
        self._failures += 1
        self.restarts += 1
        self.gone = code == EXIT_GONE
        self._not_before = now + pause_s
        log.warning(
            "process_ended", process=self.name, code=code, failures=self._failures, pause_s=pause_s
        )
        self._forget()

    def _forget(self) -> None:
        if self._child is not None:
            for path, card in process_cards(self.data_dir):
                if card.pid == self._child.pid:
                    path.unlink(missing_ok=True)
        self._child = self._identity = None
        self._was_ready = False


class TopicSetupProcess:
    """`runtime.topic_setup` as a child process. It is started early, so that it loads its modules
    meanwhile, and gets its input later."""

    def __init__(self, environment: Mapping[str, str], output: BinaryIO) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "wharfinger.runtime.topic_setup"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=dict(environment),
            start_new_session=True,
        )

    def lay(
        self, where: Mapping[str, str], timeout_s: float, *, logins: bool = False
    ) -> TopicSetupAnswer:
        """What was found and made. `logins`: also those of `database_logins`. BackendError with the
        child's own line when it could not be done."""
        wanted = {"settings": dict(where), "logins": logins}
        try:
            answer, _ = self._child.communicate(
                json.dumps(wanted).encode() + b"\n", timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise BackendError(f"schema and topics: not done in {timeout_s:g} s") from error
        finally:
            self.end()
        try:
            said = json_decoder(TopicSetupAnswer).decode(answer)
        except msgspec.MsgspecError as error:
            raise BackendError(
                f"schema and topics: ended with {self._child.returncode} and no answer"
            ) from error
        if said.error:
            raise BackendError(said.error)
        return said

    def end(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


class TopicSetupAnswer(msgspec.Struct, frozen=True):
    """The one line it writes. `incarnations`: of each topic; `database`: the identity of the
    database."""

    incarnations: dict[str, int] = {}
    database: str = ""
    error: str = ""


def end_services_of(data_dir: Path, known: Mapping[str, ProcessIdentity]) -> list[str]:
    """End what a dead supervisor left running; the names of what was ended. Never a stranger with
    an old pid: a process counts as ours by its start time when its supervisor wrote it down, else
    by its command line and environment."""
    found = dict(known)
    for path, card in process_cards(data_dir):
        identity = ProcessIdentity.of(card.pid)
        if identity is not None and identity.pid not in {one.pid for one in known.values()}:
            found[path.stem] = identity
        path.unlink(missing_ok=True)
    ours = {
        name: one for name, one in found.items() if one.alive and is_service_of(one.pid, data_dir)
    }
    for identity in ours.values():
        _signal(identity, signal.SIGTERM)
    wait_until(lambda: not any(identity.alive for identity in ours.values()), STOP_PATIENCE_S)
    for name, identity in ours.items():
        if not end(identity, (signal.SIGKILL,), KILL_PATIENCE_S):
            raise BackendError(
                f"{name}: pid {identity.pid}, left over from an earlier run, does not end"
            )
    return sorted(ours)


def _signal(identity: ProcessIdentity, number: signal.Signals) -> None:
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        pass
