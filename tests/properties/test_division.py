"""Laws of the division, and the fast way of handing out seats against the slow one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.engine.fleet.division import Shares, Shortage, by_capacity, by_static_weight
from wharfinger.engine.fleet.webster import webster

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
    assert webster(parties, weights, seats, descending) == one_by_one(parties, weights, seats, descending)


@given(names, st.data(), st.integers(0, 60), st.booleans(), st.booleans(), st.booleans())
def test_a_division_is_whole_and_within_what_fits(
    parties: list[str], data: st.DataObject, replicas: int, aggregated: bool, fresh: bool, descending: bool
) -> None:
    size = len(parties)
    estimates = data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    held = data.draw(st.dictionaries(st.sampled_from([*parties, "gone"]), st.integers(0, 20), max_size=size))
    kept = {c: n for c, n in held.items() if c in parties}
    answer = by_capacity(parties, estimates, held, replicas, aggregated=aggregated, fresh=fresh, descending=descending)
    room = dict(zip(parties, estimates, strict=True))
    if isinstance(answer, Shortage):
        assert answer.available < answer.wanted <= replicas
        return
    assert sum(answer.replicas.values()) == replicas
    assert all(n > 0 for n in answer.replicas.values())
    assert set(answer.replicas) <= set(parties)
    assert all(n <= room[c] + kept.get(c, 0) for c, n in answer.replicas.items()), "more than its weight"
    if not fresh and sum(kept.values()) <= replicas:
        assert all(answer.replicas.get(c, 0) >= n for c, n in kept.items()), "growing took replicas away"


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
