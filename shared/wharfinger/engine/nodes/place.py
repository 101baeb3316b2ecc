"""Chooses the best node of a cluster for a class of pods, under one scheduler profile. Every choice
filters and scores all nodes, without sampling.

The rules of a profile are evaluated over arrays: node facts by claims (`facts`), requests and
resource scores as rows of numbers (`resources`), other pods as tallies (`topology`). A kernel
filters and scores all nodes in one pass. For several replicas one kernel call places all of them,
and each placement is visible to the next. The result equals that of `engine.framework`: the same
feasible nodes, reasons and totals. A rule without an array form is evaluated node by node
(`fallback`). Each rule states its form; no rule is known here by name.

Ties: equal scores are ordered by hash(node name) xor hash(class key), then by name. The order
depends on names only, so neither arrival order nor slot numbers influence a decision. It differs
between classes, so that ties do not accumulate on one node. It is the same for all bindings of a
class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.scheduler import Profile
from wharfinger.engine import machine_code
from wharfinger.engine.devices.placing import DeviceScores
from wharfinger.engine.devices.workload import DeviceWorkload
from wharfinger.engine.framework.formulas import domains_weight
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.columns import LoadColumns
from wharfinger.engine.nodes import kernels as plain
from wharfinger.engine.nodes import vectors
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeRow, NodeTable, Taken
from wharfinger.engine.nodes.counting import Relations
from wharfinger.engine.nodes.facts import FactVerdicts, NodeFactVerdicts, lower
from wharfinger.engine.nodes.fallback import PluginFallback
from wharfinger.engine.nodes.fit import NO_DEVICES, take_devices
from wharfinger.engine.nodes.forms import LoadColumn
from wharfinger.engine.nodes.node_facts import NodeFacts
from wharfinger.engine.nodes.profile_rules import ProfileRules
from wharfinger.engine.nodes.resources import ResourceForms, ResourceRows, rows_of
from wharfinger.engine.nodes.score import Strategy, profile_of
from wharfinger.engine.nodes.topology import Relating, TopologyCounters
from wharfinger.engine.nodes.verdicts import DETAIL, LAST

KERNELS = machine_code.kernels(plain, instead=vectors)
"""The functions of `kernels`, compiled or plain."""

_FEW = 16

SCORES_BYTES = 16 * 2**20
"""Memory limit of all cached `NodeScores` together. Those of a few classes are always kept."""


class NodeChoice(msgspec.Struct, frozen=True):
    """A node for one replica. `score`: the total score under the profile, the sum of weight *
    (0..100); `devices`: the devices that the replica would get."""

    row: NodeRow
    score: int
    devices: Taken


class Diagnosis(msgspec.Struct, frozen=True):
    """The result of filtering all nodes for one class: the number of candidate nodes, of feasible
    nodes, and of refused nodes by reason."""

    candidates: int
    feasible: int
    refused: dict[NodeReason, int]


class PlacementContext(msgspec.Struct, frozen=True):
    """The situation in which a class was placed: the diagnosis of all nodes, and the best feasible
    nodes, best first, usually without their devices."""

    diagnosis: Diagnosis
    ranked: list[NodeChoice]


@dataclass(slots=True)
class _Recording:
    """Collects a `PlacementContext` for each request during a batch. The key of `seen` is the
    position of the request in the batch; `count`: how many of the best nodes are recorded."""

    count: int
    seen: dict[int, PlacementContext] = field(default_factory=dict)


@dataclass(slots=True)
class _Following:
    """The arguments with which a changed node is evaluated again. It exists only for classes whose
    score of a node depends on that node alone.

    `base`: the verdicts before devices; `local`: the arguments of `kernels.judge_one` after the
    slot. `with_kinds`: the arrays of amounts are copies and have to be updated first.
    """

    base: Column
    local: tuple[Any, ...]
    with_kinds: bool


@dataclass(slots=True)
class NodeScores:
    """The cached verdicts and scores of all nodes for one class.

    `verdicts`, `scores` int64[capacity]: the encoded verdict, 0: feasible; the total of a feasible
    node. `best`: the best feasible slots computed so far, best first; `all_best`: there are no
    others. The entry is valid while `usage` (position in the usage log) and `stamp` (everything
    else it depends on) are unchanged.
    """

    usage: int
    stamp: object
    verdicts: Column
    scores: Column
    following: _Following | None = None
    best: list[int] = field(default_factory=list)
    all_best: bool = False


class _Room:
    """Preallocated work arrays for the kernels, with one element per slot of the table."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.local_verdicts, self.local_scores = (
            np.zeros(capacity, dtype=np.int64) for _ in range(2)
        )
        self.raw = np.zeros(capacity, dtype=np.int64)
        self.verdicts, self.scores = (np.zeros(capacity, dtype=np.int64) for _ in range(2))
        self.sums = np.zeros(capacity, dtype=np.float64)
        self.tree: Column = np.zeros(0, dtype=np.int64)
        self.logs = np.zeros(capacity + 2, dtype=np.float64)
        self.raws = np.zeros((2, capacity), dtype=np.int64)


