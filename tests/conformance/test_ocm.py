"""Open Cluster Management's recorded answers, asked of our engine: every case is answered the
same."""

from __future__ import annotations

import pytest
from tests.conformance import ocm, runner

LEAST = {
    "article": 17,
    "groups": 153,
    "predicates": 180,
    "prioritizers": 176,
    "taints": 159,
    "whole": 100,
}
"""How many cases of each suite are answered the same: all of them."""


@pytest.mark.parametrize("suite", ocm.SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("ocm", only=suite)
    assert result.failed == []
    assert result.passed == LEAST[suite]


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cluster too many, and every case in which anything is decided differs."""
    right = ocm.answer

    def wrong(suite: str, case: ocm.Json) -> ocm.Json:
        got = right(suite, case)
        return got | {"selected": [*got.get("selected", ()), "nobody"]}

    monkeypatch.setattr(ocm, "answer", wrong)
    (result,) = runner.run("ocm", only="article")
    assert len(result.failed) == result.total


def test_a_case_that_was_seen_to_go_two_ways_may_go_either() -> None:
    cases = runner.read_suites("ocm", None)["prioritizers"]
    (either,) = [case for case in cases if "varies" in (case.get("tags") or ())]
    got = ocm.answer("prioritizers", either)
    turned = {**either, "expected": either["alternatives"][0], "alternatives": [either["expected"]]}
    turned["expected"]["defaulted"] = either["expected"]["defaulted"]
    assert ocm.agrees("prioritizers", got, either)
    assert ocm.agrees("prioritizers", got, turned)
    assert not ocm.agrees("prioritizers", got | {"syncError": "another"}, either)
