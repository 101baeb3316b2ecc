"""Processes that outlive the one who started them, told apart from strangers that got the same pid.

A pid alone names nobody: after a reboot, or in a container where pids start at 1, a file from the last life names a
stranger. A process is therefore its pid *and* its start time. Signals go to one pid, never to a name.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

# Loaded at import: between fork and exec nothing may be looked up.
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`started` is seconds since the epoch, as the kernel keeps it: equal for one process, never for two."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Who runs under `pid` now; None when nobody does, or only the corpse of someone."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.NoSuchProcess:
            return None

    @property
    def alive(self) -> bool:
        current = ProcessIdentity.of(self.pid)
        # The kernel counts in ticks and psutil adds the boot time, which may be corrected by a little meanwhile.
        return current is not None and abs(current.started - self.started) < 1.0

    @property
    def rss_bytes(self) -> int:
        """Resident memory, 0 when the process is gone."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.alive else 0
        except psutil.NoSuchProcess:
            return 0

    @property
    def tree_rss_bytes(self) -> int:
        """The same of the process and all it started; pages they share are counted once for each of them."""
        return self.rss_bytes + sum(child.rss_bytes for child in self._descendants())

    @property
    def command_line(self) -> str:
        """Readable for every user, unlike the working directory of another user's process. "" when it is gone."""
        try:
            return " ".join(psutil.Process(self.pid).cmdline()) if self.alive else ""
        except psutil.Error:
            return ""

    def _descendants(self) -> list[ProcessIdentity]:
        try:
            pids = [child.pid for child in psutil.Process(self.pid).children(recursive=True)] if self.alive else []
        except psutil.NoSuchProcess:
            return []
        return [identity for identity in map(ProcessIdentity.of, pids) if identity is not None]


def end(identity: ProcessIdentity, signals: tuple[signal.Signals, ...], patience_s: float) -> bool:
    """Send each signal in turn until the process is gone, waiting `patience_s` after each. True when it is gone."""
    for number in signals:
        if not identity.alive:
            break
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            break
        wait_until(lambda: not identity.alive, patience_s)
    return not identity.alive


def wait_until(condition: Callable[[], bool], timeout_s: float, pause_s: float = 0.01) -> bool:
    """Poll a condition; blocking, so never call it on an event loop's thread."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago; whoever starts a server on it must be ready to lose the race."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def listens(pid: int, port: int) -> bool:
    """Whether that process listens on that TCP port. Asked of the kernel: a stranger's answer on the port proves nothing."""
    try:
        sockets = psutil.Process(pid).net_connections(kind="tcp4")
    except psutil.Error:
        return False
    return any(sock.status == psutil.CONN_LISTEN and sock.laddr.port == port for sock in sockets)


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends `number` when the *thread* that started the process ends.

    For test sessions only, started from the main thread: a supervisor that starts its children from a pool's thread
    would kill them when the pool shrinks.
    """

    def set_signal() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number))

    return set_signal


def reap(child: subprocess.Popen[bytes] | None) -> None:
    """Collect a child that has ended, so that no corpse keeps its pid."""
    if child is not None:
        try:
            child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            pass


def last_lines(text: str, count: int = 1) -> str:
    """The end of a log as one line, for an error message."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])
