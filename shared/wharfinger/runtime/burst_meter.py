"""Whether a stage has a burst: many more decisions a second than under a steady load.

The rate is measured, and not how many messages wait or are taken at once: those grow with any
steady load where the machine is slow. Decisions are counted because a message to a cluster may have
hundreds of assignments.
"""

from __future__ import annotations

import math

RATE = 100
"""Decisions of one stage a second, and more, are a burst: twice the steady load for which the
latencies are measured (50 bindings a second)."""

WINDOW_S = 1.0
"""Decisions are counted over at least so long: fewer than this window's worth are no burst, however
close together they come."""

LASTS_S = 3.0
"""For so long after it was last seen a burst is held to go on: it is seen where a turn ends, and a
turn may take a second."""


class BurstMeter:
    """All times are of one monotonic clock, in seconds. It may be read from any thread."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._decisions = 0
        self._burst_at = -math.inf

    def decided(self, decisions: int, now_s: float) -> None:
        """A turn with so many decisions has ended."""
        self._decisions += decisions
        passed_s = now_s - self._since_s
        if self._decisions >= RATE * max(WINDOW_S, passed_s):
            self._burst_at = now_s
        if passed_s >= WINDOW_S:
            self._since_s, self._decisions = now_s, 0

    def in_burst(self, now_s: float) -> bool:
        return now_s - self._burst_at < LASTS_S
