"""Holds the estimates of a class for all clusters as a column, in order of cluster name, updated
incrementally.

`ClusterState.estimate` defines each value, and a column is updated only for the clusters that
changed. There are two representations. In a small fleet a column is a list of ints, and each
changed cluster is computed again. In a large fleet it is an array: the free amounts of all clusters
are one matrix (`Rooms`), a decision over many clusters is one subtraction, and a column is the
minimum of the class's limits (`ceilings`) and the quotients of the free amounts. Where arrays are
not exact (devices, amounts beyond 64 bits), the cluster is computed alone by
`ClusterState.estimate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wharfinger.engine.fleet.estimate import NO_BOUND, PODS, Demand
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state.clusters import UNLIMITED, ClusterState

FEW = 48
"""A fleet of fewer clusters uses lists, because arrays are slower there."""

MANY = 16
"""So many changed clusters or more are written into arrays together. For fewer, one assignment each
is faster."""

EMPTY: dict[str, int] = {}

Array = NDArray[np.int64]

Values = list[int] | Array

SAFE = 2**61
"""Amounts beyond this are not held in arrays, so that no arithmetic on them leaves 64 bits."""

SAFE_STEP = 2**56
"""The largest amount that one decision may deduct from a cluster in an array."""

DEDUCTIONS_KEPT = 512
"""How many decisions the deduction log keeps. A column that is further behind is computed again for
all clusters."""


@dataclass(slots=True)
class EstimateColumn:
    """Holds the estimates of one class (and claim) for all clusters, in order of cluster name, with
    what is needed to update them.

    `demand`: what one replica of the class takes.
    `claim`: the namespace and priority class whose quotas apply; None: no quota applies.
    `cluster_set_version`: the version of the set of clusters that the positions refer to.
    `seen`: the position in the touch log up to which the column is current.
    `values`: list[int], or int64 array of shape (clusters,); the number of replicas that fit.
    Replaced on a change, never changed in place.
    `unlimited`: some cluster has no bound.
    `ceilings` (arrays only): int64 of shape (clusters,), see `ClusterState.ceiling`, changed in
    place; None where the clusters are computed one by one (`plain`).
    `deductions_seen` (arrays only): the position in the deduction log.
    `certain`: `young` -> (`seen` and `deductions_seen`, numbers), see
    `Estimates.certain_everywhere`.
    """

    demand: Demand
    claim: Claim | None
    cluster_set_version: int
    seen: int
    values: Values
    unlimited: bool = False
    ceilings: Array | None = None
    deductions_seen: int = 0
    certain: dict[bool, tuple[tuple[int, int], list[int]]] = field(default_factory=dict)
    _total: int | None = None

    @property
    def total(self) -> int:
        """Return the sum of `values`. It is computed when it is read: most decisions need the sum
        over the feasible clusters only."""
        if self._total is None:
            values = self.values
            self._total = sum(values) if isinstance(values, list) else int(values.sum())
        return self._total

    @property
    def plain(self) -> bool:
        """Return whether changed clusters are computed one by one. Array arithmetic cannot express
        a class with a claim, with devices, or with amounts above `SAFE`."""
        return (
            self.claim is not None
            or bool(self.demand.devices)
            or any(amount > SAFE for _, amount in self.demand.amounts)
        )

    def offer(self, positions: list[int] | Array) -> int:
        """Return the sum of the estimates at `positions`: how many replicas these clusters can take
        together."""
        values = self.values
        return (
            sum([values[i] for i in positions])
            if isinstance(values, list)
            else int(values[positions].sum())
        )

    def take(self, cluster_set_version: int, positions: Array, replicas: Array) -> None:
        """Deduct replicas of the column's own class from its ceilings, in place: `replicas[i]` from
        the ceiling at `positions[i]`. `positions`, `replicas`: int64, one element for each cluster.
        A ceiling of NO_BOUND stays. Nothing happens where `cluster_set_version` differs from the
        column's."""
        ceilings = self.ceilings
        if ceilings is not None and cluster_set_version == self.cluster_set_version:
            rest = ceilings[positions]
            if int(rest.max()) == NO_BOUND:
                ceilings[positions] = np.where(rest == NO_BOUND, rest, rest - replicas)
            else:
                ceilings[positions] = rest - replicas

    def values_changed(self) -> None:
        """Update what is derived from `values`. No value is above UNLIMITED."""
        values = self.values
        self._total = None
        self.unlimited = (
            UNLIMITED in values
            if isinstance(values, list)
            else int(values.max(initial=0)) == UNLIMITED
        )


