"""Caches of the fleet stage: capacity estimates of a class for all clusters (columns), and feasible
clusters of a placement. In both, a position is the index of a cluster in order of name.

The caches are updated from change logs. `touch_log` lists the clusters whose estimates may have
changed, `deduction_log` those to which decisions gave replicas; a column reads the part of both
logs that is new to it. `facts_log` does the same for lists of feasible clusters. Adding or removing
a cluster increments `cluster_set_version`, which makes all caches invalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from wharfinger.engine.fleet.estimate import Demand, demand_of, demand_of_set
from wharfinger.engine.fleet.feasible import Feasible
from wharfinger.engine.fleet.properties import ClusterProperties
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.stages.fleet import columns
from wharfinger.stages.fleet.columns import (
    DEDUCTIONS_KEPT,
    SAFE,
    Array,
    EstimateColumn,
    Rooms,
    Values,
    counted,
    recount_array,
    recount_list,
    within,
)
from wharfinger.stages.fleet.quota_capacity import claim_of
from wharfinger.stages.fleet.state.bindings import BindingState
from wharfinger.stages.fleet.state.clusters import (
    PENDING,
    POSITION,
    UNLIMITED,
    ClusterState,
    Pending,
)
from wharfinger.stages.fleet.state.indexes import ClusterIndex
from wharfinger.stages.fleet.state.pending import PendingMatrix, Positions

LOG_LENGTH = 8192
"""When a log has this many entries, it starts again from empty. A column that is further behind
checks all clusters."""

CACHED = 4096
"""A cache is emptied when it has this many entries."""

CACHED_VALUES = 1 << 23
"""The largest number of values in all columns together, and of verdicts in all lists of feasible
clusters together."""

EAGER_COLUMNS = 16
"""With up to so many columns, a new count of a cluster is written into all of them at once. With
more, each column reads it when it is used next, since most of them may not be used again soon."""

COUNTED = ("class", "totals", "grades", "summary")
"""The sources of estimates that a quota may lower."""


@dataclass(slots=True)
class Estimates:
    clusters: Mapping[str, ClusterState]
    index: ClusterIndex
    cluster_set_version: int = 0
    """Incremented when a cluster is added or removed. Columns and lists of feasible clusters are
    then computed again."""
    facts: int = 0
    """Version of cluster facts: incremented whenever the set of feasible clusters of some placement
    may change."""
    facts_log: list[int] = field(default_factory=list)
    """Positions of the clusters whose facts changed, one for each increment of `facts` since
    `facts_from`."""
    facts_from: int = 0
    touch_log: list[int] = field(default_factory=list)
    """Positions of the clusters whose estimates may have changed, since touch number
    `touched_from`."""
    touched_from: int = 0
    deduction_log: list[Array] = field(default_factory=list)
    """Positions of the clusters to which decisions gave replicas, one array for each decision,
    since decision number `deducted_from`; and of those with new counts (`recount`). Only in large
    fleets."""
    deducted_from: int = 0
    rooms: Rooms | None = None
    columns: dict[str, EstimateColumn] = field(default_factory=dict)
    """By `BindingState.column_key`."""
    feasible: dict[tuple[bytes, str, int], Feasible] = field(default_factory=dict)
    """(key of the placement, kind, index of the affinity term) -> its feasible clusters."""
    recounted: list[int] = field(default_factory=list)
    """Positions of the clusters whose new counts are in the arrays and not in `deduction_log` yet.
    """
    demands: dict[str, Demand] = field(default_factory=dict)
    """Class key -> demand of one replica."""
    _pending: PendingMatrix | None = None
    _properties: ClusterProperties | None = None
    _order: list[ClusterState] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _all: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """All positions."""
    _in_order: bool = True

    # Clusters in order

    @property
    def order(self) -> list[ClusterState]:
        """Return the known clusters in order of name. The position of a cluster in this list is its
        index in a column. Ties between clusters are also broken by this order."""
        self.settle()
        return self._order

    def settle(self) -> None:
        """Sort the clusters and assign positions, if clusters were added or removed since the last
        call."""
        if not self._in_order:
            self._put_in_order()

    @property
    def cached_max(self) -> int:
        """Return how many columns, and how many lists of feasible clusters, may be cached."""
        return min(CACHED, max(1, CACHED_VALUES // max(1, len(self.order))))

    @property
    def wide(self) -> bool:
        """Return whether columns are arrays instead of lists: the fleet has at least `columns.FEW`
        clusters."""
        return len(self.order) >= columns.FEW

    def _put_in_order(self) -> None:
        for cluster in self._order:
            cluster.position = -1
        self._order = sorted(
            (c for c in self.clusters.values() if c.facts is not None), key=lambda c: c.name
        )
        for position, cluster in enumerate(self._order):
            cluster.position = position
        self._names = [cluster.name for cluster in self._order]
        self._all = np.arange(len(self._order))
        self._in_order = True
        self.facts_log.clear()
        self.facts_from = self.facts
        self.touched_from += len(self.touch_log)
        self.touch_log.clear()
        self.deducted_from += len(self.deduction_log)
        self.deduction_log.clear()
        self.recounted.clear()
        self.columns.clear()
        self.rooms = self._pending = None

    # What changed

    def rebuild(self) -> None:
        """Note that a cluster was added or removed. The clusters are sorted again on the next read
        of `order`."""
        self._in_order = False
        self.cluster_set_version += 1
        self.facts += 1

    def facts_changed(self, cluster: ClusterState) -> None:
        """Log that a fact of this cluster changed that filters read."""
        if self.facts_from + len(self.facts_log) != self.facts or len(self.facts_log) >= LOG_LENGTH:
            self.facts_log.clear()
            self.facts_from = self.facts
        self.facts += 1
        self.facts_log.append(cluster.position)

    def changed_since(self, facts: int) -> list[int] | None:
        """Return the positions of the clusters whose facts changed after version `facts`, each
        once. None: the log does not have all changes since that version."""
        if facts < self.facts_from or self.facts_from + len(self.facts_log) != self.facts:
            return None
        return list(dict.fromkeys(self.facts_log[facts - self.facts_from :]))

    def properties(self) -> ClusterProperties:
        """Return the facts of all clusters as columns, by which policies are filtered. Only
        clusters whose facts changed since the last call are read again."""
        order, kept = self.order, self._properties
        if kept is not None and kept.layout == self.cluster_set_version:
            if kept.facts == self.facts:
                return kept
            changed = self.changed_since(kept.facts)
            if changed is not None:
                again = [(i, facts) for i in changed if (facts := order[i].facts) is not None]
                kept.update(again, self.facts)
                return kept
        clusters = [c.facts for c in order if c.facts is not None]
        self._properties = ClusterProperties(
            clusters, self._names, self.facts, self.cluster_set_version
        )
        return self._properties

    def changed(self, cluster: ClusterState) -> None:
        """Log that something changed that determines this cluster's estimates."""
        if cluster.position < 0 or not self._in_order:
            return
        if len(self.touch_log) >= LOG_LENGTH:
            self.touched_from += len(self.touch_log)
            self.touch_log.clear()
        cluster.touched = self.touched_from + len(self.touch_log)
        self.touch_log.append(cluster.position)
        if self.rooms is not None:
            self.rooms.stale[cluster.position] = None

    def recount(self, cluster: ClusterState) -> None:
        """Log that this cluster has a new count. In a large fleet the count is written into the
        arrays at once: its amounts, and the ceiling of each column. So after the counts of all
        clusters were renewed, the next decision is a few operations on whole arrays."""
        rooms, position = self.rooms, cluster.position
        if (
            rooms is None
            or position < 0
            or not self._in_order
            or len(self.columns) > EAGER_COLUMNS
            or not rooms.write(position, cluster)
        ):
            self.changed(cluster)
            return
        for class_key, column in self.columns.items():  # a column with a claim has no ceilings
            if column.ceilings is not None and (
                column.cluster_set_version == self.cluster_set_version
            ):
                column.ceilings[position] = within(cluster.ceiling(class_key, column.demand))
        self.recounted.append(position)

    def _log_recounted(self) -> None:
        """Move the positions in `recounted` to the log that columns read, as one array: of all
        positions, if they are more than half of them."""
        if self.recounted:
            most = 2 * len(self.recounted) > len(self._order)
            self._log_deduction(self._all if most else np.array(self.recounted, np.int64))
            self.recounted.clear()

    def _log_deduction(self, positions: Array) -> None:
        if len(self.deduction_log) >= DEDUCTIONS_KEPT:
            self.deducted_from += len(self.deduction_log)
            self.deduction_log.clear()
        self.deduction_log.append(positions)

    def deduct(self, record: BindingState, seq: int, grown: Mapping[str, int]) -> bool:
        """Deduct from the estimates the replicas that a decision adds to clusters. Each of these
        clusters gets a pending entry (replicas decided, but not yet counted), and the cached
        estimates are updated. Return whether anything was deducted.
        `grown`: cluster -> how many replicas the decision adds to it. Unknown clusters and numbers
        of 0 or less are ignored. `seq`: the seq of the decision."""
        if len(grown) == 1:
            # as most bindings: what follows, without looking at the order of all clusters
            ((name, n),) = grown.items()
            cluster = self.clusters.get(name)
            if cluster is None or n <= 0:
                return False
            self._deduct(record, seq, [cluster], [n], everywhere=False)
            return True
        counts = list(grown.values())
        everywhere = (
            self._in_order and len(counts) == len(self._names) and list(grown) == self._names
        )
        taken = self._order if everywhere else list(map(self.clusters.get, grown))
        if min(counts) <= 0 or not (everywhere or all(taken)):
            some = [(c, n) for c, n in zip(taken, counts, strict=True) if c and n > 0]
            taken, counts, everywhere = [c for c, _ in some], [n for _, n in some], False
            if not some:
                return False
        self._deduct(record, seq, cast("list[ClusterState]", taken), counts, everywhere=everywhere)
        return True

    def _deduct(
        self,
        record: BindingState,
        seq: int,
        clusters: Sequence[ClusterState],
        counts: Sequence[int],
        *,
        everywhere: bool,
    ) -> None:
        """Append a pending entry (replicas decided, but not yet counted) of `counts[i]` replicas to
        `clusters[i]`, and update the cached estimates.
        In a large fleet one array operation updates the free capacity of all these clusters.
        Otherwise each cluster is logged as changed, and its estimates are computed again on the
        next read. `seq`: the seq of the decision. `everywhere`: `clusters` has all clusters of the
        fleet, in order of name."""
        requirements, column = record.spec.requirements, self.columns.get(record.class_key)
        demand = column.demand if column is not None else self.demand_of(record)
        class_key, claim, components = (
            record.class_key,
            claim_of(record.spec),
            record.spec.components,
        )
        entries = {
            n: Pending(seq, class_key, n, requirements, demand, claim, components)
            for n in dict.fromkeys(counts)
        }
        for pending, entry in zip(
            map(PENDING, clusters), map(entries.__getitem__, counts), strict=True
        ):
            pending.append(entry)  # deducted when the room is read next, see `ClusterState`
        if self._pending is not None and self._in_order:
            self._add_to_matrix(self._pending, clusters, [entries[n] for n in counts])
        most = max(entries)
        if self.rooms is None or not self._in_order or most > UNLIMITED:
            for cluster in clusters:
                self.changed(cluster)
        else:
            positions = (
                self._all if everywhere else np.array(list(map(POSITION, clusters)), np.int64)
            )
            self._deduct_from_rooms(
                self.rooms, demand, column, positions, np.array(counts, np.int64), most
            )

    def _add_to_matrix(
        self, matrix: PendingMatrix, clusters: Sequence[ClusterState], entries: list[Pending]
    ) -> None:
        positions = list(map(POSITION, clusters))
        if min(positions) < 0:  # clusters without facts have no position
            entries = [e for e, i in zip(entries, positions, strict=True) if i >= 0]
            positions = [i for i in positions if i >= 0]
        if positions:
            matrix.add(entries, positions)

    def _deduct_from_rooms(
        self,
        rooms: Rooms,
        demand: Demand,
        column: EstimateColumn | None,
        positions: Array,
        replicas: Array,
        most: int,
    ) -> None:
        """Deduct `replicas[i]`, at most `most`, from the cluster at `positions[i]`, in the arrays
        and in the column of the class."""
        if int(positions.min()) < 0:  # clusters without facts have no position
            replicas = replicas[positions >= 0]
            positions = positions[positions >= 0]
            if not positions.size:
                return
        rooms.take(demand, positions, replicas, most)
        if column is not None:
            column.take(self.cluster_set_version, positions, replicas)
        self._log_deduction(positions)

    # What fits

    def demand_of(self, record: BindingState) -> Demand:
        """Return the resources that one replica of the binding takes, or one whole set for a
        binding with components. The result is cached by class, because many bindings share a class.
        """
        class_key, spec = record.class_key, record.spec
        demand = self.demands.get(class_key)
        if demand is None:
            if len(self.demands) >= CACHED:
                self.demands.clear()
            demand = (
                demand_of_set(spec.components) if spec.components else demand_of(spec.requirements)
            )
            self.demands[class_key] = demand
        return demand

    def fits(self, record: BindingState, cluster: ClusterState) -> int:
        """Return how many more of the binding's replicas fit in the cluster. This is also the
        cluster's value in the binding's column."""
        return cluster.estimate(record.class_key, self.demand_of(record), record.claim)

    def makeable(self, record: BindingState) -> tuple[int, ...]:
        """Return how many more of the binding's replicas would fit on new nodes, one number for
        each cluster of `ClusterIndex.provisioning` in its order. Empty for sets of components, for
        objects without replicas, and for a placement that follows Karmada strictly."""
        clusters = self.index.provisioning
        if not clusters or record.sets or not record.counted or record.parsed.placement.strict:
            return ()
        demand = self.demand_of(record)
        return tuple(
            [self.clusters[c].makeable(record.class_key, demand, record.claim) for c in clusters]
        )

    def estimated_by(self, record: BindingState, cluster: ClusterState) -> str:
        """Return the name of the source of the binding's estimate, as `ClusterState.estimated_by`
        does; "quota" where a quota lowers the estimate."""
        by = cluster.estimated_by(record.class_key)
        if record.claim is not None and by in COUNTED:
            demand = self.demand_of(record)
            if cluster.estimate(record.class_key, demand, record.claim) < cluster.estimate(
                record.class_key, demand
            ):
                return "quota"
        return by

    def column(self, record: BindingState) -> EstimateColumn:
        """Return how many more replicas of the binding fit in each cluster: one number for each
        known cluster, in order of name (a column).
        Columns are cached by class, and by namespace and priority class where quotas apply. A
        cached column is updated in place; only the numbers of clusters that changed since its last
        use are computed again. If there is no valid cached column, a new one is computed and
        cached."""
        order, class_key = self.order, record.class_key
        column = self.columns.get(record.column_key)
        if column is None or column.cluster_set_version != self.cluster_set_version:
            return self._new_column(record)
        self._log_recounted()
        touched_to = self.touched_from + len(self.touch_log)
        deducted_to = self.deducted_from + len(self.deduction_log)
        if column.seen == touched_to and column.deductions_seen == deducted_to:
            return column
        touched, before = self._touched_since(column.seen), column.values
        if self.rooms is None:
            recount_list(column, class_key, order, touched)
        else:
            self.rooms.catch_up(order)
            behind = column.deductions_seen - self.deducted_from
            deducted = self.deduction_log[behind:] if behind >= 0 else None
            recount_array(column, class_key, order, self.rooms, touched, deducted)
        if column.values is not before:
            column.values_changed()
        column.seen, column.deductions_seen = touched_to, deducted_to
        return column

    def _new_column(self, record: BindingState) -> EstimateColumn:
        order, class_key = self.order, record.class_key
        self._log_recounted()
        if len(self.columns) >= self.cached_max:
            self.columns.clear()
        if len(order) >= columns.FEW:
            if self.rooms is None:
                self.rooms = Rooms.of(order)
            self.rooms.catch_up(order)
        column = counted(class_key, self.demand_of(record), record.claim, order, self.rooms)
        self.columns[record.column_key] = column
        column.values_changed()
        column.cluster_set_version = self.cluster_set_version
        column.seen = self.touched_from + len(self.touch_log)
        column.deductions_seen = self.deducted_from + len(self.deduction_log)
        return column

    def certain(self, record: BindingState, at: Positions, *, young: bool) -> list[int] | Array:
        """Return how many more replicas of the binding fit for certain in the clusters at the
        positions `at`: one number for each of them, a lower bound of its estimate. Positions in a
        list give a list, an array gives an array.
        The pending replicas (decided, but not yet counted) may run on any node. This function
        assumes that they run where they use up the most space.
        The bound is the smaller of two numbers, but at least 0. The first is the estimate. The
        second is the class count (how many more replicas fit, by the last capacity event) minus an
        upper bound of how many of these no longer fit because of pending replicas
        (`PendingMatrix`). It is 0 where the class was not counted. An estimate of UNLIMITED is
        returned unchanged. Where the cluster's pools can add nodes, it is the number of all
        replicas of the binding.
        `young`: also deduct the replicas of the class that are in the cluster but not on a node
        yet.
        Example: estimate 9, class count 12, at most 5 no longer fit, 1 replica is not on a node:
        12 - 5 - 1 = 6."""
        return self._certain(self.column(record).values, record, at, young=young)

    def _certain(
        self, values: Values, record: BindingState, at: Positions, *, young: bool
    ) -> list[int] | Array:
        order, key = self._order, record.class_key
        if self._pending is None:
            self._pending = PendingMatrix(order)
        taken = self._pending.places_taken(key, self.demand_of(record), at)
        makers = self.index.provisioning
        if isinstance(at, list):
            few: list[int] = []
            for position, less in zip(at, taken, strict=True):
                cluster, fit = order[position], int(values[position])
                if 0 < fit < UNLIMITED:
                    sure = _count(cluster.capacity, key, young) - less
                    if sure < fit:
                        fit = sure if sure > 0 else 0
                few.append(record.spec.replicas if cluster.name in makers else fit)
            return few
        counts = [_count(order[i].capacity, key, young) for i in at.tolist()]
        found = np.asarray(values)[at]
        limited = (found > 0) & (found < UNLIMITED)
        lowered = np.minimum(np.maximum(_within(counts) - taken, 0), found)
        found = np.where(limited, lowered, found)
        if makers:
            makes = [order[i].name in makers for i in at.tolist()]
            found[makes] = min(record.spec.replicas, UNLIMITED)
        return found

    def certain_everywhere(self, record: BindingState, *, young: bool) -> Sequence[int]:
        """Return `certain` of all clusters of a small fleet. It is cached until something changes
        in any cluster: many requests of a class may wait for capacity."""
        column = self.column(record)
        seen, kept = (column.seen, column.deductions_seen), column.certain.get(young)
        if kept is None or kept[0] != seen or self.index.provisioning:
            everywhere = [*range(len(self._order))]
            numbers = self._certain(column.values, record, everywhere, young=young)
            kept = column.certain[young] = (seen, [*numbers])
        return kept[1]

    def _touched_since(self, seen: int) -> Iterable[int]:
        """Return the positions of all clusters whose estimates may have changed since touch number
        `seen` (a position in the touch log). The result may have other clusters too. It reads the
        shorter of two lists: the new part of the log, or all clusters."""
        if seen >= self.touched_from and self.touched_from + len(self.touch_log) - seen < len(
            self.order
        ):
            return dict.fromkeys(self.touch_log[seen - self.touched_from :])
        return [cluster.position for cluster in self.order if cluster.touched >= seen]

    def fork(self, clusters: Mapping[str, ClusterState], index: ClusterIndex) -> Estimates:
        """Return an independent copy of the estimates for a copied fleet state. `clusters`: name ->
        copied cluster. `index`: the copied cluster index. The estimates per class (`columns`) are
        not copied; the copy computes them when it needs them."""
        order = [clusters[cluster.name] for cluster in self.order]
        return Estimates(
            clusters,
            index,
            self.cluster_set_version,
            self.facts,
            self.facts_log.copy(),
            self.facts_from,
            self.touch_log.copy(),
            self.touched_from,
            self.deduction_log.copy(),
            self.deducted_from,
            feasible=self.feasible.copy(),
            demands=self.demands.copy(),
            _order=order,
            _names=self._names.copy(),
            _all=self._all,
        )


def _count(capacity: CapacityEstimated | None, class_key: str, young: bool) -> int:
    """Return the count of a class in the last capacity event of a cluster; 0 without one. `young`:
    without the replicas that are in the cluster but not on a node yet."""
    if capacity is None:
        return 0
    n = capacity.classes.get(class_key, 0)
    return n - capacity.unplaced.get(class_key, 0) if young and capacity.unplaced else n


def _within(numbers: list[int]) -> Array:
    """Return the numbers as int64, limited to the range -SAFE..SAFE."""
    try:
        found: Array = np.array(numbers, np.int64)
        return np.minimum(np.maximum(found, -SAFE), SAFE)
    except OverflowError:
        return np.array([max(-SAFE, min(SAFE, n)) for n in numbers], np.int64)
