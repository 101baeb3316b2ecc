"""Karmada's recorded answers, asked of our engine: every case is answered the same or is a listed deviation."""

from __future__ import annotations

import pytest
from tests.conformance import runner
from tests.conformance.karmada import SUITES

LEAST = {"division": 400, "spread": 291, "filter": 227, "score": 60, "trigger": 150}
"""How many cases of each suite are answered the same; a deviation more must be written down here as well."""


@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("karmada", only=suite)
    assert result.failed == []
    assert result.passed >= LEAST[suite]


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "score", lambda given: {"total": {}})
    (result,) = runner.run("karmada", only="score")
    assert len(result.failed) == result.total


def test_every_deviation_says_why_and_is_needed() -> None:
    suites = runner.read_suites("karmada", None)
    for rule in runner.deviations("karmada"):
        assert rule.reason
        assert any(rule.covers(rule.suite, case["input"]) for case in suites[rule.suite])
