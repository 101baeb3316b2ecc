"""The best node for a class under a profile, chosen among all nodes each time.

What a profile's plugins say about a node is read from columns: facts by claims (`standing`), amounts and scores by
rows of numbers (`forms`), other pods by tallies (`relations`); a kernel judges and weighs all nodes in one pass, and
where equal or many pods are placed at once it goes on by itself, each pod in sight of the last. It chooses what
`engine.framework` would: the same nodes are feasible, for the same reasons, with the same totals. What has no array
form (volumes, device claims, a user's plugin) is asked of the framework's plugin, node by node, so that nothing is
skipped.

Ties: equal scores are broken by hash(node name) xor hash(class key), then by name. That order depends on names alone,
so neither arrival order nor slot numbers reach a decision; it differs from class to class, so ties do not pile up on
one node; and it costs nothing per decision. (A seed per binding would need a new order for every binding.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.scheduler import Profile
from wharfinger.engine.devices.placing import DeviceScores
from wharfinger.engine.devices.workload import Workload
from wharfinger.engine.framework.formulas import image_share, images_score
from wharfinger.engine.framework.plugins.dynamic import EXEMPT_OWNER
from wharfinger.engine.framework.plugins.pod_topology_spread import domains_weight
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.columns import LoadColumns
from wharfinger.engine.nodes import vectors
from wharfinger.engine.nodes.asked import Asked
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeRow, NodeTable, Taken
from wharfinger.engine.nodes.compiled import Compiler
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.forms import Form, Forms, rows_of
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.relations import Relating, Relations, Run
from wharfinger.engine.nodes.score import Strategy, profile_of
from wharfinger.engine.nodes.standing import (
    DETAIL,
    GONE,
    LOADED,
    NO_DEVICES,
    REASON_OF,
    Standing,
    Standings,
)

_FEW = 16

LOOKS_BYTES = 16 * 2**20
"""What the looks of all classes may hold together; at least a few of them are kept."""

DEVICES_LAST = 60 * DETAIL + NO_DEVICES
"""The verdict for want of devices where no plugin of the profile looks at them: a replica needs them all the same."""


class Choice(msgspec.Struct, frozen=True):
    """A node for one replica. `score`: the total of the profile, the sum of weight x 0..100; `devices` as the replica
    would hold them."""

    row: NodeRow
    score: int
    devices: Taken


class Diagnosis(msgspec.Struct, frozen=True):
    """How many nodes were looked at, how many were feasible, how many fell for each reason."""

    candidates: int
    feasible: int
    refused: dict[NodeReason, int]


class Seen(msgspec.Struct, frozen=True):
    """What there was for a class at the moment it was placed: how the nodes fared, and the best of them without their devices."""

    diagnosis: Diagnosis
    ranked: list[Choice]


@dataclass(slots=True)
class _Recording:
    """What is seen on the way, by the number of the request; the best `count` nodes of each."""

    count: int
    seen: dict[int, Seen] = field(default_factory=dict)


@dataclass(slots=True)
class _Following:
    """What it takes to judge a node anew that was touched, for a class that minds neither other pods nor other nodes. `base`: the
    verdicts before devices; `local`: what `kernels.judge_one` takes after the slot. `with_kinds`: its amounts are copies."""

    base: Column
    local: tuple[Any, ...]
    with_kinds: bool


@dataclass(slots=True)
class Look:
    """All nodes as one class sees them now. `verdicts`, `scores` int64[capacity]: encoded verdict, 0 feasible; the
    total where it is. `best`: the first of the feasible slots, as far as they were asked for; `all_best`: there are no
    more. `usage`, `stamp`: as of which change of what is held, and of anything else."""

    usage: int
    stamp: object
    verdicts: Column
    scores: Column
    following: _Following | None = None
    best: list[int] = field(default_factory=list)
    all_best: bool = False


class _Room:
    """Arrays to work in, as large as the table."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.local_verdicts, self.local_scores = (np.zeros(capacity, dtype=np.int64) for _ in range(2))
        self.raw = np.zeros(capacity, dtype=np.int64)
        self.verdicts, self.scores = (np.zeros(capacity, dtype=np.int64) for _ in range(2))
        self.sums = np.zeros(capacity, dtype=np.float64)
        self.tree: Column = np.zeros(0, dtype=np.int64)
        self.logs = np.zeros(capacity + 2, dtype=np.float64)
        self.raws = np.zeros((2, capacity), dtype=np.int64)


