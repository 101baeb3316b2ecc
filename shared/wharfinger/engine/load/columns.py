"""The loads of all nodes of a cluster as columns over slots, for bulk placement.

No rule of its own: `LoadBook.judge` is the reference. Measurements change every few minutes and are
written into columns then, one metric at a time; a batch of placements derives its inputs from them
with a few array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.domain.time import SECOND
from wharfinger.engine.load.node_loads import (
    HOT_COST,
    LOAD_MAX,
    LOAD_TOO_HIGH,
    LOAD_UNKNOWN,
    SCORE_MAX,
    WHOLE,
    LoadBook,
    counts,
)
from wharfinger.engine.load.policy import GRACE, active_us
from wharfinger.engine.load.records import Micros

Column = npt.NDArray[np.int64]

_UNKNOWN = -1
_NEVER = (_UNKNOWN, np.iinfo(np.int64).min)
_SUM_MAX = 2**62 // (SCORE_MAX * LOAD_MAX)
"""The largest sum of weights that cannot overflow with the highest loads."""


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """The loads of all nodes as inputs of one batch of placements. All columns are int64.

    - `verdict[slots]`: 0: the node passes; otherwise why it is refused (`LOAD_TOO_HIGH`,
      `LOAD_UNKNOWN`).
    - `metric[slots]`: index in `metrics` of the metric that refuses the node, -1: none.
    - `base[slots]`: the free share in percent; may be negative. Where bursts are not damped, 10 for
      each unit of the reported hot value is subtracted already.
    - `recent[windows, slots]`: placements on the node within each window before the batch.
    - `per[windows]`: number of placements that add 1 to the hot value. `recent` and `per` are empty
      where bursts are not damped.
    - `metrics`: names of the metrics.
    - `unknown`: metric -> number of nodes without a valid measurement.

    The score of a node is `clamp(base - 10 * sum_w((recent[w] + placed in this batch) // per[w]),
    0, 100)`.
    """

    verdict: Column
    metric: Column
    base: Column
    recent: Column
    per: Column
    metrics: tuple[str, ...] = ()
    unknown: dict[str, int] = field(default_factory=dict)

    def scores(self, placed: Column | None = None) -> Column:
        """Returns the score 0..100 of every slot. `placed[slots]`: number of placements of this
        batch on each node; None: there are none."""
        score = self.base
        if len(self.per):
            came = self.recent if placed is None else np.maximum(self.recent + placed, 0)
            score = score - HOT_COST * (came // self.per[:, np.newaxis]).sum(axis=0)
        return np.clip(score, 0, SCORE_MAX)


@dataclass(slots=True)
class _Laid:
    """The values of one metric by slot, from two sources. `load`, `at`: the annotator's measurement
    and its time; `written`, `written_at`: the node annotations and their times. None: the source
    has no values."""

    load: Column | None = None
    at: Micros = 0
    written: Column | None = None
    written_at: Column | None = None

    def fresh(self, n: int, active: Micros, now: Micros) -> Column:
        """Returns int64[n]: the newest valid load of each node at time `now`, -1 where there is
        none. `active`: how long a value is valid, in microseconds."""
        load = np.full(n, _UNKNOWN, dtype=np.int64)
        newest = now - active
        if self.load is not None and counts(self.at, active, now):
            load, newest = self.load, self.at
        if self.written is not None and self.written_at is not None:
            floor = np.where(load == _UNKNOWN, now - active, newest)
            later = (self.written_at > floor) & (self.written_at <= now + GRACE)
            load = np.where(later, self.written, load)
        return load


class LoadTable:
    """Converts a `LoadBook` into columns for batches of placements. They are updated when the
    book's version changes, and for the nodes in the book's `touched` log. The caller numbers the
    slots. Returned columns are never changed afterwards."""

    def __init__(self, book: LoadBook) -> None:
        self.book = book
        self._usage: dict[str, _Laid] = {}
        self._slots: dict[str, int] = {}
        self._size = 0
        self._laid: object = None
        self._average: tuple[object, int] = ((), 0)
        self._measured: tuple[object, LoadColumns] | None = None
        self._recent: tuple[object, int, Column] | None = None

    def columns(
        self, names: Sequence[str], nodes_version: int, now: Micros, args: DynamicArgs
    ) -> LoadColumns:
        """Returns the measured loads of all nodes at time `now` as columns (arrays with one element
        per node), for one batch of placements. Among others there are, for each node: whether the
        load rule refuses it, its free share in percent, and its recent placements.

        - `names[slots]`: name of the node in each slot (array position); empty: the slot has no
          node.
        - `nodes_version`: a number that changes whenever `names` changes.
        - `now`: microseconds since 1970.
        - `args`: the profile's arguments of the load rule: what follows from a missing measurement
          (`stale`), and whether recent placements lower the score of a node (`damped`).

        Results are cached. If the nodes or the stored loads changed since the last call, all is
        computed again. If only `now` or `args` changed, the arrays of stored loads are used again.
        """
        key = (nodes_version, len(names), self.book.version)
        if self._laid != key:
            self._lay(names)
            self._laid = key
        if self._measured is None or self._measured[0] != (key, now, args):
            self._measured = ((key, now, args), self._columns(names, now, args))
        columns = self._measured[1]
        return replace(columns, recent=self._followed(key, now)) if args.damped else columns

    def _lay(self, names: Sequence[str]) -> None:
        """Copies the loads of each metric and the times of the loads from the load book into
        columns: one element per slot (array position of a node). Each metric gets one column for
        the annotator's measurements and one for node annotations.

        Loads of any age are copied; `_Laid.fresh` later selects the loads that are recent enough.
        `names[slots]`: name of the node in each slot; empty: the slot has no node.
        """
        book = self.book
        self._usage = {}
        self._size = len(names)
        self._slots = {name: slot for slot, name in enumerate(names) if name}
        get_written = book.written.get
        for metric in book.named:
            measured = book.measured.get(metric)
            found = _Laid()
            if measured is not None:
                get, found.at = measured.loads.get, measured.measured_at_us
                found.load = np.array([get(name, _UNKNOWN) for name in names], dtype=np.int64)
            if book.written:
                own = [
                    w.loads.get(metric, _NEVER) if (w := get_written(name)) is not None else _NEVER
                    for name in names
                ]
                written = np.array(own, dtype=np.int64).reshape(-1, 2)
                found.written, found.written_at = written[:, 0], written[:, 1]
            self._usage[metric] = found

    def _columns(self, names: Sequence[str], now: Micros, args: DynamicArgs) -> LoadColumns:
        policy, n = self.book.policy, len(names)
        metrics = tuple(self._usage)
        fresh: dict[str, Column] = {}
        for metric, laid in self._usage.items():
            fresh[metric] = laid.fresh(n, active_us(policy, metric), now)
        verdict = np.zeros(n, dtype=np.int64)
        which = np.full(n, -1, dtype=np.int64)
        for limit in policy.limits:
            if limit.limit > 0:
                high = (fresh[limit.metric] > limit.limit) & (verdict == 0)
                verdict[high] = LOAD_TOO_HIGH
                which[high] = metrics.index(limit.metric)
        if args.stale == "closed":
            for i, metric in enumerate(metrics):
                missing = (fresh[metric] == _UNKNOWN) & (verdict == 0)
                verdict[missing] = LOAD_UNKNOWN
                which[missing] = i
        base = self._base(fresh, n, now, args)
        if not args.damped:
            self._take_off_hot(names, base, now)
        windows = self.book.policy.hot if args.damped else ()
        per = np.array([w.count for w in windows], dtype=np.int64)
        none = np.zeros((len(per), n), dtype=np.int64)
        return LoadColumns(
            verdict, which, base, none, per, metrics, _counts(len(self._slots), fresh)
        )

    def _base(self, fresh: dict[str, Column], n: int, now: Micros, args: DynamicArgs) -> Column:
        weights = [(w.metric, w.weight) for w in self.book.policy.weights if w.weight > 0]
        whole = sum(weight for _, weight in weights)
        if not weights:
            return np.full(
                n, 0 if args.stale == "crane" else self._average_load(now), dtype=np.int64
            )
        if whole > _SUM_MAX:
            return self._base_one_by_one(weights, fresh, n, now, args)
        free = np.zeros(n, dtype=np.int64)
        known = np.zeros(n, dtype=np.int64)
        for metric, weight in weights:
            there = fresh[metric] != _UNKNOWN
            free += np.where(there, (WHOLE - fresh[metric]) * weight, 0)
            known += there * weight
        if args.stale == "crane":
            known[:] = whole
        divisor = WHOLE * np.maximum(known, 1)
        base: Column = np.where(
            free >= 0, SCORE_MAX * free // divisor, -(-SCORE_MAX * free // divisor)
        )
        if args.stale != "crane" and not known.all():
            base[known == 0] = self._average_load(now)
        return base

    def _base_one_by_one(
        self,
        weights: Sequence[tuple[str, int]],
        fresh: dict[str, Column],
        n: int,
        now: Micros,
        args: DynamicArgs,
    ) -> Column:
        """Computes the base score of each slot (array position of a node): the weighted mean of the
        free shares of its metrics. Returns int64[n], in percent. The result equals that of `_base`,
        but this function computes node by node in Python integers. It is used if the weights are so
        large that a sum in int64 could overflow.

        - `weights`: (metric, weight) of the load policy.
        - `fresh`: metric -> load by slot in 1/100,000, -1: unknown.
        - `n`: number of slots.
        - `args.stale`: what follows from an unknown load. With `crane` it counts as 100 % used.
          Otherwise it is left out; a node without any known load gets the mean free share of the
          nodes that have one.

        Example: cpu is 20 % used with weight 2, memory 50 % used with weight 1. The base score is
        (2 * 80 + 1 * 50) / 3 = 70.
        """
        base = np.zeros(n, dtype=np.int64)
        for slot in range(n):
            loads = {m: None if (u := int(fresh[m][slot])) == _UNKNOWN else u for m, _ in weights}
            share = self.book.weighed(loads, args.stale)
            base[slot] = self._average_load(now) if share is None else share
        return base

    def _average_load(self, now: Micros) -> int:
        key = (self._laid, now)
        if self._average[0] != key:
            self._average = (key, self.book.average_load(now))
        return self._average[1]

    def _take_off_hot(self, names: Sequence[str], base: Column, now: Micros) -> None:
        """Subtracts the reported hot value from `base`, for profiles that do not damp bursts."""
        for slot, name in enumerate(names):
            if name and (hot := self.book.told_hot(name, now)):
                base[slot] -= HOT_COST * hot

    def _followed(self, key: object, now: Micros) -> Column:
        """Returns int64[windows, slots]: how many replicas were placed on each node within each hot
        window (a period of the load policy) before `now`.

        If `key` and `now` equal those of the last call, only the nodes with placements or releases
        since that call are counted again; the load book has a log of these nodes (`touched`). All
        nodes are counted if `key` or `now` differ, or if the log no longer reaches back to the last
        call. `key`: a value that changes when the nodes or the stored loads change.
        """
        book = self.book
        end = book.forgotten + len(book.touched)
        if (
            self._recent is not None
            and self._recent[0] == (key, now)
            and self._recent[1] >= book.forgotten
        ):
            _, position, recent = self._recent
            if position == end:
                return recent
            recent, changed = (
                recent.copy(),
                dict.fromkeys(book.touched[position - book.forgotten :]),
            )
        else:
            recent, changed = self._counted(now), {}
        for name in changed:
            if (slot := self._slots.get(name)) is not None:
                records = book.records.get(name)
                for w, window in enumerate(book.policy.hot):
                    recent[w, slot] = (
                        0 if records is None else records.since(now - window.window_s * SECOND)
                    )
        self._recent = ((key, now), end, recent)
        return recent

    def _counted(self, now: Micros) -> Column:
        """Counts the recent placements on all nodes in one pass. Returns int64[windows, slots]: the
        number of placements within each hot window (a period of the load policy) before `now`.

        Records that are older than every window are dropped first from the load book. Example:
        placements on a node were 1, 4 and 20 minutes ago. Windows of 5 and 30 minutes give 2 and 3.
        """
        book, slot_of = self.book, self._slots.get
        book.tidy(now)  # time only grows: a record outside all windows stays outside
        entries = [
            (entry[0], slot)
            for name, records in book.records.items()
            if (slot := slot_of(name)) is not None
            for entry in records.placed
        ]
        recent = np.zeros((len(book.policy.hot), self._size), dtype=np.int64)
        if entries:
            at, slots = np.array(entries, dtype=np.int64).T
            for w, window in enumerate(book.policy.hot):
                recent[w] = np.bincount(
                    slots[at > now - window.window_s * SECOND], minlength=self._size
                )
        return recent


def _counts(there: int, fresh: dict[str, Column]) -> dict[str, int]:
    """Returns metric -> number of nodes on which it is unknown; metrics that are known on all nodes
    are left out. `there`: number of nodes. `fresh`: metric -> load by slot, -1: unknown or no node.
    """
    counts = {metric: there - int((load != _UNKNOWN).sum()) for metric, load in fresh.items()}
    return {metric: n for metric, n in counts.items() if n}
