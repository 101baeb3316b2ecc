"""How many requests a token may make: a token bucket for each, in each process of the API."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from wharfinger_api.problems import Problem

KNOWN_MAX = 10_000
"""Buckets that are kept. One that was not used for longest is full again, or nearly."""


class RequestLimits:
    """A bucket holds `burst` requests and is filled with `per_s` a second. `clock`: seconds."""

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, credential: str) -> None:
        """Problem: the bucket is empty; `Retry-After` says when it has one again, in seconds."""
        now = self._clock()
        left, since = self._buckets.pop(credential, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_s)
        taken = left >= 1
        self._buckets[credential] = (left - 1 if taken else left, now)
        while len(self._buckets) > KNOWN_MAX:
            self._buckets.popitem(last=False)
        if not taken:
            wait_s = math.ceil((1 - left) / self._per_s)
            raise Problem(
                "too-many",
                f"a token may make {self._per_s:g} requests a second, {self._burst:g} at once",
                headers={"Retry-After": str(wait_s)},
            )
