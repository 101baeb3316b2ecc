"""The end of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

CANCEL_AGAIN_S = 15.0
"""Longer than anything that a task of ours does while it ends."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when all are over, however they ended. A cancellation can be lost: a
    library takes it for that of its own task, or an error replaces it. So tasks that go on are
    cancelled again after `CANCEL_AGAIN_S`."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, or its loss would be reported
