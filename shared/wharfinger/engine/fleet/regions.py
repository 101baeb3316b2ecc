"""Finds the best set of regions under Karmada's rules, with the same result as Karmada's exhaustive
search, by dynamic programming instead of enumeration.

Karmada enumerates sets depth first and does not extend a set that qualifies: exponential in the
number of regions. The best completion of a partial set depends only on how many regions it has and
how many members these have (the clusters in them). So one table over these two numbers, filled from
the last region to the first, is enough. If taking a region is as good as leaving it out, it is
taken; so among equal sets the result is the one that Karmada's search finds first.

Cost: regions * `most` * `members` additions, as NumPy rows (`least` in the place of `most` where
all regions may be taken).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MAX_CELLS = 50_000_000
"""Maximum size of the table, in cells: some hundred regions with thousands of members wanted."""


FEW_STATES = 3_000
"""Up to this number of states are processed one by one in Python; for more, NumPy rows are used."""


def cells(regions: int, least: int, most: int, members: int) -> int:
    """Returns the size of the table that `best_set` needs, in cells. `regions`: the number of
    regions. `least`, `most`: how many of them must and may be selected. `members`: how many
    clusters these must have together."""
    return (
        regions
        * (min(most, max(1, least) + 1) if most >= regions else most)
        * (max(0, members) + 1)
    )


def best_groups(
    sizes: Sequence[int], scores: Sequence[int], least: int, most: int, members: int
) -> list[int]:
    """Selects the best set of regions as Karmada does, and returns the indexes of the regions, best
    score first. Empty: no set qualifies.

    `sizes`, `scores`: the number of clusters and the score of each region, in order of name.
    `least`, `most`: a set qualifies if it has at least `least` and at most `most` regions.
    `members`: a set qualifies if its regions have at least this many clusters together.

    Regions are sorted by ascending size, then by descending score, and `best_set` finds the set
    with the highest sum of scores. The regions of this set are then listed best score first. If the
    first few of this list qualify alone, only these are returned, as few as possible.

    Example: sizes 1, 2, 2, scores 100, 300, 200, 1 to 2 regions, 2 clusters. The best set is {0, 1}
    with 400; {1, 2} is not tried, because {1} qualifies alone and is not extended. In the order of
    scores it is [1, 0]. Region 1 qualifies alone, so the result is [1].
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], -scores[i]))
    place = {i: k for k, i in enumerate(order)}
    found = best_set([sizes[i] for i in order], [scores[i] for i in order], least, most, members)
    listed = sorted([order[k] for k in found or ()], key=lambda i: (-scores[i], i))
    for count in range(1, len(listed)):
        if _ends_here(
            [sizes[i] for i in sorted(listed[:count], key=place.__getitem__)],
            max(1, least),
            members,
        ):
            return listed[:count]
    return listed


def _ends_here(sizes: Sequence[int], least: int, members: int) -> bool:
    """Returns whether Karmada's search ends at this set of regions: the set qualifies, and it does
    not qualify without its last region. `sizes`: the number of clusters of each region in the set,
    in the order of search."""
    held = sum(sizes)
    return (
        len(sizes) >= least
        and held >= members
        and (len(sizes) == least or held - sizes[-1] < members)
    )


def best_set(
    sizes: Sequence[int], scores: Sequence[int], least: int, most: int, members: int
) -> list[int] | None:
    """Finds the best set of regions by dynamic programming, with the same result as Karmada's
    depth-first search. Returns the indexes of its regions in the order of search; None: no set
    qualifies.

    `sizes`, `scores`: the number of clusters and the score of each region, in the order of search.
    `least`, `most`: a set qualifies if it has at least `least` and at most `most` regions.
    `members`: a set qualifies if its regions have at least this many clusters together.

    The best set has the highest sum of scores. Ties: the set with the most clusters, then the first
    in the order of search. The search does not extend a set that qualifies. So a set that would
    qualify without its last region is never the result.

    Example: sizes 1, 2, 2, scores 100, 200, 300, 1 to 2 regions, 2 clusters. {0, 2} with 400 is the
    result. {1, 2} would have 500, but {1} qualifies alone, so it is not extended.
    """
    least, most, members = max(1, least), min(most, len(sizes)), max(0, members)
    if most < least or sum(sizes) < members:  # `most` 0 too
        return None
    gains = [score * (sum(sizes) + 1) + size for score, size in zip(scores, sizes, strict=True)]
    if (reached := _reached(tuple(sizes), least, most, members)) is not None:
        return _best_of_few(reached, sizes, gains, least, members)
    return _best_of_many(sizes, gains, least, most, members)


_State = tuple[int, int]
"""A state of the search: the number of regions taken, and the number of clusters in them."""


