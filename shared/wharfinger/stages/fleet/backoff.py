"""How long a waiting binding is left alone after it was refused, so that flapping capacity cannot make a history of it.

The first two refusals cost nothing: whoever waits is placed as soon as there is room. Each further one, unless all was calm since
the last, doubles the pause. A placement that did not hold for a while is no calm, so a binding that is placed and refused in
turn is slowed down as well. Only refusals that were decided count, so that a stream recovered from its decisions knows them all;
what the user asks for is answered at once, and begins anew.
"""

from __future__ import annotations

from wharfinger.kernel.decider import Micros

SECOND: Micros = 1_000_000

FREE = 2
"""So many refusals cost nothing: one when it is asked for, and one when what was counted for it turns out to be taken."""

LONGEST_S = 10
CALM_S = 10
"""So long after a pause nothing counts any more."""


def pause_after(attempts: int) -> Micros:
    """None after the first two refusals, then 1, 2, 4, 8 and at most 10 seconds."""
    if attempts <= FREE:
        return 0
    return min(LONGEST_S, 1 << min(attempts - FREE - 1, 8)) * SECOND


def refused(attempts: int, until: Micros, at: Micros, asked: bool) -> tuple[int, Micros]:
    """How many refusals count at `at`, this one among them, and until when the binding is left alone. `until`: of the pause before.
    `asked`: it is the answer to a request."""
    now = 1 if asked or at >= until + CALM_S * SECOND else attempts + 1
    return now, at + pause_after(now)
