"""The nodes of one cluster, stored twice: a row of Python integers per node, and int64 columns over
all nodes.

Placing a replica changes one node, and Python lists are the fastest for that. Choosing among all
nodes reads all of them, and arrays are the fastest for that. Rows are exact and authoritative;
columns are copies, clipped to int64. Caches per node follow two change logs: `usage` (free amounts
and devices) and `facts` (labels, taints, cordons, added and removed nodes).

The table knows which *classes* of pods a node holds, since the tallies of other classes depend on
them (`tallies`). It does not know pods and bindings: `occupancy` decides what is charged to a row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import stable_hash
from wharfinger.engine.nodes.tallies import Counted, Tallies, TopologyTally

Column = npt.NDArray[np.int64]

CPU, MEMORY, PODS = 0, 1, 2
"""The first columns of every table; other resources follow in the order in which they appear."""

AMOUNT_MAX = 2**53
"""Amounts are clamped to 0..2**53 when they enter: nine petabytes, and a hundred times it still
fits int64."""

UNLIMITED = 2**53
"""The amount of `pods` of a node that states none."""

DEVICES_MAX = 256
"""Devices of one node beyond this number are not offered: no machine has them, and columns are as
wide as the widest."""

_CLIP = 2**62

Taken = tuple[tuple[int, int], ...]
"""(device index, thousandths) for each device a replica holds."""


class HeldClass(Counted, Protocol):
    """A class of pods, as the table counts it on a node. `amounts`: (resource column, requested
    amount); `scored`: cpu and memory as scores count them; `wholes`: (device kind, number of whole
    devices)."""

    amounts: tuple[tuple[int, int], ...]
    scored: tuple[int, int]
    wholes: tuple[tuple[int, int], ...]


H = TypeVar("H", bound=HeldClass)


class MissingTie(LookupError):  # noqa: N818  (named after what is the case)
    """Raised when a history with redacted names lacks the tie-break value of a node or class that a
    decision needs."""


@dataclass(frozen=True, slots=True)
class Ties:
    """Tie-break values recorded for a history whose names were redacted, so that ties break as
    under the original names. `nodes`: node name -> value that replaces its hash; `classes`: class
    key -> value that replaces its seed. Only the xor of the two decides."""

    nodes: Mapping[str, int]
    classes: Mapping[str, int]

    def node(self, name: str) -> int:
        return self._value(self.nodes, "node", name)

    def class_(self, key: str) -> int:
        return self._value(self.classes, "requirement class", key)

    def _value(self, values: Mapping[str, int], what: str, name: str) -> int:
        value = values.get(name)
        if value is None:
            raise MissingTie(f"{what} {name} has no tie value")
        return value


class ChangeLog:
    """A bounded log of changed slots, in order of change. A reader remembers a position (`end`) and
    later asks for the slots changed `since` then. Positions only grow. When the log is full, the
    older half is dropped."""

    __slots__ = ("_end", "_slots", "_start")

    def __init__(self, capacity: int = 4096) -> None:
        self._slots = np.zeros(capacity, dtype=np.int64)
        self._start = 0
        self._end = 0

    @property
    def end(self) -> int:
        return self._end

    def append(self, slot: int) -> None:
        if self._end - self._start == len(self._slots):
            half = len(self._slots) // 2
            self._slots[:half] = self._slots[half:].copy()
            self._start += half
        self._slots[self._end - self._start] = slot
        self._end += 1

    def since(self, position: int) -> Column | None:
        """Returns the slots changed from `position` on, with repetitions; None if the log no longer
        covers that position."""
        if position < self._start:
            return None
        return self._slots[position - self._start : self._end - self._start]


class NodeRow:
    """The facts and usage of one node, as Python values. All amounts are exact; the columns of
    `NodeTable` are copies.

    `allocatable` and `free` are indexed by resource column. `free` is negative when pods placed by
    another scheduler overcommit the node. `closed`: takes no new replicas; `unschedulable`: closed
    or cordoned (some pods tolerate a cordon).

    `used`: used thousandths of each device, unclipped; `device_free`: free thousandths of each,
    0..1000; `groups`: code of each device's (kind, model). `sole_group`: that code when all devices
    share it, -1 when they do not, -2 without devices.

    `classes`: number of pods by class; `scored`: their cpu and memory as scores count them;
    `whole_left`: number of devices by kind, less those requested as whole devices, regardless of
    which devices are used. `images`: name -> bytes.
    """

    __slots__ = (
        "allocatable",
        "classes",
        "closed",
        "device_free",
        "free",
        "groups",
        "images",
        "kind_allocatable",
        "kind_free",
        "labels",
        "name",
        "scored",
        "slot",
        "sole_group",
        "taint_code",
        "unschedulable",
        "used",
        "whole_left",
    )

    def __init__(self, slot: int, name: str) -> None:
        self.slot = slot
        self.name = name
        self.labels: dict[str, str] = {}
        self.taint_code = 0
        self.closed = False
        self.unschedulable = False
        self.allocatable: list[int] = []
        self.free: list[int] = []
        self.groups: tuple[int, ...] = ()
        self.sole_group = -2
        self.used: list[int] = []
        self.device_free: list[int] = []
        self.kind_allocatable: dict[int, int] = {}
        self.kind_free: dict[int, int] = {}
        self.images: dict[str, int] = {}
        self.classes: dict[HeldClass, int] = {}
        self.scored: list[int] = [0, 0]
        self.whole_left: dict[int, int] = {}


class LabelDomains:
    """The topology domains of one node label. `codes` int64[slots]: the domain of each node, -1:
    the node lacks the label; `values`: label value -> domain."""

    __slots__ = ("codes", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: Column = np.full(capacity, -1, dtype=np.int64)
        self.values: dict[str, int] = {}

    def put(self, slot: int, value: str | None) -> None:
        self.codes[slot] = -1 if value is None else self.values.setdefault(value, len(self.values))


class DeviceView:
    """Summarises, for each node, the devices that one kind of request may use: `top`: the most free
    thousandths on one device, -1 without such a device; `whole`: the number of entirely free ones.
    There is one view per (kind, allowed models), shared by all classes that request these."""

    __slots__ = ("groups", "kind", "models", "top", "whole")

    def __init__(self, kind: int, models: frozenset[str], capacity: int) -> None:
        self.kind = kind
        self.models = models
        self.groups: set[int] = set()
        self.top: Column = np.full(capacity, -1, dtype=np.int64)
        self.whole: Column = np.zeros(capacity, dtype=np.int64)


class NodeTable:
    """The nodes of one cluster: a `NodeRow` per node, and arrays over slots with the same values
    clipped to int64.

    A node keeps its slot while it exists; slots of dropped nodes are reused. `usage` and `facts`
    log the changed slots. `names` is incremented whenever a node is added or removed. `ties`:
    recorded tie-break values, used in place of hashes of names.
    """

    def __init__(self, capacity: int = 64, ties: Ties | None = None) -> None:
        self.capacity = capacity
        self.ties = ties
        self.rows: dict[str, NodeRow] = {}
        self.by_slot: list[NodeRow | None] = []
        self.names = 0
        self.usage = ChangeLog()
        self.facts = ChangeLog()
        self.resources: list[str] = []
        self.resource_codes: dict[str, int] = {}
        self.allocatable: Column = np.zeros((0, capacity), dtype=np.int64)
        self.free: Column = np.zeros((0, capacity), dtype=np.int64)
        self.scored: Column = np.zeros((2, capacity), dtype=np.int64)
        self.kinds: list[str] = []
        self.kind_codes: dict[str, int] = {}
        self.kind_allocatable: list[Column] = []
        self.kind_free: list[Column] = []
        self.whole_left: list[Column] = []
        self.topologies: dict[str, LabelDomains] = {}
        self.image_nodes: dict[str, dict[int, int]] = {}
        self.tallies = Tallies(capacity)
        self.objects_changes = 0
        self._objects = ClusterObjects()
        self.groups: list[tuple[int, str]] = []
        self.group_codes: dict[tuple[int, str], int] = {}
        self.group_views: list[list[DeviceView]] = []
        self.views: dict[tuple[int, frozenset[str]], DeviceView] = {}
        self.device_free: Column = np.full((capacity, 0), -1, dtype=np.int64)
        self.device_group: Column = np.full((capacity, 0), -1, dtype=np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.taint_codes: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self.present: npt.NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.cordoned: npt.NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.closed: npt.NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self.taint_code: Column = np.zeros(capacity, dtype=np.int64)
        self.hashes: npt.NDArray[np.uint64] = np.zeros(capacity, dtype=np.uint64)
        self.pods_unlimited: set[str] = set()
        self.incomplete: set[str] = set()
        self._vacant: list[int] = []
        self._ranks: tuple[int, Column] | None = None
        self._hashes_differ = False
        for name in ("cpu", "memory", "pods"):
            self.resource(name)

    @property
    def objects(self) -> ClusterObjects:
        """The other objects of the cluster. What is derived from them is valid while
        `objects_changes` is the same: their address is that of other objects later."""
        return self._objects

    @objects.setter
    def objects(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self.objects_changes += 1

    @property
    def size(self) -> int:
        """The number of slots in use or used before. Columns have no meaning beyond it."""
        return len(self.by_slot)

    @property
    def complete(self) -> bool:
        """Whether every slot has a node with cpu and memory above 0, so that kernels may divide by
        them without a check."""
        return not self.incomplete and not self._vacant

    @property
    def pods_limited(self) -> bool:
        return len(self.pods_unlimited) < len(self.rows)

    # --- names to codes

    def resource(self, name: str) -> int:
        """Returns the column number of a resource, such as 0 for the first. A resource that has no
        column gets a new one, with amount 0 on every node. So a node that does not report a
        resource has 0 of it."""
        code = self.resource_codes.get(name)
        if code is None:
            code = self.resource_codes[name] = len(self.resources)
            self.resources.append(name)
            nothing = np.zeros((1, self.capacity), dtype=np.int64)
            self.allocatable = np.concatenate((self.allocatable, nothing))
            self.free = np.concatenate((self.free, nothing))
            for row in self.rows.values():
                row.allocatable.append(0)
                row.free.append(0)
        return code

    def kind(self, name: str) -> int:
        code = self.kind_codes.get(name)
        if code is None:
            code = self.kind_codes[name] = len(self.kinds)
            self.kinds.append(name)
            self.kind_allocatable.append(np.zeros(self.capacity, dtype=np.int64))
            self.kind_free.append(np.zeros(self.capacity, dtype=np.int64))
            self.whole_left.append(np.zeros(self.capacity, dtype=np.int64))
        return code

    def topology(self, key: str) -> LabelDomains:
        topology = self.topologies.get(key)
        if topology is None:
            topology = self.topologies[key] = LabelDomains(self.capacity)
            for name in sorted(self.rows):
                row = self.rows[name]
                topology.put(row.slot, row.labels.get(key))
        return topology

    def tally(self, key: Hashable, meets: Callable[[Counted], int]) -> TopologyTally:
        """Returns the tally for `key`: a counter per node of the pods that `meets` selects. A new
        tally is computed once from all pods of the table. After that, each placed or removed pod
        changes it by a few additions.

        `key`: names what is counted; equal keys get the same tally. `meets`: called with a class of
        pods, returns by how much one pod of the class counts; 0: the pod does not count. Example:
        `meets` returns 1 for pods with the label app=web. A node with 3 such pods has the counter
        3.
        """
        if self.tallies.full:
            self._recount()
        tally, new = self.tallies.asked(key, meets)
        if new:
            times: dict[HeldClass, int] = {}
            for row in self.rows.values():
                for cls, count in row.classes.items():
                    met = times.get(cls)
                    if met is None:
                        met = times[cls] = meets(cls)
                    if met:
                        tally.by_slot[row.slot] += met * count
        return tally

    def _recount(self) -> None:
        """Drops all tallies, because there are too many. The affinity terms of existing pods are
        counted again at once, the other tallies when they are next requested."""
        self.tallies.forget()
        for row in self.rows.values():
            for cls, count in row.classes.items():
                self._tell(cls, row.slot, count)

    def _tell(self, cls: HeldClass, slot: int, times: int) -> None:
        for tally, met in self.tallies.moved_by(cls):
            tally.by_slot[slot] += met * times

    def view(self, kind: int, models: Iterable[str]) -> DeviceView:
        key = (kind, frozenset(models))
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = DeviceView(kind, key[1], self.capacity)
            for group, (of_kind, model) in enumerate(self.groups):
                self._admit(view, group, of_kind, model)
            for row in self.rows.values():
                self._fill_view(view, row)
        return view

    def _group(self, kind: int, model: str) -> int:
        code = self.group_codes.get((kind, model))
        if code is None:
            code = self.group_codes[(kind, model)] = len(self.groups)
            self.groups.append((kind, model))
            self.group_views.append([])
            for view in self.views.values():
                self._admit(view, code, kind, model)
        return code

    def _admit(self, view: DeviceView, group: int, kind: int, model: str) -> None:
        if view.kind == kind and (not view.models or model in view.models):
            view.groups.add(group)
            self.group_views[group].append(view)

    def _taints(self, taints: Sequence[Taint]) -> int:
        key = tuple([(t.key, t.value, t.effect) for t in taints])
        code = self.taint_codes.get(key)
        if code is None:
            code = self.taint_codes[key] = len(self.taint_sets)
            self.taint_sets.append(tuple(taints))
        return code

    # --- nodes come, change and go

    def put(self, node: Node, closed: bool) -> NodeRow:
        """Adds a node to the table, or replaces the properties of a known node (labels, taints,
        allocatable amounts, images, devices). Returns the row of the node. Free amounts are not
        computed here: the caller has to call `set_usage` next.

        `closed`: the node takes no new replicas, even if it could hold them. Devices beyond the
        first `DEVICES_MAX` are ignored. A node that does not report `pods` has no limit of pods.
        """
        row = self.rows.get(node.name)
        if row is None:
            row = self._open(node.name)
        for name in node.allocatable:
            self.resource(name)
        slot = row.slot
        row.labels = node.labels
        for key, topology in self.topologies.items():
            topology.put(slot, node.labels.get(key))
        self._put_images(row, node.images)
        row.taint_code = self._taints(node.taints)
        row.closed, row.unschedulable = closed, node.unschedulable or closed
        row.allocatable = [0] * len(self.resources)
        for name, amount in node.allocatable.items():
            row.allocatable[self.resource_codes[name]] = clamped(amount)
        if "pods" in node.allocatable:
            self.pods_unlimited.discard(node.name)
        else:
            row.allocatable[PODS] = UNLIMITED
            self.pods_unlimited.add(node.name)
        if row.allocatable[CPU] and row.allocatable[MEMORY]:
            self.incomplete.discard(node.name)
        else:
            self.incomplete.add(node.name)
        self._put_devices(row, node)
        for column, amount in zip(self.allocatable, row.allocatable, strict=True):
            column[slot] = amount
        self.present[slot], self.cordoned[slot], self.closed[slot] = (
            True,
            row.unschedulable,
            row.closed,
        )
        self.taint_code[slot] = row.taint_code
        self.facts.append(slot)
        return row

    def _put_images(self, row: NodeRow, images: dict[str, int]) -> None:
        if row.images == images:
            return
        for name in row.images:
            on = self.image_nodes[name]
            del on[row.slot]
            if not on:
                del self.image_nodes[name]
        for name, size in images.items():
            self.image_nodes.setdefault(name, {})[row.slot] = size
        row.images = images

    def _put_devices(self, row: NodeRow, node: Node) -> None:
        devices = node.devices[:DEVICES_MAX]
        row.groups = tuple([self._group(self.kind(d.kind), d.model) for d in devices])
        distinct = set(row.groups)
        row.sole_group = -2 if not distinct else (row.groups[0] if len(distinct) == 1 else -1)
        row.kind_allocatable = {}
        for group in row.groups:
            kind = self.groups[group][0]
            row.kind_allocatable[kind] = row.kind_allocatable.get(kind, 0) + DEVICE_MILLI
        for kind, column in enumerate(self.kind_allocatable):
            column[row.slot] = row.kind_allocatable.get(kind, 0)
        if len(devices) > self.device_free.shape[1]:
            more = len(devices) - self.device_free.shape[1]
            pad = np.full((self.capacity, more), -1, dtype=np.int64)
            self.device_free = np.concatenate((self.device_free, pad), axis=1)
            self.device_group = np.concatenate((self.device_group, pad), axis=1)
        self.device_group[row.slot] = -1
        self.device_group[row.slot, : len(devices)] = row.groups

    def drop(self, name: str) -> None:
        row = self.rows.pop(name)
        slot = row.slot
        for cls, count in row.classes.items():
            self._tell(cls, slot, -count)
        self._put_images(row, {})
        for topology in self.topologies.values():
            topology.put(slot, None)
        self.by_slot[slot] = None
        self._vacant.append(slot)
        self.pods_unlimited.discard(name)
        self.incomplete.discard(name)
        columns = (
            *self.allocatable,
            *self.free,
            *self.scored,
            *self.kind_allocatable,
            *self.kind_free,
            *self.whole_left,
        )
        for column in columns:
            column[slot] = 0
        for view in self.views.values():
            view.top[slot], view.whole[slot] = -1, 0
        self.device_free[slot] = -1
        self.device_group[slot] = -1
        self.present[slot] = False
        self.names += 1
        self.facts.append(slot)
        self.usage.append(slot)

    def _open(self, name: str) -> NodeRow:
        if self._vacant:
            slot = self._vacant.pop()
        else:
            slot = len(self.by_slot)
            if slot == self.capacity:
                self._grow()
            self.by_slot.append(None)
        row = NodeRow(slot, name)
        row.allocatable = [0] * len(self.resources)
        row.free = [0] * len(self.resources)
        self.by_slot[slot] = self.rows[name] = row
        self.hashes[slot] = stable_hash(name) if self.ties is None else self.ties.node(name)
        self.names += 1
        return row

    def _grow(self) -> None:
        def doubled(column: Column, fill: int) -> Column:
            return np.concatenate((column, np.full_like(column, fill)))

        self.allocatable, self.free, self.scored = (
            np.concatenate((c, np.zeros_like(c)), axis=1)
            for c in (self.allocatable, self.free, self.scored)
        )
        self.whole_left = [doubled(c, 0) for c in self.whole_left]
        for topology in self.topologies.values():
            topology.codes = doubled(topology.codes, -1)
        self.tallies.grow(2 * self.capacity)
        self.kind_allocatable = [doubled(c, 0) for c in self.kind_allocatable]
        self.kind_free = [doubled(c, 0) for c in self.kind_free]
        for view in self.views.values():
            view.top, view.whole = doubled(view.top, -1), doubled(view.whole, 0)
        self.device_free = doubled(self.device_free, -1)
        self.device_group = doubled(self.device_group, -1)
        self.taint_code = doubled(self.taint_code, 0)
        self.present = np.concatenate((self.present, np.zeros_like(self.present)))
        self.cordoned = np.concatenate((self.cordoned, np.zeros_like(self.cordoned)))
        self.closed = np.concatenate((self.closed, np.zeros_like(self.closed)))
        self.hashes = np.concatenate((self.hashes, np.zeros_like(self.hashes)))
        self.capacity *= 2

    # --- usage

    def set_usage(self, row: NodeRow, held: Mapping[H, int], devices: Sequence[int]) -> None:
        """Replaces the usage of one node. Computes the free amounts as allocatable amounts -
        requests of all pods, and updates the counters of pods (tallies), the free devices, and the
        columns of the table.

        `row`: the node. `held`: class of pods -> number of pods on the node. `devices`: used
        thousandths of each device of the node, in device order. Example: 4000 milli-CPU allocatable
        and 3 pods that request 1000 each leave 1000 free.
        """
        slot = row.slot
        self._set_classes(row, held)
        row.free = list(row.allocatable)
        row.scored = [0, 0]
        row.whole_left = {
            kind: milli // DEVICE_MILLI for kind, milli in row.kind_allocatable.items()
        }
        for cls, count in held.items():
            self._take(row, cls, count)
        for column, amount in zip(self.free, row.free, strict=True):
            column[slot] = max(amount, -_CLIP)
        self.scored[0, slot], self.scored[1, slot] = (
            min(row.scored[0], _CLIP),
            min(row.scored[1], _CLIP),
        )
        for kind, column in enumerate(self.whole_left):
            column[slot] = row.whole_left.get(kind, 0)
        row.used = list(devices)
        row.device_free = [max(0, DEVICE_MILLI - u) for u in row.used]
        self.device_free[slot] = -1
        self.device_free[slot, : len(row.device_free)] = row.device_free
        self._follow_devices(row)
        self.usage.append(slot)

    def _set_classes(self, row: NodeRow, held: Mapping[H, int]) -> None:
        before = row.classes
        row.classes = {cls: count for cls, count in held.items() if count}
        for cls, count in before.items():
            if row.classes.get(cls) != count:
                self._tell(cls, row.slot, -count)
        for cls, count in row.classes.items():
            if before.get(cls) != count:
                self._tell(cls, row.slot, count)

    @staticmethod
    def _take(row: NodeRow, cls: HeldClass, times: int) -> None:
        for code, amount in cls.amounts:
            row.free[code] -= times * amount
        row.scored[0] += times * cls.scored[0]
        row.scored[1] += times * cls.scored[1]
        for kind, count in cls.wholes:
            row.whole_left[kind] = row.whole_left.get(kind, 0) - times * count

    def charge(
        self, row: NodeRow, cls: HeldClass, times: int, taken: Iterable[tuple[int, int]]
    ) -> None:
        """Adds `times` replicas of a class to the usage of one node; a negative `times` removes
        replicas. Free amounts, columns and counters of pods (tallies) are changed by the difference
        only.

        - `row`: the node. `cls`: the class of the replicas.
        - `taken`: (device index, thousandths) to add to the used thousandths of a device. The
          thousandths are totals and are not multiplied by `times`. Negative thousandths free a
          device. Unknown device indexes are ignored.

        Example: `times` 2 for a class that requests 500 milli-CPU lowers the free cpu of the node
        by 1000.
        """
        slot = row.slot
        count = row.classes.get(cls, 0) + times
        if count:
            row.classes[cls] = count
        else:
            del row.classes[cls]
        for tally, met in self.tallies.moved_by(cls):
            tally.by_slot[slot] += met * times
        # as `_take`, with the columns in the same pass: this runs several times for every decision
        free, columns, scored = row.free, self.free, row.scored
        for code, amount in cls.amounts:
            free[code] = left = free[code] - times * amount
            columns[code, slot] = left if left > -_CLIP else -_CLIP
        cpu, memory = cls.scored
        scored[0] = cpu = scored[0] + times * cpu
        scored[1] = memory = scored[1] + times * memory
        self.scored[0, slot] = cpu if cpu < _CLIP else _CLIP
        self.scored[1, slot] = memory if memory < _CLIP else _CLIP
        for kind, wholes in cls.wholes:
            row.whole_left[kind] = row.whole_left.get(kind, 0) - times * wholes
            self.whole_left[kind][slot] = row.whole_left[kind]
        if taken:
            used, device_free, column = row.used, row.device_free, self.device_free
            for index, milli in taken:
                if 0 <= index < len(used):
                    used[index] = held = used[index] + milli
                    left = 0 if held >= DEVICE_MILLI else DEVICE_MILLI - held
                    device_free[index] = column[slot, index] = left
            self._follow_devices(row)
        self.usage.append(slot)

    def _follow_devices(self, row: NodeRow) -> None:
        """Computes again what is summarised of the free devices of a node: their sum by kind, and
        the views."""
        slot, free, sole = row.slot, row.device_free, row.sole_group
        if sole >= 0:
            kind = self.groups[sole][0]
            total = sum(free)
            row.kind_free = {kind: total}
            self.kind_free[kind][slot] = total
            top, whole = max(free), free.count(DEVICE_MILLI)
            for view in self.group_views[sole]:
                view.top[slot] = top
                view.whole[slot] = whole
            return
        row.kind_free = dict.fromkeys(row.kind_allocatable, 0)
        for group, left in zip(row.groups, free, strict=True):
            row.kind_free[self.groups[group][0]] += left
        for kind, column in enumerate(self.kind_free):
            column[slot] = row.kind_free.get(kind, 0)
        for view in self.views.values():
            self._fill_view(view, row)

    def _fill_view(self, view: DeviceView, row: NodeRow) -> None:
        allowed = [
            left
            for group, left in zip(row.groups, row.device_free, strict=False)
            if group in view.groups
        ]
        view.top[row.slot] = max(allowed, default=-1)
        view.whole[row.slot] = allowed.count(DEVICE_MILLI)

    def allowed_free(self, view: DeviceView, rows: Column) -> Column:
        """Returns int64[rows, devices]: the free thousandths of each device that the view allows,
        and 0 for all other devices. `rows`: slots of the nodes."""
        # one more, so that -1 (no device) looks up False
        admits = np.zeros(len(self.groups) + 1, dtype=np.bool_)
        admits[list(view.groups)] = True
        return np.where(admits[self.device_group[rows]], self.device_free[rows], 0)

    # --- order

    def seed(self, class_key: str) -> int:
        """Returns the tie-break value of a requirement class, which is combined by xor with the
        hashes of the node names."""
        return stable_hash(class_key) if self.ties is None else self.ties.class_(class_key)

    def tie_ranks(self, seed: int) -> Column:
        """Computes an order of all nodes for breaking ties between equal scores. Returns
        int64[size]: a different rank for each slot (array position of a node), 0 for the first.

        Nodes are sorted by hash(node name) xor `seed`, and by node name if two of these numbers are
        equal. So the order depends on names only, not on the order in which nodes were added.
        `seed`: a number that differs between classes of pods, so that not all classes prefer the
        same node.
        """
        if self._ranks is None or self._ranks[0] != self.names:
            by_name = [self.rows[name].slot for name in sorted(self.rows)]
            ranks = np.zeros(self.size, dtype=np.int64)
            ranks[by_name] = np.arange(len(by_name))
            self._ranks = (self.names, ranks)
            self._hashes_differ = len(np.unique(self.hashes[: self.size])) == self.size
        mixed = self.hashes[: self.size] ^ np.uint64(seed)
        order = np.argsort(mixed) if self._hashes_differ else np.lexsort((self._ranks[1], mixed))
        ties = np.empty(self.size, dtype=np.int64)
        ties[order] = np.arange(self.size)
        return ties


def clamped(amount: int) -> int:
    return 0 if amount < 0 else min(amount, AMOUNT_MAX)
