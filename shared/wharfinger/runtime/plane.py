"""The plane that is up: one small file that holds its addresses, for every command.

`up` writes `<data-dir>/plane.json` once broker, database and services are ready, and removes it
when the plane stops; every other command reads it. The file is a hint, not a lock: `holding` is the
lock, and the kernel releases it when the supervisor ends, however it ends. The file never holds
secrets: the password of an external database stays in the environment.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

ENV_PREFIX = "WHARFINGER_"
"""The environment variable of a setting is this prefix and the setting's name in capitals."""

DEFAULT_DATA_DIR = Path(".wharfinger")
PLANE_FILE = "plane.json"
LOCK_FILE = "lock"
SUPERVISOR_FILE = (
    "run/supervisor.state"  # not .json: the files of the service processes are beside it
)
BROKER_FILE = "broker.json"
POSTMASTER_FILE = "postgres/postmaster.pid"


class PlaneError(Exception):
    """One line that says what is wrong with the data directory."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Where a running plane listens. `pids` and `http_ports` are by process name; `boot_id` names
    the broker's life."""

    bootstrap: str
    database_url: str
    broker: str
    boot_id: str
    supervisor_pid: int
    http_ports: Mapping[str, int] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)


def another_database(before: str, now: str) -> str:
    """The one line that says so. Identities as `ledger.database` makes them."""
    return (
        f"the database is another one now: {now or 'unknown'} instead of {before} "
        "(cluster/database/ledger)"
    )


def read_plane(data_dir: Path) -> Plane | None:
    """The plane written under `data_dir`, or None when none is up. A file that cannot be read is an
    error, not None."""
    path = data_dir / PLANE_FILE
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PlaneError(f"{path}: {error.strerror or error}") from error
    try:
        return Plane(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise PlaneError(
            f"{path}: not a plane file ({error}); remove it and start the plane again"
        ) from error


def write_plane(data_dir: Path, plane: Plane) -> None:
    """Whole or not at all: a command that reads while we write sees the old file or the new one.
    Readable by its owner only: its reader can reach the database."""
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / PLANE_FILE
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(json.dumps(asdict(plane), indent=2, sort_keys=True) + "\n")
    draft.replace(path)


def remove_plane(data_dir: Path) -> None:
    (data_dir / PLANE_FILE).unlink(missing_ok=True)


@contextmanager
def holding(data_dir: Path) -> Iterator[None]:
    """Hold the data directory: at most one supervisor at a time, and none left over after a kill
    -9."""
    data_dir.mkdir(parents=True, exist_ok=True)
    handle = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(handle, 32, 0).decode().strip() or "unknown"
        os.close(handle)
        raise PlaneError(f"{data_dir}: another plane holds this directory (pid {owner})") from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
