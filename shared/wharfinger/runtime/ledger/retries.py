"""Short trouble is waited out here: a deadlock, a connection that was cut. Longer trouble is the
caller's business.

Only for calls that are right when made twice: each either finds its own earlier success or
overwrites it with the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wharfinger.runtime.ledger.errors import DeadlineExceeded, Transient

ATTEMPTS = 6
_PAUSE_S = 0.01  # doubled with every attempt: 0.3 s in all

T = TypeVar("T")


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """The result of the first attempt that gets through. Transient: that of the last attempt, or of
    one that ran out of time."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return await call()
        except DeadlineExceeded:
            raise  # that was no short trouble
        except Transient:
            await asyncio.sleep(_PAUSE_S * 2**attempt * (0.5 + random.random()))
    return await call()
