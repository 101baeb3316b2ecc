"""Divides seats by weight with bounds per cluster (bounded apportionment): every cluster gets no
replicas, or from `least` to `most`. If `due` is set, it must get some.

The plain strategies (`division`) know only weights and totals. Between the bounds the method is the
same: Webster's, seat by seat among the clusters that are not full, each starting at its `least`;
or, `in_order`, floors of the exact shares, and the remainder one by one in the given order.

Bounds come from limits of the policy (`ReplicaLimit`), from static weights that respect capacity,
and from a spread that needs a replica in each of its groups. When the sum of all `least` is too
large, some clusters must be left out: the last in rank order first. The best choice is a knapsack
problem, so this is a heuristic: if it finds none, clusters with the largest `most` are tried first;
if that fails too, nothing is placed and the refusal says so.

Example: 10 seats by weights 3, 1 with most = 6 for the first: 6 and 4 instead of 7 and 3.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.placement import ReplicaLimit


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """Bounds the replicas that one cluster may get: none, or from `least` to `most`. `due`: the
    cluster must get some."""

    least: int = 0
    most: int = 2**63 - 1
    due: bool = False


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Reports that no division satisfies all bounds. `note`: a sentence that says which sum
    prevents it."""

    note: str


FREE = ReplicaBounds()


def bounds_of(limits: Sequence[ReplicaLimit], names: Sequence[str]) -> list[ReplicaBounds]:
    """Returns the bounds of each cluster in `names` by the policy's limits: the cluster's own limit
    if it has one, otherwise the limit of `*`, otherwise no bound."""
    own = {
        limit.cluster: ReplicaBounds(limit.least, FREE.most if limit.most is None else limit.most)
        for limit in limits
    }
    default = own.get("*", FREE)
    return [own.get(name, default) for name in names]


def divide(
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[ReplicaBounds],
    *,
    descending: bool = False,
    in_order: bool = False,
) -> list[int] | Unbounded:
    """Divides `seats` replicas over clusters by weight, within bounds, and returns the number of
    replicas of each cluster. A seat is one replica.

    `names`, `weights`, `bounds`: one entry per cluster, in rank order (best first). A bound allows
      either 0 replicas or `least` to `most` replicas; if it is `due`, 0 is not allowed. A cluster
      of weight 0 gets nothing, unless its bound is `due`. If all clusters that are used have weight
      0, they get the same weight.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.
    `descending`: of clusters with equal quotients and equally many replicas, prefer the last name
      instead of the first.

    Returns Unbounded if no division satisfies the bounds.

    Example: 10 seats by weights 3 and 1. With `most` 6 for the first cluster the result is [6, 4]
    instead of [7, 3].
    """
    if seats <= 0:
        return [0] * len(names)
    usable = [
        i
        for i, b in enumerate(bounds)
        if b.due or (weights[i] > 0 and b.most > 0 and max(1, b.least) <= b.most)
    ]
    used = _used(usable, bounds, seats)
    if isinstance(used, Unbounded):
        return used
    out = [0] * len(names)
    least = [bounds[i].least for i in used]
    most = [min(bounds[i].most, seats) for i in used]
    own = [weights[i] for i in used]
    if not any(own):
        own = [1] * len(used)
    share = _floors_in_order if in_order else _seat_by_seat
    for i, n in zip(
        used, share([names[i] for i in used], own, seats, least, most, descending), strict=True
    ):
        out[i] = n
    return out


def _used(
    usable: Sequence[int], bounds: Sequence[ReplicaBounds], seats: int
) -> list[int] | Unbounded:
    """Selects the clusters that get replicas, so that the sum of their `least` is at most `seats`
    and the sum of their `most` is at least `seats`. Returns the indexes of the selected clusters,
    ascending. This is a greedy heuristic for a knapsack problem.

    `usable`: indexes of the clusters to select from.
    `bounds`: one entry per cluster, in rank order (best first). A bound allows either 0 replicas or
      `least` to `most` replicas; if it is `due`, 0 is not allowed.
    `seats`: the number of replicas to place.

    If all clusters in `usable` together satisfy both sums, all are selected. Otherwise the clusters
    that are `due` are selected first. Then every other cluster is added in rank order if its
    `least` still fits into `seats`. If the sum of `most` of the selected clusters is then below
    `seats`, a second attempt starts again from the `due` clusters and adds the other clusters in
    descending order of `most`. Returns Unbounded if that fails too.

    Example: 7 seats, and three clusters with `least` 4, 4 and 3 and `most` 9 each. The sum 4 + 4 +
    3 is above 7. The first and the third cluster are selected: 4 + 3 = 7.
    """
    due = [i for i in usable if bounds[i].due]
    least_due = sum([bounds[i].least for i in due])
    if least_due > seats:
        return Unbounded(
            f"the least replicas of clusters that must have some are {least_due}, "
            f"only {seats} are wanted"
        )
    roomy = sum([min(bounds[i].most, seats) for i in usable])
    if roomy < seats:
        return Unbounded(f"{seats} replicas to place, the clusters may have {roomy} at most")
    if sum([bounds[i].least for i in usable]) <= seats:
        return list(usable)
    others = [i for i in usable if not bounds[i].due]
    for order in (others, sorted(others, key=lambda i: -bounds[i].most)):
        taken, least = list(due), least_due
        for i in order:
            if least + bounds[i].least <= seats:
                taken.append(i)
                least += bounds[i].least
        if sum([min(bounds[i].most, seats) for i in taken]) >= seats:
            return sorted(taken)
    return Unbounded(
        f"no choice of clusters was found whose least and most replicas allow for {seats}"
    )


