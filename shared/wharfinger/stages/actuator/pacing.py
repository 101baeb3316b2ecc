"""How many requests to one cluster may be under way: additive increase, multiplicative decrease.

One more for each second in which no answer asked for less, half as many after one that did. More at
once is not faster: 8 binds under way reached 271 a second at an API server on two cores, 32 reached
211, with six times the latency.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.answers import Outcome

FIRST, LEAST, MOST = 16, 4, 64
SECOND_US = 1_000_000


@dataclass(slots=True)
class Concurrency:
    allowed: int = FIRST
    changed_at: Micros = 0

    def answered(self, outcome: Outcome, at: Micros) -> None:
        """At most one change a second: answers that were under way together count once."""
        if at - self.changed_at < SECOND_US:
            return
        less = outcome in (Outcome.SLOWED, Outcome.UNKNOWN)
        self.allowed = max(LEAST, self.allowed // 2) if less else min(MOST, self.allowed + 1)
        self.changed_at = at
