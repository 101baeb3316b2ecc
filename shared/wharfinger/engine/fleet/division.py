"""Divides the replicas of a binding over its clusters: Webster apportionment with Karmada's cases.

Four strategies, as in Karmada: Duplicated (each cluster gets all), static weights, dynamic weights
(by capacity) and Aggregated (the fewest clusters with capacity for all). The last two depend on the
replicas that the binding holds already:

* *first* and *scale up* divide only the missing replicas, by capacity, and add them: nothing that
  runs is removed;
* *scale down* divides the new total by the replicas that each cluster holds, and ignores capacity;
* *equal* keeps everything where it is, even on clusters that have become full;
* *fresh* (on request) divides all replicas again, by capacity plus the replicas held.

Weights become seats by Webster's method (`webster`), exactly, in time that does not grow with the
number of replicas.

Example: 7 replicas by weights 3, 2, 2 are divided 3, 2, 2; 8 replicas 4, 2, 2.

In a large fleet weights and estimates are arrays, int64[clusters], in ascending order of name, and
Python objects are made for the winners only. The result is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from wharfinger.engine.fleet.webster import Array, one_seat, webster, winners
from wharfinger.engine.fleet.webster import names_descend as names_descend

FIRST_BEST = 32
"""How many of the best clusters are sorted first, when it is not known how many are needed."""

KEY_MAX = 2**60

"""Larger numbers of replicas are divided as lists, so that no sort key exceeds 64 bits."""
ESTIMATE_MAX = 2**31
"""Larger estimates are divided as lists, so that no sort key exceeds 64 bits."""


Case = Literal[
    "duplicated",
    "static",
    "within room",
    "first",
    "scale up",
    "scale down",
    "equal",
    "fresh",
    "mended",
]
"""The kind of a division, see above. `mended`: replicas that are held violated a new limit
(`bounded`). `within room`: static weights would give a cluster more than fits (`room`)."""


class Shares(msgspec.Struct, frozen=True):
    """Holds a division of replicas over clusters, and how it was computed.

    `replicas`: cluster -> replicas, at least 1 each.
    `kept`: cluster -> replicas that stayed where they were. `seats`: how many replicas were divided
      and added to them.
    `among`, `by`: the clusters that took part in that division, and their weights.
    """

    replicas: dict[str, int]
    case: Case
    kept: Mapping[str, int] = {}
    seats: int = 0
    among: Sequence[str] = ()
    by: Sequence[int] | Array = ()


class Shortage(msgspec.Struct, frozen=True):
    """Reports that `wanted` replicas were to be placed and only `available` fit."""

    wanted: int
    available: int


def duplicated(clusters: Sequence[str], replicas: int) -> Shares:
    return Shares(
        dict.fromkeys(clusters, replicas) if replicas > 0 else {},
        "duplicated",
        {},
        replicas,
        clusters,
    )


def in_columns(numbers: Sequence[int] | Array) -> bool:
    """Returns whether the numbers are an array: the form used in large fleets, with clusters in
    order of name, not ranked yet."""
    return isinstance(numbers, np.ndarray)


def as_list(numbers: Sequence[int] | Array) -> Sequence[int]:
    """Returns the numbers as plain integers, for code that iterates over clusters."""
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers


def by_static_weight(
    clusters: Sequence[str], weights: Sequence[int] | Array, replicas: int, descending: bool = False
) -> Shares:
    """Divides `replicas` by the static weights of the policy with Webster's method, and returns the
    number of replicas of each cluster. Capacity and the replicas that clusters hold are ignored.

    `clusters`, `weights`: one entry per cluster; a list in any order, or an array in order of
      cluster name. A cluster of weight 0 gets nothing. If every weight is 0, all clusters get the
      same weight.
    `descending`: break ties by descending instead of ascending cluster name.

    Example: 7 replicas by weights 3, 2, 2 are divided 3, 2, 2.
    """
    if isinstance(weights, np.ndarray):
        weights = weights if weights.any() else np.ones_like(weights)
        return _won("static", {}, clusters, weights, replicas, descending)
    if not any(weights):
        weights = [1] * len(clusters)
    return _shares("static", {}, clusters, weights, replicas, descending)


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
    """Divides `replicas` according to capacity, and returns the number of replicas of each cluster.
    The strategy is dynamic weights (in proportion to capacity, by Webster's method) or Aggregated
    (over as few clusters as possible).

    The replicas that the binding holds decide how it is done:

    - *first*: none is held; the wanted replicas are divided.
    - *scale up*: fewer are held than wanted; the missing replicas are divided and added to the
      replicas held.
    - *scale down*: more are held than wanted; the wanted replicas are divided, with the replicas
      held as the capacity.
    - *equal*: as many are held as wanted; nothing changes.
    - *fresh*: all replicas are divided again. The capacity is the replicas that fit plus the
      replicas held.

    `clusters`, `estimates`: the candidates, and how many more replicas fit into each: a list in
      rank order (best first), or an array in order of name.
    `held`: cluster -> replicas held now. Clusters that are no longer candidates are ignored. The
      order of `held` breaks ties of Aggregated in *scale down*.
    `aggregated`: use Aggregated instead of dynamic weights.
    `fresh`: use the case *fresh*.
    `descending`: break ties by descending instead of ascending cluster name.

    Returns Shortage if too few replicas fit.

    Example: 6 and 2 more replicas fit. 4 replicas are 3 and 1 if nothing is held. If the second
    cluster holds 2 and 6 are wanted, the missing 4 are divided 3 and 1, so the result is 3 and 3.
    """
    if isinstance(estimates, np.ndarray):
        return _by_capacity_of_many(
            clusters, estimates, held, replicas, aggregated, fresh, descending
        )
    if not held and not aggregated and (replicas or fresh):
        available = sum(estimates)
        if available < replicas:
            return Shortage(replicas, available)
        return _shares("fresh" if fresh else "first", {}, clusters, estimates, replicas, descending)
    fits = dict(zip(clusters, estimates, strict=True))
    kept = {name: n for name, n in held.items() if name in fits}
    assigned = sum(kept.values())
    if fresh:
        weights = {name: n + kept.get(name, 0) for name, n in fits.items()}
        return _divided("fresh", {}, weights, {}, replicas, aggregated, descending)
    if assigned > replicas:
        return _divided("scale down", {}, kept, {}, replicas, aggregated, descending)
    if assigned < replicas:
        case: Case = "scale up" if kept else "first"
        return _divided(case, kept, fits, kept, replicas - assigned, aggregated, descending)
    return Shares({name: n for name, n in kept.items() if n > 0}, "equal", kept)


def _divided(
    case: Case,
    base: Mapping[str, int],
    weights: Mapping[str, int],
    first: Mapping[str, int],
    target: int,
    aggregated: bool,
    descending: bool,
) -> Shares | Shortage:
    """Divides `target` replicas by weight with Webster's method and adds the result to `base`.
    Returns the number of replicas of each cluster.

    `case`: the name of the case, such as `scale up`; it is only copied into the result.
    `base`: cluster -> replicas that stay where they are.
    `weights`: cluster -> weight. The cluster can take at most this many of the `target` replicas.
    `first`: cluster -> replicas; only read with `aggregated`.
    `aggregated`: divide over few clusters. All clusters are listed: first those with replicas in
      `first`, then all other clusters, both in descending order of weight. The shortest beginning
      of this list whose weights sum to at least `target` is used.
    `descending`: break ties by descending instead of ascending cluster name.

    Returns Shortage if the weights sum to less than `target`.

    Example with `aggregated`: target 8, weights A 6, B 5, C 4. A and B suffice, and each gets 4.
    """
    available = sum(weights.values())
    if available < target:
        return Shortage(target, available)
    if not aggregated:
        return _shares(case, base, list(weights), list(weights.values()), target, descending)
    # stable: equal weights stay in rank order
    order = sorted(weights, key=weights.__getitem__, reverse=True)
    if any(first.values()):
        order = [c for c in order if first.get(c, 0) > 0] + [
            c for c in order if first.get(c, 0) <= 0
        ]
    prefix = order[: _shortest_prefix([weights[c] for c in order], target)]
    return _shares(case, base, prefix, [weights[c] for c in prefix], target, descending)


def _shortest_prefix(weights: Sequence[int], target: int) -> int:
    """Returns how many of the first weights sum to at least `target`: the smallest such number, or
    all of them."""
    reached = 0
    for taken, weight in enumerate(weights):
        if reached >= target:
            return taken
        reached += weight
    return len(weights)


def _shares(
    case: Case,
    base: Mapping[str, int],
    clusters: Sequence[str],
    weights: Sequence[int],
    seats: int,
    descending: bool,
) -> Shares:
    """Divides `seats` replicas (a seat is one replica) by weight with Webster's method and adds the
    result to `base`. Returns the number of replicas of each cluster.

    `case`: the name of the case, such as `scale up`; it is only copied into the result.
    `base`: cluster -> replicas that stay where they are.
    `clusters`, `weights`: one entry per cluster.
    `descending`: break ties by descending instead of ascending cluster name.

    Example: `base` B 2; 4 seats by weights A 6, B 2 are 3 and 1, so the result is A 3, B 3.
    """
    out = {name: n for name, n in base.items() if n > 0}
    if seats == 1 and any(weights):  # most bindings have one replica
        i = one_seat(clusters, weights, descending)
        name = clusters[i]
        out[name] = out.get(name, 0) + 1
        return Shares(out, case, base, seats, clusters, weights)
    for i, n in enumerate(webster(clusters, weights, seats, descending)):
        if n:
            name = clusters[i]
            out[name] = out.get(name, 0) + n
    return Shares(out, case, base, seats, clusters, weights)


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
    """Divides `replicas` according to capacity in a large fleet, and returns the number of replicas
    of each cluster. The result is the same as that of `by_capacity`; the computation uses arrays.

    The strategy is dynamic weights (in proportion to capacity) or, with `aggregated`, as few
    clusters as possible. If replicas are held, only the missing replicas are divided and added to
    the replicas held. If more are held than wanted, the wanted replicas are divided, with the
    replicas held as the capacity. With `fresh`, all replicas are divided again; the capacity is
    then the replicas that fit plus the replicas held.

    `names`: all candidates, sorted.
    `estimates`: int64[clusters], in order of `names`: how many more replicas fit into each.
    `held`: cluster -> replicas held now.
    `descending`: break ties by descending instead of ascending cluster name.

    If numbers are too large for 64-bit sort keys, lists are used instead of arrays. Returns
    Shortage if too few replicas fit.

    Example: 6 and 2 more replicas fit and nothing is held: 4 replicas are 3 and 1.
    """
    found = {
        name: i
        for name in held
        if (i := bisect_left(names, name)) < len(names) and names[i] == name
    }
    kept = {name: held[name] for name in found}
    large = replicas > KEY_MAX or int(estimates.max(initial=0)) > ESTIMATE_MAX
    if large or any(n <= 0 or n > KEY_MAX // len(names) for n in kept.values()):
        order = _ranked(names, estimates.tolist(), held)
        return by_capacity(
            [names[i] for i in order],
            estimates[order].tolist(),
            held,
            replicas,
            aggregated=aggregated,
            fresh=fresh,
            descending=descending,
        )
    assigned = sum(kept.values())
    if not fresh and assigned > replicas:
        return _divided("scale down", {}, kept, {}, replicas, aggregated, descending)
    if not fresh and assigned == replicas:
        return Shares(kept, "equal", kept)
    weights, target = estimates, replicas if fresh else replicas - assigned
    if fresh and kept:
        weights = estimates.copy()
        for name, i in found.items():
            weights[i] += kept[name]
    available = int(weights.sum())
    if available < target:
        return Shortage(target, available)
    base = {} if fresh else kept
    case: Case = "fresh" if fresh else "scale up" if kept else "first"
    if not aggregated:
        return _won(case, base, names, weights, target, descending, available)
    prefix = _roomiest(weights, list(found.values()), kept, target, fresh)
    if len(prefix) <= FIRST_BEST:
        return _shares(
            case, base, [names[i] for i in prefix], weights[prefix].tolist(), target, descending
        )
    among = np.sort(prefix)
    return _won(case, base, [names[i] for i in among], weights[among], target, descending)


def _ranked(names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]) -> list[int]:
    """Returns the indexes of clusters in rank order: clusters that hold replicas first, then by
    capacity (estimate plus replicas held), largest first, then by name."""
    return sorted(
        range(len(names)),
        key=lambda i: (names[i] not in held, -estimates[i] - held.get(names[i], 0), names[i]),
    )


def _roomiest(
    weights: Array, held: Sequence[int], kept: Mapping[str, int], target: int, fresh: bool
) -> Array:
    """Selects the clusters for Aggregated. All clusters are ranked, and the first of them whose
    weights sum to at least `target` are selected, as few as possible. Returns the indexes of these
    clusters in rank order.

    `weights`: int64[clusters], in order of name: how many replicas each cluster can take.
    `held`: indexes of the clusters that hold replicas.
    `kept`: cluster -> replicas held, one entry for each index in `held` and in the same order.
    `target`: how many replicas to place; not more than the sum of `weights`.
    `fresh`: rank all clusters together. Otherwise the clusters in `held` come before all other
      clusters.

    The rank order is descending by weight. Ties with `fresh`: clusters in `held` come first, then
    the name decides. Ties otherwise: among the clusters in `held` the cluster with more replicas
    comes first, then the name decides.

    Only the best `FIRST_BEST` clusters are sorted (`numpy.argpartition`). If the weights of these
    clusters do not suffice, four times as many are sorted, and so on.

    Example: weights 6, 5, 4 and target 8. Nothing is held: [0, 1]. The third cluster holds
    replicas: [2, 0].
    """
    if target <= 0:
        return np.zeros(0, np.int64)
    size = len(weights)
    keys = 2 * weights
    if fresh:
        keys[held] += 1
    keys *= size
    keys += np.arange(size - 1, -1, -1)  # no two are equal, so any way of sorting them is the same
    first: list[int] = []
    if held and not fresh:
        counts = list(kept.values())
        order = sorted(
            range(len(held)), key=lambda j: (-int(weights[held[j]]), -counts[j], held[j])
        )
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
    """Yields how many of the best clusters to sort in each attempt: `FIRST_BEST`, then four times
    as many each time, and all of them in the end."""
    count = FIRST_BEST
    while count < size:
        yield count
        count *= 4
    yield size


def _won(
    case: Case,
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Array,
    seats: int,
    descending: bool,
    total: int | None = None,
) -> Shares:
    """Divides `seats` replicas (a seat is one replica) by weight with the array version of
    Webster's method (`winners`), and adds the result to `base`. Returns the number of replicas of
    each cluster.

    `case`: the name of the case, such as `scale up`; it is only copied into the result.
    `base`: cluster -> replicas that stay where they are.
    `names`: the clusters, sorted.
    `weights`: int64[clusters], in order of `names`.
    `descending`: break ties by descending instead of ascending cluster name.
    `total`: the sum of the weights, where it is known.

    Example: `base` B 2; 4 seats by weights A 6, B 2 are 3 and 1, so the result is A 3, B 3.
    """
    got, given = winners(weights, seats, descending, total=total)
    won = zip(map(names.__getitem__, got.tolist()), given.tolist(), strict=True)
    if not base:
        return Shares(dict(won), case, base, seats, names, weights)
    out = dict(base)
    for name, n in won:
        out[name] = out.get(name, 0) + n
    return Shares(out, case, base, seats, names, weights)
