"""The load of all nodes of a cluster at once, for placing in bulk: what `book` says of each node, as columns over
slots.

Nothing here is a rule of its own; `LoadBook.judge` is the truth. Measurements change once in minutes and are laid
into columns then, a metric at a time; what a batch of placements needs is made from them with a few operations over
whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.engine.load.book import (
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
from wharfinger.engine.load.records import SECOND, Micros

Column = npt.NDArray[np.int64]

_UNKNOWN = -1
_NEVER = (_UNKNOWN, np.iinfo(np.int64).min)
_SUM_MAX = 2**62 // (SCORE_MAX * LOAD_MAX)
"""The largest sum of weights that cannot overflow with the highest loads."""


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """What a batch of placements goes by. All int64.

    `verdict[slots]`: 0 or why the node is refused (`LOAD_TOO_HIGH`, `LOAD_UNKNOWN`); `metric[slots]`: which of
    `metrics` refuses it, -1: none. `base[slots]`: the free share, less what was told of the hot value where that is
    not damped; may be below zero. A node's score is `clamp(base - 10 * sum_w((recent[w] + placed in this batch) //
    per[w]), 0, 100)`. `recent[windows, slots]`: how many were placed on the node within each window before the batch;
    `per[windows]`: how many make one. Neither has a row where bursts are not damped. `unknown`: metric -> of how many
    nodes it is not known."""

    verdict: Column
    metric: Column
    base: Column
    recent: Column
    per: Column
    metrics: tuple[str, ...] = ()
    unknown: dict[str, int] = field(default_factory=dict)

    def scores(self, placed: Column | None = None) -> Column:
        """0..100 of every slot, when `placed[slots]` came in this batch."""
        score = self.base
        if len(self.per):
            came = self.recent if placed is None else np.maximum(self.recent + placed, 0)
            score = score - HOT_COST * (came // self.per[:, np.newaxis]).sum(axis=0)
        return np.clip(score, 0, SCORE_MAX)


@dataclass(slots=True)
class _Laid:
    """One metric over slots: what the annotator measured `at`, and what is written on the nodes, each with its time.
    None: nothing."""

    load: Column | None = None
    at: Micros = 0
    written: Column | None = None
    written_at: Column | None = None

    def fresh(self, n: int, active: Micros, now: Micros) -> Column:
        """The newest of each node that counts."""
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
    """A LoadBook in columns. It follows the book by its version and the nodes its placements touched, and the slots
    by the number that the caller gives. What it gave before is never changed."""

    def __init__(self, book: LoadBook) -> None:
        self.book = book
        self._usage: dict[str, _Laid] = {}
        self._slots: dict[str, int] = {}
        self._size = 0
        self._laid: object = None
        self._average: tuple[object, int] = ((), 0)
        self._measured: tuple[object, LoadColumns] | None = None
        self._recent: tuple[object, int, Column] | None = None

    def columns(self, names: Sequence[str], nodes_version: int, now: Micros, args: DynamicArgs) -> LoadColumns:
        """`names[slots]`: the node in each slot, empty for none; `nodes_version`: changes whenever `names` does."""
        key = (nodes_version, len(names), self.book.version)
        if self._laid != key:
            self._lay(names)
            self._laid = key
        if self._measured is None or self._measured[0] != (key, now, args):
            self._measured = ((key, now, args), self._columns(names, now, args))
        columns = self._measured[1]
        return replace(columns, recent=self._followed(key, now)) if args.damped else columns

    def _lay(self, names: Sequence[str]) -> None:
        """Loads and times of each metric over slots: the newest measurement of each node, whatever its age."""
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
                    w.loads.get(metric, _NEVER) if (w := get_written(name)) is not None else _NEVER for name in names
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
        return LoadColumns(verdict, which, base, none, per, metrics, _counts(len(self._slots), fresh))

    def _base(self, fresh: dict[str, Column], n: int, now: Micros, args: DynamicArgs) -> Column:
        weights = [(w.metric, w.weight) for w in self.book.policy.weights if w.weight > 0]
        whole = sum(weight for _, weight in weights)
        if not weights:
            return np.full(n, 0 if args.stale == "crane" else self._average_load(now), dtype=np.int64)
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
        base: Column = np.where(free >= 0, SCORE_MAX * free // divisor, -(-SCORE_MAX * free // divisor))
        if args.stale != "crane" and not known.all():
            base[known == 0] = self._average_load(now)
        return base

    def _base_one_by_one(
        self, weights: Sequence[tuple[str, int]], fresh: dict[str, Column], n: int, now: Micros, args: DynamicArgs
    ) -> Column:
        """Weights so large that int64 does not hold the sum are added up as Python's whole numbers."""
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
        """Where bursts are not damped, what was told of the hot value counts."""
        for slot, name in enumerate(names):
            if name and (hot := self.book.told_hot(name, now)):
                base[slot] -= HOT_COST * hot

    def _followed(self, key: object, now: Micros) -> Column:
        """Recent placements of each window and slot. Within one moment only the nodes that were touched are counted again."""
        book = self.book
        end = book.forgotten + len(book.touched)
        if self._recent is not None and self._recent[0] == (key, now) and self._recent[1] >= book.forgotten:
            _, position, recent = self._recent
            if position == end:
                return recent
            recent, changed = recent.copy(), dict.fromkeys(book.touched[position - book.forgotten :])
        else:
            recent, changed = self._counted(now), {}
        for name in changed:
            if (slot := self._slots.get(name)) is not None:
                records = book.records.get(name)
                for w, window in enumerate(book.policy.hot):
                    recent[w, slot] = 0 if records is None else records.since(now - window.window_s * SECOND)
        self._recent = ((key, now), end, recent)
        return recent

    def _counted(self, now: Micros) -> Column:
        """All recent placements at once: each is a time and a slot, counted by slot for each window."""
        book, slot_of = self.book, self._slots.get
        book.tidy(now)  # time only goes on, so that what no window reaches now, none ever will
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
                recent[w] = np.bincount(slots[at > now - window.window_s * SECOND], minlength=self._size)
        return recent


def _counts(there: int, fresh: dict[str, Column]) -> dict[str, int]:
    """Of how many of the nodes each metric is unknown. An empty slot has no load: it is unknown of every metric and
    none of them."""
    counts = {metric: there - int((load != _UNKNOWN).sum()) for metric, load in fresh.items()}
    return {metric: n for metric, n in counts.items() if n}
