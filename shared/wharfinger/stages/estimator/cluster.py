"""One cluster in the estimator's eyes: its book, its counts, and how far its assignments were read.

What is published is what is free after everything assigned, bound or observed, each replica counted once (see
`engine.nodes.occupancy`). Replicas assigned but on no node yet have no place to be charged to: they are deducted as a
vector from the totals, and from the count of their own class; a class fits no more often than the totals so reduced allow.

Where no nodes are reported, the totals an agent summed up stand in. They contain what ran when they were summed up, so only
replicas assigned after the summary came are deducted from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import PODS, clamped
from wharfinger.engine.nodes.count import COUNT_MAX, Counter
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Refused,
    Released,
)
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals
from wharfinger.events.streams import FLEET, cluster_stream

Classes = Mapping[str, Requirements]
"""Live requirement classes, by key, in order of key."""


@dataclass(slots=True)
class _Devices:
    """Devices of one (kind, model): how many there are, how many are entirely free, and free thousandths over all."""

    count: int = 0
    whole: int = 0
    milli: int = 0


class ClusterEstimate:
    """`accounted_through`: stream -> highest seq that is counted in. `published`: what was said last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.book = Occupancy()
        self.counter = Counter(self.book.table)
        self.summary: ResourceSummary | None = None
        self.accounted_through: dict[str, int] = {}
        self.published: CapacityEstimated | None = None
        self._contained: dict[str, int] = {}
        self._compiled: tuple[int, list[PodClass]] = (-1, [])
        self._totals = _Totals(self.book)

    # --- fold

    def summarise(self, summary: ResourceSummary | None) -> None:
        self.summary = summary
        self._contained = dict(self.book.unbound)

    def take_assignments(self, decided: AssignmentsDecided, at: int) -> bool:
        """Items not seen before, in order; True when there were any or `through` has moved."""
        if not (decided.stream.startswith(FLEET) or decided.stream == cluster_stream(self.name)):
            return False
        last = self.accounted_through.get(decided.stream, 0)
        highest = max(last, decided.through)
        for item in decided.items:
            if item.seq > last:
                highest = max(highest, item.seq)
                self._take(item, at)
        if highest == last:
            return False
        self.accounted_through[decided.stream] = highest
        return True

    def _take(self, item: AssignmentItem, at: int) -> None:
        book = self.book
        match item:
            case Assigned():
                book.assign(item.binding, item.uid, item.decision, item.replicas, item.requirements, item.priority)
            case Placed():
                book.place(item.binding, item.placed, item.requirements, at)
            case Refused():
                book.refuse(item.binding, item.assignment, item.count)
            case Released():
                book.release(item.binding, item.released, item.unbound)
            case NodeClosed():
                book.close(item.node)
            case _:
                pass  # silence and recovery concern the fleet; what runs there runs on

    # --- the estimate

    def estimate(self, classes: Classes, classes_version: int) -> CapacityEstimated | None:
        """What fits now; None while that is not known."""
        if self.book.known:
            return self._from_nodes(classes, classes_version)
        if self.book.bucket_count == 0 and self.summary is not None:
            return self._from_summary(self.summary, classes)
        return None

    def _from_nodes(self, classes: Classes, classes_version: int) -> CapacityEstimated:
        if self._compiled[0] != classes_version:
            self._compiled = (classes_version, [self.book.class_of(r) for r in classes.values()])
            self.counter.keep(self._compiled[1])
        compiled = self._compiled[1]
        book = self.book
        nodes, free, devices = self._totals.read()
        unbound = book.unbound_classes()
        if unbound:
            for cls, n in unbound:
                for code, amount in cls.amounts:
                    free[code] -= n * amount
                _deduct_devices(book, devices, cls, n)
            counts = self._bounded(compiled, free, devices)
        else:
            counts = self.counter.count()
        return CapacityEstimated(
            cluster=self.name,
            nodes=nodes,
            free=self._named(free),
            classes={cls.key: n for cls, n in zip(compiled, counts, strict=True)},
            accounted_through=dict(self.accounted_through),
            devices=_device_totals(book, devices),
        )

    def _bounded(self, compiled: list[PodClass], free: list[int], devices: dict[int, _Devices]) -> list[int]:
        """Counts by node, less what is pending of the same class, and within the totals that pending replicas leave."""
        unbound = self.book.unbound
        pods_limited = not self.book.table.pods_unlimited
        bounded: list[int] = []
        for cls, n in zip(compiled, self.counter.count(), strict=True):
            n -= unbound.get(cls.key, 0)
            if n > 0:
                for code, amount in cls.amounts:
                    if code != PODS or pods_limited:
                        n = min(n, free[code] // amount)
                for need in cls.needs:
                    n = min(n, _fits_devices(devices, need.view.groups, need.count, need.milli))
            bounded.append(max(0, n))
        return bounded

    def _named(self, free: list[int]) -> dict[str, int]:
        """Totals by name, of what some node has. Where some node does not limit its pods, neither does the cluster."""
        table = self.book.table
        return {
            name: max(0, amount)
            for code, (name, amount) in enumerate(zip(table.resources, free, strict=True))
            if (bool(table.rows) and not table.pods_unlimited if code == PODS else bool(table.allocatable[code].any()))
        }

    def _from_summary(self, summary: ResourceSummary, classes: Classes) -> CapacityEstimated:
        free = {
            name: clamped(amount - max(0, summary.allocated.get(name, 0)) - max(0, summary.allocating.get(name, 0)))
            for name, amount in summary.allocatable.items()
        }
        for cls, n in self.book.unbound_classes():
            n -= self._contained.get(cls.key, 0)
            if n > 0:
                for name, amount in _asked(cls.requirements).items():
                    free[name] = max(0, free.get(name, 0) - n * amount)
        return CapacityEstimated(
            cluster=self.name,
            nodes=0,
            free=free,
            classes={key: _fits_totals(free, requirements) for key, requirements in classes.items()},
            accounted_through=dict(self.accounted_through),
        )


@dataclass(slots=True)
class _Totals:
    """Free totals over usable nodes, brought up to date from the nodes touched since they were last read."""

    book: Occupancy
    usage_at: int = -1
    facts_at: int = -1
    nodes: int = 0
    free: list[int] = field(default_factory=list)
    devices: dict[int, _Devices] = field(default_factory=dict)
    by_slot: dict[int, tuple[list[int], dict[int, _Devices]]] = field(default_factory=dict)

    def read(self) -> tuple[int, list[int], dict[int, _Devices]]:
        """Usable nodes, free by column, free devices by group; the caller may change what it gets."""
        table = self.book.table
        usage = table.usage.since(self.usage_at) if self.usage_at >= 0 else None
        facts = table.facts.since(self.facts_at) if self.facts_at >= 0 else None
        if usage is None or facts is None:
            self.nodes, self.free, self.devices, self.by_slot = 0, [], {}, {}
            slots: Iterable[int] = range(table.size)
        else:
            slots = sorted({*usage.tolist(), *facts.tolist()})
        self.free += [0] * (len(table.resources) - len(self.free))
        for slot in slots:
            self._renew(slot)
        self.usage_at, self.facts_at = table.usage.end, table.facts.end
        return self.nodes, list(self.free), {g: replace(d) for g, d in self.devices.items()}

    def _renew(self, slot: int) -> None:
        old = self.by_slot.pop(slot, None)
        if old is not None:
            self._add(old, -1)
        row = self.book.table.by_slot[slot]
        if row is None or row.unschedulable:
            return
        groups: dict[int, _Devices] = {}
        for group, left in zip(row.groups, row.device_free, strict=True):
            d = groups.setdefault(group, _Devices())
            d.count += 1
            d.milli += left
            d.whole += left == DEVICE_MILLI
        new = ([max(0, amount) for amount in row.free], groups)
        self.by_slot[slot] = new
        self._add(new, 1)

    def _add(self, part: tuple[list[int], dict[int, _Devices]], sign: int) -> None:
        self.nodes += sign
        free = self.free
        for code, amount in enumerate(part[0]):
            free[code] += sign * amount
        for group, d in part[1].items():
            total = self.devices.setdefault(group, _Devices())
            total.count += sign * d.count
            total.whole += sign * d.whole
            total.milli += sign * d.milli
            if not total.count:
                del self.devices[group]


def _deduct_devices(book: Occupancy, devices: dict[int, _Devices], cls: PodClass, n: int) -> None:
    """Take what pending replicas ask for from the allowed models in order of name, as nobody knows yet which they will get.
    Shares are taken to break into as few whole devices as can hold them."""
    for need in cls.needs:
        milli = n * need.count * need.milli
        whole = n * need.count if need.milli >= DEVICE_MILLI else -(-milli // DEVICE_MILLI)
        for group in sorted(need.view.groups, key=lambda g: book.table.groups[g][1]):
            d = devices.get(group)
            if d is None:
                continue
            taken_milli, taken_whole = min(milli, d.milli), min(whole, d.whole)
            d.milli -= taken_milli
            d.whole -= taken_whole
            milli -= taken_milli
            whole -= taken_whole


def _fits_devices(devices: Mapping[int, _Devices], groups: Iterable[int], count: int, milli: int) -> int:
    allowed = [devices[g] for g in groups if g in devices]
    if milli >= DEVICE_MILLI:
        return sum(d.whole for d in allowed) // count
    return sum(d.milli for d in allowed) // (count * milli)


def _device_totals(book: Occupancy, devices: Mapping[int, _Devices]) -> tuple[DeviceTotals, ...]:
    table = book.table
    totals = [
        DeviceTotals(table.kinds[table.groups[group][0]], table.groups[group][1], d.whole, d.milli)
        for group, d in devices.items()
    ]
    return tuple(sorted(totals, key=lambda t: (t.kind, t.model)))


def _asked(requirements: Requirements) -> dict[str, int]:
    """Requests with devices as whole extended resources, which is all a summary knows of them."""
    asked = {name: amount for name, amount in requirements.requests.items() if amount > 0}
    for d in requirements.devices:
        if d.count > 0 and d.milli > 0:
            asked[d.kind] = asked.get(d.kind, 0) + d.count
    return asked


def _fits_totals(free: Mapping[str, int], requirements: Requirements) -> int:
    asked = _asked(requirements)
    if "pods" in free:
        asked.setdefault("pods", 1)
    return min([COUNT_MAX, *[free.get(name, 0) // amount for name, amount in asked.items()]])