class Placer:
    """Chooses nodes of one table under one profile.

    Its only inputs besides the table are those of `set_loads` and `set_workload`; everything else
    it stores is a cache. A new placer with the same inputs makes the same choices.

    `snapshot`: returns the cluster as the framework sees it; it is called only for classes with
    rules that have no array form. `scoring`: only this rule scores; None: all do.
    """

    def __init__(
        self,
        table: NodeTable,
        profile: Profile | Strategy,
        snapshot: Callable[[], Snapshot] | None = None,
        scoring: str | None = None,
    ) -> None:
        self.kernels: Any = KERNELS
        self.table = table
        self.profile = profile if isinstance(profile, Profile) else profile_of(profile)
        self.rules = rules = ProfileRules(self.profile, scoring)
        self.facts = FactVerdicts(table, rules.facts, rules.codes)
        self.resources = ResourceForms(table, rules)
        self.relating = Relating(table, rules)
        self.fallback = PluginFallback(rules, snapshot)
        device_rule, devices = rules.devices or (None, None)
        self.devices = DeviceScores(table, devices, rules.weight(device_rule))
        self.loads: LoadColumns | None = None
        load_rule, load = rules.load or ("", None)
        self._load_rule: LoadColumn | None = load
        self._load_weight = rules.weight(load_rule)
        self._loaded = 0 if load is None else rules.codes.encoded(load_rule, load.refused)
        # Devices are always checked, also if no rule of the profile checks them.
        self._no_devices = rules.codes.encoded(device_rule or "", NO_DEVICES) or rules.codes.at(
            LAST, NO_DEVICES
        )
        self._relative_weights = np.array(rules.relative_weights, dtype=np.int64)
        self._load: Column = np.zeros((2, table.capacity), dtype=np.int64)
        self._per: Column = np.zeros(0, dtype=np.int64)
        self._changes = 0
        self._room = _Room(table.capacity)
        self._name_ranks: tuple[int, Column] = (-1, self._per)
        self._inverses: tuple[object, npt.NDArray[np.float64]] = (None, np.zeros((2, 0)))
        self._plus: dict[Hashable, tuple[int, Column]] = {}
        self._kept_scores: dict[PodClass, NodeScores] = {}
        self._alone: dict[str, Placer] = {}
        self._recording: _Recording | None = None

    # --- one replica

    def choose(self, cls: PodClass) -> NodeChoice | None:
        """Returns the feasible node with the highest score for one replica of the class, with this
        score and the devices that the replica would get there. None: no node is feasible. Among
        equal scores the node with the highest hash(node name) xor hash(class key) is chosen. The
        node table is not changed: the caller has to subtract the requests of the replica from the
        free amounts and devices of the node."""
        if not self.table.rows:
            return None
        look = self.look(cls)
        best = self.kernels.best_of(
            self.table.size,
            look.verdicts,
            look.scores,
            self.table.hashes,
            np.uint64(cls.seed),
            self._ranked_names(),
        )
        return (
            None
            if best < 0
            else self._choice(cls, int(best), int(look.scores[best]), with_devices=True)
        )

    def ranked(self, cls: PodClass, count: int) -> list[NodeChoice]:
        """Returns up to `count` feasible nodes, best first. The first is the node that `choose`
        returns; only this one includes its devices."""
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
        self.kernels.tally_of(self.table.size, self.look(cls).verdicts, tally)
        return self._diagnosed(tally.tolist())

    def _diagnosed(self, tally: list[int]) -> Diagnosis:
        """Builds the diagnosis of a class. `tally`: number of slots by verdict detail; index 0:
        feasible."""
        candidates = len(self.table.rows)
        if tally[0] == candidates:
            return Diagnosis(candidates, candidates, {})
        refused = self.rules.codes.counted(tally)
        return Diagnosis(candidates, candidates - sum(refused.values()), refused)

    def score_parts(self, row: NodeRow, cls: PodClass) -> dict[str, int]:
        """Splits the total score of a feasible node by rule of the profile. Returns rule name ->
        score of the rule times its weight. Rules that contribute 0 are left out.

        Each part is computed by another `Placer` (an object like this one) that scores by this rule
        only. These objects are kept for later calls. `row`: the node. Example: a total of 150 is
        split into 80 of NodeResourcesFit and 70 of ImageLocality.
        """
        parts: dict[str, int] = {}
        for name in self.rules.weights:
            alone = self._alone.get(name)
            if alone is None:
                alone = self._alone[name] = Placer(
                    self.table, self.profile, self.fallback.read, scoring=name
                )
            if alone.loads is not self.loads:
                alone.set_loads(self.loads)
            if (
                self.devices.workload is not None
                and alone.devices.workload is not self.devices.workload
            ):
                alone.set_workload(self.devices.workload)
            part = int(alone.look(cls).scores[row.slot])
            if part:
                parts[name] = part
        return parts

    def fill(self, cls: PodClass, limit: int) -> Iterator[NodeChoice]:
        """Places up to `limit` replicas of one class, one after another. Yields for each replica
        the chosen node, its score and the devices. Each replica is charged (its requests are
        subtracted from the free amounts and devices of its node) before the next is chosen. Stops
        when no node is feasible.

        When the iterator ends, all charges stay. The caller has to reverse each charge with
        `NodeTable.charge`.
        """
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
        """Sets the measured loads, by slot; None: there are no measurements."""
        self.loads = loads
        self._lay_loads()

    def set_workload(self, workload: DeviceWorkload) -> None:
        """Sets the typical requests, on which the device strategies depend. Before the first call,
        the rule itself computes the device score, node by node."""
        self.devices.workload = workload
        if self.rules.devices is not None:
            self.fallback.leave_score(self.rules.devices[0])
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

    def look(self, cls: PodClass) -> NodeScores:
        """Returns the verdict (0: feasible, otherwise why the node is refused) and the total score
        of every node for one more replica of the class.

        The result is cached by class. If only the usage of some nodes changed since the last call,
        only these nodes are evaluated again. All nodes are evaluated again if the score of a node
        depends on other nodes or pods, or if anything else changed (labels, taints, measured loads,
        ...).
        """
        table = self.table
        stamp = (
            table.facts.end,
            table.objects_changes,
            self._changes,
            table.tallies.epoch,
            len(table.tallies.carried),
            len(table.resources),
            len(table.kinds),
        )
        known = self._kept_scores.get(cls)
        if known is not None and known.stamp == stamp:
            if known.usage == table.usage.end:
                return known
            if known.following is not None and self._follow(cls, known, known.following):
                return known
        self._fit_room()
        look = NodeScores(table.usage.end, stamp, *self._judged(cls))
        if known is None and len(self._kept_scores) >= max(
            _FEW, SCORES_BYTES // (16 * table.capacity)
        ):
            self._kept_scores.clear()
        self._kept_scores[cls] = look
        return look

    def _follow(self, cls: PodClass, look: NodeScores, following: _Following) -> bool:
        """Updates the cached verdicts and scores of a class: evaluates only the nodes whose usage
        changed since they were computed. Returns whether this was possible; False: nothing is
        changed, and the caller evaluates all nodes.

        It is not possible if the node table's log of changes does not reach back to that time, or
        if the number of changes is more than 16 plus an eighth of the nodes. Example: with 800
        nodes at most 116 changes. `look`: the cached verdicts and scores. `following`: the
        arguments of the kernel (compiled loop) with which these were computed.
        """
        table, local = self.table, following.local
        touched = table.usage.since(look.usage)
        if touched is None or len(touched) > _FEW + table.size // 8:
            return False
        judge_one = self.kernels.judge_one
        static, free = local[0], local[1]
        for slot in set(touched.tolist()):  # any order: slots do not depend on each other
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
        k = self.kernels
        facts = self.facts.of(cls)
        relations = self.relating.of(cls)
        base = self._base(cls, facts)
        static = self._with_all_devices(cls, base) if cls.needs else base
        asked = self.fallback.of(cls)
        if asked is not None:
            asked.refuse(table, static := static.copy())
        run = self._run(cls, facts, relations)
        form = self.resources.of(cls)
        local = self._local(cls, form, static, constant=run is None)
        verdicts, scores = (
            np.zeros(table.capacity, dtype=np.int64),
            np.zeros(table.capacity, dtype=np.int64),
        )
        if run is None:
            k.judge(size, *local, verdicts, scores)
        else:
            k.judge(size, *local, room.local_verdicts, room.local_scores)
            lows, seen = _scratch(run)
            while True:
                found = k.weigh(
                    size,
                    room.local_verdicts,
                    room.local_scores,
                    run.codes,
                    run.counts,
                    run.blocks,
                    run.joins,
                    run.joined,
                    run.hard,
                    run.likes,
                    run.soft,
                    run.needs_all,
                    self._raws(facts),
                    self._relative_weights,
                    room.logs,
                    lows,
                    seen,
                    room.sums,
                    room.raw,
                    verdicts,
                    scores,
                )
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

    def _static(self, cls: PodClass, facts: NodeFactVerdicts) -> Column:
        """Returns the encoded verdicts of node facts, measured load and devices."""
        base = self._base(cls, facts)
        return self._with_all_devices(cls, base) if cls.needs else base

    def _base(self, cls: PodClass, facts: NodeFactVerdicts) -> Column:
        """Returns the encoded verdicts of node facts and measured load, without devices."""
        static, loads = facts.verdicts, self.loads
        if loads is not None and self._loaded and not self._exempt(cls) and loads.verdict.any():
            static = static.copy()
            n = min(len(loads.verdict), len(static))
            lower(static[:n], loads.verdict[:n] != 0, self._loaded)
        return static

    def _exempt(self, cls: PodClass) -> bool:
        """Whether the load filter does not apply to the class."""
        return self._load_rule is not None and self._load_rule.exempt(cls.traits)

    def _with_devices(self, cls: PodClass, slot: int, verdict: int) -> int:
        """Returns the verdict of one node with the check of its devices included (0: feasible,
        otherwise why the node is refused). `slot`: array position of the node. `verdict`: the
        verdict without the check of devices.

        If the devices do not suffice, the result is the verdict of the device check. Exception:
        `verdict` is a refusal by an earlier filter of the profile; then `verdict` is returned. If
        the devices suffice, `verdict` is returned.
        """
        encoded = self._no_devices
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
        """Returns a copy of `base` in which the nodes whose devices do not suffice are refused. A
        refusal by an earlier filter of the profile stays. The result equals that of `_with_devices`
        for each slot (array position of a node).

        `base` [slots]: verdict of each node without the check of devices, 0: feasible. One device
        request is checked by comparing one number per node. If the class has several device
        requests, or one for parts of several devices, the devices of each feasible node are
        allocated on trial.
        """
        static = base.copy()
        encoded = self._no_devices
        lacking = np.zeros(len(static), dtype=np.bool_)
        for need in cls.needs:
            # Several whole devices: compare the number of free ones. One device, or a part of one:
            # compare the largest free amount.
            several = need.count > 1 and need.milli == DEVICE_MILLI
            lacking |= need.view.whole < need.count if several else need.view.top < need.milli
        if not cls.simple:
            for slot in np.flatnonzero(~lacking & (static == 0)).tolist():
                row = self.table.by_slot[slot]
                lacking[slot] = row is None or take_devices(row, cls.needs) is None
        lower(static, lacking, encoded)
        return static

    def _run(
        self, cls: PodClass, facts: NodeFactVerdicts, relations: Relations
    ) -> TopologyCounters | None:
        """Returns the topology counters of the class; None if neither other pods nor the scores of
        other nodes influence its scores."""
        if relations.none and not facts.comparing:
            return None
        return self.relating.run(cls, relations, facts)

    def _raws(self, facts: NodeFactVerdicts) -> Column:
        room = self._room
        room.raws[0] = 0 if facts.against is None else facts.against
        room.raws[1] = 0 if facts.toward is None else facts.toward
        return room.raws

    def _local(
        self, cls: PodClass, form: ResourceRows, static: Column, constant: bool
    ) -> tuple[Any, ...]:
        """Builds the arguments of the kernel (compiled loop) `judge` that describe the state of the
        nodes, and the requests and score formula of the class. Returns them as a tuple, in the
        order of the kernel's parameters from `static` to `per`.

        - `form`: requests and score formula of the class. If it refers to kinds of devices, the
          numbers of free whole devices are appended to the free amounts of the other resources.
        - `static` [slots]: verdict of each node by all that does not depend on usage, 0: not
          refused.
        - `constant`: True: PreferNoSchedule taints give all nodes the same score. Then this score
          times its weight is added to the score of every node in the result.
        """
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
            static,
            free,
            alloc,
            self._inverse(),
            table.scored,
            self._plus_of(cls, constant),
            rows_of(asks, 3),
            np.array(scoring, dtype=np.int64),
            rows_of(fit, 4),
            rows_of(balance, 2),
            self.resources.shape,
            self._load,
            self._per,
        )

    def _inverse(self) -> npt.NDArray[np.float64]:
        """Returns float64[2, capacity]: 1 / allocatable cpu and 1 / allocatable memory of each
        node."""
        stamp = (self.table.facts.end, self.table.capacity)
        if self._inverses[0] != stamp:
            self._inverses = (stamp, 1.0 / np.maximum(self.table.allocatable[:2], 1))
        return self._inverses[1]

    def _way(self) -> tuple[int, bool]:
        """Returns the weight of the load score, and whether the fast path for scores of cpu and
        memory only may be used."""
        loaded = self._load_weight if self.loads is not None else 0
        return loaded, self.resources.quick_table()

    def _with_kinds(self) -> tuple[Column, Column]:
        table = self.table
        whole = [column // DEVICE_MILLI for column in table.kind_allocatable]
        return np.concatenate((table.free, table.whole_left)), np.concatenate(
            (table.allocatable, whole)
        )

    def _plus_of(self, cls: PodClass, constant: bool) -> Column:
        """Returns int64[slots]: the part of the score of each node that depends neither on usage
        nor on other nodes. It is the weighted sum of the scores that need no normalisation, such as
        image locality.

        `constant`: True: PreferNoSchedule taints give all nodes the same score. Then this score is
        100 for every node, and 100 times its weight is added to every node. Results are cached, by
        the properties of the class that the scores read, until labels, taints or other properties
        of nodes change.
        """
        asked, claims = cls.requirements, cls.claims
        reads = [
            claims if column.reads is None else column.reads(asked)
            for _, column in self.rules.plain
        ]
        key = (constant, *reads)
        stamp = self.table.facts.end
        known = self._plus.get(key)
        if known is None or known[0] != stamp:
            if len(self._plus) > 256:
                self._plus.clear()
            known = self._plus[key] = (stamp, self._plus_made(cls, constant))
        return known[1]

    def _plus_made(self, cls: PodClass, constant: bool) -> Column:
        against, *_ = self.rules.relative_weights
        plus = np.full(self.table.capacity, 100 * against if constant else 0, dtype=np.int64)
        facts = NodeFacts(self.table)
        for weight, column in self.rules.plain:
            scores = column.scores(cls.requirements, facts)
            if scores is not None:
                plus += weight * scores
        return plus

    # --- many replicas

    def place_batch(
        self, requests: Sequence[tuple[PodClass, int]], priorities: Sequence[int] | None = None
    ) -> list[list[NodeChoice]]:
        """Places several requests together, greedily. A request is for a number of replicas of one
        class. Each placed replica is charged (its requests are subtracted from the free amounts of
        its node) before the next is chosen. Returns for each request the chosen nodes, one per
        replica, in the order of `requests`. A request with fewer nodes than replicas did not fit
        completely. The node table is unchanged afterwards.

        `requests`: (class, number of replicas). `priorities`: priority of each request; None: all
        are equal.

        Up to four orders are tried. The first is the given order. It is the result if it places all
        replicas, or if there is only one request. The other three orders sort by descending
        priority and, among equal priorities:

        - by largest dominant share first: divide each amount that a replica requests by the total
          of the cluster, and take the highest quotient (as in dominant resource fairness); 2 of 100
          cores and 8 of 200 GiB give 0.04;
        - by largest amount of devices first;
        - by fewest feasible nodes first.

        The order that places the most replicas of the highest priority wins. If two orders place
        equally many, the next lower priority is compared, and so on. If all numbers are equal, the
        order that was tried first wins. So the result is never worse than that of the given order.
        """
        return self._placed(requests, priorities, None)

    def place_batch_seen(
        self, requests: Sequence[tuple[PodClass, int]], priorities: Sequence[int] | None, named: int
    ) -> list[tuple[list[NodeChoice], PlacementContext | None]]:
        """Places requests like `place_batch`, and also returns for each request the situation
        before it was placed: the diagnosis of all nodes, and the best `named` nodes. None: the
        situation was not recorded, and the caller has to compute it."""
        recording = _Recording(named)
        placed = self._placed(requests, priorities, recording)
        return [(choices, recording.seen.get(number)) for number, choices in enumerate(placed)]

    def _placed(
        self,
        requests: Sequence[tuple[PodClass, int]],
        priorities: Sequence[int] | None,
        recording: _Recording | None,
    ) -> list[list[NodeChoice]]:
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
                    recording.seen.clear()  # it was recorded in another order
        return best

    def _other_orders(
        self, requests: Sequence[tuple[PodClass, int]], levels: Sequence[int]
    ) -> Iterator[list[int]]:
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
        """Returns the dominant share of one replica (as in dominant resource fairness): the largest
        share of any resource of the cluster that it requests, in millionths."""
        whole = self.table.allocatable[:, : self.table.size].sum(axis=1).tolist()
        return max(
            (amount * 10**6 // whole[code] for code, amount in cls.amounts if whole[code]),
            default=0,
        )

    def _place_in_order(
        self, requests: Sequence[tuple[PodClass, int]], order: Sequence[int]
    ) -> list[list[NodeChoice]]:
        placed: list[list[NodeChoice]] = [[] for _ in requests]
        charged: list[tuple[PodClass, list[NodeChoice]]] = []
        at = 0
        try:
            while at < len(order):
                cls, count = requests[order[at]]
                if self.table.rows and self._singly(cls):
                    # The replicas are charged as they are chosen, and stay charged for the next
                    # requests.
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
    ) -> tuple[int, list[list[NodeChoice]]]:
        """Places one or more consecutive requests (each for a number of replicas of one class) with
        one call of a kernel (compiled loop). Returns (position in `order` after the last request
        that was handled, the chosen nodes of each handled request). The free amounts in the node
        table are not changed.

        Requests are handled together if their classes have no affinity or topology spread and no
        score that is normalised over the feasible nodes. If the class at `at` has one of these, its
        request is handled with those of the same class that follow it.

        `requests`: (class, number of replicas). `order`: indexes into `requests`, in the order of
        placement. `at`: position in `order` at which to begin. Example: of 4 requests the third has
        topology spread. The calls handle requests 1 and 2, then 3, then 4. If the third and fourth
        are of one class, they are handled together.
        """
        if not self.table.rows:
            return len(order), [[] for _ in order[at:]]
        self._fit_room()
        alone: list[tuple[PodClass, int, NodeFactVerdicts]] = []
        end = at
        while end < len(order):
            cls, count = requests[order[end]]
            facts = self.facts.of(cls)
            if self._singly(cls) or facts.comparing or not self.relating.of(cls).none:
                break
            alone.append((cls, count, facts))
            end += 1
        if alone:
            return end, self._place_many(alone, order[at:end])
        cls, end = requests[order[at]][0], at + 1
        while end < len(order) and requests[order[end]][0] is cls:
            end += 1
        return end, self._place_run(cls, order[at:end], requests)

    def _singly(self, cls: PodClass) -> bool:
        """Whether replicas of the class have to be placed one by one, because a kernel cannot do
        it: the class requests devices, the profile scores devices, or a rule has no array form."""
        return bool(cls.needs) or self.devices.wanted or self.fallback.of(cls) is not None

    def _one_by_one(self, cls: PodClass, count: int, number: int) -> list[NodeChoice]:
        """Chooses nodes for up to `count` replicas of a class, one after another. Returns the
        choices (node, score, devices). Each replica is charged (its requests are subtracted from
        the free amounts and devices of its node) before the next is chosen, and stays charged.
        Stops when no node is feasible.

        `number`: position of the request in the batch. If the batch records explanations, the
        reasons of refusal and the best nodes, as they are before the first replica is placed, are
        recorded under this number.
        """
        choices: list[NodeChoice] = []
        first: NodeChoice | None = None
        if self._recording is not None:
            ranked = self.ranked(cls, self._recording.count)
            self._recording.seen[number] = PlacementContext(self.diagnose(cls), ranked)
            first = ranked[0] if ranked else None  # what `choose` would find again
            if first is None:
                return choices
        while len(choices) < count and (choice := first or self.choose(cls)) is not None:
            first = None
            self._charge(cls, choice.row, 1, choice.devices)
            choices.append(choice)
        return choices

    def _place_run(
        self, cls: PodClass, numbers: Sequence[int], requests: Sequence[tuple[PodClass, int]]
    ) -> list[list[NodeChoice]]:
        """Places requests of one class, one after another, with one set of topology counters.
        Returns the chosen nodes of each. The free amounts in the node table are not changed.

        `numbers`: the requests, as indexes into `requests`, in the order of placement. The context
        of each request for one replica is recorded, if the batch records explanations.
        """
        table, room = self.table, self._room
        k = self.kernels
        facts = self.facts.of(cls)
        run = self.relating.run(cls, self.relating.of(cls), facts)
        static, free, alloc, inverse, held, *rest = self._local(
            cls, self.resources.of(cls), self._static(cls, facts), constant=False
        )
        plus, asks, form, fit, balance, shape, load, per = rest
        free, held, load = free.copy(), held.copy(), load.copy()
        most = sum(requests[number][1] for number in numbers)
        nodes, totals = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
        lows, seen = _scratch(run)
        raws, ranks, recording = self._raws(facts), self._ranked_names(), self._recording

        def go_on(done: int, through: int) -> int:
            """Place pods until `through` are placed; `done` are placed already."""
            while True:
                found: int = k.place_run(
                    through,
                    done,
                    table.size,
                    static,
                    free,
                    alloc,
                    inverse,
                    held,
                    plus,
                    asks,
                    form,
                    fit,
                    balance,
                    shape,
                    load,
                    per,
                    run.codes,
                    run.counts,
                    run.blocks,
                    run.joins,
                    run.joined,
                    run.hard,
                    run.admits,
                    run.likes,
                    run.soft,
                    run.needs_all,
                    raws,
                    self._relative_weights,
                    room.logs,
                    table.hashes,
                    np.uint64(cls.seed),
                    ranks,
                    lows,
                    seen,
                    room.sums,
                    room.raw,
                    room.local_verdicts,
                    room.local_scores,
                    room.verdicts,
                    room.scores,
                    nodes,
                    totals,
                )
                if found >= 0:
                    return found
                done = int(run.joined[3])
                room.logs[-found - 1] = domains_weight(int(-found - 1))

        done, placed = 0, list[list[NodeChoice]]()
        for number in numbers:
            count, began = requests[number][1], done
            done = go_on(began, began + count)
            part = slice(began, done)
            placed.append(
                [
                    self._choice(cls, slot, total, with_devices=False)
                    for slot, total in zip(nodes[part].tolist(), totals[part].tolist(), strict=True)
                ]
            )
            if recording is not None and count == 1:
                # One replica takes the best node, so the next one is all that is asked for.
                recording.seen[number] = self._seen_now(cls, min(recording.count, 2))
        return placed

    def _seen_now(self, cls: PodClass, count: int) -> PlacementContext:
        """Returns the context in which `place_run` placed the last replica. It is read from the
        work arrays, which still hold the verdicts and scores from before the placement."""
        room, k, size = self._room, self.kernels, self.table.size
        top, tally = np.zeros(count, dtype=np.int64), np.zeros(DETAIL, dtype=np.int64)
        ranks, seed = self._ranked_names(), np.uint64(cls.seed)
        there = k.top_of(size, room.verdicts, room.scores, self.table.hashes, seed, ranks, top)
        k.tally_of(size, room.verdicts, tally)
        best = top[:there]
        return self._seen(cls, tally.tolist(), best.tolist(), room.scores[best].tolist())

    def _seen(
        self, cls: PodClass, tally: list[int], best: list[int], scores: list[int]
    ) -> PlacementContext:
        ranked = [
            self._choice(cls, slot, score, with_devices=False)
            for slot, score in zip(best, scores, strict=True)
            if slot >= 0
        ]
        return PlacementContext(self._diagnosed(tally), ranked)

    def _place_many(
        self, wanted: list[tuple[PodClass, int, NodeFactVerdicts]], numbers: Sequence[int]
    ) -> list[list[NodeChoice]]:
        table, room = self.table, self._room
        statics: dict[int, int] = {}
        static_columns: list[Column] = []
        pluses: dict[int, int] = {}
        plus_columns: list[Column] = []
        static_of, plus_of = [], []
        forms = [self.resources.of(cls) for cls, _, _ in wanted]
        for cls, _, facts in wanted:
            key = id(facts) * 2 + (self.loads is not None and self._exempt(cls))
            if key not in statics:
                statics[key] = len(static_columns)
                static_columns.append(self._static(cls, facts))
            static_of.append(statics[key])
            plus = self._plus_of(cls, constant=True)
            if id(plus) not in pluses:
                pluses[id(plus)] = len(plus_columns)
                plus_columns.append(plus)
            plus_of.append(pluses[id(plus)])
        groups = _alike(forms)
        counts = [count for _, count, _ in wanted]
        offsets = np.cumsum([0, *counts])
        nodes, totals = (
            np.full(int(offsets[-1]), -1, dtype=np.int64),
            np.zeros(int(offsets[-1]), dtype=np.int64),
        )
        leaves = 1 << max(0, (table.size - 1).bit_length())
        if len(room.tree) < 2 * leaves:
            room.tree = np.zeros(2 * leaves, dtype=np.int64)
        free, held, load = table.free.copy(), table.scored.copy(), self._load.copy()
        k = self.kernels
        loaded, quick = self._way()
        scoring = np.array([_scoring(f, loaded, quick) for f in forms], dtype=np.int64)
        int_arrays = [np.array(a, dtype=np.int64) for a in (static_of, plus_of, counts)]
        seeds = np.array([cls.seed for cls, _, _ in wanted], dtype=np.uint64)
        static_stack, plus_stack = np.stack(static_columns), np.stack(plus_columns)
        recording = self._recording
        tops = np.full(
            (len(wanted), 0 if recording is None else recording.count), -1, dtype=np.int64
        )
        top_scores = np.zeros_like(tops)
        tallies = np.zeros((len(wanted), DETAIL if tops.shape[1] else 0), dtype=np.int64)
        for first, last in groups:
            asks = np.array([f.asks for f in forms[first:last]], dtype=np.int64)
            fits = np.array([f.fit for f in forms[first:last]], dtype=np.int64).reshape(
                last - first, -1, 4
            )
            balances = np.array([f.balance for f in forms[first:last]], dtype=np.int64).reshape(
                last - first, -1, 2
            )
            part = slice(first, last)
            k.place_many(
                0,
                last - first,
                table.size,
                static_stack,
                int_arrays[0][part],
                free,
                table.allocatable,
                self._inverse(),
                held,
                plus_stack,
                int_arrays[1][part],
                asks,
                scoring[part],
                fits,
                balances,
                self.resources.shape,
                load,
                self._per,
                table.hashes,
                seeds[part],
                self._ranked_names(),
                int_arrays[2][part],
                offsets[part],
                room.tree,
                leaves,
                room.verdicts,
                room.scores,
                nodes,
                totals,
                tops[part],
                top_scores[part],
                tallies[part],
            )
        if recording is not None:
            rows = zip(tallies.tolist(), tops.tolist(), top_scores.tolist(), strict=True)
            for number, (cls, _, _), row in zip(numbers, wanted, rows, strict=True):
                recording.seen[number] = self._seen(cls, *row)
        return self._choices(wanted, offsets.tolist(), nodes.tolist(), totals.tolist())

    def _choices(
        self,
        wanted: list[tuple[PodClass, int, NodeFactVerdicts]],
        offsets: list[int],
        nodes: list[int],
        totals: list[int],
    ) -> list[list[NodeChoice]]:
        by_slot = self.table.by_slot
        found: list[list[NodeChoice]] = []
        for i in range(len(wanted)):
            part = range(offsets[i], offsets[i + 1])
            found.append(
                [
                    NodeChoice(by_slot[nodes[at]], totals[at], ())  # type: ignore[arg-type]
                    for at in part
                    if nodes[at] >= 0
                ]
            )
        return found

    def _charge(self, cls: PodClass, row: NodeRow, times: int, devices: Taken) -> None:
        taken = [(i, times * milli) for i, milli in devices]
        self.table.charge(row, cls, times, taken)
        self._moved(cls, row, times)

    def _moved(self, cls: PodClass, row: NodeRow, times: int) -> None:
        """Records a placement that only this placer counts, apart from the table: for the load
        score, and for rules without an array form."""
        self._load[1, row.slot] += times
        if self.loads is not None:
            self._changes += 1
        if self.fallback.read is not None:
            self.fallback.moved(cls, row.name, times)

    def _charge_all(self, cls: PodClass, choices: Sequence[NodeChoice], times: int) -> None:
        for choice in choices:
            self._charge(cls, choice.row, times, choice.devices)

    # --- small things

    def _ranked_names(self) -> Column:
        if (
            self._name_ranks[0] != self.table.names
            or len(self._name_ranks[1]) != self.table.capacity
        ):
            ranks = np.zeros(self.table.capacity, dtype=np.int64)
            for rank, name in enumerate(sorted(self.table.rows)):
                ranks[self.table.rows[name].slot] = rank
            self._name_ranks = (self.table.names, ranks)
        return self._name_ranks[1]

    def _fit_room(self) -> None:
        if self._room.capacity != self.table.capacity:
            self._room = _Room(self.table.capacity)
            self._lay_loads()

    def _best(self, cls: PodClass, look: NodeScores, count: int) -> list[int]:
        size = self.table.size
        if count <= _FEW:
            if len(look.best) < count and not look.all_best:
                top = np.zeros(count, dtype=np.int64)
                there = self.kernels.top_of(
                    size,
                    look.verdicts,
                    look.scores,
                    self.table.hashes,
                    np.uint64(cls.seed),
                    self._ranked_names(),
                    top,
                )
                look.best, look.all_best = top[:there].tolist(), there < count
            return look.best[:count]
        slots = np.flatnonzero(look.verdicts[:size] == 0)
        scores = look.scores[slots]
        mixed = self.table.hashes[slots] ^ np.uint64(cls.seed)
        order = np.lexsort((self._ranked_names()[slots], mixed, scores))[::-1]
        found: list[int] = slots[order[:count]].tolist()
        return found

    def _choice(self, cls: PodClass, slot: int, score: int, with_devices: bool) -> NodeChoice:
        row = self.table.by_slot[slot]
        assert row is not None, "a slot without a node is never feasible"
        return NodeChoice(row, score, _devices(row, cls) if with_devices else ())


def _devices(row: NodeRow, cls: PodClass) -> Taken:
    if not cls.needs:
        return ()
    devices = take_devices(row, cls.needs)
    assert devices is not None, "the columns call feasible what the row does not"
    return devices


def _row(row: int, resources: int) -> int:
    return row if row >= 0 else resources - 1 - row


def _scratch(run: TopologyCounters) -> tuple[Column, Column]:
    """Returns the work arrays `lows` and `seen` of `kernels.weigh`."""
    return np.zeros(len(run.hard), dtype=np.int64), np.zeros(run.room + 1, dtype=np.int64)


def _alike(forms: Sequence[ResourceRows]) -> list[tuple[int, int]]:
    """Splits the forms into consecutive ranges [first, last) whose forms have equal numbers of
    rows, so that each range can be stacked into one array."""
    groups: list[tuple[int, int]] = []
    first = 0
    for at in range(1, len(forms) + 1):
        if at == len(forms) or _shape(forms[at]) != _shape(forms[first]):
            groups.append((first, at))
            first = at
    return groups


def _shape(form: ResourceRows) -> tuple[int, int, int]:
    return len(form.asks), len(form.fit), len(form.balance)


def _scoring(form: ResourceRows, loaded: int, quick: bool) -> tuple[int, ...]:
    strategy, fit, balance, by_change, _, cpu, memory, _, _ = form.form
    return (
        strategy,
        fit,
        balance,
        by_change,
        int(quick and form.quick),
        cpu,
        memory,
        int(loaded > 0),
        loaded,
    )


def _short(
    requests: Sequence[tuple[PodClass, int]], placed: Sequence[Sequence[NodeChoice]]
) -> bool:
    return any(len(choices) < count for (_, count), choices in zip(requests, placed, strict=True))


def _objective(placed: Sequence[Sequence[NodeChoice]], levels: Sequence[int]) -> tuple[int, ...]:
    """Returns the number of placed replicas by priority, highest priority first. Results are
    compared as tuples, so a higher priority decides first."""
    counts = dict.fromkeys(sorted(set(levels), reverse=True), 0)
    for level, choices in zip(levels, placed, strict=True):
        counts[level] += len(choices)
    return tuple(counts.values())
