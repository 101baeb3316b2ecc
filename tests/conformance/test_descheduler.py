"""The descheduler's recorded evictions, asked of our strategies: every case is answered the same
where the policy is strict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance import descheduler, runner

LEAST = {
    "evictor": 42,
    "high_node_utilization": 56,
    "low_node_utilization": 80,
    "low_node_utilization_metrics": 61,
    "node_affinity": 63,
    "node_taints": 66,
    "remove_duplicates": 69,
    "topology_spread": 72,
}
"""How many cases of each suite are answered the same: all of them."""


@pytest.mark.parametrize("suite", descheduler.SUITES)
def test_the_suite_is_answered_as_recorded(suite: str) -> None:
    (result,) = runner.run("descheduler", only=suite)
    assert result.failed == []
    assert result.passed == LEAST[suite]


@pytest.mark.parametrize("key", ["evicted", "failed", "classification", "rejected"])
def test_an_answer_that_differs_in_any_part_is_found(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """With something else in its place, the case differs."""
    right = descheduler.answer
    suites = runner.read_suites("descheduler", None)
    monkeypatch.setattr(
        descheduler, "answer", lambda suite, case: right(suite, case) | {key: ["another"]}
    )
    for suite, cases in suites.items():
        asked = [case for case in cases if key in case["expect"]][:1]
        assert len(
            runner.run_suite(runner.system_named("descheduler"), suite, asked, []).failed
        ) == len(asked)


def test_the_order_of_evictions_is_compared_where_it_is_not_of_chance() -> None:
    exact = {"expect": {"evicted": ["a", "b"], "failed": False, "order": "exact"}}
    chance = {"expect": {"evicted": ["a", "b"], "failed": False, "order": "set"}}
    assert not descheduler.agrees("node_taints", {"evicted": ["b", "a"], "failed": False}, exact)
    assert descheduler.agrees("node_taints", {"evicted": ["b", "a"], "failed": False}, chance)
    assert not descheduler.agrees("node_taints", {"evicted": ["a"], "failed": False}, chance)


def answers() -> str:
    """All answers to two suites whose reference is of chance, as text."""
    suites = runner.read_suites("descheduler", None)
    return repr(
        [
            descheduler.answer(s, case)
            for s in ("remove_duplicates", "topology_spread")
            for case in suites[s]
        ]
    )


@pytest.mark.long
def test_the_hash_seed_reaches_no_answer() -> None:
    told = []
    for seed in ("1", "77"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(["shared", "services", "."]),
        }
        code = "from tests.conformance.test_descheduler import answers; print(answers())"
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
    assert len(told[0]) > 5_000
