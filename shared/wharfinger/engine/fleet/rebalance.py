"""Moves between clusters that lower what a RebalancePolicy minds, by enough to be worth moving for. Pure integers.

Of an objective only its change is asked: `off` is what the replicas that would move stand for where they are, `on` what they
would stand for where they would be. `cost`: their price an hour. `load`: of the sum over clusters of used squared by total, which
falls exactly when a fuller cluster gives to an emptier one. `spread`: of the sum over a binding's clusters of its replicas squared.

A move is made of replicas each of which by itself is worth `gain_percent` of what it stands for; so every move lowers a sum that is
never below nothing by at least that much, and on a fleet in which nothing else changes moves come to an end and nothing returns
to where it was. One source and one target a binding and pass: what is better still comes with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.rebalancing import RebalanceObjective
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import largest
from wharfinger.engine.fleet.objective import Place, price_micro
from wharfinger.events.capacity import CapacityEstimated

SCALE = 10**6
"""Of `load`: used squared by total is cut to a millionth of its unit."""

TRIED = 4
"""Of the best sources, and of the best targets, so many are tried for a binding."""

NAMES: dict[RebalanceObjective, str] = {"cost": "cost", "load": "spread", "spread": "even"}
"""What a proposal calls them: `engine.fleet.objective` knows them under these names."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A binding that may be moved. `held`: cluster -> replicas that count. `homes`: clusters that may have some, in order of
    name; `room`: how many more fit there. `request`: of one replica, of `resource`. `prices`: cluster -> of one replica, where it
    is known. `permits`: whether its policy lets it lie so."""

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
    """`replicas` of the binding go from `source` to `target`, so that it lies at `targets`. `off` and `on`: see above."""

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


Fill = Mapping[str, Mapping[str, Place]]
"""Resource -> cluster -> how full it is."""


def rebalanced(
    objective: RebalanceObjective,
    gain_percent: int,
    bindings: Iterable[Movable],
    fill: Fill,
    budgets: Mapping[str, int],
    most: int,
) -> tuple[Relocation, ...]:
    """At most `most` moves, the bindings in the order given, each seen after the moves before it. `budgets`: cluster -> how many
    replicas may leave it."""
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
    places: Mapping[str, Place],
    prices: Mapping[str, int],
) -> tuple[int, int] | None:
    """`off` and `on` of going from `before` to `after`; None: it cannot be told, since a price or a total is not known."""
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
    """Whether it gains anything, and that at least so much of what moves."""
    return on < off and on * 100 <= off * (100 - gain_percent)


def prices_of(
    held: Iterable[str],
    clusters: Mapping[str, tuple[Cluster | None, CapacityEstimated | None]],
    class_key: str,
    requirements: Requirements,
) -> dict[str, int]:
    """Cluster -> what a replica costs there, all of one kind: by what a node for it costs there, where that is known of every
    cluster that holds some; else by the price of a core on the clusters' labels. Empty: it is not known of all that hold some."""
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
    places: Mapping[str, Place],
    left: Mapping[str, int],
) -> Relocation | None:
    for source, target in _pairs(objective, binding, places, left):

        def step(n: int, source: str = source, target: str = target) -> tuple[int, int] | None:
            """Of the n-th replica that goes there."""
            before, after = _moved(binding.held, source, target, n - 1), _moved(binding.held, source, target, n)
            shifted = dict(places)
            _carry(shifted, source, -(n - 1) * binding.request)
            _carry(shifted, target, (n - 1) * binding.request)
            return worth(objective, before, after, binding.request, shifted, binding.prices)

        limit = min(binding.held[source], left.get(source, 0), binding.room.get(target, 0))
        n = (
            largest(0, limit, lambda n: not n or ((found := step(n)) is not None and is_worth(*found, gain_percent)))
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
    objective: RebalanceObjective, binding: Movable, places: Mapping[str, Place], left: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Sources and targets, from where a replica stands for the most to where it would for the least; then by name."""
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
    places: Mapping[str, Place],
    prices: Mapping[str, int],
) -> int | None:
    """Of the sum, when a cluster has so many replicas instead of so many; None: it cannot be told."""
    if objective == "spread":
        return after * after - before * before
    if objective == "cost":
        return (after - before) * prices[name] if name in prices else None
    place = places.get(name)
    if place is None or place.total <= 0:
        return None
    then = place.used + (after - before) * request
    return then * then * SCALE // place.total - place.used * place.used * SCALE // place.total


def _carry(places: dict[str, Place], name: str, amount: int) -> None:
    place = places.get(name)
    if place is not None and amount:
        places[name] = Place(place.used + amount, place.total, place.price_micro)
