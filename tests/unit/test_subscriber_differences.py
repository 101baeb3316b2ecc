"""What `make feed-soak` finds between the rows of a subscriber and the feed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.subscribers import Difference, Row, difference

FEED = [Row(n, f"id-{n}", f"shop/web-{n % 2}") for n in range(1, 7)]
ONE, TWO, THREE, FOUR, FIVE, SIX = FEED
FOREIGN = Row(9, "id-9", "shop/web-1")


@pytest.mark.parametrize("way", ["sse", "kafka"])
def test_a_subscriber_that_has_everything_once_has_no_difference(way: str) -> None:
    assert difference(way, FEED, FEED) == Difference(0, 0, 0, 0, "")


@pytest.mark.parametrize(
    ("stored", "counts", "first"),
    [
        ([ONE, TWO, FOUR, FIVE], (2, 0, 0, 0), f"missing: {THREE}"),
        ([*FEED, FIVE, FIVE, SIX], (0, 3, 0, 0), f"repeated: {FIVE}"),
        ([*FEED, FOREIGN], (0, 0, 1, 0), f"not in the feed: {FOREIGN}"),
        ([ONE, FOUR, TWO, THREE, FIVE, SIX], (0, 0, 0, 2), f"out of order: {TWO}"),
        ([TWO, TWO, THREE, FOUR, FIVE, SIX], (1, 1, 0, 0), f"missing: {ONE}"),
        ([], (6, 0, 0, 0), f"missing: {ONE}"),
    ],
)
def test_differences_are_counted_and_the_first_one_is_named(
    stored: Sequence[Row], counts: tuple[int, int, int, int], first: str
) -> None:
    assert difference("pull", stored, FEED) == Difference(*counts, first)


def test_over_kafka_the_order_is_that_of_each_subject() -> None:
    assert not difference("kafka", [ONE, THREE, FIVE, TWO, FOUR, SIX], FEED).first
    assert difference("kafka", [ONE, FIVE, THREE, TWO, FOUR, SIX], FEED).disordered == 1