@lru_cache(128)
def _reached(
    sizes: tuple[int, ...], least: int, most: int, members: int
) -> list[set[_State]] | None:
    """Computes, for each region, the states in which the search (`best_set`) may come to that
    region. The search goes through the regions in order and takes each or leaves it out. A state is
    (number of regions taken so far, number of clusters in the regions taken). A set of regions that
    qualifies is not extended, so it gives no further states.

    `sizes`: the number of clusters in each region, in the order of search.
    `least`, `most`: how many regions must and may be taken.
    `members`: how many clusters the taken regions must have together.

    Returns one set of states per region; None if there are more than `FEW_STATES` states in all.
    Cached by sizes, because equal sizes come again with other scores.

    Example: sizes 1, 2, 2, exactly 2 regions, 3 clusters. The states are {(0, 0)}; then {(0, 0),
    (1, 1)}; then {(0, 0), (1, 1), (1, 2)}. Regions 0 and 1 together qualify, so (2, 3) is not a
    state.
    """
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
    reached: Sequence[set[_State]],
    sizes: Sequence[int],
    gains: Sequence[int],
    least: int,
    members: int,
) -> list[int] | None:
    """Finds the set of regions with the highest sum of `gains` among the sets that qualify, by
    dynamic programming from the last region to the first. A set is built in the order of the
    regions, and nothing is added to a set that qualifies. Returns the indexes of its regions; None:
    no set qualifies.

    `reached`: for each region, the possible states before the region is taken or left out. A state
      is (number of regions taken, number of clusters in them). States with more than the maximum
      number of regions are not among them.
    `sizes`: the number of clusters in each region.
    `gains`: the gain of each region. A higher sum of scores always gives a higher sum of gains. If
      the sums of scores are equal, more clusters give a higher sum of gains.
    `least`, `members`: a set qualifies with at least `least` regions and at least `members`
      clusters.

    If taking a region and leaving it out give equal sums, the region is taken.

    Example: sizes 1, 2, 2, gains 10, 20, 30, `least` 2, `members` 3: [1, 2] with 50.
    """
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


def _best_of_many(
    sizes: Sequence[int], gains: Sequence[int], least: int, most: int, members: int
) -> list[int] | None:
    """Finds the set of regions with the highest sum of `gains` among the sets that qualify. This is
    the dynamic programming of `_best_of_few`, where one NumPy operation computes all states of a
    region. Returns the indexes of its regions in the order of search; None: no set qualifies.

    A state is (number of regions taken, number of clusters in them).

    `sizes`: the number of clusters in each region, in the order of search.
    `gains`: the gain of each region.
    `least`, `most`: a set qualifies if it has at least `least` and at most `most` regions.
    `members`: a set qualifies if its regions have at least this many clusters together.

    If taking a region and leaving it out give equal sums, the region is taken.

    Example: sizes 1, 2, 2, gains 10, 20, 30, exactly 2 regions, 3 clusters: [1, 2] with 50.
    """
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
    """Holds the states of the search as rows and columns of an array: row = number of regions
    taken, column = number of clusters in them. Both numbers are capped where more makes no
    difference."""

    def __init__(self, least: int, most: int, members: int, *, all_allowed: bool) -> None:
        self.least, self.members, self.all_allowed = least, members, all_allowed
        self.shape = (least + 1 if all_allowed else most, members + 1)
        self._counts = np.arange(self.shape[0])
        self._held = np.arange(self.shape[1])

    def after(self, best: npt.NDArray[np.int64], size: int, never: int) -> npt.NDArray[np.int64]:
        """Returns, for each state, the largest sum of gains that later regions can add after a
        region of `size` clusters is taken: int64[rows, columns]. A state is (row: number of regions
        taken before, column: number of clusters in them).

        `best`: int64[rows, columns], for each state the largest sum of gains that the search can
          still add if it continues with the next region.
        `never`: the number that stands for "no set qualifies any more".

        The result is 0 where the set qualifies with this region, because a set that qualifies is
        not extended. It is `never` where the set has too many regions.

        Example: exactly 2 regions and 3 clusters, `size` 2. In the state (1, 1) the result is 0: 2
        regions with 1 + 2 clusters qualify.
        """
        columns = np.minimum(self._held + size, self.members)
        if self.all_allowed:
            then = best[np.minimum(self._counts + 1, self.least)][:, columns]
        else:
            then = np.full_like(best, never)
            then[:-1] = best[1:][:, columns]
        then[(self._counts + 1 >= self.least)[:, None] & (columns == self.members)[None, :]] = 0
        return then

    def walk(self, takes: npt.NDArray[np.bool_], sizes: Sequence[int]) -> list[int]:
        """Goes through the regions in order, looks up in `takes` whether each is taken, and returns
        the indexes of the regions that are taken. It stops as soon as the taken regions qualify.

        `takes`: bool[regions, rows, columns], whether a region is taken in a state. The row is the
          number of regions taken before, the column the number of clusters in them.
        `sizes`: the number of clusters in each region.

        Example: sizes 1, 2, 2, exactly 2 regions, 3 clusters. In the state (0, 0) region 0 is left
        out and region 1 is taken; in the state (1, 2) region 2 is taken. The result is [1, 2].
        """
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
