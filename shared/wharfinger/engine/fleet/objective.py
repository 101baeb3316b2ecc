"""By what one placement of a binding is better than another. Pure integers, the lower score wins.

`spread` evens out use: the sum over clusters of used squared by total falls exactly when load goes from a fuller cluster to an
emptier one. `pack` counts the clusters the binding lies in. `cost` is what its cores cost an hour, by the price on a
cluster's label. `moves` counts the replicas that would have to start elsewhere: by it, staying is always best. `even` is least
where every cluster of the binding has as many of its replicas as any other: the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.quantities import QuantityError, parse_quantity

Objective = Literal["spread", "pack", "cost", "moves", "even"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

PRICE_LABEL = "wharfinger.io/price-per-core"
"""A cluster's label: what a core costs there an hour, as a decimal number in whatever currency all of them are in."""

_MICRO = 1000


class Place(msgspec.Struct, frozen=True):
    """A cluster as an objective sees it: `used` and `total` of the resource that counts, and the price of a core hour in
    millionths, None where it is not known. `used` is of the present, with what the binding holds there now."""

    used: int
    total: int
    price_micro: int | None = None


def price_micro(cluster: Cluster) -> int | None:
    """What a core costs there an hour, in millionths; None: it does not say, or nothing that is a number."""
    text = cluster.labels.get(PRICE_LABEL)
    if text is None:
        return None
    try:
        return max(0, parse_quantity(text).nanos // _MICRO)
    except QuantityError:
        return None


def score(
    objective: Objective, now: Mapping[str, int], targets: Mapping[str, int], request: int, places: Mapping[str, Place]
) -> int | None:
    """How `targets` do, where `now` is what the binding holds and `request` what a replica asks for. None: it cannot be
    told, since a price or a total is not known. Both placements that are compared need the same `places`."""
    match objective:
        case "spread":
            return _spread(now, targets, request, places)
        case "pack":
            return sum(n > 0 for n in targets.values())
        case "cost":
            return _cost(targets, request, places)
        case "moves":
            return sum(max(0, n - now.get(name, 0)) for name, n in targets.items())
        case "even":
            return sum(n * n for n in targets.values())


def _spread(
    now: Mapping[str, int], targets: Mapping[str, int], request: int, places: Mapping[str, Place]
) -> int | None:
    total = 0
    for name, place in places.items():
        if place.total <= 0:
            return None
        used = place.used + (targets.get(name, 0) - now.get(name, 0)) * request
        total += used * used // place.total
    return total


def _cost(targets: Mapping[str, int], request: int, places: Mapping[str, Place]) -> int | None:
    total = 0
    for name, n in targets.items():
        place = places.get(name)
        if place is None or place.price_micro is None:
            return None
        total += n * request * place.price_micro
    return total // _MICRO
