"""How replicas are divided: the rules one by one. The recorded answers of Karmada are in
tests/conformance."""

from __future__ import annotations

import pytest

from wharfinger.engine.fleet.division import (
    Shares,
    Shortage,
    by_capacity,
    by_static_weight,
    duplicated,
)
from wharfinger.engine.fleet.webster import names_descend, webster


def fnv_1a_32(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) % 2**32
    return value


@pytest.mark.parametrize(
    "uid", ["a", "b", "uid-of-web", "4e017e8f-0c25-4e70-86d1-2d081e0d2a6c", "ø", "🜁"]
)
def test_the_direction_of_names_is_the_low_bit_of_the_uids_hash(uid: str) -> None:
    assert names_descend(uid) == bool(fnv_1a_32(uid) & 1)


def test_without_a_uid_names_ascend() -> None:
    assert not names_descend("")


def test_equal_weights_are_decided_by_name_in_the_direction_of_the_uid() -> None:
    assert webster(["a", "b", "c"], [1, 1, 1], 4) == [2, 1, 1]
    assert webster(["a", "b", "c"], [1, 1, 1], 4, descending=True) == [1, 1, 2]


def test_of_equal_quotients_the_one_with_fewer_seats_goes_first() -> None:
    # after one seat 3/3 equals 1/1
    assert webster(["a", "b"], [3, 1], 2) == [1, 1]
    assert webster(["a", "b"], [3, 1], 2, descending=True) == [1, 1]


def test_nobody_gets_a_seat_for_a_weight_of_zero() -> None:
    assert webster(["a", "b"], [0, 5], 3) == [0, 3]
    assert webster(["a", "b"], [0, 0], 3) == [0, 0]


def test_the_cost_does_not_grow_with_the_replicas() -> None:
    assert webster(["a", "b"], [1, 2], 3 * 10**15) == [10**15, 2 * 10**15]


def test_quotients_that_floats_cannot_tell_apart_are_told_apart() -> None:
    big = 2**60
    assert webster(["a", "b"], [big, big + 1], 1) == [0, 1]
    assert webster(["a", "b"], [big, big + 1], 3) == [1, 2]


def test_duplicated_gives_all_to_each_and_nothing_when_nothing_is_wanted() -> None:
    assert duplicated(["a", "b"], 3).replicas == {"a": 3, "b": 3}
    assert duplicated(["a", "b"], 0).replicas == {}


def test_static_weights_all_zero_mean_equal() -> None:
    assert by_static_weight(["a", "b"], [0, 0], 4).replicas == {"a": 2, "b": 2}


def test_scale_up_asks_only_for_what_is_missing() -> None:
    answer = by_capacity(["a", "b"], [1, 9], {"a": 10}, 12, aggregated=False)
    assert answer == Shares({"a": 10, "b": 2}, "scale up", {"a": 10}, 2, ["a", "b"], [1, 9])
    assert by_capacity(["a", "b"], [0, 1], {"a": 10}, 12, aggregated=False) == Shortage(2, 1)


def test_scale_down_asks_nobody_for_capacity() -> None:
    answer = by_capacity(["a", "b"], [0, 0], {"a": 6, "b": 3}, 3, aggregated=False)
    assert answer == Shares({"a": 2, "b": 1}, "scale down", {}, 3, ["a", "b"], [6, 3])


def test_equal_keeps_everything_and_forgets_clusters_that_are_no_candidates() -> None:
    assert by_capacity(["a"], [0], {"a": 3}, 3, aggregated=False) == Shares(
        {"a": 3}, "equal", {"a": 3}
    )
    assert by_capacity(["a"], [0], {"a": 3, "gone": 2}, 5, aggregated=False) == Shortage(2, 0)


def test_fresh_divides_all_anew_by_what_fits_and_what_is_held() -> None:
    answer = by_capacity(["a", "b"], [0, 6], {"a": 6}, 6, aggregated=False, fresh=True)
    assert isinstance(answer, Shares)
    assert answer.replicas == {"a": 3, "b": 3}


def test_aggregated_grows_where_it_is_before_it_goes_elsewhere() -> None:
    answer = by_capacity(["a", "b"], [3, 100], {"a": 2}, 5, aggregated=True)
    assert isinstance(answer, Shares)
    assert answer.replicas == {"a": 5}
