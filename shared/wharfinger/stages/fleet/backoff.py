"""Exponential back-off of refused bindings, so that fluctuating capacity does not fill the history.

The first two refusals have no pause: a waiting binding is placed as soon as there is capacity. Each
further refusal doubles the pause, unless there was a quiet period since the last one. A placement
that did not last does not count as quiet, so a binding that is placed and refused in turn is slowed
down too. Only decided refusals count, so a stream that is loaded again has the same counts. A
user's request is answered at once and resets the back-off.
"""

from __future__ import annotations

from wharfinger.domain.time import SECOND
from wharfinger.engine.backoff import backoff_s
from wharfinger.kernel.decider import Micros

FREE = 2
"""How many refusals have no pause: the first one answers the request, and the second one comes
where the capacity that a count showed is taken already."""

LONGEST_S = 10
CALM_S = 10
"""How long after the end of a pause, in seconds, the count of refusals starts again."""


def pause_after(attempts: int) -> Micros:
    """Return the pause after `attempts` refusals, in microseconds: 0 after the first two, then 1,
    2, 4, 8 and at most 10 seconds."""
    return backoff_s(attempts - FREE, 1, LONGEST_S) * SECOND


def refused(attempts: int, until: Micros, at: Micros, asked: bool) -> tuple[int, Micros]:
    """Count one more refusal at time `at`. Return (the number of refusals that count, including
    this one; the time when the pause after it ends). `attempts`: the count before. `until`: when
    the previous pause ended. `asked`: the refusal answers a request. The count starts again at 1
    after a request, and when `CALM_S` seconds have passed since the previous pause."""
    now = 1 if asked or at >= until + CALM_S * SECOND else attempts + 1
    return now, at + pause_after(now)
