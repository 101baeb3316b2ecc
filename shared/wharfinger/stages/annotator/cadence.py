"""When a metric of a cluster is asked for: at the start and each period, and sooner again after a failure.

The periods are a fixed grid from the start, so that a slow answer does not shift later ones. A failure is tried again
after 10 s, doubling to 360 s with each failure in a row; the grid goes on meanwhile, a failing tick doubles too, and of two
retries the earlier counts. (crane-scheduler's node annotator: tickers that feed a rate-limited queue.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wharfinger.kernel.decider import Micros

SECOND: Micros = 1_000_000
RETRY_FIRST_S = 10
RETRY_MAX_S = 360

FailureKind = Literal[
    "unreachable",  # no connection, or it broke
    "timeout",
    "credentials",  # our token file cannot be read
    "unauthorized",
    "redirected",
    "rejected",  # the server understood and said no
    "server-error",
    "malformed",
    "too-large",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, in one line for people. A value: the cadence needs it as much as an answer."""

    kind: FailureKind
    line: str


@dataclass(frozen=True, slots=True)
class Query:
    """One question: `metric` of all nodes of `cluster`. `asked_at`: the annotator's clock when it was handed out."""

    cluster: str
    metric: str
    period_s: int
    asked_at: Micros


@dataclass(slots=True)
class Cadence:
    """The timetable of one metric of one cluster."""

    period: Micros
    next_tick: Micros
    retry_at: Micros | None = None
    failures: int = 0

    @property
    def due(self) -> Micros:
        return self.next_tick if self.retry_at is None else min(self.next_tick, self.retry_at)

    def asked(self, at: Micros) -> None:
        """The question was handed out: it is due again at the next tick, or at the retry that still lies ahead."""
        if self.next_tick <= at:
            self.next_tick += ((at - self.next_tick) // self.period + 1) * self.period
        if self.retry_at is not None and self.retry_at <= at:
            self.retry_at = None

    def answered(self) -> None:
        # A retry that is still ahead is kept, although the tick in between succeeded: one question too many after an
        # outage is crane's timetable, and cheaper than a deviation from it.
        self.failures = 0

    def failed(self, at: Micros) -> None:
        # The exponent is bounded too: an outage of a year must not make a number of a thousand digits.
        delay_s = min(RETRY_FIRST_S << min(self.failures, 10), RETRY_MAX_S)
        self.failures += 1
        retry = at + delay_s * SECOND
        self.retry_at = retry if self.retry_at is None else min(self.retry_at, retry)

    def follow(self, period: Micros, at: Micros) -> None:
        """The policy changed the period: the new grid starts now."""
        if period != self.period:
            self.period = period
            self.next_tick = at
