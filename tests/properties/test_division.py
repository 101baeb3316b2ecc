"""Laws of the division, and the fast way of handing out seats against the slow one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.engine.fleet import webster as method
from wharfinger.engine.fleet.division import Shares, Shortage, by_capacity, by_static_weight
from wharfinger.engine.fleet.webster import webster, winners

names = st.lists(st.text("abcdxyz", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


def one_by_one(parties: list[str], weights: list[int], seats: int, descending: bool) -> list[int]:
    """Webster's method as it is defined: every seat to the largest quotient."""
    held = [0] * len(parties)
    place = {name: i for i, name in enumerate(sorted(parties, reverse=descending))}
    for _ in range(seats if any(weights) else 0):
        best = min(
            (i for i in range(len(parties)) if weights[i] > 0),
            key=lambda i: (-Fraction(weights[i], 2 * held[i] + 1), held[i], place[parties[i]]),
        )
        held[best] += 1
    return held


@given(names, st.data(), st.integers(0, 60), st.booleans())
def test_the_fast_webster_is_the_slow_one(
    parties: list[str], data: st.DataObject, seats: int, descending: bool
) -> None:
    some = st.one_of(st.integers(0, 4), st.integers(0, 50), st.integers(0, 2**60))
    weights = data.draw(st.lists(some, min_size=len(parties), max_size=len(parties)))
    assert webster(parties, weights, seats, descending) == one_by_one(
        parties, weights, seats, descending
    )


@given(names, st.data(), st.integers(0, 60), st.booleans(), st.booleans(), st.booleans())
def test_a_division_is_whole_and_within_what_fits(
    parties: list[str],
    data: st.DataObject,
    replicas: int,
    aggregated: bool,
    fresh: bool,
    descending: bool,
) -> None:
    size = len(parties)
    estimates = data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    held = data.draw(
        st.dictionaries(st.sampled_from([*parties, "gone"]), st.integers(0, 20), max_size=size)
    )
    kept = {c: n for c, n in held.items() if c in parties}
    answer = by_capacity(
        parties,
        estimates,
        held,
        replicas,
        aggregated=aggregated,
        fresh=fresh,
        descending=descending,
    )
    room = dict(zip(parties, estimates, strict=True))
    if isinstance(answer, Shortage):
        assert answer.available < answer.wanted <= replicas
        return
    assert sum(answer.replicas.values()) == replicas
    assert all(n > 0 for n in answer.replicas.values())
    assert set(answer.replicas) <= set(parties)
    assert all(n <= room[c] + kept.get(c, 0) for c, n in answer.replicas.items()), (
        "more than its weight"
    )
    if not fresh and sum(kept.values()) <= replicas:
        assert all(answer.replicas.get(c, 0) >= n for c, n in kept.items()), (
            "growing took replicas away"
        )


@given(names, st.data(), st.integers(0, 40))
def test_the_order_in_which_clusters_are_listed_changes_no_weighted_division(
    parties: list[str], data: st.DataObject, replicas: int
) -> None:
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(parties), max_size=len(parties)))
    of = dict(zip(parties, weights, strict=True))
    shuffled = data.draw(st.permutations(parties))
    one = by_static_weight(parties, weights, replicas)
    other = by_static_weight(shuffled, [of[c] for c in shuffled], replicas)
    assert isinstance(one, Shares)
    assert one.replicas == other.replicas


# Over arrays: thousands of clusters, in order of name

many = st.integers(1, 60)
sizes = st.one_of(st.integers(0, 4), st.integers(0, 90), st.integers(0, 2**31 - 1))


def named(size: int) -> list[str]:
    return [f"c{i:03d}" for i in range(size)]


@pytest.fixture(scope="module", autouse=True)
def however_few() -> object:
    """Also few parties are divided as many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "FEW", 0)
        yield


@given(many, st.data(), st.one_of(st.integers(0, 40), st.integers(0, 20_000)), st.booleans())
def test_the_webster_of_many_is_that_of_few(
    size: int, data: st.DataObject, seats: int, descending: bool
) -> None:
    same = data.draw(st.one_of(st.none(), sizes))  # ties, all of them or some
    weights = (
        [same] * size
        if same is not None
        else data.draw(st.lists(sizes, min_size=size, max_size=size))
    )
    got, given_ = winners(np.array(weights, np.int64), seats, descending)
    held = [0] * size
    for i, n in zip(got.tolist(), given_.tolist(), strict=True):
        held[i] = n
    assert held == webster(named(size), weights, seats, descending)


@pytest.mark.parametrize("seats", [1, 99, 10_000, 3 * 10**15])
@pytest.mark.parametrize(
    "weights", [[2**62, 2**62 - 1, 1], [2**31 - 1] * 200, [1, *([0] * 99), 2**53, 2**53 + 1]]
)
def test_sums_and_seats_beyond_what_floats_hold_stay_exact(weights: list[int], seats: int) -> None:
    got, given_ = winners(np.array(weights, np.int64), seats)
    expected = webster(named(len(weights)), weights, seats)
    assert dict(zip(got.tolist(), given_.tolist(), strict=True)) == {
        i: n for i, n in enumerate(expected) if n
    }


@given(
    many,
    st.data(),
    st.one_of(st.integers(0, 60), st.integers(0, 5000)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=examples(200))
@example(3, None, 0, True, True, False)
def test_a_division_of_many_is_that_of_few(
    size: int,
    data: st.DataObject | None,
    replicas: int,
    aggregated: bool,
    fresh: bool,
    descending: bool,
) -> None:
    parties = named(size)
    estimates, held = [1] * size, {}
    if data is not None:
        estimates = data.draw(st.lists(sizes, min_size=size, max_size=size))
        held = data.draw(
            st.dictionaries(st.sampled_from([*parties, "gone"]), st.integers(0, 40), max_size=size)
        )
    held = dict(sorted(held.items()))
    order = sorted(
        range(size),
        key=lambda i: (parties[i] not in held, -estimates[i] - held.get(parties[i], 0), i),
    )
    few = by_capacity(
        [parties[i] for i in order],
        [estimates[i] for i in order],
        held,
        replicas,
        aggregated=aggregated,
        fresh=fresh,
        descending=descending,
    )
    lot = by_capacity(
        parties,
        np.array(estimates, np.int64),
        held,
        replicas,
        aggregated=aggregated,
        fresh=fresh,
        descending=descending,
    )
    assert told(few) == told(lot)
    if isinstance(lot, Shares):
        assert all(type(n) is int for n in lot.replicas.values()), "what is encoded is plain"
    weighted = by_static_weight(parties, np.array(estimates, np.int64), replicas, descending)
    assert told(weighted) == told(by_static_weight(parties, estimates, replicas, descending))


def told(answer: Shares | Shortage) -> object:
    """All that an answer says, whether it was found over lists or over arrays, in any order of the
    clusters that took part."""
    if isinstance(answer, Shortage):
        return answer
    took_part = {name: int(by) for name, by in zip(answer.among, answer.by, strict=True) if by}
    return answer.replicas, answer.case, answer.kept, answer.seats, took_part
