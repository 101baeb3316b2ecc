"""Computes the objective functions that compare two placements of a binding. Integers; lower is
better.

* `spread`: the sum over clusters of used² / total, which falls exactly when load moves from a
  fuller cluster to an emptier one.
* `pack`: the number of clusters.
* `cost`: the price of the cores per hour, from a label of the cluster.
* `moves`: the number of replicas that have to start in another cluster.
* `even`: the sum of squares of the binding's replicas per cluster, which is least when they are
  equal.
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
"""Cluster label for the price of one core for an hour, as a decimal number. All clusters must use
the same currency."""

_MICRO = 1000


class ObjectiveCluster(msgspec.Struct, frozen=True):
    """Holds a cluster as an objective sees it. `used` and `total`: the amounts of the resource in
    question; `used` includes what the binding uses there now. `price_micro`: the price of a core
    hour in millionths; None: not known."""

    used: int
    total: int
    price_micro: int | None = None


def price_micro(cluster: Cluster) -> int | None:
    """Returns the price of one core for an hour in this cluster, in millionths, from its label.
    None: the cluster has no such label, or it is not a number."""
    text = cluster.labels.get(PRICE_LABEL)
    if text is None:
        return None
    try:
        return max(0, parse_quantity(text).nanos // _MICRO)
    except QuantityError:
        return None


def score(
    objective: Objective,
    now: Mapping[str, int],
    targets: Mapping[str, int],
    request: int,
    places: Mapping[str, ObjectiveCluster],
) -> int | None:
    """Returns the score of an assignment of a binding to clusters, by one objective. Lower is
    better. None: a needed price or total amount is not known.

    The objectives are:

    - `spread`: the sum of used² / total over all clusters, where used includes the replicas of the
      assignment;
    - `pack`: the number of clusters that get replicas;
    - `cost`: the price per hour, in millionths: the sum over the clusters of replicas * request
      (thousandths of a core) * price of a core hour / 1000;
    - `moves`: the number of replicas that have to start in another cluster;
    - `even`: the sum of replicas² over the clusters.

    `now`: cluster -> replicas that the binding holds.
    `targets`: cluster -> replicas of the assignment to score.
    `request`: the amount of one resource that one replica requests.
    `places`: cluster -> price, used amount and total amount of the same resource. The used amount
      includes the replicas in `now`. Scores can be compared only if they were computed with the
      same `places`.

    Example, `even`: 4 and 1 replicas score 16 + 1 = 17, 3 and 2 replicas score 9 + 4 = 13.
    """
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
    now: Mapping[str, int],
    targets: Mapping[str, int],
    request: int,
    places: Mapping[str, ObjectiveCluster],
) -> int | None:
    total = 0
    for name, place in places.items():
        if place.total <= 0:
            return None
        used = place.used + (targets.get(name, 0) - now.get(name, 0)) * request
        total += used * used // place.total
    return total


def _cost(
    targets: Mapping[str, int], request: int, places: Mapping[str, ObjectiveCluster]
) -> int | None:
    total = 0
    for name, n in targets.items():
        place = places.get(name)
        if place is None or place.price_micro is None:
            return None
        total += n * request * place.price_micro
    return total // _MICRO
