"""Directories for what tests write and throw away: in memory where there is room, else on the disk.

The tests create some 700 databases, each by copying 300 files. In memory that takes 0.02 processor
seconds a database, on an ext4 disk 0.4, and nothing in a test asks for more than that files survive
the processes that write them. `TMPDIR` decides where it is set.

What lies in memory costs memory until it is removed. So the next one made also removes what killed
processes left behind, or what was kept to be looked at.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 6 * 2**30
"""Of the file system and of the machine's memory: some three times what a run needs."""
OWNER = "owner"
"""The file below a directory that has the id of the process that made it."""


def scratch(prefix: str) -> Path:
    """A new directory, open to other users. `prefix`: begins with `wharfinger-`."""
    memory = "TMPDIR" not in os.environ and in_memory()
    if memory:
        _remove_left_over()
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if memory else None))
    directory.chmod(0o755)
    (directory / OWNER).write_text(str(os.getpid()))
    return directory


def in_memory() -> bool:
    """Whether this machine has room for the files of a run in its memory. Programs that tests write
    have to run from there."""
    try:
        there = os.statvfs(MEMORY)
    except OSError:
        return False
    return (
        os.access(MEMORY, os.W_OK)
        and not there.f_flag & os.ST_NOEXEC
        and there.f_bavail * there.f_frsize >= FREE_BYTES_MIN
        and psutil.virtual_memory().available >= FREE_BYTES_MIN
    )


def is_in_memory(directory: Path) -> bool:
    return directory.is_relative_to(MEMORY)


def _remove_left_over() -> None:
    for owner in MEMORY.glob(f"wharfinger-*/{OWNER}"):
        try:
            alive = psutil.pid_exists(int(owner.read_text()))
        except (OSError, ValueError):
            continue  # of another user, or of a run that is beginning
        if not alive:
            shutil.rmtree(owner.parent, ignore_errors=True)
