"""crane-scheduler's recorded answers, asked of our engine: every case is answered the same."""

from __future__ import annotations

import pytest
from tests.conformance import crane, runner

from wharfinger.engine.load.book import clamp

LEAST = {
    "policy": 184,
    "annotation": 213,
    "filter_score": 170,
    "hot_value": 179,
    "annotator_sync": 179,
    "annotator_cadence": 29,
}
"""How many cases of each suite are answered the same: all of them."""


@pytest.mark.parametrize("suite", crane.SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("crane", only=suite)
    assert result.failed == []
    assert result.passed == LEAST[suite]


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score one too high, and every case in which a node has a score differs."""
    monkeypatch.setattr("wharfinger.engine.load.crane.clamp", lambda score: clamp(score) + 1)
    (result,) = runner.run("crane", only="filter_score")
    assert len(result.failed) == result.total


def test_numbers_agree_by_value_and_truth_is_no_number() -> None:
    assert crane.same({"usage": 1.0, "ok": True}, {"usage": 1, "ok": True})
    assert not crane.same({"usage": 1.0, "ok": 1}, {"usage": 1, "ok": True})
    assert not crane.same([1], [1, 2])
    assert not crane.same({"ok": True, "more": 1}, {"ok": True})
