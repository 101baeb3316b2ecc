"""How many more replicas of a class fit into each known cluster, kept as a column over the clusters in order of name.

What a cluster holds is said once, in `ClusterState`; a column repeats `ClusterState.estimate` for all clusters and is brought up
to date only where something was touched. There are two kinds with one meaning. In a small fleet a column is a list of ints, and
a touched cluster is asked again. In a large one it is an array: the room of all clusters lies in one matrix (`Rooms`), a decision
over many clusters is deducted from it at once, and a column is the least of what its class may still get (`ceilings`) and the
quotients of the rooms. Where arrays cannot tell (devices, which are no sum; amounts beyond 64 bits) the cluster is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wharfinger.engine.fleet.estimate import NO_BOUND, PODS, Demand
from wharfinger.stages.fleet.clusters import UNLIMITED, ClusterState
from wharfinger.stages.fleet.quota_room import Claim

FEW = 48
"""A fleet of fewer clusters is counted in lists: below, an array costs more to touch than it saves."""

Array = NDArray[np.int64]

Values = list[int] | Array

SAFE = 2**61
"""Amounts beyond this are not held in arrays, so that no arithmetic on them leaves 64 bits."""

SAFE_STEP = 2**56
"""What one decision may deduct from a cluster in an array."""

TAKES_LENGTH = 512
"""So many decisions over clusters are remembered one by one; a column that is further behind is counted whole."""


@dataclass(slots=True)
class Column:
    """`values`: list[int], or int64[clusters]; replaced, not written into, when they change. `seen`: up to which touch they are
    counted; `total`: their sum; `unlimited`: whether some cluster has no bound. `claim`: within whose quotas; None: of nobody's.

    Of arrays only: `ceilings`, int64[clusters], see `ClusterState.ceiling`, None where clusters are asked one by one; `takes_seen`:
    up to which decision over clusters they are counted.
    """

    demand: Demand
    claim: Claim | None
    layout: int
    seen: int
    values: Values
    total: int = 0
    unlimited: bool = False
    ceilings: Array | None = None
    takes_seen: int = 0

    @property
    def plain(self) -> bool:
        """Whether the cluster itself is asked wherever something was touched."""
        return (
            self.claim is not None
            or bool(self.demand.devices)
            or any(amount > SAFE for _, amount in self.demand.amounts)
        )

    def offer(self, positions: list[int] | Array) -> int:
        """What fits into these clusters together."""
        values = self.values
        return sum([values[i] for i in positions]) if isinstance(values, list) else int(values[positions].sum())

    def take(self, layout: int, positions: Array, replicas: Array) -> None:
        """The class itself got replicas there: so many fewer are left of what was counted."""
        ceilings = self.ceilings
        if ceilings is not None and layout == self.layout:
            rest = ceilings[positions]
            ceilings[positions] = np.where(rest == NO_BOUND, rest, rest - replicas)

    def add_up(self) -> None:
        values = self.values
        if isinstance(values, list):
            self.total, self.unlimited = sum(values), UNLIMITED in values
        else:
            self.total, self.unlimited = int(values.sum()), bool((values == UNLIMITED).any())


@dataclass(slots=True)
class Rooms:
    """What every cluster has left. `left`: resource -> int64[clusters], in the units of `domain.resources`, 0 where a cluster does
    not name it. `pods`: int64[clusters], NO_BOUND where pods are not counted, as `counts_pods` says. `odd`: clusters whose amounts
    are too large for arrays. `stale`: clusters whose row is no longer right.
    """

    size: int
    left: dict[str, Array] = field(default_factory=dict)
    pods: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    counts_pods: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    odd: dict[int, None] = field(default_factory=dict)
    stale: dict[int, None] = field(default_factory=dict)

    @classmethod
    def of(cls, order: Sequence[ClusterState]) -> Rooms:
        size = len(order)
        rooms = cls(size, {}, np.full(size, NO_BOUND, np.int64), np.zeros(size, np.bool_))
        for position, cluster in enumerate(order):
            rooms._write(position, cluster)
        return rooms

    def catch_up(self, order: Sequence[ClusterState]) -> None:
        for position in self.stale:
            self._write(position, order[position])
        self.stale.clear()

    def _write(self, position: int, cluster: ClusterState) -> None:
        room = cluster.room
        self.odd.pop(position, None)
        amounts = {} if room is None else room.left
        for name in amounts:
            if name not in self.left:
                self.left[name] = np.zeros(self.size, np.int64)
        for name, column in self.left.items():
            amount = amounts.get(name, 0)
            if -SAFE < amount < SAFE:
                column[position] = amount
            else:
                self.odd[position] = None
        self.counts_pods[position] = PODS in amounts
        if PODS in amounts and position not in self.odd:
            self.pods[position] = amounts[PODS]
        else:
            self.pods[position] = NO_BOUND

    def take(self, demand: Demand, positions: Array, replicas: Array) -> None:
        """`replicas[i]` more are taken from the cluster at `positions[i]`; no cluster is named twice."""
        most = int(replicas.max())
        steps = (*demand.amounts, ("", demand.pods))
        if any(name == PODS or most * amount > SAFE_STEP for name, amount in steps):
            self.stale.update(dict.fromkeys(positions.tolist()))
            return
        lowest = 0
        for name, amount in demand.amounts:
            column = self.left.get(name)
            if column is None:
                column = self.left[name] = np.zeros(self.size, np.int64)
            rest = column[positions] - replicas * amount
            column[positions] = rest
            lowest = min(lowest, int(rest.min()))
        if demand.is_pod:
            self.pods[positions] -= replicas * demand.pods * self.counts_pods[positions]
        if lowest <= -SAFE:
            self.stale.update(dict.fromkeys(positions.tolist()))

    def fit(self, demand: Demand, ceilings: Array, at: Array | None) -> Array:
        """The estimates of a class whose clusters may get at most `ceilings`; `at`: only of these clusters."""
        fits = ceilings.copy() if at is None else ceilings[at]
        for name, amount in demand.amounts:
            column = self.left.get(name)
            if column is None:
                return np.zeros(len(fits), np.int64)
            np.minimum(fits, (column if at is None else column[at]) // amount, out=fits)
        if demand.is_pod:
            pods, counts = (self.pods, self.counts_pods) if at is None else (self.pods[at], self.counts_pods[at])
            np.minimum(fits, pods if demand.pods == 1 else np.where(counts, pods // demand.pods, NO_BOUND), out=fits)
        np.maximum(fits, 0, out=fits)
        if fits.size and int(fits.max()) >= UNLIMITED:
            unbounded = fits == NO_BOUND
            np.minimum(fits, UNLIMITED - 1, out=fits)
            fits[unbounded] = UNLIMITED
        return fits


def counted(
    class_key: str, demand: Demand, claim: Claim | None, order: Sequence[ClusterState], rooms: Rooms | None
) -> Column:
    """A column made afresh. `rooms`: None in a small fleet."""
    if rooms is None:
        return Column(demand, claim, 0, 0, [c.estimate(class_key, demand, claim) for c in order])
    column = Column(demand, claim, 0, 0, np.zeros(0, np.int64))
    if column.plain:
        column.values = np.array([c.estimate(class_key, demand, claim) for c in order], np.int64)
        return column
    column.ceilings = np.array([_within(c.ceiling(class_key, demand)) for c in order], np.int64)
    column.values = rooms.fit(demand, column.ceilings, None)
    _ask_the_odd(column, class_key, order, rooms)
    return column


def recount_list(column: Column, class_key: str, order: Sequence[ClusterState], touched: Iterable[int]) -> bool:
    """Ask the touched clusters again; whether any value changed."""
    values, demand, claim, changed = column.values, column.demand, column.claim, False
    assert isinstance(values, list)
    for position in touched:
        n = order[position].estimate(class_key, demand, claim)
        if n != values[position]:
            if not changed:
                values = column.values = values.copy()
                changed = True
            values[position] = n
    return changed


def same(values: Values | None, others: Values) -> bool:
    """Whether two columns' values are equal; those that are one object are known to be."""
    if values is None or values is others:
        return values is others
    if isinstance(values, list) and isinstance(others, list):
        return values == others
    return np.array_equal(values, others)


