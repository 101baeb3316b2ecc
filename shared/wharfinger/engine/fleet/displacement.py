"""Computes a bound: how many places of one class do replicas of other classes take, while their
nodes are not known yet?

A *place* is the capacity for one replica of a class. The estimator counts places node by node, for
each class alone. A replica that is assigned afterwards takes places of all classes, and how many
depends on its node.

The bound: if k replicas of other classes go to n nodes, each node loses at most the part of a place
that they use, rounded up. That part is the maximum over the resources. So at most the sum of all
parts is lost, and one more place for each node that got a replica; these are at most min(k, n)
nodes. The estimate less this bound is a lower bound of the free places; the totals give the upper
bound. The number of pods that a node may run is left to the totals, because nodes usually allow
more pods than they have.

Example: on 4 nodes, 10 replicas of 2 CPUs fit. 3 replicas of 500m are assigned, which use 0.75 of a
place together. Each may have made one place unusable, so 7 places are certain. 40 replicas of 500m
use 10 places together: then no place is certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.binding import Component
from wharfinger.engine.fleet.estimate import Demand, demand_of

WHOLE = 1_000_000
"""One whole place: parts of a place are counted in millionths."""

_NONE_KNOWN: Mapping[str, int] = {}


@dataclass(slots=True)
class Displaced:
    """Counts the places of one class that were taken since its estimate was made.

    `same`: places taken by replicas of the class itself, one each.
    `others`: the number of replicas of other classes.
    `rounded`: the places that these take if each replica is rounded up to whole places.
    `millionths`: the sum of the parts of a place that these use.
    """

    same: int = 0
    others: int = 0
    rounded: int = 0
    millionths: int = 0

    def add(self, taken: Demand, wanted: Demand, times: int) -> None:
        """Adds `times` replicas of another class. Each takes the resources `taken`; one place is
        `wanted`. Replicas that use no resource of `wanted` are not counted."""
        self.add_share(proportion(taken, wanted), times)

    def add_share(self, share: int, times: int) -> None:
        """Adds `times` replicas of another class, each of which uses `share` millionths of a
        place."""
        if share > 0:
            self.others += times
            self.rounded += times * -(-share // WHOLE)
            self.millionths += times * share

    def add_classes(
        self,
        wanted_key: str,
        wanted: Demand,
        taken: Iterable[tuple[str, Demand, int]],
        proportions: Proportions,
    ) -> None:
        """Adds replicas of many classes: key of the class, what one replica takes, how many
        replicas. As `add_share` of each, but for the class `wanted_key` itself, which is left
        out."""
        known = proportions.known(wanted_key)
        others = rounded = millionths = 0
        for key, demand, times in taken:
            if key == wanted_key:
                continue
            share = known.get(key)
            if share is None:
                share = proportions.of(wanted_key, wanted, key, demand)
            if share > 0:
                others += times
                rounded += times * -(-share // WHOLE)
                millionths += times * share
        self.others += others
        self.rounded += rounded
        self.millionths += millionths

    def add_sets(self, components: Sequence[Component], wanted: Demand, times: int) -> None:
        for demand, replicas in _parts(components):
            self.add(demand, wanted, times * replicas)

    def places(self, nodes: int) -> int:
        """Returns an upper bound of the places taken on `nodes` nodes. `nodes`: how many nodes the
        replicas may have gone to."""
        spoilt = -(-self.millionths // WHOLE) + min(self.others, nodes)
        return self.same + min(self.rounded, spoilt)


class Proportions:
    """Remembers `proportion` for pairs of classes, by their keys. The key of a class determines its
    demand. At most `most` numbers are kept; then all are forgotten."""

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._left = most
        self._of: dict[str, dict[str, int]] = {}

    def known(self, wanted_key: str) -> Mapping[str, int]:
        """Returns the numbers of `of` for this wanted class that are remembered now, by the key of
        the class that takes. For loops over many replicas, most of which are of a known class."""
        return self._of.get(wanted_key, _NONE_KNOWN)

    def of(self, wanted_key: str, wanted: Demand, taken_key: str, taken: Demand) -> int:
        """Returns `proportion(taken, wanted)`."""
        known = self._of.get(wanted_key)
        share = None if known is None else known.get(taken_key)
        if share is None:
            if not self._left:
                self._of.clear()
                self._left = self._most
            share = proportion(taken, wanted)
            self._of.setdefault(wanted_key, {})[taken_key] = share
            self._left -= 1
        return share


def proportion(taken: Demand, wanted: Demand) -> int:
    """Returns how much of the room for one replica of the class `wanted` is used by one replica of
    the class `taken`, in millionths, rounded up. For each resource this is (request of `taken`) /
    (request of `wanted`); the maximum over all resources is returned. It can be above 1,000,000.

    Resources that `wanted` does not request are ignored. Devices are counted in pieces: a piece is
    the share of a device that `wanted` requests. Each device that `taken` requests counts as
    (share of `taken`) / (share of `wanted`) pieces, rounded up. Each piece counts as 1,000,000.

    Example: `taken` requests 500m CPU and `wanted` 2 CPUs: 250,000. If `taken` also requests half a
    GPU and `wanted` a quarter, 2 pieces are used: 2,000,000.
    """
    given = dict(taken.amounts)
    most = 0
    for name, amount in wanted.amounts:
        if (used := given.get(name, 0)) > 0:
            most = max(most, -(-used * WHOLE // amount))
    for device in wanted.devices:
        kind, milli = device.pool[0], device.milli
        slots = sum([d.count * -(-d.milli // milli) for d in taken.devices if d.pool[0] == kind])
        most = max(most, slots * WHOLE)
    return most


def _parts(components: Sequence[Component]) -> Iterator[tuple[Demand, int]]:
    for component in components:
        if component.replicas > 0:
            yield demand_of(component.requirements), component.replicas
