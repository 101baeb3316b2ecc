"""crane-scheduler's recorded answers: every case is answered the same, by what a plane runs or,
where a plane does otherwise on purpose, by the reference."""

from __future__ import annotations

import pytest
from tests.conformance import crane, crane_live, crane_reference, runner

from wharfinger.engine.load.node_loads import WHOLE, LoadBook, clamp

LEAST = {
    "policy": 184,
    "annotation": 213,
    "filter_score": 170,
    "hot_value": 179,
    "annotator_sync": 179,
    "annotator_cadence": 29,
}
"""How many cases of each suite are answered the same: all of them."""


ASIDE = {
    "policy": {},
    "annotation": {
        "NaN and infinity are no measurements": 4,
        "a policy that apply refuses": 2,
        "a stamp well ahead of the clock says nothing": 45,
    },
    "filter_score": {
        "NaN and infinity are no measurements": 39,
        "a hot value is a whole number": 11,
        "a policy that apply refuses": 3,
        "scores are exact: crane cuts a sum of floats": 2,
        "where nothing is weighed there is no quotient": 1,
    },
    "hot_value": {
        "a policy that apply refuses": 3,
        "placements are known from decisions, not from a cluster's events": 13,
        "records are bounded for each node, not for the cluster": 72,
    },
    "annotator_sync": {
        "NaN and infinity are no measurements": 30,
        "a hot value does not wait for a measurement": 38,
        "a plane asks for all nodes at once, not by a key": 3,
        "a policy that apply refuses": 1,
        "annotations are applied as an object, not patched one by one": 1,
        "of several series of a node the largest counts": 17,
    },
    "annotator_cadence": {"a metric has one timetable: its shortest period": 1},
}
"""What a plane does otherwise on purpose, and in how many cases of each suite: the reference
answers those."""


@pytest.mark.parametrize("suite", crane.SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("crane", only=suite)
    assert result.failed == []
    assert result.passed == LEAST[suite]
    assert dict(sorted(result.aside.items())) == ASIDE[suite]


def test_a_wrong_answer_of_the_plane_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load two per cent higher in the book, and what the plane answers differs."""
    right = LoadBook.load

    def wrong(book: LoadBook, metric: str, node: str, now: int) -> int | None:
        found = right(book, metric, node, now)
        return None if found is None else found + WHOLE // 50

    monkeypatch.setattr(LoadBook, "load", wrong)
    (result,) = runner.run("crane", only="filter_score")
    assert len(result.failed) > result.live / 2


def test_a_wrong_answer_of_the_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score one too high, and every case in which it scores a node differs."""
    monkeypatch.setattr("tests.reference.crane.clamp", lambda score: clamp(score) + 1)
    (result,) = runner.run("crane", only="filter_score")
    assert len(result.failed) == result.aside.total()


@pytest.mark.parametrize("suite", [s for s in crane.SUITES if s != "policy"])
def test_the_reference_answers_every_case(suite: str) -> None:
    """So that what a plane does otherwise is told from what it does wrong."""
    for case in runner.read_suites("crane", None)[suite]:
        assert crane.agrees(suite, crane_reference.ANSWERS[suite](case), case), case["name"]


def test_both_ways_answer_the_same_suites() -> None:
    assert crane_live.ANSWERS.keys() == set(crane.SUITES)
    assert crane_reference.ANSWERS.keys() == set(crane.SUITES) - {"policy"}


def test_numbers_agree_by_value_and_truth_is_no_number() -> None:
    assert crane.same({"usage": 1.0, "ok": True}, {"usage": 1, "ok": True})
    assert not crane.same({"usage": 1.0, "ok": 1}, {"usage": 1, "ok": True})
    assert not crane.same([1], [1, 2])
    assert not crane.same({"ok": True, "more": 1}, {"ok": True})
