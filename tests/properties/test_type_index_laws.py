"""What was laid out for other problems before changes no solution."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.provisioning_problems import problems

from wharfinger.engine.provisioning.problem import Problem
from wharfinger.engine.provisioning.solve import solve
from wharfinger.engine.provisioning.type_index import InstanceTypeIndex


def parts(problem: Problem) -> list[Problem]:
    """The problem, with each of the pods alone, with fewer pools, and once more."""
    alone = [replace(problem, wanted=[one]) for one in problem.wanted]
    fewer = [replace(problem, pools=[pool]) for pool in problem.pools]
    return [problem, *alone, *fewer, problem]


@given(problems(), st.booleans())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_solutions_of_one_shop_are_those_of_many(problem: Problem, backwards: bool) -> None:
    type_index = InstanceTypeIndex.of(problem)
    asked = parts(problem)[:: -1 if backwards else 1]
    for one in asked:
        assert solve(one, type_index) == solve(one)


@given(problems(reserved=True))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_reserved_is_counted_anew_for_each_problem(problem: Problem) -> None:
    type_index = InstanceTypeIndex.of(problem)
    assert [solve(one, type_index) for one in parts(problem)] == [
        solve(one) for one in parts(problem)
    ]
