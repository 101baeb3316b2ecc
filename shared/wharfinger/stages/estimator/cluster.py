"""The estimates of one cluster: its occupancy, its counts, and how far its assignments were read.

Published is what is free after everything assigned, placed or observed, each replica counted once
(see `engine.nodes.occupancy`). Replicas that are assigned without a node cannot be charged to one:
they are deducted from the totals and from the count of their own class, and no class may exceed the
remaining totals. Replicas that wait for new nodes are not deducted, because they use those nodes;
until the nodes exist, they reduce what the pools can still create.

Where no nodes are reported, the summary of an agent is used. It includes some of the assigned
replicas already, so only the others are deducted (`summary_contents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import ResourceSummary
from wharfinger.domain.ids import StreamName
from wharfinger.domain.quota import Quota
from wharfinger.domain.resources import DEVICE_MILLI, saturated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.estimators.nodes import sets_beside
from wharfinger.engine.estimators.quotas import asked_of
from wharfinger.engine.estimators.summary import sets_by_summary
from wharfinger.engine.estimators.trial import TrialPlacement
from wharfinger.engine.fleet.displacement import Displaced, Proportions
from wharfinger.engine.fleet.estimate import (
    Demand,
    Room,
    demand_of,
    demand_of_set,
    room_of_count,
    scattered,
)
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
    Placed,
    Refused,
    Released,
)
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals
from wharfinger.events.cluster_state import PodsObserved, QuotasObserved
from wharfinger.events.streams import FLEET, cluster_stream
from wharfinger.stages.estimator.provisioning import Made, Makers, covered
from wharfinger.stages.estimator.quotas import ClusterQuotas
from wharfinger.stages.estimator.summary_contents import SummaryContents
from wharfinger.stages.pools import PoolFacts, PoolPolicies

Classes = Mapping[str, Requirements]
"""Live requirement classes, by key, in order of key."""

Sets = Mapping[str, tuple[Component, ...]]
"""Live classes of workloads with several components, by key, in order of key. They are counted in
whole sets."""

DEMANDS_KEPT = 10_000
PROPORTIONS_KEPT = 200_000
"""How many demands, and how many proportions between two classes, are remembered for all clusters.
Both are functions of the classes alone, which are the same in every cluster."""


@dataclass(frozen=True, slots=True)
class EstimatedClasses:
    """Holds the classes that are counted in every cluster. `version`: changes whenever the classes
    change. `priority_classes`: binding -> its priority class, empty if it has none."""

    classes: Classes
    version: int
    sets: Sets = field(default_factory=dict)
    priority_classes: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Devices:
    """Sums the devices of one (kind, model): their number, the number of entirely free ones, and
    the free thousandths of all."""

    count: int = 0
    whole: int = 0
    milli: int = 0


class KnownDemands:
    """Remembers what one replica of a class takes, and the proportions between two classes."""

    def __init__(self) -> None:
        self.proportions = Proportions(PROPORTIONS_KEPT)
        self._demands: dict[str, Demand] = {}

    def of(self, cls: PodClass) -> Demand:
        found = self._demands.get(cls.key)
        if found is None:
            if len(self._demands) >= DEMANDS_KEPT:
                self._demands.clear()
            found = self._demands[cls.key] = demand_of(cls.requirements)
        return found


class ClusterEstimate:
    """Folds the facts of one cluster and computes its free capacity.

    `accounted_through`: stream -> highest seq that is included. `published`: the last publication.
    `pools`: pending and leaving nodes. `makers`: what the pools could still create. `demands`:
    shared by the clusters of one estimator.
    """

    def __init__(self, name: str, demands: KnownDemands | None = None) -> None:
        self.name = name
        self.demands = demands or KnownDemands()
        self.book = Occupancy()
        self.counter = Counter(self.book.table)
        self.trial = TrialPlacement(self.book.table)
        self.summary: ResourceSummary | None = None
        self.quotas = ClusterQuotas()
        self.pools = PoolFacts()
        self.makers = Makers()
        self.accounted_through: dict[str, int] = {}
        self.published: CapacityEstimated | None = None
        self._contents = SummaryContents()
        self._compiled: tuple[int, list[PodClass]] = (-1, [])
        self._totals = _Totals(self.book)

    # --- fold

    def summarise(self, summary: ResourceSummary | None) -> None:
        self.summary = summary
        self._contents.summarise(summary, self.book.unbound)

    def observe_pods(self, pods: PodsObserved) -> bool:
        before = self.book.pods.get(pods.node, ())
        if not self.book.observe_pods(pods):
            return False
        self.quotas.see_pods(before, self.book.pods.get(pods.node, ()))
        return True

    def observe_quotas(self, quotas: QuotasObserved) -> bool:
        return self.quotas.observe(quotas, self.book)

    def take_assignments(self, decided: AssignmentsDecided, at: int) -> bool:
        """Folds the items of `decided` (single decisions about this cluster) that were not folded
        before, in order of seq. Returns whether the highest seq folded from the stream increased.
        An event is ignored if its stream is neither a fleet stream nor the stream of this cluster.
        `at`: time of the event.
        """
        if not (decided.stream.startswith(FLEET) or decided.stream == cluster_stream(self.name)):
            return False
        last = self.accounted_through.get(decided.stream, 0)
        highest = max(last, decided.through)
        for item in decided.items:
            if item.seq > last:
                highest = max(highest, item.seq)
                self._take(decided.stream, item, at)
        if highest == last:
            return False
        self.accounted_through[decided.stream] = highest
        return True

    def _take(self, stream: StreamName, item: AssignmentItem, at: int) -> None:
        if self.book.bucket_count == 0 and isinstance(item, Assigned | Placed | Refused | Released):
            before = self.book.unbound_of(item.binding)
            self.book.take(item, at)
            after = self.book.unbound_of(item.binding)
            self._contents.change(stream, item.seq, before, after)
        else:
            self.book.take(item, at)
        if isinstance(item, Claimed | ClaimEnded | Disrupting | Disrupted):
            self.pools.take(self.book, item, at)

    # --- the estimate

    def estimate(
        self,
        asking: EstimatedClasses,
        allotted: Iterable[Quota] = (),
        policies: PoolPolicies | None = None,
        at: int = 0,
    ) -> CapacityEstimated | None:
        """Returns the present free capacity of the cluster: estimates by class, free totals, and
        the unused amounts of quotas. Returns None if the capacity is not known yet. It is known as
        soon as all nodes, or otherwise a summary of the cluster, have been reported.

        - `asking`: the classes for which an estimate is computed.
        - `allotted`: quotas for this cluster that come from federated quotas; the cluster itself
          does not report them.
        - `policies`: node pools and prices of all clusters, to estimate what fits on new nodes;
          None or empty: no nodes can be created.
        - `at`: now, in microseconds. Offerings that are sold out until a later time are not used.
        """
        if self.book.known:
            counted = self._from_nodes(asking)
            if policies is not None and not policies.idle:
                made = self.makers.count(
                    self.name, policies, self.pools, self.book, asking.classes, at
                )
                counted = self._with_what_could_be_made(counted, made)
        elif self.book.bucket_count == 0 and self.summary is not None:
            counted = self._from_summary(self.summary, asking)
        else:
            return None
        rooms = tuple(
            msgspec.structs.replace(room, left=saturated(room.left))
            for room in self.quotas.rooms(self.book, allotted, asking.priority_classes)
        )
        return msgspec.structs.replace(
            counted, free=saturated(counted.free), classes=saturated(counted.classes), quotas=rooms
        )

    def _with_what_could_be_made(self, counted: CapacityEstimated, made: Made) -> CapacityEstimated:
        """Adds to `counted`, for each class, how many replicas would fit on new nodes of the node
        pools (`provisionable`), and the lowest price of one replica.

        The number is reduced by the assigned replicas of the class that have neither a node nor a
        requested node, because new nodes may have to be created for these first. Example: 10 would
        fit, 4 assigned replicas have no node, a node was requested for 1 of the 4: 10 - 3 = 7.
        `made`: class -> (number of replicas that fit on new nodes, price of one replica).
        """
        if not made:
            return counted
        on_their_way = covered(self.book, self.pools)
        counts: dict[str, int] = {}
        for key, (n, _) in made.items():
            counts[key] = max(
                0, n - max(0, self.book.unbound.get(key, 0) - on_their_way.get(key, 0))
            )
        return msgspec.structs.replace(
            counted, provisionable=counts, price_of={key: price for key, (_, price) in made.items()}
        )

    def _unbound(self) -> dict[str, int]:
        """Returns class -> number of its replicas that are assigned without a node and need room on
        the existing nodes. Replicas for which a new node was requested are not included."""
        if not self.pools.claims:
            return self.book.unbound
        on_their_way = covered(self.book, self.pools)
        return {key: n - on_their_way.get(key, 0) for key, n in self.book.unbound.items()}

    def _from_nodes(self, asking: EstimatedClasses) -> CapacityEstimated:
        if self._compiled[0] != asking.version:
            self._compiled = (
                asking.version,
                [self.book.class_of(r) for r in asking.classes.values()],
            )
            self.counter.keep(self._compiled[1])
            self.trial.keep(self._compiled[1])
        compiled = self._compiled[1]
        book = self.book
        fitting = self.trial.lowered(self.counter.count())
        nodes, free, devices = self._totals.read()
        waiting = self._unbound()
        unbound = [(cls, n) for cls, _ in book.unbound_classes() if (n := waiting[cls.key]) > 0]
        if unbound:
            for cls, n in unbound:
                for code, amount in cls.amounts:
                    free[code] -= n * amount
                _deduct_devices(book, devices, cls, n)
            counts, unplaced = self._bounded(compiled, fitting, waiting, free, devices, unbound)
        else:
            counts, unplaced = fitting, {}
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
            unplaced=unplaced,
        )

    def _bounded(
        self,
        compiled: list[PodClass],
        fitting: Sequence[int],
        unbound: Mapping[str, int],
        free: list[int],
        devices: dict[int, _Devices],
        pending: Sequence[tuple[PodClass, int]],
    ) -> tuple[list[int], dict[str, int]]:
        """Computes the estimate of each class: (replicas that fit on the nodes) minus (pending
        replicas of the same class), but at most what the free totals of the cluster allow.
        A pending replica is assigned to the cluster and has no node.

        - `compiled`: the classes. `fitting`: replicas of each that fit on the nodes.
        - `unbound`: class key -> number of its pending replicas.
        - `free`: the free total of each resource, in the order of the resource columns. `devices`:
          device group -> free devices of one model. From both, the requests of all pending replicas
          are already subtracted.
        - `pending`: each class with pending replicas, and their number.

        Returns the estimates in the order of `compiled`, and class key -> by how many its estimate
        may be too high. It may be too high because it is not known which nodes the pending replicas
        of other classes will take. Example: 10 replicas fit, 2 of the class are pending, and the
        free totals allow 6: the estimate is min(10 - 2, 6) = 6. If pending replicas of other
        classes can take the place of at most 3, at least 8 - 3 = 5 are certain, so the estimate may
        be 1 too high.
        """
        pods_limited = not self.book.table.pods_unlimited
        demand_of_class, proportions = self.demands.of, self.demands.proportions
        demands = [(cls.key, demand_of_class(cls), n) for cls, n in pending]
        bounded: list[int] = []
        unplaced: dict[str, int] = {}
        for cls, n in zip(compiled, fitting, strict=True):
            n -= unbound.get(cls.key, 0)
            least = n
            if n > 0:
                wanted, taken = demand_of_class(cls), Displaced()
                taken.add_classes(cls.key, wanted, demands, proportions)
                least = max(0, n - taken.places(len(self.book.table.rows)))
            if n > 0:
                for code, amount in cls.amounts:
                    if code != PODS or pods_limited:
                        n = min(n, free[code] // amount)
                for need in cls.needs:
                    n = min(n, _fits_devices(devices, need.view.groups, need.count, need.milli))
                if n > least:
                    unplaced[cls.key] = n - least
            bounded.append(max(0, n))
        return bounded, unplaced

    def _named(self, free: list[int]) -> dict[str, int]:
        """Returns the free totals of the cluster: resource name -> free amount, at least 0. A
        resource that no node has is left out. `pods` is left out if some node does not limit its
        number of pods. `free`: amounts in the order of the resource columns."""
        table = self.book.table
        return {
            name: max(0, amount)
            for code, (name, amount) in enumerate(zip(table.resources, free, strict=True))
            if (
                bool(table.rows) and not table.pods_unlimited
                if code == PODS
                else bool(table.allocatable[code].any())
            )
        }

    def _from_summary(
        self, summary: ResourceSummary, asking: EstimatedClasses
    ) -> CapacityEstimated:
        free = {
            name: clamped(
                amount
                - max(0, summary.allocated.get(name, 0))
                - max(0, summary.allocating.get(name, 0))
            )
            for name, amount in summary.allocatable.items()
        }
        assumed: dict[str, Component] = {}
        for cls, n in self.book.unbound_classes():
            n -= self._contents.included.get(cls.key, 0)
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
                fits = max(
                    0, min(fits, scattered(summary.grades, demand_of(requirements)) - pending)
                )
            classes[key] = fits
        for key, components in asking.sets.items():
            most = max(
                0, Room(dict(free), whole_only=True).fits(demand_of_set(components), COUNT_MAX)
            )
            classes[key] = sets_by_summary(
                summary, components, most, assumed=list(assumed.values())
            )
        return CapacityEstimated(
            cluster=self.name,
            nodes=0,
            free=free,
            classes=classes,
            accounted_through=self._contents.through_both(self.accounted_through),
            grades=summary.grades,
        )


@dataclass(slots=True)
class _Totals:
    """Sums the free resources and devices of all usable nodes, and updates the sums only for nodes
    that changed since the last call."""

    book: Occupancy
    usage_at: int = -1
    facts_at: int = -1
    nodes: int = 0
    free: list[int] = field(default_factory=list)
    devices: dict[int, _Devices] = field(default_factory=dict)
    by_slot: dict[int, tuple[list[int], dict[int, _Devices]]] = field(default_factory=dict)

    def read(self) -> tuple[int, list[int], dict[int, _Devices]]:
        """Brings the totals of the cluster up to date and returns copies, which the caller may
        change: (number of usable nodes, free amount of each resource, device group -> free devices
        of one model). The amounts are in the order of the resource columns. A node is usable if
        pods can be scheduled on it (not `unschedulable`). Only nodes that changed since the last
        call are added up again."""
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
    """Subtracts the device requests of `n` pending replicas of class `cls` from the free totals in
    `devices` (device group -> free devices of one model), in place.

    It is not known which devices the replicas will take. So the totals of the allowed models are
    reduced in order of model name, until the whole amount is subtracted. Requests for a part of a
    device are packed into as few whole devices as possible. Example: 3 replicas request 500
    thousandths of a device each: 1,500 thousandths and 2 whole devices are subtracted.
    """
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


def _fits_devices(
    devices: Mapping[int, _Devices], groups: Iterable[int], count: int, milli: int
) -> int:
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
    """Returns how many replicas fit into the free totals of a cluster summary: the minimum over the
    requested resources of free amount // requested amount, at most `COUNT_MAX`. Example: 10 CPUs
    and 12 GiB are free; replicas with 2 CPUs and 4 GiB: min(5, 3) = 3. A summary reports devices
    only as extended resources (a number of whole devices). So a requested part of a device counts
    as one whole device."""
    asked = asked_of(requirements)
    return min(
        [
            COUNT_MAX,
            *[
                free.get(name, 0) // n
                for name, n in asked.items()
                if name != "pods" or name in free
            ],
        ]
    )
