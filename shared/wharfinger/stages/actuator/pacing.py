"""How many requests to one cluster may be under way: additive increase, multiplicative decrease.

It begins with the most. One more for each second in which no answer asked for less, half as many
after one that did. Where the server names a pause, no request is begun in it.

A server divides its processor among the requests that are under way, and pods that are bound are
started by others at once: with fewer bindings under way the same server does more of the starting
and less of the binding. At an API server on two busy cores 8 under way reached 157 and 179 a
second, 16 178 to 263, 64 187 and 315 (ADR 0123).
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.time import SECOND, Micros
from wharfinger.stages.actuator.answers import Outcome

LEAST, MOST = 4, 64

PAUSE_S_MAX = 30.0
"""The longest pause that is kept: a proxy may name a day."""


@dataclass(slots=True)
class Concurrency:
    """`paused_until`: before this no request is begun, because the server asked for it."""

    allowed: int = MOST
    paused_until: Micros = 0
    _halved_at: Micros = -SECOND
    _raised_at: Micros = 0

    def answered(self, outcome: Outcome, at: Micros, asked_s: float = 0.0) -> None:
        """At most one change of each kind a second: answers that were under way together count
        once. `asked_s`: the pause that the server asked for."""
        if outcome in (Outcome.SLOWED, Outcome.UNKNOWN):
            if asked_s > 0:
                until = at + int(min(asked_s, PAUSE_S_MAX) * SECOND)
                self.paused_until = max(self.paused_until, until)
            if at - self._halved_at >= SECOND:
                self.allowed = max(LEAST, self.allowed // 2)
                self._halved_at = at
            self._raised_at = at
        elif at - self._raised_at >= SECOND:
            self.allowed = min(MOST, self.allowed + 1)
            self._raised_at = at

    def paused(self, at: Micros) -> bool:
        return at < self.paused_until
