"""Days since the epoch, UTC: by them the history lies in partitions.

Everything that belongs to a round has its day, the bodies of its inputs too, so that a partition
can be taken away whole.
"""

from __future__ import annotations

from wharfinger.kernel.decider import Micros

DAY_US = 86_400_000_000


def day_of(at: Micros) -> int:
    """The day of a round at this time."""
    return at // DAY_US
