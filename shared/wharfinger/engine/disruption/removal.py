"""Whether what is on some nodes has a place elsewhere: a scene laid out once, on which any nodes can be tried without.

First a kernel looks, over arrays, for a node for each pod, by amounts and by what facts allow: for pods that mind nobody
and need no device or volume that is the answer. Pods of which more is to be said are then placed one by one by the same
columns that place for real (`engine.nodes.place`), with what goes taken off and what has been given a place put there, so
that affinity, spread, ports, devices and volumes hold at the end. Nothing is copied: what was tried is taken back, and
what is decided stays, so the next attempt is made after it.

Tight on purpose: a pod goes where the least is left over, since what is filled to the edge leaves others empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import ZONE_LABEL, PoolRequirement
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption import kernels as plain
from wharfinger.engine.disruption import vectors
from wharfinger.engine.disruption.candidates import Review, moves
from wharfinger.engine.disruption.scene import Scene
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.classes import PodClass, compile_class
from wharfinger.engine.nodes.columns import CPU, MEMORY, Column, NodeRow, NodeTable, Taken
from wharfinger.engine.nodes.compiled import Compiler
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet

MEBI_SHIFT = 20
"""Memory is weighed by the mebibyte."""

Opened = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Weights:
    """What the amounts of a node are worth: billionths of a dollar an hour for a thousandth of a core, and for a mebibyte."""

    cpu: int = 40_000
    memory: int = 5_000

    def of(self, cpu_milli: int, memory_bytes: int) -> int:
        return cpu_milli * self.cpu + (memory_bytes >> MEBI_SHIFT) * self.memory


@dataclass(frozen=True, slots=True)
class Mover:
    """A pod that has to go elsewhere, with the row of its class."""

    pod: Pod
    cls: PodClass
    row: int


@dataclass(slots=True)
class Attempt:
    """The cluster without `nodes`. `placed`: with the slot of its new node; `left`: those without a place. `waits`: nobody can
    tell before the nodes that are on their way are there."""

    nodes: tuple[str, ...]
    placed: list[tuple[Mover, int]] = field(default_factory=list)
    left: list[Mover] = field(default_factory=list)
    waits: bool = False


class Ground:
    """The nodes of a scene with what is on them. Slots are in order of name."""

    def __init__(self, scene: Scene, found: Review, weights: Weights | None = None) -> None:
        self.scene = scene
        self.weights = weights or Weights()
        self.table = NodeTable(max(64, len(scene.nodes)))
        self.table.objects = scene.objects
        self._movers: dict[str, list[Mover]] = {}
        self._values: dict[int, int] = {}
        self._simple: tuple[object, dict[int, bool]] = (None, {})
        self.classes: list[PodClass] = []
        self._rows: dict[tuple[bytes, bool], int] = {}
        self._alone: dict[int, tuple[int, Requirements]] = {}
        self._first_alone: dict[bytes, tuple[int, Requirements]] = {}
        self._by_identity: dict[int, tuple[Requirements, int]] = {}
        self._snapshot: Snapshot | None = None
        self._on: dict[str, dict[str, Pod]] = {}
        self.expected: list[Node] = []
        self._vague = False
        self.placer = Placer(self.table, "most-allocated", self._read)
        self._lay(scene)
        self._open(scene, found)
        self._leaving = {looked.name: looked.pods for looked in found.nodes.values()}
        self._columns()
        self._expect(scene)
        self._keep_promises(scene)

    # --- laid out once

    def _lay(self, scene: Scene) -> None:
        for node in sorted(scene.nodes, key=lambda n: n.name):
            self.table.put(node, node.name in scene.closed)
        on: dict[str, list[Pod]] = {name: [] for name in self.table.rows}
        for pod in (*scene.pods, *scene.reserved):
            # What has to leave a node that goes already is gone from it; its room elsewhere is among what is reserved.
            if pod.node in on and not (pod.node in scene.disrupting and moves(pod)):
                on[pod.node].append(pod)
        rows = [self.row_of(pod.requirements, pod.terminating) for pods in on.values() for pod in pods]
        at = 0
        for name, pods in on.items():
            held: dict[PodClass, int] = {}
            for row in rows[at : at + len(pods)]:
                cls = self.classes[row]
                held[cls] = held.get(cls, 0) + 1
            at += len(pods)
            node_row = self.table.rows[name]
            self.table.set_usage(node_row, held, _devices_held(node_row, pods))
        self._on = {name: {pod.uid: pod for pod in pods} for name, pods in on.items()}

    def _open(self, scene: Scene, found: Review) -> None:
        """Which slots take pods: `open` for what must go, `quiet` for what consolidation counts on."""
        self.open: Opened = np.zeros(self.table.capacity, dtype=np.int8)
        self.quiet: Opened = np.zeros(self.table.capacity, dtype=np.int8)
        for name, row in self.table.rows.items():
            if name in found.initialized and name not in scene.disrupting and name not in scene.closed:
                self.open[row.slot] = 1
                self.quiet[row.slot] = name in found.quiet

    def movers(self, name: str) -> list[Mover]:
        """The pods that leave a node, in the order in which they are placed: first what minds others, then the largest."""
        known = self._movers.get(name)
        if known is None:
            known = self._movers[name] = [self._mover(pod) for pod in self._leaving[name]]
            known.sort(key=self._urgency)
        return known

    def _urgency(self, mover: Mover) -> tuple[bool, int, str]:
        return self.simple(mover.row), -self.value(mover.row), mover.pod.uid

    def _columns(self) -> None:
        """After every class is known: what each asks, by column, and where facts let it."""
        table = self.table
        self.asks: Column = np.zeros((len(self.classes), len(table.resources)), dtype=np.int64)
        self.groups: Column = np.zeros(len(self.classes), dtype=np.int64)
        groups: dict[bytes, int] = {}
        allowed: list[Opened] = []
        for row, cls in enumerate(self.classes):
            for code, amount in cls.amounts:
                self.asks[row, code] = amount
            group = groups.get(cls.claims)
            if group is None:
                group = groups[cls.claims] = len(allowed)
                allowed.append((self.placer.standings.of(cls).verdicts == 0).astype(np.int8))
            self.groups[row] = group
        self.allowed = np.stack(allowed) if allowed else np.zeros((0, table.capacity), dtype=np.int8)
        self._weights, self._shifts = (np.zeros(len(table.resources), dtype=np.int64) for _ in range(2))
        self._weights[:2] = self.weights.cpu, self.weights.memory
        self._shifts[1] = MEBI_SHIFT

    def _expect(self, scene: Scene) -> None:
        """Nodes that are on their way, with who will be there: others mind them already."""
        for claim in scene.in_flight:
            pods = [
                Pod(f"{claim.claim} {number} {i}", claim.claim, requirements)
                for number, (requirements, count) in enumerate(claim.pods)
                for i in range(count)
            ]
            movers = [self._mover(pod) for pod in pods]
            self._columns()
            self.expect(claim.claim, claim.requirements, movers)

    def expect(self, name: str, requirements: Iterable[PoolRequirement], movers: Iterable[Mover]) -> None:
        """A node that will be there with these pods, and takes no others. Where it is not known in which zone, nobody can tell
        who may be near it (`without`)."""
        said = LabelSet.of_pool(requirements)
        labels = {key: value for key, values in said.items() if (value := values.only) is not None}
        node = Node(f"claim {name}", {}, labels={**labels, HOSTNAME_LABEL: f"claim {name}"}, unschedulable=True)
        self._vague = self._vague or ZONE_LABEL not in labels
        self.expected.append(node)
        self._on[node.name] = {}
        self._snapshot = None
        row = self.table.put(node, closed=True)
        self.table.set_usage(row, {}, [])
        self._fit()
        for mover in movers:
            self._charge(mover, row, (), 1)

    def _fit(self) -> None:
        """The table has grown."""
        more = self.table.capacity - len(self.open)
        if more:
            self.open, self.quiet = (
                np.concatenate((o, np.zeros(more, dtype=np.int8))) for o in (self.open, self.quiet)
            )
            self._columns()

    def _keep_promises(self, scene: Scene) -> None:
        """Pods that are on their way off nodes that go already, and those that wait, take their room first."""
        reserved = {_who(pod) for pod in scene.reserved}
        going = [
            Pod(pod.uid, pod.name, pod.requirements)
            for pod in sorted(scene.pods, key=lambda p: p.uid)
            if pod.node in scene.disrupting and moves(pod) and _who(pod) not in reserved
        ]
        waiting = [
            Pod(f"waiting {wanted.name} {number}", wanted.name, wanted.requirements)
            for wanted in scene.waiting
            for number in range(wanted.count)
        ]
        if not going and not waiting:
            return
        movers = [self._mover(pod) for pod in self._without_seats((*going, *waiting))]
        self._columns()
        attempt = self._tried((), movers, self.open, need_all=False)
        self.commit(attempt)

    def _without_seats(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those for whom no node is on its way."""
        seats: dict[int, int] = {}
        for claim in self.scene.in_flight:
            for requirements, count in claim.pods:
                row = self.row_of(requirements)
                seats[row] = seats.get(row, 0) + count
        found = []
        for pod in pods:
            row = self.row_of(pod.requirements)
            if seats.get(row, 0):
                seats[row] -= 1
            else:
                found.append(pod)
        return found

    def row_of(self, requirements: Requirements, terminating: bool = False) -> int:
        """The row of the class of such pods, which is made when it is the first one."""
        known = self._by_identity.get(id(requirements))
        if known is not None and not terminating:
            return known[1]
        key = (canonical(requirements), terminating)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self.classes)
            cls = compile_class(self.table, requirements, requirements.class_key, requirements.pod_key, terminating)
            self.classes.append(cls)
        if not terminating:
            self._by_identity[id(requirements)] = (requirements, row)  # kept, so that the identity stays its own
        return row

    def _mover(self, pod: Pod) -> Mover:
        row = self.row_of(pod.requirements)
        return Mover(pod, self.classes[row], row)

    def value(self, row: int) -> int:
        """What cpu and memory of a class are worth, billionths of a dollar an hour."""
        known = self._values.get(row)
        if known is None:
            amounts = dict(self.classes[row].amounts)
            known = self._values[row] = self.weights.of(amounts.get(CPU, 0), amounts.get(MEMORY, 0))
        return known

    def simple(self, row: int) -> bool:
        """Whether amounts and facts are all there is to say of a class."""
        tallies = self.table.tallies
        stamp = (tallies.epoch, len(tallies.carried))
        if self._simple[0] != stamp:
            self._simple = (stamp, {})
        known = self._simple[1].get(row)
        if known is None:
            cls = self.classes[row]
            asked = bool(cls.needs or cls.traits.volumes or cls.traits.resource_claims)
            known = self._simple[1][row] = not asked and self.placer.relating.of(cls).none
        return known

    def alone(self, row: int) -> tuple[int, Requirements]:
        """What a simple class asks of a node without what others see of it, and the first row of which that is the same."""
        known = self._alone.get(row)
        if known is None:
            said = self.classes[row].requirements
            seen = {"namespace": "", "labels": {}, "owner": "", "images": (), "scored": {}, "group": "", "min_count": 0}
            alone = msgspec.structs.replace(said, pod=msgspec.structs.replace(said.traits, **seen))
            known = self._first_alone.setdefault(canonical(alone), (row, alone))
            self._alone[row] = known
        return known

    def _minds_zones(self, row: int) -> bool:
        """Whether it matters to the class who is near its node, not only on it."""
        if self.simple(row):
            return False
        found = self.placer.relating.of(self.classes[row])
        keys = {key for key, *_ in found.blocks} | {key for key, _ in found.joins} | {c.said.key for c in found.hard}
        return bool(keys - {HOSTNAME_LABEL, ""})

    # --- trying

    def without(self, names: Sequence[str], quiet: bool, need_all: bool = False) -> Attempt:
        """Where what is on these nodes would go. `quiet`: only to nodes that consolidation may count on. `need_all`: the
        first without a place ends it, since nothing less is of use."""
        movers = [mover for name in names for mover in self.movers(name)]
        if len(names) > 1:
            movers.sort(key=self._urgency)
        if self._vague and any(self._minds_zones(m.row) for m in movers):
            return Attempt(tuple(names), left=movers[:1], waits=True)
        opened = self.quiet if quiet else self.open
        slots = [self.table.rows[name].slot for name in names]
        before = opened[slots].copy()
        opened[slots] = 0
        try:
            return self._tried(tuple(names), movers, opened, need_all)
        finally:
            opened[slots] = before

    def _tried(self, names: tuple[str, ...], movers: list[Mover], opened: Opened, need_all: bool) -> Attempt:
        attempt = Attempt(names)
        if not movers:
            return attempt
        targets = np.zeros(len(movers), dtype=np.int64)
        of = np.array([m.row for m in movers], dtype=np.int64)
        k = COMPILER.kernels(len(movers) * self.table.size // 8)
        k.settle(
            self.table.size, of, self.asks, self.groups, self.allowed, opened, self.table.free, self._weights, self._shifts,
            int(need_all), targets,
        )  # fmt: skip
        planned = targets.tolist()
        if need_all and -1 in planned:
            attempt.left = [m for m, slot in zip(movers, planned, strict=True) if slot < 0][:1]
        elif all(self.simple(m.row) for m in movers):
            for mover, slot in zip(movers, planned, strict=True):
                if slot >= 0:
                    attempt.placed.append((mover, slot))
                else:
                    attempt.left.append(mover)
        else:
            self._one_by_one(attempt, movers, opened, need_all)
        return attempt

    def _one_by_one(self, attempt: Attempt, movers: list[Mover], opened: Opened, need_all: bool) -> None:
        """Each in sight of those before it and without what goes; all of it is taken back."""
        off = [m for m in movers if m.pod.node in self.table.rows]
        charged: list[tuple[Mover, NodeRow, Taken]] = []
        self._lift(off, -1)
        try:
            for mover in movers:
                slot = self._best(mover, opened)
                if slot < 0:
                    attempt.left.append(mover)
                    if need_all:
                        break
                    continue
                row = self._row(slot)
                taken = _taken(row, mover.cls)
                self._charge(mover, row, taken, 1)
                charged.append((mover, row, taken))
                attempt.placed.append((mover, slot))
            if not attempt.left or not need_all:
                self._hold_at_the_end(attempt, charged)
        finally:
            for mover, row, taken in reversed(charged):
                self._charge(mover, row, taken, -1)
            self._lift(off, 1)

    def _hold_at_the_end(self, attempt: Attempt, charged: list[tuple[Mover, NodeRow, Taken]]) -> None:
        """Who came later may have spoilt it for who came first, and in which order they really move nobody knows: each that
        minds others must bear them all."""
        spoilt = []
        for mover, row, taken in charged:
            if self.simple(mover.row):
                continue
            self._charge(mover, row, taken, -1)
            if self.placer.look(mover.cls).verdicts[row.slot] != 0:
                spoilt.append(mover)
            self._charge(mover, row, taken, 1)
        if spoilt:
            attempt.placed = [(mover, slot) for mover, slot in attempt.placed if mover not in spoilt]
            attempt.left += spoilt

    def _best(self, mover: Mover, opened: Opened) -> int:
        """The open node with the least left over that takes the pod as things stand; -1: none does."""
        cls, size = mover.cls, self.table.size
        if self.simple(mover.row):
            feasible = self._roomy(mover.row) & (opened[:size] != 0)
        else:
            feasible = (self.placer.look(cls).verdicts[:size] == 0) & (opened[:size] != 0)
        slots = np.flatnonzero(feasible)
        if not len(slots):
            return -1
        rest = np.zeros(len(slots), dtype=np.int64)
        for r in (0, 1):
            left = np.maximum(self.table.free[r, slots] - self.asks[mover.row, r], 0)
            rest += np.minimum(((left >> self._shifts[r]) * self._weights[r]) >> plain.COARSE, plain.REST_MAX) ** 2
        return int(slots[np.argmin(rest)])

    def _roomy(self, row: int) -> npt.NDArray[np.bool_]:
        size = self.table.size
        fits = self.allowed[self.groups[row], :size] != 0
        for r in np.flatnonzero(self.asks[row] > 0).tolist():
            fits = fits & (self.table.free[r, :size] >= self.asks[row, r])
        return np.asarray(fits, dtype=np.bool_)

    def why_not(self, left: Mover) -> str:
        """Why no node takes the pod, as kube-scheduler would say it."""
        return self.placer.message(left.cls).removesuffix(".")

    # --- deciding

    def commit(self, attempt: Attempt) -> None:
        """From here on the nodes are gone, and who had a place is there. What was left has its place in nodes to be made."""
        movers = [m for m, _ in attempt.placed] + attempt.left
        self._lift([m for m in movers if m.pod.node in self.table.rows and attempt.nodes], -1)
        for mover, slot in attempt.placed:
            row = self._row(slot)
            self._charge(mover, row, _taken(row, mover.cls), 1)
        for name in attempt.nodes:
            slot = self.table.rows[name].slot
            self.open[slot] = self.quiet[slot] = 0
            self._movers[name] = []

    def _lift(self, movers: Iterable[Mover], times: int) -> None:
        """Off the nodes they are on, or back: what devices they hold there matters to nobody, since the node is closed."""
        for mover in movers:
            self.table.charge(self.table.rows[mover.pod.node], mover.cls, times, ())
            self._tell(mover.pod, times)

    def _charge(self, mover: Mover, row: NodeRow, taken: Taken, times: int) -> None:
        self.table.charge(row, mover.cls, times, [(i, times * milli) for i, milli in taken])
        self._tell(Pod(mover.pod.uid, mover.pod.name, mover.pod.requirements, row.name), times)

    def _tell(self, pod: Pod, times: int) -> None:
        """Who is where, for plugins that read the cluster pod by pod."""
        if times > 0:
            self._on[pod.node][pod.uid] = pod
        else:
            del self._on[pod.node][pod.uid]
        if self._snapshot is not None:
            if times > 0:
                self._snapshot.add(pod)
            else:
                self._snapshot.remove(pod)

    def _read(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot.of((*self.scene.nodes, *self.expected), self.pods(), self.scene.objects)
        return self._snapshot

    def pods(self) -> list[Pod]:
        """All that are on nodes now."""
        return [pod for on in self._on.values() for pod in on.values()]

    def name_of(self, slot: int) -> str:
        return self._row(slot).name

    def _row(self, slot: int) -> NodeRow:
        row = self.table.by_slot[slot]
        assert row is not None, "an open slot has a node"
        return row


def _who(pod: Pod) -> tuple[str, int | str]:
    return (pod.binding, pod.ordinal) if pod.binding and pod.ordinal >= 0 else ("", pod.uid)


def _devices_held(row: NodeRow, pods: Iterable[Pod]) -> list[int]:
    """Thousandths by device. Who does not say which it holds is taken to hold the emptiest, which leaves the least room
    for others: nothing is promised that is not there."""
    held = [0] * len(row.groups)
    unsaid: list[int] = []
    for pod in pods:
        for index, milli in pod.devices:
            if 0 <= index < len(held) and milli > 0:
                held[index] += min(milli, DEVICE_MILLI)
        if not pod.devices:
            unsaid += [min(asked.milli, DEVICE_MILLI) for asked in pod.requirements.devices for _ in range(asked.count)]
    for milli in sorted(unsaid, reverse=True):
        if held:
            emptiest = min(range(len(held)), key=lambda i: (held[i], i))
            held[emptiest] += milli
    return held


def _taken(row: NodeRow, cls: PodClass) -> Taken:
    if not cls.needs:
        return ()
    taken = take_devices(row, cls.needs)
    assert taken is not None, "the columns call feasible what the row does not"
    return taken


def _warm(kernels: Any) -> None:
    one, two = np.ones(1, dtype=np.int64), np.ones((1, 1), dtype=np.int64)
    zero, said = np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=np.int8)
    kernels.settle(1, zero, two, zero, said, said[0], two.copy(), one, zero, 1, zero.copy())
    kernels.cover(one, one, np.zeros(4, dtype=np.int64))
    kernels.pack(
        np.ones((1, 2), dtype=np.int64), one, np.ones((1, 2), dtype=np.int64), one, zero, *one.repeat(3).reshape(3, 1)
    )


COMPILER = Compiler(_warm, module=plain, instead=vectors)
