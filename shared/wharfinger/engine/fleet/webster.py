"""Webster's method: seats handed out one after another, each to the largest weight / (2 * seats held + 1).

Nobody hands them out one by one. Whoever goes from the largest quotient down gives every party the seats above some quotient
first, in whatever order; so all seats above a quotient that cannot leave more than there are seats are given by one division each,
and only the last few, which ties and remainders decide, are compared. Quotients are compared exactly: where a float guesses, it
guesses on the safe side, and integers decide.

`webster` takes lists, of any size of number. `winners` takes an array, of thousands of parties, and names only who got something.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]

SEATS_MAX = 2**40
"""More seats than this are beyond what a float can guess well."""

SLACK = 2.0**-48
"""Relative; sixteen times what the few float operations below can be off together."""

SEARCH_STEPS = 8

FEW_LEFT = 24
"""So few seats, or one for so many parties, are compared sooner than searched for: among ties no quotient parts them."""

FEW = 24
"""So few parties are served as fast without arrays."""


def names_descend(uid: str) -> bool:
    """Whether equal quotients are decided by name from the end: the low bit of FNV-1a-32 over the uid (empty: no).

    FNV's basis and prime are both odd, so of all its multiplications only the parity of the bytes reaches the low bit.
    """
    return bool(uid) and sum(uid.encode()) % 2 == 0


def webster(names: Sequence[str], weights: Sequence[int], seats: int, descending: bool = False) -> list[int]:
    """The seats of each. Equal quotients: who holds fewer seats, then who comes first by name (last, when `descending`).
    Weights must not be negative; when all are zero nobody gets anything.
    """
    total = sum(weights)
    if seats <= 0 or total <= 0:
        return [0] * len(names)
    if seats == 1:
        winner = one_seat(names, weights, descending)
        return [int(i == winner) for i in range(len(names))]
    held = _sure_seats(weights, total, seats)
    left = seats - sum(held)
    if left:
        places = [0] * len(names)
        for place, i in enumerate(sorted(range(len(names)), key=names.__getitem__, reverse=descending)):
            places[i] = place
        _hand_out(weights, held, places, left, seats)
    return held


def one_seat(names: Sequence[str], weights: Sequence[int], descending: bool) -> int:
    """Whose the only seat is, by index."""
    most = max(weights)
    if weights.count(most) == 1:
        return weights.index(most)
    tied = [i for i, weight in enumerate(weights) if weight == most]
    return (max if descending else min)(tied, key=names.__getitem__)


def _sure_seats(weights: Sequence[int], total: int, seats: int) -> list[int]:
    """The seats whose quotients lie above total / (2 * aimed), where `aimed` is so far below `seats` that they cannot be
    more than `seats` even if every cluster's share is rounded up by a half."""
    aimed = seats - (len(weights) + 1) // 2
    if aimed <= 0:
        return [0] * len(weights)
    return [max(0, -((total - 2 * aimed * weight) // (2 * total))) for weight in weights]


def _hand_out(weights: Sequence[int], held: list[int], places: Sequence[int], left: int, seats: int) -> None:
    """`left` more seats, one by one, into `held`; no party holds more than `seats`.

    Two different quotients with denominators of at most 2*seats+1 differ by more than 2**-shift, so the floors of the shifted
    quotients order them exactly, and equal floors are equal quotients.
    """
    shift = 2 * (2 * seats + 1).bit_length() + 1
    queue = [
        (-((weight << shift) // (2 * held[i] + 1)), held[i], places[i], i)
        for i, weight in enumerate(weights)
        if weight > 0
    ]
    heapq.heapify(queue)
    for _ in range(left):
        _, _, place, i = queue[0]
        held[i] += 1
        heapq.heapreplace(queue, (-((weights[i] << shift) // (2 * held[i] + 1)), held[i], place, i))


def winners(weights: Array, seats: int, descending: bool = False) -> tuple[Array, Array]:
    """As `webster`, of parties in ascending order of name: the indexes of those that get any, ascending, and their seats."""
    total = int(weights.sum()) if len(weights) * int(weights.max(initial=0)) < 2**62 else 0
    if seats <= 0 or not weights.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not total or seats > SEATS_MAX or len(weights) <= FEW:
        return _by_lists(weights, seats, descending)
    among = _contenders(weights, seats, descending)
    own = weights if among is None else weights[among]
    if among is not None and len(among) <= FEW:
        got, held = _by_lists(own, seats, descending)
        return among[got], held
    held = _above_a_quotient(own, seats, total if among is None else int(own.sum()))
    left = seats - int(held.sum())
    if left:
        _hand_out_near(own, held, left, seats, descending)
    got = np.flatnonzero(held)
    return (got if among is None else among[got]), held[got]


def _by_lists(weights: Array, seats: int, descending: bool) -> tuple[Array, Array]:
    own: list[int] = weights.tolist()
    held = [0] * len(own)
    left = seats - sum(held)
    if seats > 1:
        held = _sure_seats(own, sum(own), seats)
        left = seats - sum(held)
    size = len(own)
    _hand_out(own, held, range(size, 0, -1) if descending else range(size), left, seats)
    got = [i for i, n in enumerate(held) if n]
    return np.array(got, np.int64), np.array([held[i] for i in got], np.int64)


def _contenders(weights: Array, seats: int, descending: bool) -> Array | None:
    """Only the `seats` largest weights can win anything: as many seats lie at their first quotients or above. None: all can."""
    size = len(weights)
    if seats >= size:
        return None
    places = np.arange(size) if descending else np.arange(size - 1, -1, -1)
    best = np.argpartition(weights * size + places, size - seats)[size - seats :]
    best.sort()
    return best


def _above_a_quotient(weights: Array, seats: int, total: int) -> Array:
    """Seats that are everyone's in any case, and nearly all there are: those above a quotient 1 / (2 * x), for an x that is
    searched by its count of seats, which is about x * 2 * total."""
    sizes = weights.astype(np.float64)
    low, high, best = 0.0, float("inf"), np.zeros(len(weights), np.int64)
    x, enough = seats / total, max(FEW_LEFT, len(weights) // 64)
    for _ in range(SEARCH_STEPS):
        scaled = sizes * x
        count = int(np.floor(scaled * (1 + SLACK) + 0.5).sum())
        if count > seats:
            high = x
        else:
            low = x
            best = np.floor(scaled * (1 - SLACK) + 0.5).astype(np.int64)
            if seats - int(best.sum()) <= enough:
                break
        x += (seats - count) / total
        if not low < x < high:
            x = (low + high) / 2 if high < float("inf") else 2 * low
    return best


def _hand_out_near(weights: Array, held: Array, left: int, seats: int, descending: bool) -> None:
    """The last seats go to those whose next quotient is among the `left` largest: all others are behind those."""
    size = len(weights)
    near = np.arange(size)
    if left < size:
        following = weights / (2 * held + 1)
        least = np.partition(following, size - left)[size - left]
        near = np.flatnonzero(following >= least * (1 - SLACK))
        if len(near) > left:
            near = _cut_ties(weights, held, near, following[near] > least * (1 + SLACK), left, descending)
    own: list[int] = weights[near].tolist()
    now: list[int] = held[near].tolist()
    _hand_out(own, now, range(len(near), 0, -1) if descending else range(len(near)), left, seats)
    held[near] = now


def _cut_ties(weights: Array, held: Array, near: Array, above: NDArray[np.bool_], left: int, descending: bool) -> Array:
    """Without those that equals with fewer seats, or an earlier name, come before. What only looks equal is kept."""
    sure, tied = near[above], near[~above]
    need = left - len(sure)
    size, times = weights[tied], 2 * held[tied] + 1
    if need < 0 or int(size.max()) * int(times.max()) >= 2**62 or (size * times[0] != size[0] * times).any():
        return near
    order = np.lexsort((-tied if descending else tied, times))
    return np.sort(np.concatenate((sure, tied[order[:need]])))
