"""The division strategies under bounds: what `division` does by weights alone, with limits per cluster or remainders in order.

The cases are the same (first, scale up, scale down, equal, fresh), and where no bound binds and the remainder is Webster's the
answers are the same. One case more: where what is held breaks a limit, because the limit is new, the whole is divided again
with as much as the limits allow left where it is. The user said the limit, so it goes before staying put.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wharfinger.engine.fleet.bounds import Bound, Unbounded, divide
from wharfinger.engine.fleet.division import Shares, Shortage


def bounded_by_weight(
    names: Sequence[str],
    weights: Sequence[int],
    replicas: int,
    bounds: Sequence[Bound],
    *,
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    """By the user's weights, recomputed from zero each time. All given in rank order; a cluster with weight 0 is left out, and
    when every weight is 0 all clusters weigh the same."""
    if not any(weights):
        weights = [1] * len(names)
    return _shares({}, names, weights, replicas, bounds, descending, in_order)


def bounded_by_capacity(
    names: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    bounds: Sequence[Bound],
    *,
    aggregated: bool,
    fresh: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """Dynamic weights and Aggregated. `names` in rank order with how many more fit into each (`estimates`)."""
    room = [max(0, int(fits)) for fits in estimates]
    kept = [held.get(name, 0) for name in names]
    assigned = sum(kept)
    whole = [more + now for more, now in zip(room, kept, strict=True)]
    keeps = all(_within(now, bound) for now, bound in zip(kept, bounds, strict=True))
    if fresh:
        return _within_room({}, names, whole, whole, replicas, bounds, (), aggregated, descending, in_order)
    if not keeps:
        return _mended(names, whole, kept, replicas, bounds, aggregated, descending, in_order)
    if assigned > replicas:
        order = {name: i for i, name in enumerate(names)}
        # In listed order, as without bounds; remainders that go out in order go in rank order always.
        listed = [i for i, now in enumerate(kept) if now] if in_order else [order[n] for n in held if n in order]
        return _within_room(
            {}, [names[i] for i in listed], [kept[i] for i in listed], [kept[i] for i in listed], replicas,
            [bounds[i] for i in listed], (), aggregated, descending, in_order,
        )  # fmt: skip
    if assigned == replicas:
        return Shares({name: now for name, now in zip(names, kept, strict=True) if now > 0}, {})
    base = {name: now for name, now in zip(names, kept, strict=True) if now > 0}
    above = [_above(bound, now) for bound, now in zip(bounds, kept, strict=True)]
    first = [i for i, now in enumerate(kept) if now > 0]
    return _within_room(base, names, room, room, replicas - assigned, above, first, aggregated, descending, in_order)


def _within(now: int, bound: Bound) -> bool:
    return (now == 0 and not bound.due) or max(1, bound.least) <= now <= bound.most


def _above(bound: Bound, now: int) -> Bound:
    """What may be added to a cluster that keeps its limit."""
    if now == 0:
        return bound
    return Bound(0, bound.most - now)


def _mended(
    names: Sequence[str],
    whole: Sequence[int],
    kept: Sequence[int],
    replicas: int,
    bounds: Sequence[Bound],
    aggregated: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """What is held as far as the limits and the wanted number allow, the rest by room; else all of it by room."""
    staying = [
        Bound(max(bound.least, min(now, bound.most)), bound.most, bound.due or (now > 0 and bound.most > 0))
        for bound, now in zip(bounds, kept, strict=True)
    ]
    answer = _within_room({}, names, whole, whole, replicas, staying, (), aggregated, descending, in_order)
    if isinstance(answer, Shares):
        return answer
    return _within_room({}, names, whole, whole, replicas, bounds, (), aggregated, descending, in_order)


def _within_room(
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    room: Sequence[int],
    seats: int,
    bounds: Sequence[Bound],
    first: Sequence[int],
    aggregated: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """`seats` added to `base`, no cluster getting more than its `room`. Aggregated takes the clusters of `first` before the
    others, then the roomiest, and stops as soon as they hold it all."""
    if sum(room) < seats:
        return Shortage(seats, sum(room))
    tight = [Bound(b.least, min(b.most, fits), b.due) for b, fits in zip(bounds, room, strict=True)]
    if any(b.due and b.least > b.most for b in tight):
        cluster = next(name for name, b in zip(names, tight, strict=True) if b.due and b.least > b.most)
        return Unbounded(f"{cluster} has no room for the least replicas it must have")
    if not aggregated:
        return _among(base, names, weights, seats, tight, range(len(names)), descending, in_order)
    order = sorted(range(len(names)), key=lambda i: -weights[i])  # stable: equal weights stay in rank order
    ahead = {*first, *(i for i, b in enumerate(tight) if b.due)}
    order = [i for i in order if i in ahead] + [i for i in order if i not in ahead]
    reached = length = 0
    while length < len(order) and (reached < seats or any(i in ahead and tight[i].due for i in order[length:])):
        reached += tight[order[length]].most
        length += 1
    while True:  # a cluster more where the leasts of the shortest list do not work out
        answer = _among(base, names, weights, seats, tight, order[:length], descending, in_order)
        if isinstance(answer, Shares) or length == len(order):
            return answer
        length += 1


def _among(
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[Bound],
    chosen: Sequence[int],
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    return _shares(
        base, [names[i] for i in chosen], [weights[i] for i in chosen], seats, [bounds[i] for i in chosen], descending,
        in_order,
    )  # fmt: skip


def _shares(
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[Bound],
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    given = divide(names, weights, seats, bounds, descending=descending, in_order=in_order)
    if isinstance(given, Unbounded):
        return given
    out = dict(base)
    used = {}
    for name, weight, n in zip(names, weights, given, strict=True):
        if n:
            out[name] = out.get(name, 0) + n
            used[name] = weight
    return Shares(out, used)
