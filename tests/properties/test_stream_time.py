"""A stream's time under clocks that jump: it never goes back, never stands still, and ends up with
the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.runtime.ledger.clock import AHEAD_MAX_US, CONFIRM_S, DatabaseClock
from wharfinger.runtime.stream_time import due_in_us, stream_time

SECOND = 1_000_000
HOUR = 3600 * SECOND
T0 = 1_700_000_000 * SECOND

steps = st.lists(
    st.tuples(st.integers(0, 60 * SECOND), st.sampled_from((0, 0, 0, HOUR, -HOUR, 2 * SECOND))),
    min_size=1,
    max_size=30,
)
"""Real time that passes before a round, and by how much the clock is wrong when the round is
stamped."""


@given(steps, st.integers(1, 600 * SECOND), st.integers(0, 29))
def test_what_is_due_after_a_duration_happens_after_it_whatever_the_clock_has_shown(
    story: list[tuple[int, int]], lasts: int, chosen: int
) -> None:
    real, head, headed = T0, T0, T0
    due: int | None = None
    begun = 0
    for place, (passes, wrong) in enumerate(story):
        real += passes
        at = stream_time(real + wrong, head, real - headed)
        assert at >= head
        if due is not None and at >= due:
            due = None
        head, headed = at, real
        if place == chosen % len(story):
            due, begun = at + lasts, real
    if due is None:
        return
    # The clock is right from here on, and no further round comes by itself.
    left = due_in_us(due, real, head, real - headed)
    assert stream_time(real + left, head, real + left - headed) >= due
    assert real + left - begun <= lasts * 10 // 9 + len(story) + 2


@given(st.integers(0, 24 * HOUR), st.lists(st.integers(1, 600 * SECOND), max_size=20))
def test_a_clock_that_is_right_again_catches_up(ahead: int, rounds: list[int]) -> None:
    real, head, headed = T0, T0 + ahead, T0
    for passes in rounds:
        real += passes
        head, headed = stream_time(real, head, real - headed), real
        assert head >= real
    real += 10 * ahead + 1000
    assert stream_time(real, head, real - headed) == real


class Clocks:
    """A database's clock, a machine's wall clock and its monotonic clock."""

    def __init__(self) -> None:
        self.s = 1000.0
        self.database_ahead = self.wall_ahead = 0

    def wall(self) -> int:
        return T0 + round(self.s * SECOND) + self.wall_ahead

    def read(self, clock: DatabaseClock, takes_s: float = 0.002) -> None:
        asked = self.s
        self.s += takes_s / 2
        at = T0 + round(self.s * SECOND) + self.database_ahead
        self.s += takes_s / 2
        clock.note(at, asked, self.s)

    def right(self) -> int:
        return T0 + round(self.s * SECOND)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(-HOUR, HOUR), st.floats(0, 0.5)), max_size=20)
)
def test_a_machines_own_clock_may_show_what_it_will(story: list[tuple[float, int, float]]) -> None:
    clocks = Clocks()
    clocks.wall_ahead = HOUR
    clock = DatabaseClock(clocks.wall, lambda: clocks.s)
    clocks.read(clock)
    for passes, wrong, takes in story:
        clocks.s += passes
        clocks.wall_ahead = wrong
        assert abs(clock() - clocks.right()) <= SECOND
        clocks.read(clock, takes)
        assert abs(clock() - clocks.right()) <= SECOND
        assert abs(clock.skew_us - wrong) <= SECOND


@given(st.integers(AHEAD_MAX_US + SECOND, HOUR), st.floats(0, CONFIRM_S - 1))
def test_a_database_whose_clock_is_far_ahead_for_a_moment_is_not_believed(
    ahead: int, lasts_s: float
) -> None:
    clocks = Clocks()
    clock = DatabaseClock(clocks.wall, lambda: clocks.s)
    clocks.read(clock)
    clocks.database_ahead = ahead
    clocks.read(clock)
    clocks.s += lasts_s
    clocks.read(clock)
    assert abs(clock() - clocks.right()) <= SECOND
    clocks.database_ahead = 0
    clocks.read(clock)
    assert abs(clock() - clocks.right()) <= SECOND
    clocks.database_ahead = ahead  # and for long
    clocks.read(clock)
    clocks.s += CONFIRM_S + 1
    clocks.read(clock)
    assert abs(clock() - clocks.right() - ahead) <= SECOND
    clocks.database_ahead = 0  # what lies behind does no harm
    clocks.read(clock)
    assert abs(clock() - clocks.right()) <= SECOND