@dataclass(slots=True)
class Rooms:
    """Holds the free amounts of all clusters as arrays, one for each resource, for the estimates of
    a large fleet. With them a decision over many clusters is one subtraction.

    `size`: the number of clusters. The position of a cluster in an array is its position in order
    of name.
    `left`: resource -> int64 (clusters,), the free amount in the units of `domain.resources`; 0
    where a cluster does not report the resource.
    `pods`: int64 (clusters,), how many more pods fit; NO_BOUND where the cluster reports no pod
    capacity.
    `counts_pods`: bool (clusters,), whether the cluster reports pod capacity.
    `odd`: positions of clusters with amounts too large for arrays, which are computed one by one.
    `stale`: positions whose amounts are outdated.
    `deducted`: an upper bound of what decisions deducted from any amount since all were read.
    """

    size: int
    left: dict[str, Array] = field(default_factory=dict)
    pods: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    counts_pods: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    odd: dict[int, None] = field(default_factory=dict)
    stale: dict[int, None] = field(default_factory=dict)
    deducted: int = 0

    @classmethod
    def of(cls, order: Sequence[ClusterState]) -> Rooms:
        size = len(order)
        rooms = cls(size, {}, np.full(size, NO_BOUND, np.int64), np.zeros(size, np.bool_))
        if not rooms._write_many([*range(size)], order):
            for position, cluster in enumerate(order):
                rooms._write(position, cluster)
        return rooms

    def catch_up(self, order: Sequence[ClusterState]) -> None:
        if len(self.stale) < MANY or not self._write_many([*self.stale], order):
            for position in self.stale:
                self._write(position, order[position])
        self.stale.clear()

    def _write_many(self, positions: list[int], order: Sequence[ClusterState]) -> bool:
        """As `_write` for each of these positions, by one assignment for each resource. Return
        False, with some of them written, where an amount is too large for arrays."""
        rooms = [order[position].room for position in positions]
        lefts = [EMPTY if room is None else room.left for room in rooms]
        for left in lefts:
            for name in left:
                if name not in self.left:
                    self.left[name] = np.zeros(self.size, np.int64)
        at = np.array(positions, np.int64)
        for name, column in self.left.items():
            amounts = [left.get(name, 0) for left in lefts]
            if min(amounts) <= -SAFE or max(amounts) >= SAFE:
                return False
            column[at] = amounts
        self.counts_pods[at] = [PODS in left for left in lefts]
        self.pods[at] = [left.get(PODS, NO_BOUND) for left in lefts]
        if self.odd:
            for position in positions:
                self.odd.pop(position, None)
        return True

    def write(self, position: int, cluster: ClusterState) -> bool:
        """Write the amounts of one cluster after a new count. Return False where an amount is too
        large for arrays."""
        self._write(position, cluster)
        self.stale.pop(position, None)
        return position not in self.odd

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

    def take(self, demand: Demand, positions: Array, replicas: Array, most: int) -> None:
        """Deduct replicas from the free amounts of clusters, in place: `replicas[i]` times the
        `demand` (what one replica takes) from the cluster at `positions[i]`. Example: 3 replicas
        with 2 CPUs each reduce 10 free CPUs to 4.

        `positions` (all different) and `replicas` are int64 arrays with one element for each
        cluster. `most`: the largest of `replicas`. Where an amount could leave the range of 64-bit
        integers, the amounts of clusters are marked as `stale`, and read again later: those of
        these clusters after too large a step, those of all clusters after too many steps.
        """
        step = most * max([demand.pods, *[amount for _, amount in demand.amounts]])
        if step > SAFE_STEP or any(name == PODS for name, _ in demand.amounts):
            self.stale.update(dict.fromkeys(positions.tolist()))
            return
        self.deducted += step
        if self.deducted >= SAFE:  # from -SAFE, so that amounts stay above -2 * SAFE
            self.deducted = 0
            self.stale.update(dict.fromkeys(range(self.size)))
            return
        for name, amount in demand.amounts:
            column = self.left.get(name)
            if column is None:
                column = self.left[name] = np.zeros(self.size, np.int64)
            column[positions] -= replicas * amount
        if demand.is_pod:
            self.pods[positions] -= replicas * demand.pods * self.counts_pods[positions]

    def fit(self, demand: Demand, ceilings: Array, at: Array | None) -> Array:
        """Compute how many replicas of a class fit in each cluster: the minimum of the upper bound
        of the cluster and of free amount // requested amount over all resources, at least 0.
        Example: 10 CPUs and 12 GiB are free, a replica requests 2 CPUs and 4 GiB: min(5, 3) = 3.

        `demand`: what one replica takes. `ceilings`: int64[clusters], the upper bound of each
        cluster. `at`: positions of the clusters to compute; None: all clusters.

        Return int64, one element for each computed cluster; UNLIMITED: no bound. If some
        requested resource is reported by no cluster, all elements are 0.
        """
        fits = ceilings.copy() if at is None else ceilings[at]
        for name, amount in demand.amounts:
            column = self.left.get(name)
            if column is None:
                return np.zeros(len(fits), np.int64)
            np.minimum(fits, (column if at is None else column[at]) // amount, out=fits)
        if demand.is_pod:
            pods, counts = (
                (self.pods, self.counts_pods)
                if at is None
                else (self.pods[at], self.counts_pods[at])
            )
            np.minimum(
                fits,
                pods if demand.pods == 1 else np.where(counts, pods // demand.pods, NO_BOUND),
                out=fits,
            )
        np.maximum(fits, 0, out=fits)
        if fits.size and int(fits.max()) >= UNLIMITED:
            unbounded = fits == NO_BOUND
            np.minimum(fits, UNLIMITED - 1, out=fits)
            fits[unbounded] = UNLIMITED
        return fits


def counted(
    class_key: str,
    demand: Demand,
    claim: Claim | None,
    order: Sequence[ClusterState],
    rooms: Rooms | None,
) -> EstimateColumn:
    """Compute a new column: the number of replicas of a class that still fit in each cluster, in
    order of cluster name.

    `demand`: what one replica takes. `claim`: the namespace and priority class whose quotas apply;
    None: no quota applies. `order`: the clusters in order of name. `rooms`: the free amounts of all
    clusters as arrays; None in a small fleet. The column holds a list if `rooms` is None, otherwise
    an array. The caller sets the other fields: the version of the set of clusters, the positions up
    to which the logs of changes were read, and the total.
    """
    if rooms is None:
        return EstimateColumn(
            demand, claim, 0, 0, [c.estimate(class_key, demand, claim) for c in order]
        )
    column = EstimateColumn(demand, claim, 0, 0, np.zeros(0, np.int64))
    if column.plain:
        column.values = np.array([c.estimate(class_key, demand, claim) for c in order], np.int64)
        return column
    column.ceilings = np.array([within(c.ceiling(class_key, demand)) for c in order], np.int64)
    column.values = rooms.fit(demand, column.ceilings, None)
    _ask_the_odd(column, class_key, order, rooms)
    return column


def recount_list(
    column: EstimateColumn, class_key: str, order: Sequence[ClusterState], touched: Iterable[int]
) -> None:
    """Update a list column (the estimates of one class for all clusters, as a list) of a small
    fleet: compute the estimates of the clusters at the positions `touched` again. `class_key`: the
    class of the column. `order`: all clusters in order of name. The list is copied before the first
    change, because other objects may still use the old list."""
    values, demand, claim, changed = column.values, column.demand, column.claim, False
    assert isinstance(values, list)
    for position in touched:
        n = order[position].estimate(class_key, demand, claim)
        if n != values[position]:
            if not changed:
                values = column.values = values.copy()
                changed = True
            values[position] = n


def same(values: Values | None, others: Values) -> bool:
    """Return whether two columns have equal values. None differs from every column."""
    if values is None or values is others:
        return values is others
    if isinstance(values, list) and isinstance(others, list):
        return values == others
    return np.array_equal(values, others)


def recount_array(
    column: EstimateColumn,
    class_key: str,
    order: Sequence[ClusterState],
    rooms: Rooms,
    touched: Iterable[int],
    taken: Sequence[Array] | None,
) -> None:
    """Update an array column (the estimates of one class for all clusters) of a large fleet after
    clusters changed.

    - `class_key`: the class of the column.
    - `order`: all clusters in order of name. `rooms`: the free amounts of these clusters.
    - `touched`: positions of clusters with any change. Their upper bounds (`ceilings`) and
      estimates are computed again.
    - `taken`: positions of clusters that only got more replicas, as one int64 array for each
      decision. Only the estimates of these clusters are computed again. None: the positions are not
      known.

    The estimates of all clusters are computed if `taken` is None, or if its arrays together have
    more positions than half of the clusters. Example: 1,000 clusters and 501 positions: all are
    computed.
    """
    values, demand = column.values, column.demand
    assert isinstance(values, np.ndarray)
    ceilings = column.ceilings
    whole = taken is None or 2 * sum([len(t) for t in taken]) > len(order)
    if ceilings is None or not whole:
        values = values.copy()
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
        if again_at := list(touched):
            new = [within(order[position].ceiling(class_key, demand)) for position in again_at]
            if len(again_at) < MANY:
                for position, ceiling in zip(again_at, new, strict=True):
                    ceilings[position] = ceiling
                    values[position] = order[position].estimate(class_key, demand)
            else:
                at = np.array(again_at, np.int64)
                ceilings[at] = new
                values[at] = rooms.fit(demand, ceilings, at)
        column.values = values
        _ask_the_odd(column, class_key, order, rooms)
    column.values = values


def _ask_the_odd(
    column: EstimateColumn, class_key: str, order: Sequence[ClusterState], rooms: Rooms
) -> None:
    for position in rooms.odd:
        column.values[position] = order[position].estimate(class_key, column.demand)


def within(ceiling: int) -> int:
    """Limit a ceiling to the range -SAFE..SAFE, so that array arithmetic cannot overflow; NO_BOUND
    stays. Values that large make no difference to a decision."""
    return ceiling if ceiling == NO_BOUND else max(-SAFE, min(SAFE, ceiling))
