"""Whether a process lives, asked without a gap between looking for it and looking at it."""

from __future__ import annotations

import psutil


def lives(pid: int) -> bool:
    """False for one that has ended, also before its parent has collected it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
