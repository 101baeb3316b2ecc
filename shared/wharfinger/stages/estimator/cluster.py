"""One cluster in the estimator's eyes: its book, its counts, and how far its assignments were read.

What is published is what is free after everything assigned, bound or observed, each replica counted once (see
`engine.nodes.occupancy`). Replicas assigned but on no node yet have no place to be charged to: they are deducted as a
vector from the totals, and from the count of their own class; a class fits no more often than the totals so reduced allow. Those
for which nodes were asked for are not deducted: they go to these, and until they are there their pools can make fewer.

Where no nodes are reported, the totals an agent summed up stand in. They contain what ran when they were summed up, so only
replicas assigned after the summary came are deducted from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.quota import Quota
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.nodes import sets_beside
from wharfinger.engine.estimators.quotas import asked_of
from wharfinger.engine.estimators.summary import sets_by_summary
from wharfinger.engine.fleet.estimate import Room, demand_of, demand_of_set, room_of_count, scattered
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import PODS, clamped
from wharfinger.engine.nodes.count import COUNT_MAX, Counter
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    Refused,
    Released,
)
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals
from wharfinger.events.cluster_state import PodsObserved, QuotasObserved
from wharfinger.events.streams import FLEET, cluster_stream
from wharfinger.stages.estimator.provisioning import Made, Makers, covered
from wharfinger.stages.estimator.quotas import ClusterQuotas
from wharfinger.stages.pools import PoolFacts, PoolPolicies

Classes = Mapping[str, Requirements]
"""Live requirement classes, by key, in order of key."""

Sets = Mapping[str, tuple[Component, ...]]
"""Live classes of workloads with several kinds of pods, by key, in order of key: counted in whole sets."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked of every cluster. `version`: another one, other classes. `priority_classes`: binding -> its priority class,
    empty where it has none."""

    classes: Classes
    version: int
    sets: Sets = field(default_factory=dict)
    priority_classes: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Devices:
    """Devices of one (kind, model): how many there are, how many are entirely free, and free thousandths over all."""

    count: int = 0
    whole: int = 0
    milli: int = 0


class ClusterEstimate:
    """`accounted_through`: stream -> highest seq that is counted in. `published`: what was said last. `pools`: nodes that were
    asked for, and that are about to go; `makers`: what its pools could still make."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.book = Occupancy()
        self.counter = Counter(self.book.table)
        self.summary: ResourceSummary | None = None
        self.quotas = ClusterQuotas()
        self.pools = PoolFacts()
        self.makers = Makers()
        self.accounted_through: dict[str, int] = {}
        self.published: CapacityEstimated | None = None
        self._contained: dict[str, int] = {}
        self._compiled: tuple[int, list[PodClass]] = (-1, [])
        self._totals = _Totals(self.book)

    # --- fold

    def summarise(self, summary: ResourceSummary | None) -> None:
        self.summary = summary
        self._contained = dict(self.book.unbound)

    def observe_pods(self, pods: PodsObserved) -> bool:
        before = self.book.pods.get(pods.node, ())
        if not self.book.observe_pods(pods):
            return False
        self.quotas.see_pods(before, self.book.pods.get(pods.node, ()))
        return True

    def observe_quotas(self, quotas: QuotasObserved) -> bool:
        return self.quotas.observe(quotas, self.book)

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
            case Claimed() | ClaimEnded():
                self.pools.take(book, item, at)
            case Disrupting():
                for node in item.nodes:
                    book.close(node)
                self.pools.take(book, item, at)
            case Disrupted():
                for node in item.reopened:
                    book.reopen(node)
                self.pools.take(book, item, at)
            case _:
                pass  # silence and recovery concern the fleet; what runs there runs on

    # --- the estimate

    def estimate(
        self, asking: Asking, allotted: Iterable[Quota] = (), policies: PoolPolicies | None = None, at: int = 0
    ) -> CapacityEstimated | None:
        """What fits now; None while that is not known. `allotted`: quotas for this cluster that it does not report itself.
        `policies`: its pools, where there are any; `at`: now, by which what was sold out may be had again."""
        if self.book.known:
            counted = self._from_nodes(asking)
            if policies is not None and not policies.idle:
                made = self.makers.count(self.name, policies, self.pools, self.book, asking.classes, at)
                counted = self._with_what_could_be_made(counted, made)
        elif self.book.bucket_count == 0 and self.summary is not None:
            counted = self._from_summary(self.summary, asking)
        else:
            return None
        rooms = self.quotas.rooms(self.book, allotted, asking.priority_classes)
        return msgspec.structs.replace(counted, quotas=rooms) if rooms else counted

    def _with_what_could_be_made(self, counted: CapacityEstimated, made: Made) -> CapacityEstimated:
        """Less what is assigned, on no node, and has none on its way: nodes may yet have to be made for it."""
        if not made:
            return counted
        on_their_way = covered(self.book, self.pools)
        counts: dict[str, int] = {}
        for key, (n, _) in made.items():
            counts[key] = max(0, n - max(0, self.book.unbound.get(key, 0) - on_their_way.get(key, 0)))
        return msgspec.structs.replace(
            counted, provisionable=counts, price_of={key: price for key, (_, price) in made.items()}
        )

    def _unbound(self) -> dict[str, int]:
        """Class -> how many replicas are assigned, on no node, and will need room on those that there are."""
        if not self.pools.claims:
            return self.book.unbound
        on_their_way = covered(self.book, self.pools)
        return {key: n - on_their_way.get(key, 0) for key, n in self.book.unbound.items()}

    def _from_nodes(self, asking: Asking) -> CapacityEstimated:
        if self._compiled[0] != asking.version:
            self._compiled = (asking.version, [self.book.class_of(r) for r in asking.classes.values()])
            self.counter.keep(self._compiled[1])
        compiled = self._compiled[1]
        book = self.book
        nodes, free, devices = self._totals.read()
        waiting = self._unbound()
        unbound = [(cls, n) for cls, _ in book.unbound_classes() if (n := waiting[cls.key]) > 0]
        if unbound:
            for cls, n in unbound:
                for code, amount in cls.amounts:
                    free[code] -= n * amount
                _deduct_devices(book, devices, cls, n)
            counts = self._bounded(compiled, waiting, free, devices)
        else:
            counts = self.counter.count()
        classes = {cls.key: n for cls, n in zip(compiled, counts, strict=True)}
        named, totals = self._named(free), _device_totals(book, devices)
        room = room_of_count(named, totals)
        for key, components in asking.sets.items():
            most = max(0, room.fits(demand_of_set(components), COUNT_MAX))
            classes[key] = sets_beside(book, components, unbound, most)
        return CapacityEstimated(
            cluster=self.name,
            nodes=nodes,
            free=named,
            classes=classes,
            accounted_through=dict(self.accounted_through),
            devices=totals,
        )

    def _bounded(
        self, compiled: list[PodClass], unbound: Mapping[str, int], free: list[int], devices: dict[int, _Devices]
    ) -> list[int]:
        """Counts by node, less what is pending of the same class, and within the totals that pending replicas leave."""
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

    def _from_summary(self, summary: ResourceSummary, asking: Asking) -> CapacityEstimated:
        free = {
            name: clamped(amount - max(0, summary.allocated.get(name, 0)) - max(0, summary.allocating.get(name, 0)))
            for name, amount in summary.allocatable.items()
        }
        assumed: dict[str, Component] = {}
        for cls, n in self.book.unbound_classes():
            n -= self._contained.get(cls.key, 0)
            if n > 0:
                assumed[cls.key] = Component(cls.key, n, cls.requirements)
                for name, amount in asked_of(cls.requirements).items():
                    if name != "pods" or name in free:
                        free[name] = max(0, free.get(name, 0) - n * amount)
        classes = {}
        for key, requirements in asking.classes.items():
            fits = _fits_totals(free, requirements)
            if summary.grades and fits:
                pending = assumed[key].replicas if key in assumed else 0
                fits = max(0, min(fits, scattered(summary.grades, demand_of(requirements)) - pending))
            classes[key] = fits
        for key, components in asking.sets.items():
            most = max(0, Room(dict(free), whole_only=True).fits(demand_of_set(components), COUNT_MAX))
            classes[key] = sets_by_summary(summary, components, most, assumed=list(assumed.values()))
        return CapacityEstimated(
            cluster=self.name,
            nodes=0,
            free=free,
            classes=classes,
            accounted_through=dict(self.accounted_through),
            grades=summary.grades,
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


def _fits_totals(free: Mapping[str, int], requirements: Requirements) -> int:
    """Devices are whole extended resources, which is all a summary knows of them."""
    asked = asked_of(requirements)
    return min([COUNT_MAX, *[free.get(name, 0) // n for name, n in asked.items() if name != "pods" or name in free]])
