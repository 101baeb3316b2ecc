"""Divides replicas by the strategies of `division` with bounds: limits per cluster, or remainders
in order.

The cases are the same (first, scale up, scale down, equal, fresh). If no bound is active and
remainders follow Webster's method, the results are the same too. One case is added, `mended`:
replicas that are held violate a limit, because the limit is new. Every cluster then keeps as many
replicas as its limits allow, and the rest is divided by capacity. If that is impossible, all
replicas are divided again. So a limit has priority over stability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wharfinger.engine.fleet.bounds import ReplicaBounds, Unbounded, divide
from wharfinger.engine.fleet.division import Case, Shares, Shortage


def bounded_by_weight(
    names: Sequence[str],
    weights: Sequence[int],
    replicas: int,
    bounds: Sequence[ReplicaBounds],
    *,
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    """Divides `replicas` by the static weights of the policy, within bounds per cluster, and
    returns the number of replicas of each cluster. The replicas that clusters hold now are ignored.

    `names`, `weights`, `bounds`: one entry per cluster, in rank order (best first). A bound allows
      either 0 replicas or `least` to `most` replicas; if it is `due`, 0 is not allowed. A cluster
      of weight 0 gets nothing, unless its bound is `due`. If every weight is 0, all clusters get
      the same weight.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    Returns Unbounded if no division satisfies the bounds.

    Example: 10 replicas by weights 3 and 1, `most` 6 for the first cluster: 6 and 4.
    """
    if not any(weights):
        weights = [1] * len(names)
    return _shares("static", {}, names, weights, replicas, bounds, descending, in_order)


def bounded_by_capacity(
    names: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    bounds: Sequence[ReplicaBounds],
    *,
    aggregated: bool,
    fresh: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """Divides `replicas` according to capacity, within bounds per cluster, and returns the number
    of replicas of each cluster. The strategy is dynamic weights (in proportion to capacity) or
    Aggregated (over as few clusters as possible).

    The replicas that the binding holds decide how it is done:

    - *first*: none is held; the wanted replicas are divided.
    - *scale up*: fewer are held than wanted; the missing replicas are divided and added to the
      replicas held.
    - *scale down*: more are held than wanted; the wanted replicas are divided, with the replicas
      held as the capacity.
    - *equal*: as many are held as wanted; nothing changes.
    - *fresh*: all replicas are divided again. The capacity is the replicas that fit plus the
      replicas held.
    - *mended*: the replicas held violate a bound. All replicas are divided again; if possible, each
      cluster gets at least the replicas it holds, as far as its bound allows. The capacity is as in
      *fresh*.

    `names`, `estimates`, `bounds`: one entry per cluster, in rank order (best first). `estimates`:
      how many more replicas fit. A bound allows either 0 replicas or `least` to `most` replicas; if
      it is `due`, 0 is not allowed.
    `held`: cluster -> replicas that the binding holds now.
    `aggregated`: use Aggregated instead of dynamic weights.
    `fresh`: use the case *fresh*.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    Returns Shortage if too few replicas fit, Unbounded if no division satisfies the bounds.

    Example: 6 and 2 replicas fit, nothing is held. 4 replicas by dynamic weights are 3 and 1.
    """
    room = [max(0, int(fits)) for fits in estimates]
    kept = [held.get(name, 0) for name in names]
    assigned = sum(kept)
    whole = [more + now for more, now in zip(room, kept, strict=True)]
    keeps = all(_within(now, bound) for now, bound in zip(kept, bounds, strict=True))
    if fresh:
        return _within_room(
            "fresh", {}, names, whole, whole, replicas, bounds, (), aggregated, descending, in_order
        )
    if not keeps:
        return _mended(names, whole, kept, replicas, bounds, aggregated, descending, in_order)
    if assigned > replicas:
        order = {name: i for i, name in enumerate(names)}
        # In the order of `held`, as without bounds. Remainders in order always follow the rank
        # order.
        listed = (
            [i for i, now in enumerate(kept) if now]
            if in_order
            else [order[n] for n in held if n in order]
        )
        return _within_room(
            "scale down",
            {},
            [names[i] for i in listed],
            [kept[i] for i in listed],
            [kept[i] for i in listed],
            replicas,
            [bounds[i] for i in listed],
            (),
            aggregated,
            descending,
            in_order,
        )
    if assigned == replicas:
        return Shares(_kept(names, kept), "equal", _kept(names, kept))
    base = _kept(names, kept)
    above = [_above(bound, now) for bound, now in zip(bounds, kept, strict=True)]
    first = [i for i, now in enumerate(kept) if now > 0]
    case: Case = "scale up" if base else "first"
    return _within_room(
        case,
        base,
        names,
        room,
        room,
        replicas - assigned,
        above,
        first,
        aggregated,
        descending,
        in_order,
    )


def _kept(names: Sequence[str], kept: Sequence[int]) -> dict[str, int]:
    return {name: now for name, now in zip(names, kept, strict=True) if now > 0}


def _within(now: int, bound: ReplicaBounds) -> bool:
    return (now == 0 and not bound.due) or max(1, bound.least) <= now <= bound.most


def _above(bound: ReplicaBounds, now: int) -> ReplicaBounds:
    """Returns the bounds for the replicas that are added to a cluster. The cluster already holds
    `now` replicas, which satisfy its limit."""
    if now == 0:
        return bound
    return ReplicaBounds(0, bound.most - now)


def _mended(
    names: Sequence[str],
    whole: Sequence[int],
    kept: Sequence[int],
    replicas: int,
    bounds: Sequence[ReplicaBounds],
    aggregated: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """Divides the replicas again, because the replicas that a cluster holds violate its bound.
    Returns the number of replicas of each cluster.

    All replicas are divided according to capacity. In a first attempt, each cluster that holds
    replicas gets at least as many as it holds, reduced or raised to its bound. If no division
    satisfies that, a second attempt considers only the bounds.

    `names`, `whole`, `kept`, `bounds`: one entry per cluster, in rank order (best first).
    `whole`: the capacity, which is the replicas that still fit plus the replicas held.
    `kept`: the replicas held.
    `bounds`: a bound allows either 0 replicas or `least` to `most` replicas; if it is `due`, 0 is
      not allowed.
    `replicas`: the number of replicas to place in all clusters together.
    `aggregated`: use as few clusters as possible.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    Returns Shortage if too few replicas fit, Unbounded if no division satisfies the bounds.

    Example: A holds 5 and may have at most 3, B holds 1, 6 replicas are wanted, and there is
    capacity in B: the result is A 3, B 3.
    """
    staying = [
        ReplicaBounds(
            max(bound.least, min(now, bound.most)),
            bound.most,
            bound.due or (now > 0 and bound.most > 0),
        )
        for bound, now in zip(bounds, kept, strict=True)
    ]
    answer = _within_room(
        "mended", {}, names, whole, whole, replicas, staying, (), aggregated, descending, in_order
    )
    if isinstance(answer, Shares):
        return answer
    return _within_room(
        "mended", {}, names, whole, whole, replicas, bounds, (), aggregated, descending, in_order
    )


def _within_room(
    case: Case,
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    room: Sequence[int],
    seats: int,
    bounds: Sequence[ReplicaBounds],
    first: Sequence[int],
    aggregated: bool,
    descending: bool,
    in_order: bool,
) -> Shares | Shortage | Unbounded:
    """Divides `seats` replicas (a seat is one replica) by weight, within the bound and the capacity
    of each cluster, and adds the result to `base`. Returns the number of replicas of each cluster.

    `case`: the name of the case, such as `scale up`; it is only copied into the result.
    `base`: cluster -> replicas that stay where they are.
    `names`, `weights`, `room`, `bounds`: one entry per cluster, in rank order (best first). `room`:
      how many of the `seats` the cluster can take. A bound allows either 0 seats or `least` to
      `most` seats; if it is `due`, 0 is not allowed.
    `first`: indexes of the clusters that Aggregated uses before all other clusters.
    `aggregated`: use few clusters. All clusters are listed: first the clusters in `first` and the
      clusters whose bound is `due`, then all other clusters, both in descending order of weight.
      The shortest beginning of this list for which a division exists is used.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    Returns Shortage if the clusters have less capacity than `seats`, Unbounded if no division
    satisfies the bounds.

    Example: 8 seats, weights and capacities 6, 5 and 4, no bounds. With `aggregated` the result is
    4, 4 and 0. If the first cluster may have at most 2, it is 2, 3 and 3.
    """
    if sum(room) < seats:
        return Shortage(seats, sum(room))
    tight = [
        ReplicaBounds(b.least, min(b.most, fits), b.due)
        for b, fits in zip(bounds, room, strict=True)
    ]
    if any(b.due and b.least > b.most for b in tight):
        cluster = next(
            name for name, b in zip(names, tight, strict=True) if b.due and b.least > b.most
        )
        return Unbounded(f"{cluster} has no room for the least replicas it must have")
    if not aggregated:
        return _among(
            case, base, names, weights, seats, tight, range(len(names)), descending, in_order
        )
    # stable: equal weights stay in rank order
    order = sorted(range(len(names)), key=lambda i: -weights[i])
    ahead = {*first, *(i for i, b in enumerate(tight) if b.due)}
    order = [i for i in order if i in ahead] + [i for i in order if i not in ahead]
    reached = length = 0
    while length < len(order) and (
        reached < seats or any(i in ahead and tight[i].due for i in order[length:])
    ):
        reached += tight[order[length]].most
        length += 1
    while True:  # a cluster more where the leasts of the shortest list do not work out
        answer = _among(
            case, base, names, weights, seats, tight, order[:length], descending, in_order
        )
        if isinstance(answer, Shares) or length == len(order):
            return answer
        length += 1


def _among(
    case: Case,
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[ReplicaBounds],
    chosen: Sequence[int],
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    return _shares(
        case,
        base,
        [names[i] for i in chosen],
        [weights[i] for i in chosen],
        seats,
        [bounds[i] for i in chosen],
        descending,
        in_order,
    )


def _shares(
    case: Case,
    base: Mapping[str, int],
    names: Sequence[str],
    weights: Sequence[int],
    seats: int,
    bounds: Sequence[ReplicaBounds],
    descending: bool,
    in_order: bool,
) -> Shares | Unbounded:
    """Divides `seats` replicas (a seat is one replica) by weight within bounds per cluster, and
    adds the result to `base`. Returns the number of replicas of each cluster.

    `case`: the name of the case, such as `scale up`; it is only copied into the result.
    `base`: cluster -> replicas that stay where they are.
    `names`, `weights`, `bounds`: one entry per cluster, in rank order (best first). A bound allows
      either 0 seats or `least` to `most` seats; if it is `due`, 0 is not allowed.
    `descending`: break ties by descending instead of ascending cluster name.
    `in_order`: instead of using Webster's method, round each exact share down and give out the
      remaining replicas in rank order.

    Returns Unbounded if no division satisfies the bounds.

    Example: `base` A 1; 10 seats by weights A 3, B 1, where A may get at most 6 seats: A 7, B 4.
    """
    given = divide(names, weights, seats, bounds, descending=descending, in_order=in_order)
    if isinstance(given, Unbounded):
        return given
    out = dict(base)
    for name, n in zip(names, given, strict=True):
        if n:
            out[name] = out.get(name, 0) + n
    return Shares(out, case, base, seats, names, weights)
