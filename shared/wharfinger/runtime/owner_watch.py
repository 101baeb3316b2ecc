"""What a plane on one machine runs for: its data directory and, where it was started for one,
another process.

A process that supervises a directory which was removed, or serves a test that was killed, does
harm: it takes processor time and holds ports, and nothing can be stopped by name any more. So the
supervisor and each service process look at a `Lifeline` a few times a second and end when it is
broken. The directory is recognised by an open file handle: as long as it is open, the file system
gives its inode number to no other directory.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from wharfinger.runtime.plane import (
    BROKER_FILE,
    LOCK_FILE,
    POSTMASTER_FILE,
    SUPERVISOR_FILE,
    PlaneError,
)
from wharfinger.runtime.processes import ProcessIdentity, end

EXIT_USAGE = 2
"""Exit code of a service process that cannot start."""

WATCH_S = 1.0
"""A service process looks so often whether its plane is gone, or a service of it has failed."""

EXIT_GONE = 69
"""Exit code of a service process whose plane is gone (EX_UNAVAILABLE of sysexits.h). Its supervisor
ends the plane."""


class PlaneGoneError(PlaneError):
    """The data directory, the database or the process that the plane was started for is not there
    any more."""


class Lifeline:
    """`broken` says in one line what is gone, "" while everything is there.

    `owner_pid`: the process that the plane was started for, 0 for none; it counts as gone when it
    has ended before we look for the first time. The lock file of the directory is watched where
    there is one: a directory that was emptied is gone, too.
    """

    def __init__(self, data_dir: Path, owner_pid: int = 0) -> None:
        self._handles: dict[Path, int] = {}
        self._owner_pid = owner_pid
        self._owner = ProcessIdentity.of(owner_pid) if owner_pid else None
        self.watch(data_dir)
        if (data_dir / LOCK_FILE).exists():
            self.watch(data_dir / LOCK_FILE)

    def watch(self, path: Path) -> None:
        """From now on this file or directory must stay the one that it is now. FileNotFoundError:
        there is none."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        previous = self._handles.get(path)
        self._handles[path] = handle
        if previous is not None:
            os.close(previous)

    def broken(self) -> str:
        return self.directory_gone() or self.owner_gone()

    def directory_gone(self) -> str:
        return next((gone for path in self._handles if (gone := self.lost(path))), "")

    def lost(self, path: Path) -> str:
        """Of one file or directory that is watched."""
        try:
            now = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return f"{path} was removed"
        except OSError:
            return ""  # cannot be looked at just now, which does not mean that it is gone
        watched = os.fstat(self._handles[path])
        same = (now.st_dev, now.st_ino) == (watched.st_dev, watched.st_ino)
        return "" if same else f"{path} was replaced by another one"

    def owner_gone(self) -> str:
        if self._owner_pid and (self._owner is None or not self._owner.alive):
            return f"process {self._owner_pid}, which the plane was started for, has ended"
        return ""

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()


SERVER_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Servers:
    """The embedded broker and database of a data directory, and the supervisor that answers for
    them, as recorded there."""

    supervisor: ProcessIdentity | None
    broker: ProcessIdentity | None
    database: ProcessIdentity | None

    @classmethod
    def of(cls, data_dir: Path) -> Servers:
        return cls(
            _recorded(data_dir / SUPERVISOR_FILE),
            _recorded(data_dir / BROKER_FILE),
            _postmaster(data_dir / POSTMASTER_FILE),
        )

    def end_orphans(self) -> list[str]:
        """End what a killed supervisor left running; the names of what was ended. Nothing is done
        while a supervisor lives."""
        if self.supervisor is None or self.supervisor.alive:
            return []
        ended: list[str] = []
        for name, server, first in (
            ("broker", self.broker, signal.SIGTERM),
            ("database", self.database, signal.SIGQUIT),
        ):
            if (
                server is not None
                and server.alive
                and end(server, (first, signal.SIGKILL), SERVER_PATIENCE_S)
            ):
                ended.append(name)
        return ended


def _recorded(path: Path) -> ProcessIdentity | None:
    """The process that a record file of ours names; None when there is no such file."""
    try:
        record = json.loads(path.read_text())
        return ProcessIdentity(int(record["pid"]), float(record["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _postmaster(path: Path) -> ProcessIdentity | None:
    """The server that PostgreSQL's own lock file names, if it runs on the directory of that
    file."""
    try:
        identity = ProcessIdentity.of(int(path.read_text().split("\n", 1)[0]))
    except (OSError, ValueError):
        return None
    return identity if identity is not None and str(path.parent) in identity.command_line else None
