"""The arithmetic of scores: figures that were worked out by hand from the rules, and laws that hold
for any amounts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.engine.framework import formulas
from wharfinger.engine.framework.formulas import SCORE_MAX

amounts = st.integers(0, 2**45)
sizes = st.integers(1, 2**45)


@given(amounts, sizes)
def test_what_is_left_and_what_is_taken_are_the_whole_but_for_rounding(
    requested: int, allocatable: int
) -> None:
    least = formulas.least_allocated(requested, allocatable)
    most = formulas.most_allocated(requested, allocatable)
    assert 0 <= least <= SCORE_MAX
    assert SCORE_MAX - 1 <= least + most <= SCORE_MAX


def test_a_node_that_is_overcommitted_is_full_and_not_more() -> None:
    assert formulas.least_allocated(5, 4) == 0
    assert formulas.most_allocated(5, 4) == 100
    assert formulas.shaped(5, 4, (0, 100), (0, 100)) == 100
    assert formulas.shaped(0, 0, (0, 100), (0, 100)) == 100, "what has nothing is full"


@pytest.mark.parametrize(
    ("utilization", "score"),
    [
        (0, 30),
        (20, 30),
        (21, 29),
        (30, 15),
        (39, 2),
        (40, 0),
        (50, 33),
        (60, 66),
        (61, 67),
        (70, 83),
        (80, 100),
        (99, 100),
    ],
)
def test_a_shape_is_flat_outside_and_truncates_from_the_point_before(
    utilization: int, score: int
) -> None:
    """From (20, 30) to (40, 0) it falls by 1.5 a percent: at 21 by 1, not by 2. From (60, 66) to
    (80, 100) it rises by 1.7."""
    assert formulas.on_shape(utilization, (20, 40, 60, 80), (30, 0, 66, 100)) == score


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=5),
    st.integers(-5, 105),
)
def test_a_shape_stays_between_its_points_and_meets_them(
    points: list[tuple[int, int]], at: int
) -> None:
    shape = dict(sorted(points))
    utilizations, scores = tuple(shape), tuple(shape.values())
    assert min(scores) <= formulas.on_shape(at, utilizations, scores) <= max(scores)
    for utilization, score in shape.items():
        assert formulas.on_shape(utilization, utilizations, scores) == score


@given(amounts, st.integers(1, 10**6))
def test_a_rounded_mean_is_the_nearest_and_halves_go_up(total: int, weights: int) -> None:
    away = Fraction(formulas.rounded_mean(total, weights)) - Fraction(total, weights)
    assert Fraction(-1, 2) < away <= Fraction(1, 2)


def test_without_weights_the_mean_is_nothing() -> None:
    assert formulas.truncated_mean(7, 0) == formulas.rounded_mean(7, 0) == 0


# Balance.


@given(st.lists(st.tuples(amounts, amounts), max_size=5))
def test_a_balance_is_a_score_and_resources_in_equal_shares_are_balanced(
    shares: list[tuple[int, int]],
) -> None:
    requested, allocatable = [a for a, _ in shares], [b for _, b in shares]
    assert 50 <= formulas.balanced(requested, allocatable) <= 100
    assert formulas.balanced(allocatable, allocatable) == 100


@given(amounts, sizes, amounts, sizes)
def test_the_order_of_two_resources_does_not_matter(
    a: int, whole_a: int, b: int, whole_b: int
) -> None:
    assert formulas.balanced([a, b], [whole_a, whole_b]) == formulas.balanced(
        [b, a], [whole_b, whole_a]
    )


def test_two_resources_are_as_unbalanced_as_half_their_difference() -> None:
    assert formulas.balanced([0, 4], [4, 4]) == 50
    assert formulas.balanced([1, 3], [4, 4]) == 75
    assert formulas.balanced([1, 3, 9], [4, 4, 0]) == 75, "what the node has none of is left out"
    assert formulas.balanced([3], [4]) == formulas.balanced([], []) == 100


def test_three_resources_are_as_unbalanced_as_their_standard_deviation() -> None:
    """Shares 0, 1/2, 1: the deviation is the root of 1/6, 0.408..."""
    assert formulas.balanced([0, 2, 4], [4, 4, 4]) == 59


def test_a_pod_that_changes_nothing_about_the_balance_scores_75() -> None:
    assert formulas.balance_change(80, 80) == 75
    assert formulas.balance_change(100, 50) == 100
    assert formulas.balance_change(50, 100) == 50
    assert formulas.balance_change(98, 97) == 75, "half a point of change is none"


# Images.


def test_an_image_that_few_nodes_have_counts_for_little() -> None:
    gibibyte = 2**30
    assert formulas.image_share(gibibyte, 1, 4) == gibibyte // 4
    assert formulas.image_share(10, 1, 3) == 3


def test_images_below_the_least_are_nothing_and_above_the_most_everything() -> None:
    mebibyte = 2**20
    assert formulas.images_score(23 * mebibyte, 1) == 0
    assert formulas.images_score(0, 1) == 0
    assert formulas.images_score(1000 * mebibyte, 1) == 100
    assert formulas.images_score(1000 * mebibyte, 2) == 49, (
        "two containers could bring twice as much"
    )
    assert formulas.images_score(511 * mebibyte, 1) == 49


# Normalising.


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_the_highest_score_becomes_the_best_or_in_reverse_the_worst(scores: list[int]) -> None:
    highest = max(scores)
    straight = [formulas.normalised(score, highest) for score in scores]
    reverse = [formulas.normalised_reverse(score, highest) for score in scores]
    assert max(straight) == (SCORE_MAX if highest else 0)
    assert min(reverse) == (0 if highest else SCORE_MAX)
    assert all(a + b == SCORE_MAX for a, b in zip(straight, reverse, strict=True))
