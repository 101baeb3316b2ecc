"""The query schedule of a metric: a fixed period per cluster, with exponential back-off after
failures.

Periods are a fixed grid from the start, so that a slow answer does not shift later queries. A
failed query is retried after 10 s, doubling to 360 s with each consecutive failure. The grid
continues meanwhile; a failure on the grid doubles the back-off too, and the earlier of grid and
retry counts. (As in crane-scheduler's node annotator: tickers that feed a rate-limited queue.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wharfinger.domain.time import SECOND
from wharfinger.engine.backoff import backoff_s
from wharfinger.kernel.decider import Micros

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
class QueryFailure:
    """Describes why a query has no result. `kind`: the type of failure; `line`: one line for the
    log. It is a value, not an exception, because the query schedule handles failures and results
    alike."""

    kind: FailureKind
    line: str


@dataclass(frozen=True, slots=True)
class Query:
    """Describes one query: `metric` for all nodes of `cluster`. `period_s`: the query period.
    `asked_at`: time at which the annotator issued it."""

    cluster: str
    metric: str
    period_s: int
    asked_at: Micros


@dataclass(slots=True)
class QueryTimetable:
    """The query schedule of one metric in one cluster."""

    period: Micros
    next_tick: Micros
    retry_at: Micros | None = None
    failures: int = 0

    @property
    def due(self) -> Micros:
        return self.next_tick if self.retry_at is None else min(self.next_tick, self.retry_at)

    def asked(self, at: Micros) -> None:
        """Marks the query as sent: it is due again at the next tick, or earlier at a retry that is
        still ahead."""
        if self.next_tick <= at:
            self.next_tick += ((at - self.next_tick) // self.period + 1) * self.period
        if self.retry_at is not None and self.retry_at <= at:
            self.retry_at = None

    def answered(self) -> None:
        # A retry that is still ahead is kept, although the tick in between succeeded: one question
        # too many after an outage is crane's timetable, and cheaper than a deviation from it.
        self.failures = 0

    def failed(self, at: Micros) -> None:
        self.failures += 1
        retry = at + backoff_s(self.failures, RETRY_FIRST_S, RETRY_MAX_S) * SECOND
        self.retry_at = retry if self.retry_at is None else min(self.retry_at, retry)

    def follow(self, period: Micros, at: Micros) -> None:
        """Applies the period of the current policy. If it changed, a new grid starts now."""
        if period != self.period:
            self.period = period
            self.next_tick = at
