"""How the replicas of a binding are divided over the clusters it may go to.

Four strategies, as in Karmada: Duplicated (each cluster gets all), static weights, dynamic weights (by what still fits)
and Aggregated (the fewest clusters that hold them). The last two look at what the binding holds already:

* *first* and *scale up* divide only what is missing, by what still fits, and add it: nothing that runs is taken away;
* *scale down* divides the new total by what each cluster holds, and asks nobody for capacity;
* *equal* keeps everything where it is, even on clusters that have become full;
* *fresh* (asked for explicitly) divides the whole anew by what fits plus what is held.

Weights become seats by Webster's method. Karmada hands the seats out one at a time; we give every cluster the seats it
must get in any case by one division, and hand out only the last few, so that the cost does not grow with the replicas.
Quotients are compared exactly, never as floats.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import msgspec


class Shares(msgspec.Struct, frozen=True):
    """The whole assignment: cluster -> replicas, nothing below one. `weights`: what it was divided by, of those that got any."""

    replicas: dict[str, int]
    weights: dict[str, int]


class Shortage(msgspec.Struct, frozen=True):
    """`wanted` replicas were to be placed and only `available` fit."""

    wanted: int
    available: int


def names_descend(uid: str) -> bool:
    """Whether equal quotients are decided by name from the end: the low bit of FNV-1a-32 over the uid (empty: no).

    FNV's basis and prime are both odd, so of all its multiplications only the parity of the bytes reaches the low bit.
    """
    return bool(uid) and sum(uid.encode()) % 2 == 0


def webster(names: Sequence[str], weights: Sequence[int], seats: int, descending: bool = False) -> list[int]:
    """`seats` handed out one after another, each to the largest weight / (2 * seats held + 1).

    Equal quotients: who holds fewer seats, then who comes first by name (last, when `descending`). Weights must not be
    negative; when all are zero nobody gets anything.
    """
    total = sum(weights)
    if seats <= 0 or total <= 0:
        return [0] * len(names)
    if seats == 1:
        winner = _one_seat(names, weights, descending)
        return [int(i == winner) for i in range(len(names))]
    held = _sure_seats(weights, total, seats)
    left = seats - sum(held)
    if left == 0:
        return held
    # Two different quotients with denominators of at most 2*seats+1 differ by more than 2**-shift, so the floors of the
    # shifted quotients order them exactly, and equal floors are equal quotients.
    shift = 2 * (2 * seats + 1).bit_length() + 1
    order = sorted(range(len(names)), key=names.__getitem__, reverse=descending)
    queue = [
        (-((weights[i] << shift) // (2 * held[i] + 1)), held[i], place, i)
        for place, i in enumerate(order)
        if weights[i] > 0
    ]
    heapq.heapify(queue)
    while left:
        _, _, place, i = queue[0]
        held[i] += 1
        heapq.heapreplace(queue, (-((weights[i] << shift) // (2 * held[i] + 1)), held[i], place, i))
        left -= 1
    return held


def _one_seat(names: Sequence[str], weights: Sequence[int], descending: bool) -> int:
    """Whose the only seat is, by index."""
    most = max(weights)
    if weights.count(most) == 1:
        return weights.index(most)
    tied = [i for i, weight in enumerate(weights) if weight == most]
    return (max if descending else min)(tied, key=names.__getitem__)


def _sure_seats(weights: Sequence[int], total: int, seats: int) -> list[int]:
    """The seats whose quotients lie above total / (2 * aimed), where `aimed` is so far below `seats` that they cannot be
    more than `seats` even if every cluster's share is rounded up by a half. Whoever hands out seats from the largest
    quotient down hands out these first, in whatever order."""
    aimed = seats - (len(weights) + 1) // 2
    if aimed <= 0:
        return [0] * len(weights)
    return [max(0, -((total - 2 * aimed * weight) // (2 * total))) for weight in weights]


def duplicated(clusters: Sequence[str], replicas: int) -> Shares:
    return Shares(dict.fromkeys(clusters, replicas) if replicas > 0 else {}, {})


def by_static_weight(
    clusters: Sequence[str], weights: Sequence[int], replicas: int, descending: bool = False
) -> Shares:
    """By the user's weights alone: no capacity, no history, recomputed from zero each time.

    A cluster with weight 0 is left out; when every weight is 0 all clusters weigh the same.
    """
    if not any(weights):
        weights = [1] * len(clusters)
    return _shares({}, clusters, weights, replicas, descending)


def by_capacity(
    clusters: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    *,
    aggregated: bool,
    fresh: bool = False,
    descending: bool = False,
) -> Shares | Shortage:
    """Dynamic weights and Aggregated. `clusters` in rank order with how many more fit into each (`estimates`).

    `held`: what the binding has now, in listed order; on clusters that are no candidates any more it is forgotten.
    """
    if not held and not aggregated:
        available = sum(estimates)
        if available < replicas:
            return Shortage(replicas, available)
        return _shares({}, clusters, estimates, replicas, descending)
    fits = dict(zip(clusters, estimates, strict=True))
    kept = {name: n for name, n in held.items() if name in fits}
    assigned = sum(kept.values())
    if fresh:
        weights = {name: n + kept.get(name, 0) for name, n in fits.items()}
        return _divided({}, weights, {}, replicas, aggregated, descending)
    if assigned > replicas:
        return _divided({}, kept, {}, replicas, aggregated, descending)
    if assigned < replicas:
        return _divided(kept, fits, kept, replicas - assigned, aggregated, descending)
    return Shares({name: n for name, n in kept.items() if n > 0}, {})


def _divided(
    base: Mapping[str, int],
    weights: Mapping[str, int],
    first: Mapping[str, int],
    target: int,
    aggregated: bool,
    descending: bool,
) -> Shares | Shortage:
    """`target` divided by `weights` and added to `base`. Aggregated asks the clusters of `first` before the others."""
    available = sum(weights.values())
    if available < target:
        return Shortage(target, available)
    if not aggregated:
        return _shares(base, list(weights), list(weights.values()), target, descending)
    order = sorted(weights, key=weights.__getitem__, reverse=True)  # stable: equal weights stay in rank order
    if any(first.values()):
        order = [c for c in order if first.get(c, 0) > 0] + [c for c in order if first.get(c, 0) <= 0]
    prefix = order[: _shortest_prefix([weights[c] for c in order], target)]
    return _shares(base, prefix, [weights[c] for c in prefix], target, descending)


def _shortest_prefix(weights: Sequence[int], target: int) -> int:
    reached = 0
    for taken, weight in enumerate(weights):
        if reached >= target:
            return taken
        reached += weight
    return len(weights)


def _shares(
    base: Mapping[str, int], clusters: Sequence[str], weights: Sequence[int], seats: int, descending: bool
) -> Shares:
    out = {name: n for name, n in base.items() if n > 0}
    if seats == 1 and any(weights):  # most bindings have one replica
        i = _one_seat(clusters, weights, descending)
        name = clusters[i]
        out[name] = out.get(name, 0) + 1
        return Shares(out, {name: weights[i]})
    used = {}
    for i, n in enumerate(webster(clusters, weights, seats, descending)):
        if n:
            name = clusters[i]
            out[name] = out.get(name, 0) + n
            used[name] = weights[i]
    return Shares(out, used)
