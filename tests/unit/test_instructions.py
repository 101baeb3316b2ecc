"""The instructions of decisions stay near those on record: the guard against slow growth."""

from __future__ import annotations

import pytest
from benchmarks.instructions import RECORD, counted, grown, instructions, python, recorded


def test_decisions_take_no_more_instructions_than_on_record() -> None:
    known = recorded()
    if known is None:
        pytest.skip(f"{RECORD.name} was counted with another Python than {python()}")
    now = counted()
    assert now.keys() == known.keys(), "python -m benchmarks.instructions --write"
    assert not grown(now, known)


def test_instructions_are_counted_alike_each_time_and_grow_with_the_work() -> None:
    few, again = (instructions(lambda: sum(i for i in range(100)), 1) for _ in range(2))
    assert few == again
    assert instructions(lambda: sum(i for i in range(1000)), 1) > 5 * few


def test_a_tenth_more_is_growth_and_less_is_not() -> None:
    assert grown({"work": 111}, {"work": 100}) == ["work: 111 instructions, 100 on record"]
    assert not grown({"work": 110}, {"work": 100})
    assert not grown({"work": 50}, {"work": 100})