class Placer:
    """Chooses nodes of one table by one profile. Holds caches only: a new one over the same table chooses the same.

    `snapshot`: the cluster as the framework reads it, asked for only by classes with something that has no array form.
    """

    def __init__(
        self, table: NodeTable, profile: Profile | Strategy, snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        self.table = table
        self.profile = profile if isinstance(profile, Profile) else profile_of(profile)
        self.weights = {use.name: use.weight for use in self.profile.at("score")}
        self.standings = Standings(table, self.profile)
        self.ranks = self.standings.ranks
        self.forms = Forms(table, self.profile, self.ranks)
        self.relating = Relating(table, self.profile, self.ranks)
        self.asked = Asked(self.profile, self.ranks, snapshot)
        self.devices = DeviceScores(table, self.profile)
        self.loads: LoadColumns | None = None
        self._load: Column = np.zeros((2, table.capacity), dtype=np.int64)
        self._per: Column = np.zeros(0, dtype=np.int64)
        self._changes = 0
        self._room = _Room(table.capacity)
        self._name_ranks: tuple[int, Column] = (-1, self._per)
        self._inverses: tuple[object, npt.NDArray[np.float64]] = (None, np.zeros((2, 0)))
        self._plus: dict[tuple[bool, tuple[str, ...]], tuple[int, Column]] = {}
        self._looks: dict[PodClass, Look] = {}
        self._alone: dict[str, Placer] = {}
        self._recording: _Recording | None = None

    # --- one replica

    def choose(self, cls: PodClass) -> Choice | None:
        """The feasible node with the highest score, or None. Changes nothing: charging it is the caller's."""
        if not self.table.rows:
            return None
        look = self.look(cls)
        best = self._kernels().best_of(
            self.table.size, look.verdicts, look.scores, self.table.hashes, np.uint64(cls.seed), self._ranked_names()
        )
        return None if best < 0 else self._choice(cls, int(best), int(look.scores[best]), with_devices=True)

    def ranked(self, cls: PodClass, count: int) -> list[Choice]:
        """What `choose` gives and the next best nodes, best first, up to `count`; only the first knows its devices."""
        if not self.table.rows:
            return []
        look = self.look(cls)
        return [
            self._choice(cls, slot, int(look.scores[slot]), with_devices=place == 0)
            for place, slot in enumerate(self._best(cls, look, count))
        ]

    def diagnose(self, cls: PodClass) -> Diagnosis:
        if not self.table.rows:
            return Diagnosis(0, 0, {})
        tally = np.zeros(DETAIL, dtype=np.int64)
        self._kernels().tally_of(self.table.size, self.look(cls).verdicts, tally)
        return self._diagnosed(tally.tolist())

    def _diagnosed(self, tally: list[int]) -> Diagnosis:
        """`tally`: how many slots have each detail of a verdict."""
        if tally[0] == len(self.table.rows):
            return Diagnosis(tally[0], tally[0], {})
        refused: dict[NodeReason, int] = {}
        for detail, count in enumerate(tally[: len(REASON_OF)]):
            if count and detail > GONE:
                refused[REASON_OF[detail]] = refused.get(REASON_OF[detail], 0) + count
        candidates = len(self.table.rows)
        return Diagnosis(candidates, candidates - sum(refused.values()), _in_order(refused))

    def message(self, cls: PodClass) -> str:
        """Why no node is feasible, in the words users of Kubernetes know; empty where one is."""
        return message(self, cls)

    def score_parts(self, row: NodeRow, cls: PodClass) -> dict[str, int]:
        """What each plugin adds to the total of a feasible node, weight included; plugins that add nothing are left out."""
        parts: dict[str, int] = {}
        for name in self.weights:
            alone = self._alone.get(name)
            if alone is None:
                alone = self._alone[name] = Placer(self.table, _only_scoring(self.profile, name), self.asked.read)
            if alone.loads is not self.loads:
                alone.set_loads(self.loads)
            if self.devices.workload is not None and alone.devices.workload is not self.devices.workload:
                alone.set_workload(self.devices.workload)
            part = int(alone.look(cls).scores[row.slot])
            if part:
                parts[name] = part
        return parts

    def fill(self, cls: PodClass, limit: int) -> Iterator[Choice]:
        """Choose up to `limit` replicas one after another, each charged to the table before the next. The caller gives
        the charges back (`NodeTable.charge`), once per node."""
        placed: list[NodeRow] = []
        try:
            for _ in range(limit):
                choice = self.choose(cls)
                if choice is None:
                    return
                self._charge(cls, choice.row, 1, choice.devices)
                placed.append(choice.row)
                yield choice
        finally:
            for row in placed:
                self._moved(cls, row, -1)

    def set_loads(self, loads: LoadColumns | None) -> None:
        """What is measured of the nodes, by slot; None: nothing is."""
        self.loads = loads
        self._lay_loads()

    def set_workload(self, workload: Workload) -> None:
        """What is typically asked for, by which a strategy of devices measures. Until it is told, that score is asked of the
        framework's plugin, which counts what the pods hold."""
        self.devices.workload = workload
        self.asked.leave_devices()
        self._changes += 1

    def _lay_loads(self) -> None:
        loads, capacity = self.loads, self.table.capacity
        windows = 0 if loads is None else len(loads.per)
        self._load = np.zeros((2 + windows, capacity), dtype=np.int64)
        self._changes += 1
        if loads is not None:
            n = min(len(loads.base), capacity)
            self._load[0, :n] = loads.base[:n]
            if windows:
                self._load[2:, :n] = loads.recent[:, :n]
        self._per = np.zeros(0, dtype=np.int64) if loads is None else loads.per.astype(np.int64)

    # --- all nodes

    def look(self, cls: PodClass) -> Look:
        """Every node's verdict and total for one more replica, as of now."""
        table = self.table
        stamp = (
            table.facts.end, id(table.objects), self._changes, table.tallies.epoch, len(table.tallies.carried),
            len(table.resources), len(table.kinds),
        )  # fmt: skip
        known = self._looks.get(cls)
        if known is not None and known.stamp == stamp:
            if known.usage == table.usage.end:
                return known
            if known.following is not None and self._follow(cls, known, known.following):
                return known
        self._fit_room()
        look = Look(table.usage.end, stamp, *self._judged(cls))
        if known is None and len(self._looks) >= max(_FEW, LOOKS_BYTES // (16 * table.capacity)):
            self._looks.clear()
        self._looks[cls] = look
        return look

    def _follow(self, cls: PodClass, look: Look, following: _Following) -> bool:
        """Judge those nodes anew that were touched since; False: they are many, or nobody knows which."""
        table, local = self.table, following.local
        touched = table.usage.since(look.usage)
        if touched is None or len(touched) > _FEW + table.size // 8:
            return False
        judge_one = self._kernels(0).judge_one
        static, free = local[0], local[1]
        for slot in set(touched.tolist()):  # any order: each slot is judged by itself
            if following.with_kinds:
                rows = len(table.resources)
                free[:rows, slot] = table.free[:, slot]
                for kind, column in enumerate(table.whole_left):
                    free[rows + kind, slot] = column[slot]
            if cls.needs:
                static[slot] = self._with_devices(cls, slot, int(following.base[slot]))
            judge_one(slot, *local, look.verdicts, look.scores)
        look.usage, look.best, look.all_best = table.usage.end, [], False
        return True

    def _judged(self, cls: PodClass) -> tuple[Column, Column, _Following | None]:
        table, room, size = self.table, self._room, self.table.size
        k = self._kernels()
        standing = self.standings.of(cls)
        relations = self.relating.of(cls)
        base = self._base(cls, standing)
        static = self._with_all_devices(cls, base) if cls.needs else base
        asked = self.asked.of(cls)
        if asked is not None:
            asked.refuse(table, static := static.copy())
        run = self._run(cls, standing, relations)
        form = self.forms.of(cls)
        local = self._local(cls, form, static, constant=run is None)
        verdicts, scores = np.zeros(table.capacity, dtype=np.int64), np.zeros(table.capacity, dtype=np.int64)
        if run is None:
            k.judge(size, *local, verdicts, scores)
        else:
            k.judge(size, *local, room.local_verdicts, room.local_scores)
            lows, seen = _scratch(run)
            while True:
                found = k.weigh(
                    size, room.local_verdicts, room.local_scores, run.codes, run.counts, run.blocks, run.joins,
                    run.joined, run.hard, run.likes, run.soft, run.needs_all, self._raws(standing), self._four(), room.logs,
                    lows, seen, room.sums, room.raw, verdicts, scores,
                )  # fmt: skip
                if found >= 0:
                    break
                room.logs[-found - 1] = domains_weight(int(-found - 1))
        if asked is not None:
            asked.score(table, verdicts, scores)
        if self.devices.wanted:
            self.devices.add(cls, verdicts, scores)
        if run is not None or asked is not None or self.devices.wanted:
            return verdicts, scores, None
        static, free, alloc, _, *rest = local
        return verdicts, scores, _Following(base, (static, free, alloc, *rest), form.with_kinds)

    def _static(self, cls: PodClass, standing: Standing) -> Column:
        """Verdicts of facts, measured load and devices."""
        base = self._base(cls, standing)
        return self._with_all_devices(cls, base) if cls.needs else base

    def _base(self, cls: PodClass, standing: Standing) -> Column:
        """Verdicts of facts and measured load."""
        static = standing.verdicts
        loads = self.loads
        if loads is not None and cls.traits.owner != EXEMPT_OWNER:
            encoded = self.ranks.encoded("Dynamic", LOADED)
            if encoded and loads.verdict.any():
                static = static.copy()
                n = min(len(loads.verdict), len(static))
                here = static[:n]
                np.putmask(here, (loads.verdict[:n] != 0) & ((here == 0) | (here > encoded)), encoded)
        return static

    def _with_devices(self, cls: PodClass, slot: int, verdict: int) -> int:
        """The verdict of a slot, which is `verdict` but for devices."""
        encoded = self.ranks.encoded("Devices", NO_DEVICES) or DEVICES_LAST
        if verdict and verdict <= encoded:
            return verdict
        lacking = any(
            need.view.whole[slot] < need.count
            if need.count > 1 and need.milli == DEVICE_MILLI
            else need.view.top[slot] < need.milli
            for need in cls.needs
        )
        if not lacking and not cls.simple and not verdict:
            row = self.table.by_slot[slot]
            lacking = row is None or take_devices(row, cls.needs) is None
        return encoded if lacking else verdict

    def _with_all_devices(self, cls: PodClass, base: Column) -> Column:
        """`_with_devices` of all slots."""
        static = base.copy()
        encoded = self.ranks.encoded("Devices", NO_DEVICES) or DEVICES_LAST
        lacking = np.zeros(len(static), dtype=np.bool_)
        for need in cls.needs:
            # More than one whole device is a matter of counting; for a share, or one device, the freest device decides.
            several = need.count > 1 and need.milli == DEVICE_MILLI
            lacking |= need.view.whole < need.count if several else need.view.top < need.milli
        if not cls.simple:
            for slot in np.flatnonzero(~lacking & (static == 0)).tolist():
                row = self.table.by_slot[slot]
                lacking[slot] = row is None or take_devices(row, cls.needs) is None
        np.putmask(static, lacking & ((static == 0) | (static > encoded)), encoded)
        return static

    def _run(self, cls: PodClass, standing: Standing, relations: Relations) -> Run | None:
        """None: neither other pods nor what others score matters to the class."""
        if relations.none and not self._raw(standing):
            return None
        return self.relating.run(cls, relations, standing)

    def _raw(self, standing: Standing) -> bool:
        tainted = standing.taints is not None and "TaintToleration" in self.weights
        return tainted or standing.preferences is not None

    def _raws(self, standing: Standing) -> Column:
        room = self._room
        room.raws[0] = 0 if standing.taints is None else standing.taints
        room.raws[1] = 0 if standing.preferences is None else standing.preferences
        return room.raws

    def _four(self) -> Column:
        names = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")
        return np.array([self.weights.get(name, 0) for name in names], dtype=np.int64)

    def _local(self, cls: PodClass, form: Form, static: Column, constant: bool) -> tuple[Any, ...]:
        """What `kernels.judge` takes after the size. `constant`: what all nodes get of preferred taints is in the score."""
        table = self.table
        free, alloc = table.free, table.allocatable
        asks, fit, balance = form.asks, form.fit, form.balance
        if form.with_kinds:
            free, alloc = self._with_kinds()
            rows = len(table.resources)
            asks = tuple((_row(row, rows), amount, short) for row, amount, short in asks)
            fit = tuple((source, _row(row, rows), weight, ask) for source, row, weight, ask in fit)
            balance = tuple((_row(row, rows), ask) for row, ask in balance)
        scoring = _scoring(form, *self._way())
        return (
            static, free, alloc, self._inverse(), table.scored, self._plus_of(cls, constant), rows_of(asks, 3),
            np.array(scoring, dtype=np.int64), rows_of(fit, 4), rows_of(balance, 2), self.forms.shape, self._load, self._per,
        )  # fmt: skip

    def _inverse(self) -> npt.NDArray[np.float64]:
        """Of the cpu and the memory each node has."""
        stamp = (self.table.facts.end, self.table.capacity)
        if self._inverses[0] != stamp:
            self._inverses = (stamp, 1.0 / np.maximum(self.table.allocatable[:2], 1))
        return self._inverses[1]

    def _way(self) -> tuple[int, bool]:
        """The weight of measured load, and whether cpu and memory alone may be scored the quick way."""
        loaded = self.weights.get("Dynamic", 0) if self.loads is not None else 0
        return loaded, self.forms.quick_table()

    def _with_kinds(self) -> tuple[Column, Column]:
        table = self.table
        whole = [column // DEVICE_MILLI for column in table.kind_allocatable]
        return np.concatenate((table.free, table.whole_left)), np.concatenate((table.allocatable, whole))

    def _plus_of(self, cls: PodClass, constant: bool) -> Column:
        """What of the score is the same whatever is used: where the images lie, and preferred taints where there are none."""
        images = cls.traits.images if "ImageLocality" in self.weights else ()
        key = (constant, images)
        stamp = self.table.facts.end
        known = self._plus.get(key)
        if known is None or known[0] != stamp:
            if len(self._plus) > 256:
                self._plus.clear()
            known = self._plus[key] = (stamp, self._plus_made(images, constant))
        return known[1]

    def _plus_made(self, images: tuple[str, ...], constant: bool) -> Column:
        everywhere = 100 * self.weights.get("TaintToleration", 0) if constant else 0
        plus = np.full(self.table.capacity, everywhere, dtype=np.int64)
        totals: dict[int, int] = {}
        nodes = len(self.table.rows)
        for image in images:
            on = self.table.image_nodes.get(image, {})
            for slot, size in on.items():
                totals[slot] = totals.get(slot, 0) + image_share(size, len(on), nodes)
        for slot, total in totals.items():
            plus[slot] += self.weights["ImageLocality"] * images_score(total, len(images))
        return plus

    # --- many replicas

    def place_batch(
        self, requests: Sequence[tuple[PodClass, int]], priorities: Sequence[int] | None = None
    ) -> list[list[Choice]]:
        """Nodes for all requested replicas, in sight of each other; fewer choices than asked: the rest does not fit.
        The table stays as it was.

        As given is one at a time, each request after the one before. Where that leaves some without a node, requests
        of equal `priorities` (without: all) are tried in other orders, too: the largest first by their dominant
        share, those with the largest devices first, the most restricted first. The order counts that places more of
        the higher priority, and if equal of the next; among equals the one that was given. So the joint placement is
        never worse than one at a time."""
        return self._placed(requests, priorities, None)

    def place_batch_seen(
        self, requests: Sequence[tuple[PodClass, int]], priorities: Sequence[int] | None, named: int
    ) -> list[tuple[list[Choice], Seen | None]]:
        """As `place_batch`, with what there was for each request when those before it were placed: the best `named` nodes, and the
        diagnosis. None where that was not seen on the way, and has to be looked at."""
        recording = _Recording(named)
        placed = self._placed(requests, priorities, recording)
        return [(choices, recording.seen.get(number)) for number, choices in enumerate(placed)]

    def _placed(
        self,
        requests: Sequence[tuple[PodClass, int]],
        priorities: Sequence[int] | None,
        recording: _Recording | None,
    ) -> list[list[Choice]]:
        self._recording = recording
        try:
            placed = self._place_in_order(requests, range(len(requests)))
        finally:
            self._recording = None
        if len(requests) < 2 or not _short(requests, placed):
            return placed
        levels = list(priorities) if priorities is not None else [0] * len(requests)
        best, objective = placed, _objective(placed, levels)
        for order in self._other_orders(requests, levels):
            tried = self._place_in_order(requests, order)
            reached = _objective(tried, levels)
            if reached > objective:
                best, objective = tried, reached
                if recording is not None:
                    recording.seen.clear()  # what was seen is of another order
        return best

    def _other_orders(self, requests: Sequence[tuple[PodClass, int]], levels: Sequence[int]) -> Iterator[list[int]]:
        seen = {tuple(range(len(requests)))}
        numbers = range(len(requests))
        feasible = [self.diagnose(cls).feasible for cls, _ in requests]
        shares = [self._dominant_share(cls) for cls, _ in requests]
        devices = [sum(need.count * need.milli for need in cls.needs) for cls, _ in requests]
        by_share = sorted(numbers, key=lambda i: (-levels[i], -shares[i], i))
        by_devices = sorted(numbers, key=lambda i: (-levels[i], -devices[i], -shares[i], i))
        by_choice = sorted(numbers, key=lambda i: (-levels[i], feasible[i], -shares[i], i))
        for order in (by_share, by_devices, by_choice):
            if tuple(order) not in seen:
                seen.add(tuple(order))
                yield order

    def _dominant_share(self, cls: PodClass) -> int:
        """In millionths of all the cluster has."""
        whole = self.table.allocatable[:, : self.table.size].sum(axis=1).tolist()
        return max((amount * 10**6 // whole[code] for code, amount in cls.amounts if whole[code]), default=0)

    def _place_in_order(self, requests: Sequence[tuple[PodClass, int]], order: Sequence[int]) -> list[list[Choice]]:
        placed: list[list[Choice]] = [[] for _ in requests]
        charged: list[tuple[PodClass, list[Choice]]] = []
        at = 0
        try:
            while at < len(order):
                cls, count = requests[order[at]]
                if self.table.rows and self._singly(cls):
                    # It is charged as it is chosen, and stays so for those behind it.
                    placed[order[at]] = choices = self._one_by_one(cls, count, order[at])
                    charged.append((cls, choices))
                    at += 1
                    continue
                end, found = self._segment(requests, order, at)
                for number, choices in zip(order[at:end], found, strict=True):
                    placed[number] = choices
                    if end < len(order) and choices:
                        self._charge_all(requests[number][0], choices, 1)
                        charged.append((requests[number][0], choices))
                at = end
        finally:
            for cls, choices in charged:
                self._charge_all(cls, choices, -1)
        return placed

    def _segment(
        self, requests: Sequence[tuple[PodClass, int]], order: Sequence[int], at: int
    ) -> tuple[int, list[list[Choice]]]:
        """Place requests from `at` on as far as one kernel goes: those that mind nobody together, each other by itself."""
        if not self.table.rows:
            return len(order), [[] for _ in order[at:]]
        self._fit_room()
        alone: list[tuple[PodClass, int, Standing]] = []
        end = at
        while end < len(order):
            cls, count = requests[order[end]]
            standing = self.standings.of(cls)
            if self._singly(cls) or self._raw(standing) or not self.relating.of(cls).none:
                break
            alone.append((cls, count, standing))
            end += 1
        if alone:
            return end, self._place_many(alone, order[at:end])
        cls, count = requests[order[at]]
        choices = self._place_run(cls, count)
        if self._recording is not None and count == 1:
            self._recording.seen[order[at]] = self._seen_now(cls, self._recording.count)
        return at + 1, [choices]

    def _singly(self, cls: PodClass) -> bool:
        """Whether no kernel places several of the class: its devices or what is asked about it are looked at each time."""
        return bool(cls.needs) or self.devices.wanted or self.asked.of(cls) is not None

    def _one_by_one(self, cls: PodClass, count: int, number: int) -> list[Choice]:
        """Each charged to the table before the next is chosen."""
        if self._recording is not None:
            self._recording.seen[number] = Seen(self.diagnose(cls), self.ranked(cls, self._recording.count))
        choices: list[Choice] = []
        while len(choices) < count and (choice := self.choose(cls)) is not None:
            self._charge(cls, choice.row, 1, choice.devices)
            choices.append(choice)
        return choices

    def _place_run(self, cls: PodClass, count: int) -> list[Choice]:
        table, room = self.table, self._room
        k = self._kernels(count)
        standing = self.standings.of(cls)
        run = self.relating.run(cls, self.relating.of(cls), standing)
        static, free, alloc, inverse, held, *rest = self._local(
            cls, self.forms.of(cls), self._static(cls, standing), constant=False
        )
        plus, asks, form, fit, balance, shape, load, per = rest
        free, held, load = free.copy(), held.copy(), load.copy()
        nodes, totals = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        lows, seen = _scratch(run)
        done = 0
        while True:
            found = k.place_run(
                count, done, table.size, static, free, alloc, inverse, held, plus, asks, form, fit, balance, shape, load, per,
                run.codes, run.counts, run.blocks, run.joins, run.joined, run.hard, run.admits, run.likes, run.soft, run.needs_all,
                self._raws(standing), self._four(), room.logs, table.hashes, np.uint64(cls.seed), self._ranked_names(), lows, seen,
                room.sums, room.raw, room.local_verdicts, room.local_scores, room.verdicts, room.scores, nodes,
                totals,
            )  # fmt: skip
            if found >= 0:
                break
            done = int(run.joined[3])
            room.logs[-found - 1] = domains_weight(int(-found - 1))
        return [
            self._choice(cls, slot, total, with_devices=False)
            for slot, total in zip(nodes[:found].tolist(), totals[:found].tolist(), strict=True)
        ]

    def _seen_now(self, cls: PodClass, count: int) -> Seen:
        """From the room of a run of one: as it stands there, that one is not placed yet."""
        room, k, size = self._room, self._kernels(), self.table.size
        top, tally = np.zeros(count, dtype=np.int64), np.zeros(DETAIL, dtype=np.int64)
        ranks, seed = self._ranked_names(), np.uint64(cls.seed)
        there = k.top_of(size, room.verdicts, room.scores, self.table.hashes, seed, ranks, top)
        k.tally_of(size, room.verdicts, tally)
        best = top[:there]
        return self._seen(cls, tally.tolist(), best.tolist(), room.scores[best].tolist())

    def _seen(self, cls: PodClass, tally: list[int], best: list[int], scores: list[int]) -> Seen:
        ranked = [
            self._choice(cls, slot, score, with_devices=False)
            for slot, score in zip(best, scores, strict=True)
            if slot >= 0
        ]
        return Seen(self._diagnosed(tally), ranked)

    def _place_many(self, wanted: list[tuple[PodClass, int, Standing]], numbers: Sequence[int]) -> list[list[Choice]]:
        table, room = self.table, self._room
        statics: dict[int, int] = {}
        static_columns: list[Column] = []
        pluses: dict[int, int] = {}
        plus_columns: list[Column] = []
        static_of, plus_of = [], []
        forms = [self.forms.of(cls) for cls, _, _ in wanted]
        for cls, _, standing in wanted:
            exempt = cls.traits.owner == EXEMPT_OWNER
            key = id(standing) * 2 + exempt
            if key not in statics:
                statics[key] = len(static_columns)
                static_columns.append(self._static(cls, standing))
            static_of.append(statics[key])
            plus = self._plus_of(cls, constant=True)
            if id(plus) not in pluses:
                pluses[id(plus)] = len(plus_columns)
                plus_columns.append(plus)
            plus_of.append(pluses[id(plus)])
        groups = _alike(forms)
        counts = [count for _, count, _ in wanted]
        offsets = np.cumsum([0, *counts])
        nodes, totals = np.full(int(offsets[-1]), -1, dtype=np.int64), np.zeros(int(offsets[-1]), dtype=np.int64)
        leaves = 1 << max(0, (table.size - 1).bit_length())
        if len(room.tree) < 2 * leaves:
            room.tree = np.zeros(2 * leaves, dtype=np.int64)
        free, held, load = table.free.copy(), table.scored.copy(), self._load.copy()
        k = self._kernels(sum(1 if c == 1 else 3 for c in counts))
        loaded, quick = self._way()
        scoring = np.array([_scoring(f, loaded, quick) for f in forms], dtype=np.int64)
        int_arrays = [np.array(a, dtype=np.int64) for a in (static_of, plus_of, counts)]
        seeds = np.array([cls.seed for cls, _, _ in wanted], dtype=np.uint64)
        static_stack, plus_stack = np.stack(static_columns), np.stack(plus_columns)
        recording = self._recording
        tops = np.full((len(wanted), 0 if recording is None else recording.count), -1, dtype=np.int64)
        top_scores = np.zeros_like(tops)
        tallies = np.zeros((len(wanted), DETAIL if tops.shape[1] else 0), dtype=np.int64)
        for first, last in groups:
            asks = np.array([f.asks for f in forms[first:last]], dtype=np.int64)
            fits = np.array([f.fit for f in forms[first:last]], dtype=np.int64).reshape(last - first, -1, 4)
            balances = np.array([f.balance for f in forms[first:last]], dtype=np.int64).reshape(last - first, -1, 2)
            part = slice(first, last)
            k.place_many(
                0, last - first, table.size, static_stack, int_arrays[0][part], free, table.allocatable, self._inverse(), held,
                plus_stack,
                int_arrays[1][part], asks, scoring[part], fits, balances, self.forms.shape, load,
                self._per, table.hashes, seeds[part], self._ranked_names(), int_arrays[2][part], offsets[part], room.tree, leaves,
                room.verdicts, room.scores, nodes, totals, tops[part], top_scores[part], tallies[part],
            )  # fmt: skip
        if recording is not None:
            rows = zip(tallies.tolist(), tops.tolist(), top_scores.tolist(), strict=True)
            for number, (cls, _, _), row in zip(numbers, wanted, rows, strict=True):
                recording.seen[number] = self._seen(cls, *row)
        return self._choices(wanted, offsets.tolist(), nodes.tolist(), totals.tolist())

    def _choices(
        self, wanted: list[tuple[PodClass, int, Standing]], offsets: list[int], nodes: list[int], totals: list[int]
    ) -> list[list[Choice]]:
        by_slot = self.table.by_slot
        found: list[list[Choice]] = []
        for i in range(len(wanted)):
            part = range(offsets[i], offsets[i + 1])
            found.append([Choice(by_slot[nodes[at]], totals[at], ()) for at in part if nodes[at] >= 0])  # type: ignore[arg-type]
        return found

    def _charge(self, cls: PodClass, row: NodeRow, times: int, devices: Taken) -> None:
        taken = [(i, times * milli) for i, milli in devices]
        self.table.charge(row, cls, times, taken)
        self._moved(cls, row, times)

    def _moved(self, cls: PodClass, row: NodeRow, times: int) -> None:
        """What only this placer counts, since no book holds it yet."""
        self._load[1, row.slot] += times
        if self.loads is not None:
            self._changes += 1
        if self.asked.read is not None:
            self.asked.moved(cls, row.name, times)

    def _charge_all(self, cls: PodClass, choices: Sequence[Choice], times: int) -> None:
        for choice in choices:
            self._charge(cls, choice.row, times, choice.devices)

    # --- small things

    def _kernels(self, looks: int = 1) -> Any:
        return COMPILER.kernels(looks * self.table.size)

    def _ranked_names(self) -> Column:
        if self._name_ranks[0] != self.table.names or len(self._name_ranks[1]) != self.table.capacity:
            ranks = np.zeros(self.table.capacity, dtype=np.int64)
            for rank, name in enumerate(sorted(self.table.rows)):
                ranks[self.table.rows[name].slot] = rank
            self._name_ranks = (self.table.names, ranks)
        return self._name_ranks[1]

    def _fit_room(self) -> None:
        if self._room.capacity != self.table.capacity:
            self._room = _Room(self.table.capacity)
            self._lay_loads()

    def _best(self, cls: PodClass, look: Look, count: int) -> list[int]:
        size = self.table.size
        if count <= _FEW:
            if len(look.best) < count and not look.all_best:
                top = np.zeros(count, dtype=np.int64)
                there = self._kernels().top_of(
                    size, look.verdicts, look.scores, self.table.hashes, np.uint64(cls.seed), self._ranked_names(), top
                )
                look.best, look.all_best = top[:there].tolist(), there < count
            return look.best[:count]
        slots = np.flatnonzero(look.verdicts[:size] == 0)
        scores = look.scores[slots]
        mixed = self.table.hashes[slots] ^ np.uint64(cls.seed)
        order = np.lexsort((self._ranked_names()[slots], mixed, scores))[::-1]
        found: list[int] = slots[order[:count]].tolist()
        return found

    def _choice(self, cls: PodClass, slot: int, score: int, with_devices: bool) -> Choice:
        row = self.table.by_slot[slot]
        assert row is not None, "a slot without a node is never feasible"
        return Choice(row, score, _devices(row, cls) if with_devices else ())


def _devices(row: NodeRow, cls: PodClass) -> Taken:
    if not cls.needs:
        return ()
    devices = take_devices(row, cls.needs)
    assert devices is not None, "the columns call feasible what the row does not"
    return devices


def _only_scoring(profile: Profile, name: str) -> Profile:
    scores = tuple(use for use in profile.at("score") if use.name == name)
    return msgspec.structs.replace(profile, points={**profile.points, "score": scores})


def _row(row: int, resources: int) -> int:
    return row if row >= 0 else resources - 1 - row


def _scratch(run: Run) -> tuple[Column, Column]:
    """`lows` and `seen` of `kernels.weigh`."""
    return np.zeros(len(run.hard), dtype=np.int64), np.zeros(run.room + 1, dtype=np.int64)


def _alike(forms: Sequence[Form]) -> list[tuple[int, int]]:
    """Stretches of forms with as many rows each, so that they make one array."""
    groups: list[tuple[int, int]] = []
    first = 0
    for at in range(1, len(forms) + 1):
        if at == len(forms) or _shape(forms[at]) != _shape(forms[first]):
            groups.append((first, at))
            first = at
    return groups


def _shape(form: Form) -> tuple[int, int, int]:
    return len(form.asks), len(form.fit), len(form.balance)


def _scoring(form: Form, loaded: int, quick: bool) -> tuple[int, ...]:
    strategy, fit, balance, by_change, _, cpu, memory, _, _ = form.form
    return strategy, fit, balance, by_change, int(quick and form.quick), cpu, memory, int(loaded > 0), loaded


def _short(requests: Sequence[tuple[PodClass, int]], placed: Sequence[Sequence[Choice]]) -> bool:
    return any(len(choices) < count for (_, count), choices in zip(requests, placed, strict=True))


def _objective(placed: Sequence[Sequence[Choice]], levels: Sequence[int]) -> tuple[int, ...]:
    """How many are placed of each priority, the highest first."""
    counts = dict.fromkeys(sorted(set(levels), reverse=True), 0)
    for level, choices in zip(levels, placed, strict=True):
        counts[level] += len(choices)
    return tuple(counts.values())


_ORDER: tuple[NodeReason, ...] = tuple(dict.fromkeys(REASON_OF))


def _in_order(refused: dict[NodeReason, int]) -> dict[NodeReason, int]:
    return {reason: refused[reason] for reason in _ORDER if reason in refused}


def _warm(kernels: Any) -> None:
    """Every kernel once, over one node, with arrays of the kinds a Placer makes."""
    from wharfinger.engine.nodes.warm import place_everything

    place_everything(kernels)


COMPILER = Compiler(_warm, instead=vectors)
