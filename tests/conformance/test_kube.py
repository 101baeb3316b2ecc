"""kube-scheduler's recorded answers, asked of our framework: every case is answered the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance import kube, runner

LEAST = {"cycle": 68, "derived": 40, "filters": 82, "numbers": 66, "preemption": 23, "scores": 54}
"""How many cases of each suite are answered the same: all of them."""


ASIDE = {"numbers": 48}
"""How many of them the reference answers: how many nodes a search looks at."""


@pytest.mark.parametrize("suite", kube.SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("kube", only=suite)
    assert result.failed == []
    assert result.passed == LEAST[suite]
    assert result.aside.total() == ASIDE.get(suite, 0)


@pytest.mark.parametrize(
    "key",
    ["feasibleNodes", "filterFailures", "scores", "message", "victimsPerNode", "count", "total"],
)
def test_an_answer_that_differs_in_any_part_is_found(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """With something else in its place, the case differs."""
    right = kube.answer
    suites = runner.read_suites("kube", None)
    monkeypatch.setattr(kube, "answer", lambda suite, case: right(suite, case) | {key: "another"})
    for suite, cases in suites.items():
        asked = [case for case in cases if key in case["expected"]][:1]
        assert len(runner.run_suite(runner.system_named("kube"), suite, asked, []).failed) == len(
            asked
        )


def test_a_node_that_may_not_be_nominated_is_found() -> None:
    case = {"expected": {"result": "unschedulable", "nominatedNodeAnyOf": ["a", "b"]}}
    assert kube.agrees("preemption", {"result": "unschedulable", "nominated": "b"}, case)
    assert not kube.agrees("preemption", {"result": "unschedulable", "nominated": "c"}, case)
    assert not kube.agrees("preemption", {"result": "unschedulable", "nominated": None}, case)
    nobody = {"expected": {"result": "unschedulable"}}
    assert not kube.agrees("preemption", {"result": "unschedulable", "nominated": "a"}, nobody)


def test_what_is_advisory_is_not_compared() -> None:
    case = {
        "expected": {
            "result": "scheduled",
            "evaluated": 1,
            "feasible": 1,
            "messageAfterPostFilter": "x",
        }
    }
    assert kube.agrees("cycle", {"result": "scheduled", "nominated": None}, case)


def answers() -> str:
    """All answers to the suite of whole cycles, as text."""
    return repr([kube.answer("cycle", case) for case in runner.read_suites("kube", None)["cycle"]])


@pytest.mark.long
def test_the_hash_seed_reaches_no_answer() -> None:
    told = []
    for seed in ("1", "77"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(["shared", "services", "."]),
        }
        code = "from tests.conformance.test_kube import answers; print(answers())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0]) > 10_000
