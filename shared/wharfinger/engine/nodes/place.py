"""The best node for a class, kept at hand.

For each class in use a column of keys: score and tie rank in one integer where the node is feasible, the verdict where it
is not. Before choosing, only the nodes touched since the class was last asked for are judged again: one by one when they
are few, as columns when they are many, all of them when the log has forgotten. The best few and the count of verdicts,
which every decision records, follow a single node's change and are made anew only after a change of columns.

Ties: equal scores are broken by hash(node name) xor hash(class key), then by name. That order depends on names alone, so
neither arrival order nor slot numbers reach a decision; it differs from class to class, so ties do not pile up on one
node; and it costs nothing per decision. (A seed per binding would need a new order for every binding.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

import msgspec
import numpy as np

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.nodes.classes import ABSENT, INSUFFICIENT_DEVICES, INSUFFICIENT_RESOURCES, PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, PODS, Column, NodeRow, NodeTable, Taken
from wharfinger.engine.nodes.fit import REASONS, take_devices, usage_verdict
from wharfinger.engine.nodes.score import Strategy, score_row, score_rows

_SCORE = 2**32
_FEW = 16
_SHORT = 16
_CLASSES_KEPT = 1024


class Choice(msgspec.Struct, frozen=True):
    """A node for one replica. `score` 0..100; `devices` as the replica would hold them."""

    row: NodeRow
    score: int
    devices: Taken


class Diagnosis(msgspec.Struct, frozen=True):
    """How many nodes were looked at, how many were feasible, how many fell for each reason."""

    candidates: int
    feasible: int
    refused: dict[NodeReason, int]


class _Keys:
    """One class's keys. `position`: how far in the usage log they are true; `names`, `verdicts_at`: for which facts.
    `barred`: facts speak against some node.

    `_best`: (key, slot) of every node whose key is at least `_floor`, ascending; None: to be made. `_tally`: how many slots
    have which verdict, the feasible first; None: to be counted.
    """

    __slots__ = (
        "_best",
        "_diagnosis",
        "_floor",
        "_tally",
        "barred",
        "cls",
        "facts",
        "keys",
        "names",
        "position",
        "ties",
        "verdicts_at",
    )

    def __init__(self, cls: PodClass) -> None:
        self.cls = cls
        self.keys: Column = np.zeros(0, dtype=np.int64)
        self.ties: Column = self.keys
        self.barred = False
        self.facts: Column = self.keys
        self.position = -1
        self.names = -1
        self.verdicts_at = -1
        self._best: list[tuple[int, int]] | None = None
        self._floor = 0
        self._tally: list[int] | None = None
        self._diagnosis: Diagnosis | None = None

    def put(self, slot: int, key: int) -> None:
        was = int(self.keys[slot])
        if key == was:
            return
        self.keys[slot] = key
        if (was < 0 or key < 0) and self._tally is not None:
            self._tally[-min(was, 0)] -= 1
            self._tally[-min(key, 0)] += 1
            self._diagnosis = None
        if self._best is not None:
            if was >= self._floor:
                del self._best[bisect_left(self._best, (was, slot))]
            if key >= self._floor:
                insort(self._best, (key, slot))

    def put_many(self, slots: Column | slice, keys: Column) -> None:
        self.keys[slots] = keys
        self._best = self._tally = self._diagnosis = None

    def best(self, count: int) -> list[tuple[int, int]]:
        """(key, slot) of the best `count` feasible nodes, or of all if they are fewer, best first."""
        if self._best is None or (len(self._best) < count and self._floor > 0):
            self._best = self._shortlist(max(count, _SHORT))
        return self._best[: -count - 1 : -1]

    def _shortlist(self, length: int) -> list[tuple[int, int]]:
        keys = self.keys
        slots = keys.argpartition(-length)[-length:] if len(keys) > length else np.arange(len(keys))
        best = sorted([pair for pair in zip(keys[slots].tolist(), slots.tolist(), strict=True) if pair[0] >= 0])
        self._floor = best[0][0] if len(best) == length else 0
        return best

    def diagnosis(self) -> Diagnosis:
        if self._diagnosis is None:
            if self._tally is None:
                self._tally = np.bincount(-np.minimum(self.keys, 0), minlength=-ABSENT + 1).tolist()
            tally = self._tally
            refused = {reason: tally[i] for i, reason in enumerate(REASONS, 1) if tally[i]}
            self._diagnosis = Diagnosis(sum(tally[:-ABSENT]), tally[0], refused)
        return self._diagnosis


class Placer:
    """Chooses nodes of one table by one strategy. Holds caches only: a new one over the same table chooses the same."""

    def __init__(self, table: NodeTable, strategy: Strategy) -> None:
        self.table = table
        self.strategy: Strategy = strategy
        self._classes: OrderedDict[str, _Keys] = OrderedDict()

    def choose(self, cls: PodClass) -> Choice | None:
        """The feasible node with the highest score, or None. Changes nothing: charging it is the caller's."""
        if not self.table.rows:
            return None
        for key, slot in self._fresh(cls).best(1):
            return self._choice(cls, key, slot, with_devices=True)
        return None

    def ranked(self, cls: PodClass, count: int) -> list[Choice]:
        """What `choose` gives and the next best nodes, best first, up to `count`; only the first knows its devices."""
        if not self.table.rows:
            return []
        best = self._fresh(cls).best(count)
        return [self._choice(cls, key, slot, with_devices=place == 0) for place, (key, slot) in enumerate(best)]

    def diagnose(self, cls: PodClass) -> Diagnosis:
        if not self.table.rows:
            return Diagnosis(0, 0, {})
        return self._fresh(cls).diagnosis()

    def fill(self, cls: PodClass, limit: int) -> Iterator[Choice]:
        """Choose up to `limit` replicas one after another, each charged to the table before the next. The caller gives
        the charges back (`NodeTable.charge`), once per node."""
        for _ in range(limit):
            choice = self.choose(cls)
            if choice is None:
                return
            self.table.charge(choice.row, cls.amounts, 1, choice.devices)
            yield choice

    def _choice(self, cls: PodClass, key: int, slot: int, with_devices: bool) -> Choice:
        row = self.table.by_slot[slot]
        assert row is not None, "a slot without a node is never feasible"
        return Choice(row, key // _SCORE, _devices(row, cls) if with_devices else ())

    # --- keeping keys true

    def _fresh(self, cls: PodClass) -> _Keys:
        table = self.table
        k = self._classes.get(cls.key)
        if k is None or k.cls is not cls:
            k = self._classes[cls.key] = _Keys(cls)
            if len(self._classes) > _CLASSES_KEPT:
                self._classes.popitem(last=False)
        end = table.usage.end
        if k.position == end and k.verdicts_at == table.facts.end:
            return k
        self._classes.move_to_end(cls.key)
        if k.verdicts_at != table.facts.end:
            self._renew(k)
        else:
            touched = table.usage.since(k.position)
            if touched is None or 2 * len(touched) > table.size + 2 * _FEW:
                self._judge_all(k)
            elif len(touched) <= _FEW:
                for slot in set(touched.tolist()):  # any order: each slot is judged by itself
                    self._judge_one(k, slot)
            else:
                k.put_many(touched, self._judged(k, touched))
        k.position = end
        return k

    def _renew(self, k: _Keys) -> None:
        """Facts have changed: verdicts, and, when nodes came or went, the order of ties."""
        table = self.table
        k.facts = k.cls.facts(table)
        k.barred = bool(k.facts[: table.size].min() < 0)
        if k.names != table.names:
            k.ties = table.tie_ranks(k.cls.seed)
            k.names = table.names
            k.keys = np.full(table.size, ABSENT, dtype=np.int64)
        k.verdicts_at = table.facts.end
        self._judge_all(k)

    def _judge_all(self, k: _Keys) -> None:
        k.put_many(slice(None), self._judged(k, np.arange(self.table.size)))

    def _judge_one(self, k: _Keys, slot: int) -> None:
        row = self.table.by_slot[slot]
        facts = int(k.facts[slot]) if k.barred else 0
        if row is None or facts < 0:
            k.put(slot, facts)
            return
        verdict = usage_verdict(row, k.cls)
        if verdict == 0:
            verdict = score_row(row, k.cls, self.strategy) * _SCORE + int(k.ties[slot])
        k.put(slot, verdict)

    def _judged(self, k: _Keys, rows: Column) -> Column:
        """The keys of the slots `rows`."""
        table, cls = self.table, k.cls
        cpu, memory = table.free[CPU].take(rows), table.free[MEMORY].take(rows)
        short = np.zeros(len(rows), dtype=np.bool_)
        for code, amount in cls.amounts:
            if code == CPU:
                cpu -= amount
                short |= cpu < 0
            elif code == MEMORY:
                memory -= amount
                short |= memory < 0
            elif code != PODS or table.pods_limited:
                short |= table.free[code].take(rows) < amount
        keys = score_rows(table, cls, self.strategy, rows, cpu, memory)
        keys *= _SCORE
        keys += k.ties.take(rows)
        for need in cls.needs:
            # More than one whole device is a matter of counting; for a share, or one device, the freest device decides.
            several = need.count > 1 and need.milli == DEVICE_MILLI
            column, least = (need.view.whole, need.count) if several else (need.view.top, need.milli)
            lacking = column.take(rows) < least
            np.putmask(keys, lacking, INSUFFICIENT_DEVICES)
        np.putmask(keys, short, INSUFFICIENT_RESOURCES)
        if k.barred:
            facts = k.facts.take(rows)
            np.copyto(keys, facts, where=facts < 0)
        if not cls.simple:
            for at in np.flatnonzero(keys >= 0).tolist():
                row = table.by_slot[int(rows[at])]
                if row is None or take_devices(row, cls.needs) is None:
                    keys[at] = INSUFFICIENT_DEVICES
        return keys


def _devices(row: NodeRow, cls: PodClass) -> Taken:
    if not cls.needs:
        return ()
    devices = take_devices(row, cls.needs)
    assert devices is not None, "the columns call feasible what the row does not"
    return devices
