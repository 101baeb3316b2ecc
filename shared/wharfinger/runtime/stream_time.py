"""What a stream's next round is stamped with.

A stream's time never goes back. Where its head was stamped by a clock that was wrong, it lies ahead
of the clock, and a time that waited for the clock to catch up would stand still: no lease,
toleration, grace or batch window would end meanwhile. So it is carried on from the head, at
`SLEW_PERCENT` of real time: what is due after a duration happens after that duration, a ninth later
at most, and the clock catches up in ten times what the head was ahead. [NTP slews a clock that it
must not step.]
"""

from __future__ import annotations

from wharfinger.kernel.decider import Micros

SLEW_PERCENT = 90
"""How fast a stream's time goes, against real time, while its head lies ahead of the clock."""


def stream_time(clock: Micros, head: Micros, since_head_us: int) -> Micros:
    """`clock`: what it shows now. `head`: the time of the last round. `since_head_us`: real time
    since that was committed, by the monotonic clock."""
    return max(clock, head + max(0, since_head_us) * SLEW_PERCENT // 100)


def due_in_us(due: Micros, clock: Micros, head: Micros, since_head_us: int) -> int:
    """Real time until the stream's time reaches `due`, if the clock goes right: 0 when it has."""
    if stream_time(clock, head, since_head_us) >= due:
        return 0
    carried = -(-(due - head) * 100 // SLEW_PERCENT) - max(0, since_head_us)
    return max(1, min(due - clock, carried))
