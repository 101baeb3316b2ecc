"""How long a test waits: until something happens, and never for a claim about speed.

The machine that runs the tests also runs other things, so no test fails because something took
long. Every wait ends on progress; `PATIENCE_S` only ends a wait that hangs. On a very slow machine
`WHARFINGER_TEST_PATIENCE=3` triples it. A time that the product itself promises (a lease, a pause
between attempts) is measured on the product's own records.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0 * float(os.environ.get("WHARFINGER_TEST_PATIENCE", "1"))
"""Seconds without the awaited event after which a wait counts as hung."""


RESTS_IN_LOOP = 3.0
RESTS = 1.0
"""After asking, a wait rests so many times as long as that took, where it runs in the event loop of
what it waits for, and elsewhere. What is asked often starts a program, such as kubectl."""

PAUSE_S_MAX = 5.0


def until(
    condition: Callable[[], object], seen: Callable[[], object] = lambda: "", every_s: float = 0.05
) -> None:
    """Return when `condition()` is true. `seen()` is part of the message of a wait that hangs."""
    end = time.monotonic() + PATIENCE_S
    while True:
        asked_at = time.monotonic()
        if condition():
            return
        assert time.monotonic() < end, f"hung: not in {PATIENCE_S:g} s: {seen()}"
        time.sleep(_pause_s(asked_at, RESTS, every_s))


async def eventually(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
    seen: Callable[[], object] = lambda: "",
) -> None:
    """Return when `condition()`, or what it awaits, is true. The loop runs on meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while True:
        asked_at = time.monotonic()
        found = condition()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert time.monotonic() < end, f"hung: not in {PATIENCE_S:g} s: {seen()}"
        await asyncio.sleep(_pause_s(asked_at, RESTS_IN_LOOP, 0.01))


def _pause_s(asked_at: float, rests: float, least_s: float) -> float:
    return max(least_s, min(rests * (time.monotonic() - asked_at), PAUSE_S_MAX))


async def in_patience(work: Awaitable[T]) -> T:
    """The result of `work`; TimeoutError when it hangs."""
    return await asyncio.wait_for(work, PATIENCE_S)
