"""What is a burst, and how long it is held to go on."""

from __future__ import annotations

import pytest

from wharfinger.runtime.burst_meter import LASTS_S, RATE, WINDOW_S, BurstMeter


def test_a_stage_that_has_done_nothing_has_no_burst() -> None:
    assert not BurstMeter(1.0).in_burst(1.0)


@pytest.mark.parametrize("turn_s", [0.03, 0.2, 1.7])
def test_decisions_at_the_rate_are_a_burst_however_long_turns_take(turn_s: float) -> None:
    meter, now_s = BurstMeter(0.0), 0.0
    for _ in range(int(10 / turn_s)):
        now_s += turn_s
        meter.decided(round(RATE * turn_s) + 1, now_s)
        if now_s >= WINDOW_S:
            assert meter.in_burst(now_s)
    # the next turn is under way
    assert meter.in_burst(now_s + turn_s)
    assert not meter.in_burst(now_s + WINDOW_S + LASTS_S)


@pytest.mark.parametrize("turn_s", [0.03, 0.2, 1.7, 30.0])
def test_a_steady_load_is_none_though_a_slow_machine_takes_much_of_it_at_once(
    turn_s: float,
) -> None:
    meter, now_s = BurstMeter(0.0), 0.0
    for _ in range(40):
        now_s += turn_s
        meter.decided(int(50 * turn_s), now_s)
        assert not meter.in_burst(now_s)


def test_a_turn_of_one_clump_after_a_long_silence_is_none() -> None:
    meter = BurstMeter(0.0)
    meter.decided(10 * RATE, 60.0)
    assert not meter.in_burst(60.0)


def test_a_burst_is_seen_at_once_and_held_to_go_on_for_a_while() -> None:
    meter = BurstMeter(0.0)
    meter.decided(RATE - 1, 0.1)
    assert not meter.in_burst(0.1)
    meter.decided(1, 0.2)
    assert meter.in_burst(0.2)
    meter.decided(1, 2 * WINDOW_S)
    assert meter.in_burst(0.2 + LASTS_S - 0.01)
    assert not meter.in_burst(0.2 + LASTS_S)
