"""No process outlives the tests that started it, not even where the tests are killed.

Every process that a test starts inherits an environment variable with a value of this run. A small
process of its own holds one end of a pipe whose other end is held by the process that runs the
tests; when that one is gone, however it ended, the watchdog ends by process id what still carries
the value. Tests stop what they start themselves; this is for the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass

import psutil

VARIABLE = "TEST_RUN_OF_WHARFINGER"
"""Not named like a setting: tests that clear the settings keep it."""

GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Watchdog:
    """`close` ends the watch in good order: what is left over then is ended as well."""

    pipe: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> Watchdog:
        value = uuid.uuid4().hex
        read, write = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-S", __file__, value],
            stdin=read,
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k != VARIABLE}
            | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(read)
        # a forked worker must not keep the watchdog waiting
        os.register_at_fork(after_in_child=lambda: _close(write))
        os.environ[VARIABLE] = value
        return cls(write, process)

    def close(self) -> None:
        _close(self.pipe)
        self.process.wait()


def left_over(value: str) -> list[psutil.Process]:
    """The processes of the run."""
    return [process for process in psutil.process_iter() if _carries(process, value)]


def end(processes: list[psutil.Process]) -> None:
    """First asked to, then made to."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    _, living = psutil.wait_procs(processes, GRACE_S)
    for process in living:
        _signal(process, signal.SIGKILL)


def _carries(process: psutil.Process, value: str) -> bool:
    try:
        return process.environ().get(VARIABLE) == value
    except (psutil.Error, OSError):
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        pass


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


def main(value: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # a Ctrl-C is for the tests; we go when they have gone
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    while found := left_over(value):  # more than once: a supervisor may start again what was ended
        print(
            "tests: ended what they left running:",
            *(f"{p.name()} {p.pid}" for p in found),
            file=sys.stderr,
        )
        end(found)


if __name__ == "__main__":
    main(sys.argv[1])
