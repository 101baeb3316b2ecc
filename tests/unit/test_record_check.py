"""Which marks a check of the topics compares: few while no leader changes, however many were made,
and all that may have been truncated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from wharfinger.runtime.ledger import Mark
from wharfinger.runtime.record_check import to_compare

READER, PLACE = "fleet/0", "wharfinger.bindings/0"


def a_mark(offset: int, epoch: int = -1, reader: str = READER) -> Mark:
    return Mark(reader, PLACE, 1, offset, bytes(32), epoch)


def in_epoch(marks: Iterable[Mark], epoch: int | None) -> Mapping[Mark, int | None]:
    return dict.fromkeys(marks, epoch)


@pytest.mark.parametrize("count", [3, 30, 3000])
def test_a_busy_reader_does_not_make_the_check_longer(count: int) -> None:
    marks = [a_mark(10, epoch=4), *(a_mark(10 + n) for n in range(1, count))]
    assert to_compare(marks, marks, in_epoch(marks, 4), True) == [marks[0], marks[-1]]


@pytest.mark.parametrize("count", [3, 30, 3000])
def test_of_a_broker_that_loses_all_or_nothing_the_first_and_the_last_are_compared(
    count: int,
) -> None:
    marks = [a_mark(n) for n in range(count)]
    assert to_compare(marks, marks, in_epoch(marks, None), False) == [marks[0], marks[-1]]


@pytest.mark.parametrize("epoch", [5, None])
def test_all_are_compared_after_the_leader_has_changed_or_where_it_is_not_known(
    epoch: int | None,
) -> None:
    marks = [a_mark(10, epoch=4), *(a_mark(10 + n) for n in range(1, 30))]
    assert to_compare(marks, marks, in_epoch(marks, epoch), True) == marks


def test_all_are_compared_where_none_was_found_in_the_epoch_yet() -> None:
    marks = [a_mark(n) for n in range(30)]
    assert to_compare(marks, marks, in_epoch(marks, 4), True) == marks


def test_what_came_after_the_epochs_were_asked_for_is_compared() -> None:
    """The leader may have changed since, and the partition may have been truncated between two of
    those marks."""
    marks = [a_mark(10, epoch=4), *(a_mark(10 + n) for n in range(1, 30))]
    assert to_compare(marks, marks[:20], in_epoch(marks, 4), True) == [marks[0], *marks[20:]]


def test_the_mark_of_the_epoch_is_compared_wherever_it_stands() -> None:
    marks = [a_mark(1), a_mark(2), a_mark(3, epoch=4), a_mark(4), a_mark(5)]
    assert to_compare(marks, marks, in_epoch(marks, 4), True) == [marks[0], marks[2], marks[4]]


def test_each_reader_has_marks_of_its_own() -> None:
    calm = [a_mark(10, epoch=4), a_mark(11), a_mark(12)]
    new = [a_mark(n, reader="publisher") for n in range(3)]
    marks = [*calm, *new]
    assert to_compare(marks, marks, in_epoch(marks, 4), True) == [calm[0], calm[2], *new]
