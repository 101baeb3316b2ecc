"""Simulates the removal of nodes: whether their pods fit elsewhere. The cluster is laid out in
arrays once, and any set of nodes can be tried on it.

First a kernel finds a node for each pod by its requests and the facts of the nodes. This is exact
if no pod to move has affinity, spread, host ports, devices or volumes. Otherwise the pods are
placed again, one by one, with the filters of real placement (`engine.nodes.place`). For this the
removed pods are taken off the arrays and each moved pod is charged to its new node. Nothing is
copied: an attempt is undone, and a committed one stays, so the next attempt starts from its result.

The rule is best fit: a pod goes to the node where the least is left over, because full nodes leave
other nodes empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import ZONE_LABEL, PoolRequirement
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine import machine_code
from wharfinger.engine.disruption import kernels as plain
from wharfinger.engine.disruption import vectors
from wharfinger.engine.disruption.candidates import Review, moves
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.classes import PodClass, compile_class
from wharfinger.engine.nodes.columns import CPU, MEMORY, Column, NodeRow, NodeTable, Taken
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet

MEBI_SHIFT = 20
"""Shifting an amount of memory right by this many bits converts bytes to mebibytes."""

Opened = npt.NDArray[np.int8]

ROOM_FOR_ANYTHING = 1 << 50
"""An amount that the pods of one node never reach."""

KERNELS = machine_code.kernels(plain, instead=vectors)
"""The functions of the kernels, compiled or plain."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The value of capacity, in billionths of a dollar an hour. `cpu`: of a thousandth of a core.
    `memory`: of a mebibyte."""

    cpu: int = 40_000
    memory: int = 5_000

    def of(self, cpu_milli: int, memory_bytes: int) -> int:
        return cpu_milli * self.cpu + (memory_bytes >> MEBI_SHIFT) * self.memory


@dataclass(frozen=True, slots=True)
class Mover:
    """A pod that has to move to another node. `row`: the index of its class in
    `RemovalSimulation.classes`."""

    pod: Pod
    cls: PodClass
    row: int


@dataclass(slots=True)
class Attempt:
    """The result of removing the nodes `nodes` in the simulation.

    `placed`: the pods that fit on other nodes, each with the slot of its new node. `left`: the pods
    without a place. `waits`: nothing was tried, because the result depends on the zone of a pending
    node, and this zone is not known yet.
    """

    nodes: tuple[str, ...]
    placed: list[tuple[Mover, int]] = field(default_factory=list)
    left: list[Mover] = field(default_factory=list)
    waits: bool = False


class RemovalSimulation:
    """The nodes of a snapshot with their pods, in arrays. Removals of nodes are tried on it
    (`without`) and carried out (`commit`).

    A slot is the position of a node in the arrays. The nodes of the snapshot have the first slots,
    in order of name; expected nodes (`expect`) follow. `open` int8[slots]: 1 where a node may
    receive pods that must move. `quiet` int8[slots]: 1 where consolidation may use such a node as a
    destination. `classes`: the pod classes by row. On creation, capacity is reserved for the pods
    that are already moving or waiting.
    """

    def __init__(
        self, scene: ClusterSnapshot, found: Review, weights: Weights | None = None
    ) -> None:
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

    def _lay(self, scene: ClusterSnapshot) -> None:
        for node in sorted(scene.nodes, key=lambda n: n.name):
            self.table.put(node, node.name in scene.closed)
        on: dict[str, list[Pod]] = {name: [] for name in self.table.rows}
        for pod in (*scene.pods, *scene.reserved):
            # What has to leave a node that goes already is gone from it; its room elsewhere is
            # among what is reserved.
            if pod.node in on and not (pod.node in scene.disrupting and moves(pod)):
                on[pod.node].append(pod)
        rows = [
            self.row_of(pod.requirements, pod.terminating) for pods in on.values() for pod in pods
        ]
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

    def _open(self, scene: ClusterSnapshot, found: Review) -> None:
        """Sets which nodes may receive pods of removed nodes, as two arrays over the slots (a slot
        is the position of a node in the arrays).

        - `open` int8[slots]: 1 for each initialized node that is not being removed.
        - `quiet` int8[slots]: 1 for the open nodes that consolidation may use as destinations.
          Nodes on which a pod came or left too recently are open but not quiet.

        `found`: the result of examining all nodes.
        """
        self.open: Opened = np.zeros(self.table.capacity, dtype=np.int8)
        self.quiet: Opened = np.zeros(self.table.capacity, dtype=np.int8)
        for name, row in self.table.rows.items():
            if (
                name in found.initialized
                and name not in scene.disrupting
                and name not in scene.closed
            ):
                self.open[row.slot] = 1
                self.quiet[row.slot] = name in found.quiet

    def movers(self, name: str) -> list[Mover]:
        """Returns the pods that must move if this node is removed, in the order in which they are
        placed. Pods with more constraints than requests and node facts come first (affinity,
        spread, devices, volumes). Within both parts the most valuable pod comes first, then by uid.
        """
        known = self._movers.get(name)
        if known is None:
            known = self._movers[name] = [self._mover(pod) for pod in self._leaving[name]]
            known.sort(key=self._urgency)
        return known

    def _urgency(self, mover: Mover) -> tuple[bool, int, str]:
        return self.simple(mover.row), -self.value(mover.row), mover.pod.uid

    def _columns(self) -> None:
        """Builds the arrays from which the compiled function `settle` places pods, for all classes
        of pods. Must be called again after a class or a node was added. A slot is the position of a
        node in the arrays.

        - `asks` int64[classes, resources]: the requests of one pod of each class.
        - `groups` int64[classes]: the row of each class in `allowed`. Classes that the same nodes
          admit share one row.
        - `allowed` int8[groups, slots]: 1 where the labels, taints and cordons of a node admit the
          class.
        - `_weights`, `_shifts` int64[resources]: an amount has the value `(amount >> shift) *
          weight`; only cpu and memory have a weight above 0.
        """
        table = self.table
        self.asks: Column = np.zeros((len(self.classes), len(table.resources)), dtype=np.int64)
        self.groups: Column = np.zeros(len(self.classes), dtype=np.int64)
        groups: dict[Hashable, int] = {}
        facts = self.placer.facts
        allowed: list[Opened] = []
        for row, cls in enumerate(self.classes):
            for code, amount in cls.amounts:
                self.asks[row, code] = amount
            key = facts.columns.key(cls)
            group = groups.get(key)
            if group is None:
                group = groups[key] = len(allowed)
                allowed.append((facts.of(cls).verdicts == 0).astype(np.int8))
            self.groups[row] = group
        self.allowed = (
            np.stack(allowed) if allowed else np.zeros((0, table.capacity), dtype=np.int8)
        )
        self._weights, self._shifts = (
            np.zeros(len(table.resources), dtype=np.int64) for _ in range(2)
        )
        self._weights[:2] = self.weights.cpu, self.weights.memory
        self._shifts[1] = MEBI_SHIFT

    def _expect(self, scene: ClusterSnapshot) -> None:
        """Adds each pending node of the snapshot, with the pods it is reserved for. So affinity and
        spread take these pods into account."""
        for claim in scene.in_flight:
            pods = [
                Pod(f"{claim.claim} {number} {i}", claim.claim, requirements)
                for number, (requirements, count) in enumerate(claim.pods)
                for i in range(count)
            ]
            movers = [self._mover(pod) for pod in pods]
            self._columns()
            self.expect(claim.claim, claim.requirements, movers)

    def expect(
        self, name: str, requirements: Iterable[PoolRequirement], movers: Iterable[Mover]
    ) -> None:
        """Adds a node that will exist later to the simulation. The given pods are on the node, and
        the node takes no other pods.

        `name`: the name of its node claim.
        `requirements`: the label requirements of the node claim. A label with one possible value
          becomes a label of the node.
        `movers`: the pods that will run on the node.

        If the zone of the node is not fixed, a later attempt sets `Attempt.waits` and tries nothing
        if it would move a pod with affinity or spread constraints over a topology key other than
        the host name, such as the zone.
        """
        said = LabelSet.of_pool(requirements)
        labels = {key: value for key, values in said.items() if (value := values.only) is not None}
        node = Node(
            f"claim {name}",
            {},
            labels={**labels, HOSTNAME_LABEL: f"claim {name}"},
            unschedulable=True,
        )
        self._vague = self._vague or ZONE_LABEL not in labels
        row = self._add(node, closed=True)
        for mover in movers:
            self._charge(mover, row, (), 1)

    def _add(self, node: Node, *, closed: bool) -> NodeRow:
        """Adds a node that does not exist yet, without pods. `closed`: it takes no pods."""
        self.expected.append(node)
        self._on[node.name] = {}
        self._snapshot = None
        row = self.table.put(node, closed)
        self.table.set_usage(row, {}, [])
        self._fit()
        return row

    def _fit(self) -> None:
        """Lengthens `open` and `quiet` to the capacity of the table and rebuilds the class arrays,
        if the table has grown."""
        more = self.table.capacity - len(self.open)
        if more:
            self.open, self.quiet = (
                np.concatenate((o, np.zeros(more, dtype=np.int8))) for o in (self.open, self.quiet)
            )
            self._columns()

    def _keep_promises(self, scene: ClusterSnapshot) -> None:
        """Reserves capacity on existing nodes for pods that will need it, so that other moves do
        not take it. The capacity is chosen by best fit among the nodes that may receive pods.

        Two kinds of pods need it: pods on nodes that are being disrupted, and pods that wait for a
        node. Pods for which capacity is reserved elsewhere, or which a pending node will hold, are
        skipped. For a pod that fits nowhere nothing is reserved.
        """
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
        """Removes from `pods` as many pods of each class as the pending nodes (node claims without
        a node yet) were created for, and returns the rest in order. Pods of one class have equal
        requirements, so it does not matter which of them are removed; the first ones are.

        Example: the pending nodes were created for 2 pods of a class, and `pods` has 5 pods of this
        class. The last 3 are returned.
        """
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
        """Returns the index in `classes` of the class of pods with these requirements. If there is
        no such class yet, it is compiled and added.

        `terminating`: whether the pod is terminating. Terminating pods have separate classes, also
          if their requirements are equal to those of other pods.
        """
        known = self._by_identity.get(id(requirements))
        if known is not None and not terminating:
            return known[1]
        key = (canonical(requirements), terminating)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self.classes)
            cls = compile_class(
                self.table, requirements, requirements.class_key, requirements.pod_key, terminating
            )
            self.classes.append(cls)
        if not terminating:
            # kept, so that the identity stays its own
            self._by_identity[id(requirements)] = (requirements, row)
        return row

    def _mover(self, pod: Pod) -> Mover:
        row = self.row_of(pod.requirements)
        return Mover(pod, self.classes[row], row)

    def value(self, row: int) -> int:
        """Returns the value of the cpu and memory that one pod of a class requests, in billionths
        of a dollar an hour. `row`: the index of the class in `classes`."""
        known = self._values.get(row)
        if known is None:
            amounts = dict(self.classes[row].amounts)
            known = self._values[row] = self.weights.of(amounts.get(CPU, 0), amounts.get(MEMORY, 0))
        return known

    def simple(self, row: int) -> bool:
        """Returns whether a class of pods is simple: its requests, and the labels, taints and
        cordons of the nodes, alone decide on which nodes its pods fit. A simple class has no
        devices, volumes or resource claims, and no affinity, anti-affinity or topology spread
        applies to it.

        `row`: the index of the class in `classes`. The result is cached until the constraints of
          the pods in the cluster change.
        """
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
        """Reduces the requirements of a simple class of pods to what decides on which nodes the
        pods fit. A class is simple if no constraints between pods apply to it. Removed are the
        namespace, labels, owner, images, preferences, and membership in a group of pods that start
        together.

        Returns (row, reduced requirements). Classes that are equal after the reduction get the row
        of the first such class, so their pods can be packed as one group.

        `row`: the index of the class in `classes`.
        """
        known = self._alone.get(row)
        if known is None:
            said = self.classes[row].requirements
            seen = {
                "namespace": "",
                "labels": {},
                "owner": "",
                "images": (),
                "scored": {},
                "group": "",
                "min_count": 0,
            }
            alone = msgspec.structs.replace(said, pod=msgspec.structs.replace(said.traits, **seen))
            known = self._first_alone.setdefault(canonical(alone), (row, alone))
            self._alone[row] = known
        return known

    def _minds_zones(self, row: int) -> bool:
        """Returns whether the class has a constraint between pods over a topology key other than
        the host name, such as the zone."""
        if self.simple(row):
            return False
        found = self.placer.relating.of(self.classes[row])
        keys = (
            {key for key, *_ in found.blocks}
            | {key for key, _ in found.joins}
            | {c.said.key for c in found.hard}
        )
        return bool(keys - {HOSTNAME_LABEL, ""})

    def _minds_new_nodes(self, row: int) -> bool:
        """Returns whether a new node may change on which nodes a pod of the class is allowed. A new
        node is a new topology domain of a hard spread, and its pods count in its zone for affinity.
        """
        if self.simple(row):
            return False
        return bool(self.placer.relating.of(self.classes[row]).hard) or self._minds_zones(row)

    # --- trying

    def without(self, names: Sequence[str], quiet: bool, need_all: bool = False) -> Attempt:
        """Simulates the removal of the nodes `names`: places their pods on other nodes by best fit.
        Returns which pods found a place and which did not (`Attempt`). The state of the simulation
        is unchanged on return; `commit` carries the attempt out.

        `quiet`: use only nodes that consolidation may use as destinations (no pod came or left
          recently).
        `need_all`: stop at the first pod that fits nowhere; `left` then has only this pod.
          Otherwise `left` has every pod that fits nowhere. If there is at least one, `left` also
          has some pods that found a place: those whose topology spread or affinity constraints
          could be met differently once a new node is added.

        The pods of all removed nodes are placed in one order: first pods with devices, volumes or
        constraints between pods, then by the value of the requested cpu and memory, highest first.

        `Attempt.waits` is set, and nothing is tried, in one case: a pod has affinity or spread
        constraints over a topology key other than the host name, such as the zone, and the zone of
        a pending node (a node claim without a node yet) is not known.
        """
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
            attempt = self._tried(tuple(names), movers, opened, need_all)
        finally:
            opened[slots] = before
        if attempt.left and not need_all:
            self._place_with_the_rest(attempt)
        return attempt

    def _place_with_the_rest(self, attempt: Attempt) -> None:
        """Moves the pods whose place a new node could change from `placed` to `left`. The pods in
        `left` will get new nodes, and these may add topology domains. So all these pods have to be
        placed together with the new nodes."""
        depending = [m for m, _ in attempt.placed if self._minds_new_nodes(m.row)]
        if depending:
            attempt.placed = [(m, slot) for m, slot in attempt.placed if m not in depending]
            attempt.left += depending

    def _tried(
        self, names: tuple[str, ...], movers: list[Mover], opened: Opened, need_all: bool
    ) -> Attempt:
        """Places the pods `movers` on the open nodes and returns the result. The state of the
        simulation is not changed.

        First a compiled function (`settle`) places them by requests and by the labels and taints of
        the nodes. This result is used in two cases. One: all pods are simple, so no constraints
        between pods apply. Two: `need_all` is set and this function found a pod without a place.
        Otherwise the result is dropped, and the pods are placed one by one with all filters, which
        takes longer.

        `names`: the removed nodes.
        `opened` int8[slots]: 1 where a node may receive pods; a slot is the position of a node in
          the arrays.
        `need_all`: stop at the first pod that fits nowhere.
        """
        attempt = Attempt(names)
        if not movers:
            return attempt
        targets = np.zeros(len(movers), dtype=np.int64)
        of = np.array([m.row for m in movers], dtype=np.int64)
        KERNELS.settle(
            self.table.size,
            of,
            self.asks,
            self.groups,
            self.allowed,
            opened,
            self.table.free,
            self._weights,
            self._shifts,
            int(need_all),
            targets,
        )
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

    def _one_by_one(
        self, attempt: Attempt, movers: list[Mover], opened: Opened, need_all: bool
    ) -> None:
        """Places pods one after another with all filters of the scheduler. Each pod is added to
        `attempt`: to `placed` with the slot of its destination, or to `left` if no node takes it.
        The arrays of the simulation are restored on return.

        All pods are first taken off their old nodes. Each pod is then placed in the state after the
        pods before it. At the end all constraints are checked again.

        `opened` int8[slots]: 1 where a node may receive pods; a slot is the position of a node in
          the arrays.
        `need_all`: stop at the first pod that fits nowhere.
        """
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

    def _hold_at_the_end(
        self, attempt: Attempt, charged: list[tuple[Mover, NodeRow, Taken]]
    ) -> None:
        """Checks all constraints again after all pods were placed. Each pod that violates a
        constraint in this final state is moved from `attempt.placed` to `attempt.left`. A pod that
        was placed later may violate a constraint of a pod placed earlier, and the real order of the
        moves is not known.

        `charged`: (pod, its destination, the devices that it gets there) for each placed pod.
        """
        spoilt = [m for m, row, taken in charged if not self._allowed(m, row, taken)]
        if spoilt:
            attempt.placed = [
                (mover, slot) for mover, slot in attempt.placed if mover not in spoilt
            ]
            attempt.left += spoilt

    def conflict(
        self, attempt: Attempt, made: Sequence[Mapping[str, str]], of: Sequence[int]
    ) -> Mover | None:
        """Checks affinity and topology spread in the state after all moves of an attempt. Returns
        the first pod that may not run on its destination beside all other pods; None: there is no
        such pod. A destination is an existing node or a node that is to be created. Devices of
        nodes to be created are not checked. The state of the simulation is restored on return.

        Only the final state is checked, because the pods may move in any order.

        `attempt`: the simulated removal. Its `placed` pods go to existing nodes, its `left` pods to
          nodes to be created.
        `made`: the labels of each node to be created.
        `of`: for each pod in `attempt.left`, the index of its destination in `made`.
        """
        seats = [(mover, slot, -1) for mover, slot in attempt.placed]
        seats += [(mover, -1, number) for mover, number in zip(attempt.left, of, strict=True)]
        if all(self.simple(mover.row) for mover, _, _ in seats):
            return None
        off = [mover for mover, _, _ in seats if mover.pod.node in self.table.rows]
        charged: list[tuple[Mover, NodeRow, Taken]] = []
        rows: list[NodeRow] = []
        self._lift(off, -1)
        try:
            for number, labels in enumerate(made):
                rows.append(self._make(f"new {number}", labels))
            for mover, slot, number in seats:
                row = rows[number] if number >= 0 else self._row(slot)
                taken = () if number >= 0 else _taken(row, mover.cls)
                self._charge(mover, row, taken, 1)
                charged.append((mover, row, taken))
            return next((m for m, row, taken in charged if not self._allowed(m, row, taken)), None)
        finally:
            for mover, row, taken in reversed(charged):
                self._charge(mover, row, taken, -1)
            for row in rows:
                self._unmake(row)
            self._lift(off, 1)

    def _make(self, name: str, labels: Mapping[str, str]) -> NodeRow:
        """Adds a new node with practically unlimited capacity. Its real capacity was checked
        before."""
        amounts = dict.fromkeys(self.table.resources, ROOM_FOR_ANYTHING)
        return self._add(Node(name, amounts, labels={**labels, HOSTNAME_LABEL: name}), closed=False)

    def _unmake(self, row: NodeRow) -> None:
        self.expected.pop()
        del self._on[row.name]
        self._snapshot = None
        self.table.drop(row.name)

    def _allowed(self, mover: Mover, row: NodeRow, taken: Taken) -> bool:
        """Returns whether a placed pod may stay on its node beside all other pods. The pod is taken
        off the node for the check and put back. Always true for a pod with device requests on a new
        node, because the devices of new nodes are not known here."""
        if self.simple(mover.row) or (mover.cls.needs and not row.groups):
            return True
        self._charge(mover, row, taken, -1)
        allowed = bool(self.placer.look(mover.cls).verdicts[row.slot] == 0)
        self._charge(mover, row, taken, 1)
        return allowed

    def _best(self, mover: Mover, opened: Opened) -> int:
        """Chooses a node for a pod by best fit in the present state of the simulation. Returns the
        slot of the node (its position in the arrays); -1: no node takes the pod.

        Of the open nodes that take the pod, the one with the lowest score is chosen, the lowest
        slot on ties. The score is cpu * cpu + memory * memory, of the cpu and memory that stay free
        with the pod on the node. Both are first multiplied by a weight per unit, so that they can
        be compared. The compiled function `rest_of` computes the same score.

        `opened` int8[slots]: 1 where a node may receive pods.

        Example: two nodes have 4 and 2 cores free and equal memory free. A pod of 2 cores goes to
        the second node.
        """
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
            rest += (
                np.minimum(
                    ((left >> self._shifts[r]) * self._weights[r]) >> plain.COARSE, plain.REST_MAX
                )
                ** 2
            )
        return int(slots[np.argmin(rest)])

    def _roomy(self, row: int) -> npt.NDArray[np.bool_]:
        size = self.table.size
        fits = self.allowed[self.groups[row], :size] != 0
        for r in np.flatnonzero(self.asks[row] > 0).tolist():
            fits = fits & (self.table.free[r, :size] >= self.asks[row, r])
        return np.asarray(fits, dtype=np.bool_)

    def why_not(self, left: Mover) -> str:
        """Explains why no node takes the pod, in the words of kube-scheduler."""
        return message(self.placer, left.cls).removesuffix(".")

    # --- deciding

    def commit(self, attempt: Attempt) -> None:
        """Carries out the simulated removal `attempt`, so that later attempts start from the state
        after it. The removed nodes take no pods any more. The pods in `placed` use capacity on
        their destinations, which are existing nodes. The pods in `left` are only taken off the
        removed nodes, because they go to nodes that are to be created; `expect` adds these nodes.
        """
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
        """Takes the pods off their nodes (`times` -1) or puts them back (`times` 1). Their devices
        stay charged, because these nodes are closed to other pods."""
        for mover in movers:
            self.table.charge(self.table.rows[mover.pod.node], mover.cls, times, ())
            self._tell(mover.pod, times)

    def _charge(self, mover: Mover, row: NodeRow, taken: Taken, times: int) -> None:
        self.table.charge(row, mover.cls, times, [(i, times * milli) for i, milli in taken])
        self._tell(Pod(mover.pod.uid, mover.pod.name, mover.pod.requirements, row.name), times)

    def _tell(self, pod: Pod, times: int) -> None:
        """Adds a pod to the list of pods by node (`times` 1) or removes it (`times` -1). Filters
        that read the cluster pod by pod use this list."""
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
            self._snapshot = Snapshot.of(
                (*self.scene.nodes, *self.expected), self.pods(), self.scene.objects
            )
        return self._snapshot

    def pods(self) -> list[Pod]:
        """Returns all pods that are on nodes in the present state."""
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
    """Computes how much of each device of a node is in use, in thousandths.

    Pods that report their devices are counted on these devices. A pod that reports none is counted
    on the least used devices; among the pods that report none, the largest requests are counted
    first. This leaves the fewest devices entirely free, so the free capacity is not overestimated.

    `row`: the node. `pods`: the pods on the node.

    Example: two pods request half a GPU each and report no device. They are counted on two
    different GPUs: [500, 500].
    """
    held = [0] * len(row.groups)
    unsaid: list[int] = []
    for pod in pods:
        for index, milli in pod.devices:
            if 0 <= index < len(held) and milli > 0:
                held[index] += min(milli, DEVICE_MILLI)
        if not pod.devices:
            unsaid += [
                min(asked.milli, DEVICE_MILLI)
                for asked in pod.requirements.devices
                for _ in range(asked.count)
            ]
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
