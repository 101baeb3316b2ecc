"""The search for late writes in the campaign finds each kind of them."""

from __future__ import annotations

import json

from tests.chaos.checker import Findings, RawRecord
from tests.chaos.copies import Mark, check_feed, check_repeated, check_rounds


def marks(epoch: int, number: int, end: int = 0) -> list[tuple[Mark, Mark]]:
    mark = Mark({"fleet/0": (epoch, number)}, {}, (1, 0), {0: end})
    return [(mark, mark)]


def record(offset: int, id: str) -> RawRecord:
    return RawRecord(0, offset, json.dumps({"id": id}).encode())


def test_epochs_that_rise_are_no_late_write() -> None:
    found = Findings()
    check_rounds(found, [("fleet/0", 1, 1), ("fleet/0", 2, 2), ("fleet/0", 3, 4)], marks(2, 2))
    assert found.broken == []
    assert found.figures["rounds that began an epoch"] == 2


def test_a_round_under_an_epoch_that_had_ended_is_found() -> None:
    found = Findings()
    check_rounds(found, [("fleet/0", 1, 2), ("fleet/0", 2, 1)], [])
    assert len(found.broken) == 1


def test_a_round_behind_a_mark_is_found_before_the_successor_wrote_one() -> None:
    found = Findings()
    check_rounds(found, [("fleet/0", 1, 1), ("fleet/0", 2, 1)], marks(2, 1))
    assert len(found.broken) == 1


def test_a_record_that_comes_again_behind_a_mark_is_found() -> None:
    found = Findings()
    check_repeated(found, [record(0, "a"), record(1, "b"), record(2, "a")], marks(1, 0, end=2))
    assert len(found.broken) == 1


def test_a_record_that_comes_once_is_no_late_write() -> None:
    found = Findings()
    check_repeated(found, [record(0, "a"), record(1, "b"), record(2, "c")], marks(1, 0, end=2))
    assert found.broken == []


def test_a_position_that_is_given_twice_is_found() -> None:
    found = Findings()
    check_feed(found, [(1, 7, 1, 2), (3, 7, 3, 1)])
    assert found.broken == []
    check_feed(found, [(1, 7, 1, 2), (2, 7, 3, 1)])
    assert len(found.broken) == 1
