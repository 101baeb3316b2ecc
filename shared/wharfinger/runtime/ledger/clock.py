"""The database's time without asking the database: the last reading, carried on by the monotonic
clock.

Rounds of all writers are stamped by one clock, the database's, so that a machine whose own clock is
wrong stamps nothing wrong. Its wall clock is not looked at any more once the database was read.
Between two readings only the monotonic clock counts, which no administrator and no NTP daemon sets.

A reading far ahead of what is expected may be a clock that is wrong for a moment (a standby that
took over, a virtual machine that was resumed). It is believed only when it has been so for
`CONFIRM_S`, because a stream's time never goes back; one that lies behind does no harm and is
believed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database

AHEAD_MAX_US = 10_000_000
"""What is further ahead of the database's clock is refused: more than any measured difference, less
than a lease."""

CONFIRM_S = 30.0
"""So long a reading far ahead must hold before it is believed."""


def wall_clock() -> Micros:
    """Microseconds since the epoch, by this machine. Deciders never see it."""
    return time.time_ns() // 1000


class ClockReading(NamedTuple):
    """The database's clock stood at `at` at some moment between the other two, which are of the
    monotonic clock, in seconds."""

    at: Micros
    asked_s: float
    answered_s: float


async def read(database: Database) -> ClockReading:
    async with database.reading() as raw:
        asked_s = time.monotonic()
        found = await raw.fetchrow(
            "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
        )
        answered_s = time.monotonic()
    assert found is not None, "a clock always answers"
    return ClockReading(int(found[0]), asked_s, answered_s)


class DatabaseClock:
    """`wall`: what is used before the first reading. `monotonic`: in seconds."""

    def __init__(
        self,
        wall: Callable[[], Micros] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._read, self._read_s, self._error_s = wall(), monotonic(), float("inf")
        self._ahead_since_s: float | None = None

    def __call__(self) -> Micros:
        """Microseconds since the epoch, by the database's clock."""
        return self._at(self._monotonic())

    @property
    def known(self) -> bool:
        """Whether the database's clock was ever read."""
        return self._error_s != float("inf")

    @property
    def skew_us(self) -> int:
        """This machine's wall clock less the database's."""
        return self._wall() - self()

    def note(self, read: Micros, asked_s: float, answered_s: float) -> None:
        """The database's clock stood at `read` at some moment between these two, by the monotonic
        clock."""
        middle_s, error_s = (asked_s + answered_s) / 2, (answered_s - asked_s) / 2
        ahead_us = read - self._at(middle_s)
        if self.known and ahead_us > AHEAD_MAX_US:
            if self._ahead_since_s is None:
                self._ahead_since_s = answered_s
            if answered_s - self._ahead_since_s < CONFIRM_S:
                return
        self._ahead_since_s = None
        # A reading that agrees within its own error says nothing new, unless it is a sharper one.
        if not self.known or error_s <= self._error_s or abs(ahead_us) > error_s * 1e6:
            self._read, self._read_s, self._error_s = read, middle_s, error_s

    def _at(self, moment_s: float) -> Micros:
        return self._read + round((moment_s - self._read_s) * 1e6)
