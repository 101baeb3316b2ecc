"""How the replicas of a binding are divided over the clusters it may go to.

Four strategies, as in Karmada: Duplicated (each cluster gets all), static weights, dynamic weights (by what still fits)
and Aggregated (the fewest clusters that hold them). The last two look at what the binding holds already:

* *first* and *scale up* divide only what is missing, by what still fits, and add it: nothing that runs is taken away;
* *scale down* divides the new total by what each cluster holds, and asks nobody for capacity;
* *equal* keeps everything where it is, even on clusters that have become full;
* *fresh* (asked for explicitly) divides the whole anew by what fits plus what is held.

Weights become seats by Webster's method (`webster`), exactly, and at a cost that does not grow with the replicas.

In a large fleet weights and estimates come as arrays, int64[clusters], of clusters in ascending order of name: then nothing here
but the division's own winners is touched one by one. What comes out is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from wharfinger.engine.fleet.webster import Array, one_seat, webster, winners
from wharfinger.engine.fleet.webster import names_descend as names_descend

FIRST_BEST = 32
"""So many of the best are looked at first, where it is not known how many are needed."""

KEY_MAX = 2**60

ESTIMATE_MAX = 2**31
"""Larger ones are divided as lists."""


class Shares(msgspec.Struct, frozen=True):
    """The whole assignment: cluster -> replicas, nothing below one. `weights`: what it was divided by, of those that got any."""

    replicas: dict[str, int]
    weights: dict[str, int]


class Shortage(msgspec.Struct, frozen=True):
    """`wanted` replicas were to be placed and only `available` fit."""

    wanted: int
    available: int


def duplicated(clusters: Sequence[str], replicas: int) -> Shares:
    return Shares(dict.fromkeys(clusters, replicas) if replicas > 0 else {}, {})


def in_columns(numbers: Sequence[int] | Array) -> bool:
    """Whether they are an array: of clusters in order of name, ranked by whoever divides them."""
    return isinstance(numbers, np.ndarray)


def as_list(numbers: Sequence[int] | Array) -> Sequence[int]:
    """Plain ints, for what goes through clusters one by one."""
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers


def by_static_weight(
    clusters: Sequence[str], weights: Sequence[int] | Array, replicas: int, descending: bool = False
) -> Shares:
    """By the user's weights alone: no capacity, no history, recomputed from zero each time.

    A cluster with weight 0 is left out; when every weight is 0 all clusters weigh the same.
    """
    if isinstance(weights, np.ndarray):
        return _won({}, clusters, weights if weights.any() else np.ones_like(weights), replicas, descending)
    if not any(weights):
        weights = [1] * len(clusters)
    return _shares({}, clusters, weights, replicas, descending)


def by_capacity(
    clusters: Sequence[str],
    estimates: Sequence[int] | Array,
    held: Mapping[str, int],
    replicas: int,
    *,
    aggregated: bool,
    fresh: bool = False,
    descending: bool = False,
) -> Shares | Shortage:
    """Dynamic weights and Aggregated. `clusters` with how many more fit into each (`estimates`); a list in rank order, an array in
    order of name.

    `held`: what the binding has now, in listed order; on clusters that are no candidates any more it is forgotten.
    """
    if isinstance(estimates, np.ndarray):
        return _by_capacity_of_many(clusters, estimates, held, replicas, aggregated, fresh, descending)
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
        i = one_seat(clusters, weights, descending)
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


# The same over arrays


def _by_capacity_of_many(
    names: Sequence[str],
    estimates: Array,
    held: Mapping[str, int],
    replicas: int,
    aggregated: bool,
    fresh: bool,
    descending: bool,
) -> Shares | Shortage:
    found = {name: i for name in held if (i := bisect_left(names, name)) < len(names) and names[i] == name}
    kept = {name: held[name] for name in found}
    large = replicas > KEY_MAX or int(estimates.max(initial=0)) > ESTIMATE_MAX
    if large or any(n <= 0 or n > KEY_MAX // len(names) for n in kept.values()):
        order = _ranked(names, estimates.tolist(), held)
        return by_capacity(
            [names[i] for i in order], estimates[order].tolist(), held, replicas, aggregated=aggregated, fresh=fresh,
            descending=descending,
        )  # fmt: skip
    assigned = sum(kept.values())
    if not fresh and assigned > replicas:
        return _divided({}, kept, {}, replicas, aggregated, descending)
    if not fresh and assigned == replicas:
        return Shares(kept, {})
    weights, target = estimates, replicas if fresh else replicas - assigned
    if fresh and kept:
        weights = estimates.copy()
        for name, i in found.items():
            weights[i] += kept[name]
    available = int(weights.sum())
    if available < target:
        return Shortage(target, available)
    base = {} if fresh else kept
    if not aggregated:
        return _won(base, names, weights, target, descending)
    prefix = _roomiest(weights, list(found.values()), kept, target, fresh)
    if len(prefix) <= FIRST_BEST:
        return _shares(base, [names[i] for i in prefix], weights[prefix].tolist(), target, descending)
    among = np.sort(prefix)
    return _won(base, [names[i] for i in among], weights[among], target, descending)


def _ranked(names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]) -> list[int]:
    """Indexes, best first: what holds some already, then the roomiest, then by name."""
    return sorted(
        range(len(names)), key=lambda i: (names[i] not in held, -estimates[i] - held.get(names[i], 0), names[i])
    )


def _roomiest(weights: Array, held: Sequence[int], kept: Mapping[str, int], target: int, fresh: bool) -> Array:
    """Indexes of the fewest clusters that hold `target`, by weight, then what holds some already, then by name; when growing, the
    clusters of `held` come before all others."""
    size = len(weights)
    keys = 2 * weights
    if fresh:
        keys[held] += 1
    keys *= size
    keys += np.arange(size - 1, -1, -1)  # no two are equal, so any way of sorting them is the same
    first: list[int] = []
    if held and not fresh:
        counts = list(kept.values())
        order = sorted(range(len(held)), key=lambda j: (-int(weights[held[j]]), -counts[j], held[j]))
        first = [held[j] for j in order]
        taken = _shortest_prefix([int(weights[i]) for i in first], target)
        if taken < len(first) or int(weights[first].sum()) >= target:
            return np.array(first[:taken], np.int64)
        target -= int(weights[first].sum())
        keys[first] = -1
    for count in _growing(size):
        best = keys if count == size else keys[np.argpartition(keys, size - count)[size - count :]]
        order_of_best = np.sort(best)[::-1]
        indexes = size - 1 - order_of_best[order_of_best >= 0] % size
        reached = np.cumsum(weights[indexes])
        if count == size or (reached.size and int(reached[-1]) >= target):
            needed = int(np.searchsorted(reached, target)) + 1
            return np.concatenate((np.array(first, np.int64), indexes[:needed]))
    raise AssertionError("the last count is all of them")


def _growing(size: int) -> Iterable[int]:
    count = FIRST_BEST
    while count < size:
        yield count
        count *= 4
    yield size


def _won(base: Mapping[str, int], names: Sequence[str], weights: Array, seats: int, descending: bool) -> Shares:
    out, used = dict(base), {}
    got, given = winners(weights, seats, descending)
    for i, n, weight in zip(got.tolist(), given.tolist(), weights[got].tolist(), strict=True):
        name = names[i]
        out[name] = out.get(name, 0) + n
        used[name] = weight
    return Shares(out, used)
