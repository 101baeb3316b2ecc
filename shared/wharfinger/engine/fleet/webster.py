"""Divides seats among parties by Webster's method (Sainte-Laguë): each seat goes to the largest
weight / (2 * seats held + 1).

The loop over single seats is avoided. All seats whose quotient is above some bound q are won in any
order of awarding, and a party has floor((weight / q + 1) / 2) of them: one division. So q is chosen
as small as possible with at most `seats` such seats, they are awarded at once, and only the last
few, decided by ties and remainders, are compared one by one. Comparisons are exact: floats only
find a safe bound, integers decide.

Example: weights 53, 24, 23 and 7 seats. The largest quotients are 53, 24, 23, 53/3 = 17.7, 53/5 =
10.6, 24/3 = 8, 23/3 = 7.7; the next, 53/7 = 7.6, gets no seat. So the seats are 3, 2, 2.

`webster` takes lists of integers of any size. `winners` takes an array of thousands of parties and
returns only those that got seats.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]

SEATS_MAX = 2**40
"""Maximum number of seats for the array version. With more, a float is not precise enough."""

SLACK = 2.0**-48
"""Relative error bound: sixteen times the error that the few float operations below can have
together."""

SEARCH_STEPS = 8

"""Maximum number of steps in the search for a quotient."""
FEW_LEFT = 24
"""If so few seats are left, or one for each 64 parties, they are awarded one by one. More search
steps would not help among ties, because no quotient separates equal quotients."""

FEW = 24
"""Up to this number of parties, lists are as fast as arrays."""


def names_descend(uid: str) -> bool:
    """Returns whether ties between equal quotients go to the last name instead of the first. This
    is decided by the low bit of the FNV-1a-32 hash of the uid; for an empty uid, ties go to the
    first name.

    FNV's basis and prime are both odd, so of all its multiplications only the parity of the bytes
    reaches the low bit.
    """
    return bool(uid) and sum(uid.encode()) % 2 == 0


def webster(
    names: Sequence[str], weights: Sequence[int], seats: int, descending: bool = False
) -> list[int]:
    """Divides `seats` among clusters by Webster's method (Sainte-Laguë apportionment) and returns
    the seats of each cluster. A seat is one replica.

    Each seat goes to the cluster with the largest quotient weight / (2 * seats held + 1). If
    quotients are equal, the cluster with fewer seats wins, then the first name in alphabetical
    order.

    `names`, `weights`: one entry per cluster; weights are integers of any size and must not be
      negative. If all weights are zero, no seats are awarded.
    `descending`: award a tied seat to the last instead of the first name.

    Example: weights 53, 24, 23 and 7 seats: 3, 2, 2.
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
        for place, i in enumerate(
            sorted(range(len(names)), key=names.__getitem__, reverse=descending)
        ):
            places[i] = place
        _hand_out(weights, held, places, left, seats)
    return held


def one_seat(names: Sequence[str], weights: Sequence[int], descending: bool) -> int:
    """Returns the index of the party that wins if there is only one seat: the one with the largest
    weight; ties: the first name in alphabetical order (`descending`: the last)."""
    most = max(weights)
    if weights.count(most) == 1:
        return weights.index(most)
    tied = [i for i, weight in enumerate(weights) if weight == most]
    return (max if descending else min)(tied, key=names.__getitem__)


