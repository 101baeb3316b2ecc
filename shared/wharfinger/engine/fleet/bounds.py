"""Dividing replicas where single clusters get at least or at most so many, or where remainders go out in order.

The plain strategies (`division`) know weights and sums alone. Here every cluster has a *bound* besides: it gets nothing or
something from `least` to `most`; where `due` is set, nothing is not allowed. What is divided between the bounds is divided as
ever: by Webster's method seat by seat among the clusters that are not full, each beginning with its `least`, or, `in_order`, by
floors of the exact shares and one more each in the order given.

A bounded division is asked for by limits of the policy (`ReplicaLimit`), by static weights that respect capacity, and by a spread
that needs a replica in each of its groups. Which clusters are used is a choice when the leasts together are too much: the
last of the order are left out first. Finding the best such choice is a knapsack, so this is a rule and not a search: where it finds
none, clusters that can take the most are tried first; where that finds none either, it says so and places nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.placement import ReplicaLimit


@dataclass(frozen=True, slots=True)
class Bound:
    """Replicas a cluster may get: none, unless `due`, or from `least` to `most`."""

    least: int = 0
    most: int = 2**63 - 1
    due: bool = False


@dataclass(frozen=True, slots=True)
class Unbounded:
    """No division keeps all bounds. The sentence says which sum is in the way."""

    note: str


FREE = Bound()


def bounds_of(limits: Sequence[ReplicaLimit], names: Sequence[str]) -> list[Bound]:
    """The user's limits, one a cluster: its own, else that of `*`, else none."""
    own = {limit.cluster: Bound(limit.least, FREE.most if limit.most is None else limit.most) for limit in limits}
    default = own.get("*", FREE)
    return [own.get(name, default) for name in names]


def divide(
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[Bound],
    *,
    descending: bool = False,
    in_order: bool = False,
) -> list[int] | Unbounded:
    """`seats` divided by `weights` within `bounds`, all given in rank order. Clusters of weight 0 get nothing unless due."""
    if seats <= 0:
        return [0] * len(names)
    usable = [i for i, b in enumerate(bounds) if b.due or (weights[i] > 0 and b.most > 0 and max(1, b.least) <= b.most)]
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
    for i, n in zip(used, share([names[i] for i in used], own, seats, least, most, descending), strict=True):
        out[i] = n
    return out


def _used(usable: Sequence[int], bounds: Sequence[Bound], seats: int) -> list[int] | Unbounded:
    """Which clusters get something: as many as can be, the first of the order before the last."""
    due = [i for i in usable if bounds[i].due]
    least_due = sum([bounds[i].least for i in due])
    if least_due > seats:
        return Unbounded(f"the least replicas of clusters that must have some are {least_due}, only {seats} are wanted")
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
    return Unbounded(f"no choice of clusters was found whose least and most replicas allow for {seats}")


def _seat_by_seat(
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    least: Sequence[int],
    most: Sequence[int],
    descending: bool,
) -> list[int]:
    """Webster with a head start: the next seat goes to the largest weight / (2 * held + 1) among those that are not full. Equal
    quotients: fewer seats first, then by name. What no doubt can take away is given at once, the last few one by one."""
    shift = 2 * (2 * max(most) + 1).bit_length() + 1
    scaled = [weight << shift for weight in weights]

    def above(threshold: int) -> list[int]:
        """The seats whose scaled quotients are above the threshold, within the bounds."""
        return [
            min(high, max(low, (value // threshold + 1) // 2))
            for value, low, high in zip(scaled, least, most, strict=True)
        ]

    low, high = 1, max(max(scaled), 1) + 1  # above(high) gives the leasts alone; lower thresholds give more
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
        (-(scaled[i] // (2 * held[i] + 1)), held[i], place, i) for place, i in enumerate(order) if held[i] < most[i]
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
    """The floor of every exact share, put within its bounds, then one more each in order until all are given. Where the leasts
    have brought it above what is wanted, one less each from the end. (Karmada's first design.)"""
    total = sum(weights)
    held = [
        min(high, max(low, seats * weight // total)) for weight, low, high in zip(weights, least, most, strict=True)
    ]
    left = seats - sum(held)
    while left > 0:
        left = _one_more_each(held, most, left)
    while left < 0:
        left = _one_less_each(held, least, left)
    return held


def _one_more_each(held: list[int], most: Sequence[int], left: int) -> int:
    """As many whole rounds as everybody who is not full can take, then one each in order."""
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
