"""Processes that outlive the one that started them, identified by more than their pid.

A pid alone does not identify a process: after a reboot, or in a container where pids start at 1, a
pid in an old file may belong to another process. A process is therefore identified by its pid *and*
its start time. Signals are sent to one pid, never to a name.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

# Loaded at import: between fork and exec nothing may be looked up.
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_BOOT_UNIT = 1e10  # more than any machine runs, and than the seconds since the epoch


@cache
def _boot_number() -> float:
    """A multiple of `_BOOT_UNIT` made of the kernel's boot id, so that a start time of another boot
    equals none of this one."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot_id = b""  # a sandbox that hides it
    return (1 + zlib.crc32(boot_id) % 1000) * _BOOT_UNIT


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`started`: seconds from the machine's boot to the start of the process, plus a number of that
    boot (`_boot_number`).

    Equal for one process, never for two. The wall clock has no part in it: when that is corrected,
    every start time in seconds since the epoch moves, and living processes would be taken for dead
    ones.
    """

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that runs under `pid` now; None when there is none, or one that has ended and
        is not yet collected."""
        try:
            # pid (name) state ...: the name may hold anything; the start time is the twentieth
            # field behind it.
            fields = (
                Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            )
        except (FileNotFoundError, ProcessLookupError):
            return None
        if fields[0] in "ZX":
            return None
        return cls(pid, _boot_number() + int(fields[19]) / _TICKS_A_SECOND)

    @property
    def alive(self) -> bool:
        current = ProcessIdentity.of(self.pid)
        if current is None:
            return False
        if self.started < _BOOT_UNIT:  # recorded by a version that counted from the epoch
            return self._started_at_epoch(self.started)
        return abs(current.started - self.started) < 0.005

    def _started_at_epoch(self, seconds: float) -> bool:
        try:
            return abs(psutil.Process(self.pid).create_time() - seconds) < 5.0
        except psutil.NoSuchProcess:
            return False

    @property
    def rss_bytes(self) -> int:
        """Resident memory, 0 when the process is gone."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.alive else 0
        except psutil.NoSuchProcess:
            return 0

    @property
    def tree_rss_bytes(self) -> int:
        """The same of the process and all it started; pages they share are counted once for each of
        them."""
        return self.rss_bytes + sum(child.rss_bytes for child in self._descendants())

    @property
    def command_line(self) -> str:
        """Readable for every user, unlike the working directory of another user's process. "" when
        it is gone."""
        try:
            return " ".join(psutil.Process(self.pid).cmdline()) if self.alive else ""
        except psutil.Error:
            return ""

    def _descendants(self) -> list[ProcessIdentity]:
        try:
            pids = (
                [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
                if self.alive
                else []
            )
        except psutil.NoSuchProcess:
            return []
        return [identity for identity in map(ProcessIdentity.of, pids) if identity is not None]


def end(identity: ProcessIdentity, signals: tuple[signal.Signals, ...], patience_s: float) -> bool:
    """Send each signal in turn until the process is gone, waiting `patience_s` after each. True
    when it is gone."""
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
    """A port that was free a moment ago. Another process may take it first, so the caller must be
    ready to try another port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def listens(pid: int, port: int) -> bool:
    """Whether that process listens on that TCP port. The kernel is asked, because an answer on the
    port may come from another process."""
    try:
        sockets = psutil.Process(pid).net_connections(kind="tcp4")
    except psutil.Error:
        return False
    return any(sock.status == psutil.CONN_LISTEN and sock.laddr.port == port for sock in sockets)


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends `number` when the *thread* that started the process ends.

    For test sessions only, started from the main thread: a supervisor that starts its children from
    a pool's thread would kill them when the pool shrinks.
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