def recount_array(
    column: Column,
    class_key: str,
    order: Sequence[ClusterState],
    rooms: Rooms,
    touched: Iterable[int],
    taken: Sequence[Array] | None,
) -> bool:
    """`touched`: clusters of which anything may have changed; `taken`: those that only got replicas (None: perhaps all)."""
    old, demand = column.values, column.demand
    assert isinstance(old, np.ndarray)
    values = old.copy()
    ceilings = column.ceilings
    whole = taken is None or 2 * sum(len(t) for t in taken) > len(order)
    if ceilings is None:
        again = dict.fromkeys(range(len(order)) if whole else touched)
        for positions in taken or ():
            again.update(dict.fromkeys(positions.tolist()))
        for position in again:
            values[position] = order[position].estimate(class_key, demand, column.claim)
    else:
        if whole:
            values = rooms.fit(demand, ceilings, None)
        elif taken:
            at = np.concatenate(taken)
            values[at] = rooms.fit(demand, ceilings, at)
        for position in touched:
            ceilings[position] = _within(order[position].ceiling(class_key, demand))
            values[position] = order[position].estimate(class_key, demand)
        column.values = values
        _ask_the_odd(column, class_key, order, rooms)
    column.values = values
    return not np.array_equal(old, values)


def _ask_the_odd(column: Column, class_key: str, order: Sequence[ClusterState], rooms: Rooms) -> None:
    for position in rooms.odd:
        column.values[position] = order[position].estimate(class_key, column.demand)


def _within(ceiling: int) -> int:
    """As an array can hold it: what is cut is above everything that makes a difference."""
    return ceiling if ceiling == NO_BOUND else max(-SAFE, min(SAFE, ceiling))