def _seat_by_seat(
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    least: Sequence[int],
    most: Sequence[int],
    descending: bool,
) -> list[int]:
    """Divides `seats` replicas by Webster's method (Sainte-Laguë apportionment), where each cluster
    has a minimum and a maximum. Returns the seats of each cluster. A seat is one replica.

    `names`, `weights`, `least`, `most`: one entry per cluster.
    `descending`: award a tied seat to the last instead of the first cluster name.

    Each cluster starts with its `least` seats. The next seat goes to the cluster with the largest
    quotient weight / (2 * seats held + 1); clusters that have reached their `most` are left out. If
    quotients are equal, the cluster with fewer seats wins, then the first cluster name.

    Most seats are not awarded one at a time. A binary search finds the lowest quotient for which at
    most `seats` seats have that quotient or a larger one. These seats are awarded at once. The last
    few are awarded with a heap. Weights are scaled by a power of two, so that integer quotients
    compare exactly.

    Example: 10 seats by weights 3 and 1, at most 6 for the first cluster: 6 and 4.
    """
    shift = 2 * (2 * max(most) + 1).bit_length() + 1
    scaled = [weight << shift for weight in weights]

    def above(threshold: int) -> list[int]:
        """Returns the seats of each cluster whose scaled quotient is at least the threshold,
        clamped to the cluster's bounds."""
        return [
            min(high, max(low, (value // threshold + 1) // 2))
            for value, low, high in zip(scaled, least, most, strict=True)
        ]

    # above(high) gives the leasts alone; lower thresholds give more
    low, high = (1, max(max(scaled), 1) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(above(middle)) <= seats:
            high = middle
        else:
            low = middle
    held = above(high)
    left = seats - sum(held)
    order = sorted(range(len(names)), key=names.__getitem__, reverse=descending)
    queue = [
        (-(scaled[i] // (2 * held[i] + 1)), held[i], place, i)
        for place, i in enumerate(order)
        if held[i] < most[i]
    ]
    heapq.heapify(queue)
    while left > 0:
        _, _, place, i = heapq.heappop(queue)
        held[i] += 1
        left -= 1
        if held[i] < most[i]:
            heapq.heappush(queue, (-(scaled[i] // (2 * held[i] + 1)), held[i], place, i))
    return held


def _floors_in_order(
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    least: Sequence[int],
    most: Sequence[int],
    descending: bool,
) -> list[int]:
    """Divides `seats` replicas by the floors of the exact shares, and returns the seats of each
    cluster. A seat is one replica. This is Karmada's first design.

    Each cluster gets floor(seats * weight / sum of weights), raised to `least` or reduced to
    `most`. Remaining seats are given one each in rank order, repeatedly, to the clusters that are
    below `most`. If too many seats were given because of `least`, one each is taken away in reverse
    rank order, repeatedly, from the clusters that are above `least`.

    `weights`, `least`, `most`: one entry per cluster, in rank order (best first).
    `names`, `descending`: not used.

    Example: 11 seats by weights 1, 1, 1: the floors are 3, 3, 3, and the result is 4, 4, 3.
    """
    total = sum(weights)
    held = [
        min(high, max(low, seats * weight // total))
        for weight, low, high in zip(weights, least, most, strict=True)
    ]
    left = seats - sum(held)
    while left > 0:
        left = _one_more_each(held, most, left)
    while left < 0:
        left = _one_less_each(held, least, left)
    return held


def _one_more_each(held: list[int], most: Sequence[int], left: int) -> int:
    """Gives seats to the clusters that are not full and returns the seats left. Gives as many whole
    rounds at once as every such cluster can take. If there are not enough seats for one round,
    gives one each in order."""
    open_ = [i for i in range(len(held)) if held[i] < most[i]]
    rounds = min(left // len(open_), min([most[i] - held[i] for i in open_]))
    for i in open_ if rounds else open_[:left]:
        held[i] += rounds or 1
    return left - (rounds * len(open_) if rounds else min(left, len(open_)))


def _one_less_each(held: list[int], least: Sequence[int], left: int) -> int:
    open_ = [i for i in reversed(range(len(held))) if held[i] > least[i]]
    rounds = min(-left // len(open_), min([held[i] - least[i] for i in open_]))
    for i in open_ if rounds else open_[:-left]:
        held[i] -= rounds or 1
    return left + (rounds * len(open_) if rounds else min(-left, len(open_)))
