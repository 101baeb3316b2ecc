"""The best set of regions, as Karmada's search finds it, without looking at every set.

Karmada goes through the sets depth first and does not extend one that qualifies; that takes twice as long with every region
more. What it finds depends, of the regions taken so far, only on how many they are and how many members they have, so one
table over those two, filled from the last region to the first, knows the best that can still come. Taking a region wherever
that is as good as leaving it out finds, among equals, the set that the search would have found first.

Cost: regions x `most` x `members` additions, in rows of NumPy (`least` for `most` where all regions may be taken).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MAX_CELLS = 50_000_000
"""A table beyond that is not made: some hundred regions with thousands of members wanted."""


FEW_STATES = 3_000
"""So many are gone through one by one: rows of NumPy are for more."""


def cells(regions: int, least: int, most: int, members: int) -> int:
    """How large the table for `best_set` is."""
    return regions * (min(most, max(1, least) + 1) if most >= regions else most) * (max(0, members) + 1)


def best_groups(sizes: Sequence[int], scores: Sequence[int], least: int, most: int, members: int) -> list[int]:
    """What Karmada's search over regions comes to: indexes of the chosen, best score first; empty: no set qualifies.

    Regions are given in order of name. They are searched in order of size, then score; the best set wins (`best_set`). Then
    Karmada goes on through the ranked sets and takes each that is a proper prefix of the one it has: in the end the shortest
    prefix of the winner that is a set of its own.
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], -scores[i]))
    place = {i: k for k, i in enumerate(order)}
    found = best_set([sizes[i] for i in order], [scores[i] for i in order], least, most, members)
    listed = sorted([order[k] for k in found or ()], key=lambda i: (-scores[i], i))
    for count in range(1, len(listed)):
        if _ends_here([sizes[i] for i in sorted(listed[:count], key=place.__getitem__)], max(1, least), members):
            return listed[:count]
    return listed


def _ends_here(sizes: Sequence[int], least: int, members: int) -> bool:
    """Whether the search finds this set: it qualifies, and it did not before its last region."""
    held = sum(sizes)
    return len(sizes) >= least and held >= members and (len(sizes) == least or held - sizes[-1] < members)


def best_set(sizes: Sequence[int], scores: Sequence[int], least: int, most: int, members: int) -> list[int] | None:
    """Indexes of `least` to `most` regions that together have at least `members`: the highest sum of `scores`, then the most
    members, then the first in the order of search. A set that qualifies before its last region does not count. None: there is
    no such set."""
    least, most, members = max(1, least), min(most, len(sizes)), max(0, members)
    if most < least or sum(sizes) < members:  # `most` 0 too
        return None
    gains = [score * (sum(sizes) + 1) + size for score, size in zip(scores, sizes, strict=True)]
    if (reached := _reached(tuple(sizes), least, most, members)) is not None:
        return _best_of_few(reached, sizes, gains, least, members)
    return _best_of_many(sizes, gains, least, most, members)


_State = tuple[int, int]
"""How many regions are taken, and how many members these have, as far as it matters."""


@lru_cache(128)
def _reached(sizes: tuple[int, ...], least: int, most: int, members: int) -> list[set[_State]] | None:
    """Of each region the states in which the search comes to it and may take it; None: they are many. The sizes of regions are
    the same again and again while scores change, so the last few answers are kept."""
    reached: list[set[_State]] = []
    states = {(0, 0)}
    total = 0
    for size in sizes:
        reached.append(states)
        total += len(states)
        if total > FEW_STATES:
            return None
        states = states | {
            (count + 1, held + size)
            for count, held in states
            if count + 1 < most and (count + 1 < least or held + size < members)
        }
    return reached


def _best_of_few(
    reached: Sequence[set[_State]], sizes: Sequence[int], gains: Sequence[int], least: int, members: int
) -> list[int] | None:
    """State by state, from the last region to the first."""
    best: dict[_State, int] = {}
    takes: list[set[_State]] = []
    for states, size, gain in zip(reversed(reached), reversed(sizes), reversed(gains), strict=True):
        then, taken = best, set()
        best = {}
        for state in states:
            count, held = state[0] + 1, state[1] + size
            left = then.get(state)
            rest = 0 if count >= least and held >= members else then.get((count, held))
            if rest is not None and (left is None or rest + gain >= left):
                best[state] = rest + gain
                taken.add(state)
            elif left is not None:
                best[state] = left
        takes.append(taken)
    if (0, 0) not in best:
        return None
    chosen: list[int] = []
    held = 0
    for i, taken in enumerate(reversed(takes)):
        if (len(chosen), held) in taken:
            chosen.append(i)
            held += sizes[i]
            if len(chosen) >= least and held >= members:
                break
    return chosen


def _best_of_many(sizes: Sequence[int], gains: Sequence[int], least: int, most: int, members: int) -> list[int] | None:
    """The same, all states of a region at once."""
    rows = _Rows(least, most, members, all_allowed=most == len(sizes))
    never = -4 * (sum(abs(g) for g in gains) + 1)
    best = np.full(rows.shape, never, dtype=np.int64 if -never < 2**62 else object)
    takes = np.zeros((len(sizes), *rows.shape), dtype=np.bool_)
    for i in reversed(range(len(sizes))):
        then = rows.after(best, sizes[i], never)
        taken = np.where(then == never, never, then + gains[i])
        takes[i] = (taken >= best) & (taken != never)
        best = np.where(takes[i], taken, best)
    if best[0, 0] == never:
        return None
    return rows.walk(takes, sizes)


class _Rows:
    """The states of the search: how many regions are taken, and how many members these have, both as far as it matters."""

    def __init__(self, least: int, most: int, members: int, *, all_allowed: bool) -> None:
        self.least, self.members, self.all_allowed = least, members, all_allowed
        self.shape = (least + 1 if all_allowed else most, members + 1)
        self._counts = np.arange(self.shape[0])
        self._held = np.arange(self.shape[1])

    def after(self, best: npt.NDArray[np.int64], size: int, never: int) -> npt.NDArray[np.int64]:
        """What can still come once a region of `size` is taken, from each state: nothing more where the set qualifies with it."""
        columns = np.minimum(self._held + size, self.members)
        if self.all_allowed:
            then = best[np.minimum(self._counts + 1, self.least)][:, columns]
        else:
            then = np.full_like(best, never)
            then[:-1] = best[1:][:, columns]
        then[(self._counts + 1 >= self.least)[:, None] & (columns == self.members)[None, :]] = 0
        return then

    def walk(self, takes: npt.NDArray[np.bool_], sizes: Sequence[int]) -> list[int]:
        chosen: list[int] = []
        held = 0
        for i, size in enumerate(sizes):
            count = min(len(chosen), self.least) if self.all_allowed else len(chosen)
            if takes[i, count, held]:
                chosen.append(i)
                held = min(held + size, self.members)
                if len(chosen) >= self.least and held == self.members:
                    return chosen
        raise AssertionError("the table promised a set")
