"""Karmada's recorded answers, asked of our engine: every case is answered the same or is a listed
deviation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance import karmada, runner

PASSED = {
    "division": 408,
    "estimator-general": 244,
    "estimator-node": 235,
    "estimator-quota": 119,
    "filter": 233,
    "reconcile": 211,
    "schedule": 160,
    "score": 60,
    "spread": 291,
    "trigger": 150,
}
"""How many cases of each suite are answered the same; a deviation more must be written down here as
well."""


ASIDE = {"trigger": 1, "schedule": 2, "reconcile": 9}
"""How many of them the reference answers: bindings that nobody claims, and targets with nothing."""


def test_the_reference_answers_whole_cycles_and_their_causes_as_well() -> None:
    """So that what a plane does otherwise is told from what it does wrong."""
    suites = runner.read_suites("karmada", None)
    asked = {
        "schedule": karmada.reference_schedule,
        "reconcile": karmada.reference_cycle,
        "trigger": karmada.reference_trigger,
    }
    for suite, answer in asked.items():
        for case in suites[suite]:
            assert karmada.agrees(suite, answer(case["input"]), case), case["name"]


@pytest.mark.parametrize("suite", PASSED)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("karmada", only=suite)
    assert result.failed == []
    assert result.passed == PASSED[suite]
    assert result.aside.total() == ASIDE.get(suite, 0)


def test_every_suite_is_kept_here() -> None:
    assert set(PASSED) == set(karmada.SUITES) == set(runner.read_suites("karmada", None))


def test_every_deviation_says_why_and_is_needed() -> None:
    suites = runner.read_suites("karmada", None)
    for rule in runner.deviations("karmada"):
        assert rule.reason
        assert any(rule.covers(rule.suite, case["input"]) for case in suites[rule.suite])


WRONG: dict[str, dict[str, Any]] = {
    "filter": {"feasible": []},
    "score": {"total": {}},
    "trigger": {"cause": "none"},
    "spread": {"ranking": []},
    "reconcile": {"requeue": None},
    "division": {"clusters": []},
    "schedule": {"clusters": []},
}


@pytest.mark.parametrize("suite", WRONG)
def test_one_key_answered_otherwise_is_found(suite: str) -> None:
    """A comparison that overlooks a key would let every answer pass."""
    case = next(
        c
        for c in runner.read_suites("karmada", None)[suite]
        if all(
            karmada.expected(suite, c).get(key, value) != value
            for key, value in WRONG[suite].items()
        )
        and "error" not in c["expect"]
    )
    right = karmada.answer(suite, case)
    assert karmada.agrees(suite, right, case)
    assert not karmada.agrees(suite, {**right, **WRONG[suite]}, case)