def _sure_seats(weights: Sequence[int], total: int, seats: int) -> list[int]:
    """Returns the number of seats that each party certainly wins: its exact share of `aimed` seats,
    weight * aimed / total, rounded to the nearest integer. `total`: the sum of the weights.

    `aimed` is `seats` less half the number of parties. So the result cannot exceed `seats` in sum,
    even if every share is rounded up by a half. These are exactly the seats with a quotient above
    total / (2 * aimed), so no other seat is awarded before them.
    """
    aimed = seats - (len(weights) + 1) // 2
    if aimed <= 0:
        return [0] * len(weights)
    return [max(0, -((total - 2 * aimed * weight) // (2 * total))) for weight in weights]


def _hand_out(
    weights: Sequence[int], held: list[int], places: Sequence[int], left: int, seats: int
) -> None:
    """Awards the last seats of Webster's method one by one with a heap: each seat goes to the
    cluster with the largest quotient weight / (2 * seats held + 1). Changes `held` in place.

    If quotients are equal, the cluster with fewer seats wins, then the cluster with the lower
    number in `places`.

    `weights`, `held`, `places`: one entry per cluster: the weight, the seats so far, and the rank
      for ties.
    `left`: how many seats to award.
    `seats`: an upper bound of the seats of one cluster.

    Quotients are compared as integers, exactly: a weight is shifted left by `shift` bits and
    divided, rounded down. Two different quotients with denominators of at most 2 * seats + 1 differ
    by more than 2**-shift. So equal rounded quotients mean equal quotients.

    Example: weights 53, 24, 23, `held` 3, 1, 1, `left` 2: `held` becomes 3, 2, 2.
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


def winners(
    weights: Array, seats: int, descending: bool = False, *, total: int | None = None
) -> tuple[Array, Array]:
    """Divides `seats` among many clusters by Webster's method (Sainte-Laguë apportionment). This is
    the array version of `webster`, with the same result. A seat is one replica.

    `weights`: int64[clusters], in ascending order of cluster name.
    `descending`: break ties by descending instead of ascending cluster name.
    `total`: the sum of the weights, less than 2**62. None: not known.

    Returns two int64 arrays of equal length, only for the clusters that get seats: the indexes of
    these clusters, ascending, and the number of seats.

    Example: weights 53, 0, 23 and 3 seats: indexes [0, 2], seats [2, 1].
    """
    if total is None:
        fits = len(weights) * int(weights.max(initial=0)) < 2**62
        total = int(weights.sum()) if fits else 0
    if seats <= 0 or not (total or weights.any()):
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
    got = held.nonzero()[0]
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
    """Returns the indexes, ascending, of the `seats` parties with the largest weights; ties by
    name. No other party can win a seat, because at least `seats` quotients are larger or win the
    tie. None: there are not more parties than seats."""
    size = len(weights)
    if seats >= size:
        return None
    places = np.arange(size) if descending else np.arange(size - 1, -1, -1)
    best = np.argpartition(weights * size + places, size - seats)[size - seats :]
    best.sort()
    return best


def _above_a_quotient(weights: Array, seats: int, total: int) -> Array:
    """Computes most of the seats of each cluster by Webster's method: floor(weight / divisor +
    1/2), with a divisor for which the sum is at most `seats` and nearly reaches it. Returns
    int64[clusters]. All of these seats are certain; the caller awards the few seats that are left.

    `weights`: int64[clusters].
    `total`: the sum of the weights.

    The divisor is found by a search for x = 1 / divisor. A cluster gets about weight * x seats, and
    all clusters together about total * x. So the search starts with x = seats / total. Each step
    adds (missing seats) / total to x (a Newton step). If x would leave the interval in which the
    solution is known to be, the step is a bisection of this interval. The search ends after
    `SEARCH_STEPS` steps, or earlier if few seats are left. Rounding errors of floats are covered by
    `SLACK`, so no cluster gets a seat too many.

    Example: weights 60, 30, 10 and 10 seats: divisor 10, seats 6, 3, 1.
    """
    sizes = weights.astype(np.float64)
    low, high, best = 0.0, float("inf"), np.zeros(len(weights), np.int64)
    x, enough = seats / total, max(FEW_LEFT, len(weights) // 64)
    for _ in range(SEARCH_STEPS):
        scaled = sizes * x
        count = int((scaled * (1 + SLACK) + 0.5).astype(np.int64).sum())
        if count > seats:
            high = x
        else:
            low = x
            best = (scaled * (1 - SLACK) + 0.5).astype(np.int64)
            if seats - int(best.sum()) <= enough:
                break
        x += (seats - count) / total
        if not low < x < high:
            x = (low + high) / 2 if high < float("inf") else 2 * low
    return best


def _hand_out_near(weights: Array, held: Array, left: int, seats: int, descending: bool) -> None:
    """Awards the last `left` seats of Webster's method. Changes `held` in place.

    The next quotient of a cluster is weight / (2 * seats held + 1). A cluster can win one of the
    last seats only if its next quotient is one of the `left` largest. The seats
    are awarded one after another among these clusters only.

    `weights`, `held`: int64[clusters], in order of name: the weight and the seats so far.
    `seats`: an upper bound of the seats of one cluster.
    `descending`: break ties by descending instead of ascending cluster name.

    Example: weights 53, 24, 23, `held` 3, 1, 1, `left` 2. The next quotients are 7.6, 8 and 7.7, so
    the second and the third cluster win: 3, 2, 2.
    """
    size = len(weights)
    near = np.arange(size)
    if left < size:
        following = weights / (2 * held + 1)
        ranked = following.copy()
        ranked.partition(size - left)
        least = ranked[size - left]
        near = (following >= least * (1 - SLACK)).nonzero()[0]
        if len(near) > left:
            near = _cut_ties(
                weights, held, near, following[near] > least * (1 + SLACK), left, descending
            )
    own: list[int] = weights[near].tolist()
    now: list[int] = held[near].tolist()
    _hand_out(own, now, range(len(near), 0, -1) if descending else range(len(near)), left, seats)
    held[near] = now


def _cut_ties(
    weights: Array, held: Array, near: Array, above: NDArray[np.bool_], left: int, descending: bool
) -> Array:
    """Removes the clusters that lose a tie for the last seats, and returns the indexes of the
    remaining clusters, ascending. In a tie the cluster with fewer seats wins, then the first name.

    `weights`, `held`: int64[clusters], in order of name: the weight and the seats so far.
    `near`: indexes of the clusters that may win one of the last seats.
    `above`: bool, one per entry of `near`. True: the cluster's quotient weight / (2 * seats held +
      1) is certainly above the smallest quotient that wins a seat. False: the cluster takes part in
      the tie.
    `left`: how many seats are left.
    `descending`: the last name wins instead of the first.

    `near` is returned unchanged in three cases: exact integers show that the quotients in the tie
    are not all equal; these integers could exceed 64 bits; or more clusters are `above` than seats
    are left.

    Example: weights 5, 5, 5, 30, seats so far 0, 0, 0, 1, 2 seats left. The quotient of the last
    cluster is 10, and three clusters tie at 5. The result is [0, 3].
    """
    sure, tied = near[above], near[~above]
    need = left - len(sure)
    size, times = weights[tied], 2 * held[tied] + 1
    if (
        need < 0
        or int(size.max()) * int(times.max()) >= 2**62
        or (size * times[0] != size[0] * times).any()
    ):
        return near
    order = np.lexsort((-tied if descending else tied, times))
    return np.sort(np.concatenate((sure, tied[order[:need]])))
