"""Finds moves between clusters that lower the objective of a RebalancePolicy by at least its gain:
greedy local search over integers.

Only the change of an objective is computed. `off` is the value of the moving replicas at the
source, `on` their value at the destination. For `cost` this value is their price per hour. For
`load` it is their part of the sum over clusters of used² / total. For `spread` it is their part of
the sum over a binding's clusters of replicas².

Every replica of a move must gain at least `gain_percent` of its value. Each move lowers a sum that
is never negative by at least that much, so on an otherwise unchanged fleet the moves end, and no
replica returns. One source and one destination per binding and pass; further improvements follow in
the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.rebalancing import RebalanceObjective
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.objective import ObjectiveCluster, price_micro
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.rules.changes import largest

SCALE = 10**6
"""Precision of `load`: used² / total is rounded down to a millionth."""

TRIED = 4
"""How many of the best sources, and how many of the best destinations, are tried for a binding."""

NAMES: dict[RebalanceObjective, str] = {"cost": "cost", "load": "spread", "spread": "even"}
"""Objective of a rebalance policy -> its name in `engine.fleet.objective`, which proposals use."""


@dataclass(frozen=True, slots=True)
class Movable:
    """Holds a binding that a rebalance may move.

    `held`: cluster -> replicas.
    `homes`: the clusters that may get replicas, in order of name; `room`: how many more replicas
      fit into each.
    `request`: the amount of `resource` that one replica requests.
    `prices`: cluster -> price of one replica, where known.
    `permits`: returns whether the policy allows an assignment.
    """

    name: str
    held: Mapping[str, int]
    homes: Sequence[str]
    room: Mapping[str, int]
    request: int = 0
    resource: str = "cpu"
    prices: Mapping[str, int] = field(default_factory=dict)
    permits: Callable[[Mapping[str, int]], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Relocation:
    """Holds one move: `replicas` of the binding go from `source` to `target`. `targets`: the whole
    assignment after the move. `off`: how much the objective falls at the source. `on`: how much it
    rises at the destination."""

    name: str
    source: str
    target: str
    replicas: int
    targets: Mapping[str, int]
    off: int
    on: int

    @property
    def gain(self) -> int:
        return self.off - self.on


Fill = Mapping[str, Mapping[str, ObjectiveCluster]]
"""Resource -> cluster -> its used and total amount of the resource."""


def rebalanced(
    objective: RebalanceObjective,
    gain_percent: int,
    bindings: Iterable[Movable],
    fill: Fill,
    budgets: Mapping[str, int],
    most: int,
) -> tuple[Relocation, ...]:
    """Finds up to `most` moves of replicas between clusters that lower an objective, and returns
    the moves. The search is greedy: one binding after the other, at most one move for each binding.

    `objective`: `cost` (the price of the replicas), `load` (the sum of used² / total over all
      clusters) or `spread` (the sum of replicas² over the clusters of each binding).
    `gain_percent`: the minimum gain of a move. A move is permitted if on < off and
      on <= off * (100 - `gain_percent`) / 100, where off is the decrease of the objective at the
      source, and on is the increase at the destination. Both must hold for all moved replicas
      together, and for the last moved replica alone.
    `bindings`: the bindings that may be moved, in the order in which they are tried.
    `fill`: resource -> cluster -> used and total amount at present.
    `budgets`: cluster -> how many replicas may leave it.

    Bindings that are tried later see `fill` and `budgets` as changed by the moves before.

    Example, `cost` and a gain of 10 percent: a replica costs 100 at the source. It may go to a
    cluster where it costs 90, but not to one where it costs 95.
    """
    left = dict(budgets)
    now = {resource: dict(places) for resource, places in fill.items()}
    made: list[Relocation] = []
    for binding in bindings:
        if len(made) >= most:
            break
        move = _best(objective, gain_percent, binding, now.get(binding.resource, {}), left)
        if move is not None:
            made.append(move)
            left[move.source] -= move.replicas
            places = now.get(binding.resource, {})
            _carry(places, move.source, -move.replicas * binding.request)
            _carry(places, move.target, move.replicas * binding.request)
    return tuple(made)


def worth(
    objective: RebalanceObjective,
    before: Mapping[str, int],
    after: Mapping[str, int],
    request: int,
    places: Mapping[str, ObjectiveCluster],
    prices: Mapping[str, int],
) -> tuple[int, int] | None:
    """Computes how much an objective changes between two assignments of one binding. Returns two
    numbers: `off`, the sum of the decreases over all clusters, and `on`, the sum of the increases.
    None: a price or total amount is not known.

    `objective`: `cost` (the price of the replicas), `load` (used² / total of each cluster, in
      millionths) or `spread` (replicas² of each cluster).
    `before`, `after`: cluster -> replicas.
    `request`: the amount of the resource that one replica requests.
    `places`: cluster -> used and total amount, for the assignment `before`.
    `prices`: cluster -> price of one replica.

    Example, objective `spread`: 4 and 1 replicas become 3 and 2. The first cluster goes from 16 to
    9, the second from 1 to 4, so `off` is 7 and `on` is 3.
    """
    off = on = 0
    for name in sorted({*before, *after}):
        n, then = before.get(name, 0), after.get(name, 0)
        if n == then:
            continue
        change = _change(objective, name, n, then, request, places, prices)
        if change is None:
            return None
        off, on = off + max(0, -change), on + max(0, change)
    return off, on


def is_worth(off: int, on: int, gain_percent: int) -> bool:
    """Returns whether a change lowers the objective, and by at least `gain_percent` of `off`."""
    return on < off and on * 100 <= off * (100 - gain_percent)


def prices_of(
    held: Iterable[str],
    clusters: Mapping[str, tuple[Cluster | None, CapacityEstimated | None]],
    class_key: str,
    requirements: Requirements,
) -> dict[str, int]:
    """Returns cluster -> price of one replica in that cluster. All prices come from one source, so
    that they can be compared.

    The first source is the published capacity of each cluster: the price of one replica of the
    class on nodes that node pools could add. The second source is the cluster's label for the price
    per core, times the CPU request. The first source that has a price for every cluster in `held`
    is used. Empty: neither source has all of these prices.

    `held`: the clusters that hold replicas of the binding.
    `clusters`: cluster -> its facts and its published capacity, each None if not known.
    `class_key`, `requirements`: the class of the replicas, and what one replica requests.

    Example: A holds replicas; A and B have a price label, only B publishes a price for new nodes.
    The prices of A and B by label are returned.
    """
    by_node = {
        name: counted.price_of[class_key]
        for name, (_, counted) in clusters.items()
        if counted is not None and class_key in counted.price_of
    }
    cpu = requirements.requests.get("cpu", 0)
    by_core = {
        name: cpu * price
        for name, (facts, _) in clusters.items()
        if facts is not None and (price := price_micro(facts)) is not None
    }
    held = list(held)
    return next((known for known in (by_node, by_core) if all(name in known for name in held)), {})


# One binding


def _best(
    objective: RebalanceObjective,
    gain_percent: int,
    binding: Movable,
    places: Mapping[str, ObjectiveCluster],
    left: Mapping[str, int],
) -> Relocation | None:
    """Finds the best move of one binding from a source cluster to a destination cluster; None:
    there is no move with enough gain.

    The pairs of `_pairs` (source, destination) are tried in order, most promising first. For each
    pair, a binary search finds the largest number of replicas for which the last replica to move
    still gains enough. The number is bounded by the replicas held at the source, by the budget of
    the source and by the capacity of the destination. It is reduced until the policy permits the
    resulting assignment. The first pair with a move that gains enough in total is used.

    `gain_percent`: the minimum gain, in percent of the decrease of the objective at the source.
    `places`: cluster -> used and total amount.
    `left`: cluster -> how many replicas may still leave it.

    Example, `spread`, a gain of at least 10 percent: 5 replicas in A, 1 in B. The first replica
    lowers A from 25 to 16 and raises B from 1 to 4. The second lowers A from 16 to 9 and raises B
    from 4 to 9. A third would lower A from 9 to 4 and raise B from 9 to 16, so 2 replicas move.
    """
    for source, target in _pairs(objective, binding, places, left):

        def step(n: int, source: str = source, target: str = target) -> tuple[int, int] | None:
            """Returns (`off`, `on`) of the n-th moved replica, after n - 1 have moved."""
            before, after = (
                _moved(binding.held, source, target, n - 1),
                _moved(binding.held, source, target, n),
            )
            shifted = dict(places)
            _carry(shifted, source, -(n - 1) * binding.request)
            _carry(shifted, target, (n - 1) * binding.request)
            return worth(objective, before, after, binding.request, shifted, binding.prices)

        limit = min(binding.held[source], left.get(source, 0), binding.room.get(target, 0))
        n = (
            largest(
                0,
                limit,
                lambda n: (
                    not n or ((found := step(n)) is not None and is_worth(*found, gain_percent))
                ),
            )
            or 0
        )
        while n and not binding.permits(_moved(binding.held, source, target, n)):
            n -= 1 if n <= TRIED else n // 2
        if n:
            targets = _moved(binding.held, source, target, n)
            total = worth(objective, binding.held, targets, binding.request, places, binding.prices)
            if total is not None and is_worth(*total, gain_percent):
                return Relocation(binding.name, source, target, n, targets, *total)
    return None


def _pairs(
    objective: RebalanceObjective,
    binding: Movable,
    places: Mapping[str, ObjectiveCluster],
    left: Mapping[str, int],
) -> Iterator[tuple[str, str]]:
    """Yields the pairs (source cluster, destination cluster) for a move of one binding, most
    promising first.

    Sources are clusters that hold replicas and have budget in `left`. They are ordered by how much
    the objective falls if one replica leaves, largest first. Destinations are clusters with
    capacity for more replicas. They are ordered by how much the objective rises if one replica
    arrives, smallest first. Ties: the first name. The best `TRIED` sources are combined with the
    best `TRIED` destinations. Clusters without a known price or total amount are left out.

    `places`: cluster -> used and total amount.
    `left`: cluster -> how many replicas may still leave it.

    Example, `cost`: A (price 10) and B (price 6) hold replicas; C (price 4) and B have capacity.
    The pairs are (A, C), (A, B), (B, C).
    """
    off: list[tuple[int, str]] = []
    on: list[tuple[int, str]] = []
    for name, n in binding.held.items():
        change = _change(objective, name, n, n - 1, binding.request, places, binding.prices)
        if n > 0 and left.get(name, 0) > 0 and change is not None:
            off.append((change, name))
    for name in binding.homes:
        n = binding.held.get(name, 0)
        change = _change(objective, name, n, n + 1, binding.request, places, binding.prices)
        if binding.room.get(name, 0) > 0 and change is not None:
            on.append((change, name))
    for _, source in sorted(off)[:TRIED]:
        for _, target in sorted(on)[:TRIED]:
            if source != target:
                yield source, target


def _moved(held: Mapping[str, int], source: str, target: str, n: int) -> dict[str, int]:
    targets = dict(held)
    targets[source] -= n
    targets[target] = targets.get(target, 0) + n
    return {name: count for name, count in sorted(targets.items()) if count > 0}


def _change(
    objective: RebalanceObjective,
    name: str,
    before: int,
    after: int,
    request: int,
    places: Mapping[str, ObjectiveCluster],
    prices: Mapping[str, int],
) -> int | None:
    """Returns how much the objective rises if the cluster `name` goes from `before` to `after`
    replicas of a binding; negative if it falls. None: the cluster's price or total amount is not
    known.

    - `spread`: after² - before².
    - `cost`: (after - before) * price of one replica.
    - `load`: the change of used² / total, in millionths.

    `request`: the amount of the resource that one replica requests.
    `places`: cluster -> used and total amount, with `before` replicas.
    `prices`: cluster -> price of one replica.

    Example: from 4 to 3 replicas `spread` is 9 - 16 = -7. With a price of 10, `cost` is -10.
    """
    if objective == "spread":
        return after * after - before * before
    if objective == "cost":
        return (after - before) * prices[name] if name in prices else None
    place = places.get(name)
    if place is None or place.total <= 0:
        return None
    then = place.used + (after - before) * request
    return then * then * SCALE // place.total - place.used * place.used * SCALE // place.total


def _carry(places: dict[str, ObjectiveCluster], name: str, amount: int) -> None:
    place = places.get(name)
    if place is not None and amount:
        places[name] = ObjectiveCluster(place.used + amount, place.total, place.price_micro)
