"""The record of one cluster: its facts, its heartbeat, and its remaining capacity.

Remaining capacity is the last `CapacityEstimated` minus what this stream decided since (`pending`),
for each class and each resource. A pending entry is dropped when a capacity event includes its seq.
Released replicas are added back only by such an event. A class that the cluster refused is closed:
its estimate is 0 until a later count includes the refusal and is higher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import Cluster, NodeGrade
from wharfinger.domain.ids import StreamName
from wharfinger.domain.time import SECOND
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import (
    NO_BOUND,
    Demand,
    Room,
    room_of_count,
    room_of_summary,
    scattered,
)
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.quota_capacity import Claim, QuotasLeft, quotas_left

UNLIMITED = 2**31 - 1
"""The estimate of a cluster for replicas that request nothing: any number fits (Karmada's
max-int32)."""


class Pending(msgspec.Struct, frozen=True):
    """Replicas that this stream decided and that no count of the cluster includes yet. `seq`: of
    the decision. `demand`: the demand of one replica. `claim`: the namespace and priority class
    whose quotas apply. `components`: not empty where whole component sets were decided instead of
    replicas."""

    seq: int
    class_key: str
    replicas: int
    requirements: Requirements
    demand: Demand
    claim: Claim
    components: tuple[Component, ...] = ()


@dataclass(slots=True)
class ClusterState:
    """Holds what a fleet stream knows of one cluster, and estimates how many more replicas fit in
    it. Times are in microseconds.

    `facts`: None: only the cluster's capacity is known so far.
    `silent_since`: time of the last heartbeat before the cluster was declared silent; None: it is
    not silent.
    `tainted_at`: `<key>=<value>` of each NoExecute taint -> when this stream first saw it.
    `counted_at`: when `capacity` was recorded.
    `closed`: refused class -> seq of the refusal.
    `doubt`: class -> a count that turned out to be wrong: the count at which the class was last
    reopened, or that unschedulable replicas disproved. After another refusal, the class is opened
    again only by a count that is higher, or after the count has fallen.
    """

    name: str
    facts: Cluster | None = None
    heard_at: Micros = 0
    heard_by: UUID | None = None
    silent_since: Micros | None = None
    tainted_at: dict[str, Micros] = field(default_factory=dict)
    capacity: CapacityEstimated | None = None
    counted_at: Micros = 0
    pending: deque[Pending] = field(default_factory=deque)
    promised: dict[str, deque[Pending]] = field(default_factory=dict)
    """Other fleet stream -> what it decided and no count includes yet."""
    closed: dict[str, int] = field(default_factory=dict)
    doubt: dict[str, int] = field(default_factory=dict)
    # derived
    position: int = -1
    touched: int = -1
    generation: int = 0
    """Incremented when entries of `pending` may have been dropped."""
    _room: Room | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    _quotas: QuotasLeft = field(default_factory=QuotasLeft)
    _deducted: int = 0
    """How many entries of `pending` are deducted already. The others are deducted on the next read:
    after a decision over thousands of clusters, most clusters are counted again before anyone reads
    them."""

    @property
    def room(self) -> Room | None:
        """Return the free resources minus those of all pending replicas (decided, but not yet
        counted). None: the cluster has not reported its capacity."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._room

    @property
    def reports(self) -> bool:
        """Return whether the cluster has reported its capacity."""
        return self._room is not None

    @property
    def taken(self) -> dict[str, int]:
        """Return class -> number of pending replicas: they were decided, but no count includes them
        yet."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._taken

    @property
    def quotas(self) -> QuotasLeft:
        """Return what the cluster's resource quotas leave, minus all pending replicas."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._quotas

    @property
    def lease_us(self) -> Micros | None:
        """Return the length of the heartbeat lease in microseconds. None: the cluster has no lease
        or a lease of length 0, so it never becomes silent."""
        facts = self.facts
        if facts is None or facts.lease_s is None or facts.lease_s <= 0:
            return None
        return facts.lease_s * SECOND

    @property
    def promises(self) -> bool:
        """Return whether a heartbeat without new facts matters: the cluster has a lease, or is
        silent."""
        return self.lease_us is not None or self.silent_since is not None

    @property
    def tainted(self) -> bool:
        return bool(self.tainted_at)

    @property
    def deleting(self) -> bool:
        return self.facts is not None and self.facts.deleting

    def count(self, counted: CapacityEstimated, stream: str) -> None:
        """Record a new capacity event of the cluster (`counted`), and compute the cluster's free
        capacity again. The event has the class counts: how many more replicas of each class fit. A
        refused class is one whose replicas the cluster refused; its estimate is 0 until the class
        is opened again. `stream`: the name of this stream.
        - Drop the pending entries (replicas that were decided but not yet counted) that the event
          includes. These are entries of this stream and of other fleet streams.
        - Forget `doubt` of a class (a class count that turned out to be too high) if the new class
          count is 0, or is lower than `doubt` and the class is not refused.
        - Open each refused class again, if the event includes the refusal and the new class count
          is higher than `doubt`."""
        self.capacity = counted
        self._drop_pending(counted.accounted_through, stream)
        for class_key in list(self.doubt) if self.doubt else ():
            count = _count(counted, class_key)
            if count == 0 or (count < self.doubt[class_key] and class_key not in self.closed):
                del self.doubt[class_key]  # the doubted number is no longer claimed
        for class_key in list(self.closed) if self.closed else ():
            self.reopen(class_key)
        self.refresh()

    def summarised(self, stream: StreamName) -> None:
        """The cluster reported another summary and is not counted by an estimator: drop the pending
        entries that the summary includes, or all if it does not report which. `stream`: the name
        of this stream."""
        through = self.included
        if through:
            self._drop_pending(through, stream)
        else:
            self.pending.clear()
            self.promised.clear()

    @property
    def included(self) -> Mapping[StreamName, int]:
        """Return stream -> the highest seq of it that the last capacity event includes, or that the
        cluster's summary includes if there is no such event."""
        if self.capacity is not None:
            return self.capacity.accounted_through
        summary = None if self.facts is None else self.facts.summary
        return {} if summary is None else summary.accounted_through

    def _drop_pending(self, included: Mapping[StreamName, int], stream: StreamName) -> None:
        through, pending = included.get(stream, 0), self.pending
        if pending and pending[-1].seq <= through:
            pending.clear()
        while pending and pending[0].seq <= through:
            pending.popleft()
        for other in list(self.promised) if self.promised else ():
            through, entries = included.get(other, 0), self.promised[other]
            while entries and entries[0].seq <= through:
                entries.popleft()
            if not entries:
                del self.promised[other]

    def refresh(self) -> None:
        """Compute the free capacity of the cluster again. It comes from the estimator's last
        capacity event, otherwise from the cluster's own summary; None where neither exists. The
        amounts that the cluster's quotas still allow are set again from the same event; without an
        event no quota applies.
        Replicas that were decided but not yet counted in a capacity event are deducted: those of
        other fleet streams here, those of this stream on the next read."""
        if self.capacity is not None:
            self._room = room_of_count(self.capacity.free, self.capacity.devices)
        elif self.facts is not None and self.facts.summary is not None:
            self._room = room_of_summary(self.facts.summary)
        else:
            self._room = None
        self._quotas = quotas_left(() if self.capacity is None else self.capacity.quotas)
        self._taken.clear()
        self._deducted = 0
        self.generation += 1
        for other in sorted(self.promised):
            for entry in self.promised[other]:
                self._take_from_room(entry)

    def take(self, entry: Pending) -> None:
        self.pending.append(entry)

    def deduct_promised(self, stream: str, entry: Pending) -> bool:
        """Deduct replicas that another fleet stream decided (`entry`). Return False, without a
        deduction, where the last count or summary includes them already. `stream`: the name of the
        other stream."""
        if self.included.get(stream, 0) >= entry.seq:
            return False
        self.promised.setdefault(stream, deque()).append(entry)
        self._take_from_room(entry)
        return True

    def _take_from_room(self, entry: Pending) -> None:
        self._taken[entry.class_key] = self._taken.get(entry.class_key, 0) + entry.replicas
        if self._room is not None:
            self._room.take(entry.demand, entry.replicas)

    def _deduct_last(self) -> None:
        pending = self.pending
        for place in range(self._deducted, len(pending)):
            entry = pending[place]
            self._take_from_room(entry)
            if self._quotas:
                self._quotas.take(entry.claim, entry.demand, entry.replicas)
        self._deducted = len(pending)

    def ceiling(self, class_key: str, demand: Demand) -> int:
        """Return an upper bound of how many more replicas of a class fit; it ignores the free
        totals. The bound is the class count (how many more replicas of the class fit, by the last
        capacity event) minus the pending replicas of the class (decided, but not yet counted). It
        may be negative. `demand`: what one replica takes.
        - 0: the cluster has not reported its capacity, is silent, or refused the class.
        - If the class was not counted, the node grades (groups of nodes with a known minimum of
          free resources) give the number instead of the class count.
        - NO_BOUND: there are no node grades either.
        Example: a class count of 10 and 4 pending replicas give 6."""
        if self._room is None or self.silent_since is not None or class_key in self.closed:
            return 0
        counted = None if self.capacity is None else self.capacity.classes.get(class_key)
        if counted is None:
            counted = scattered(self.grades, demand)
        if counted == NO_BOUND:
            return NO_BOUND
        if self._deducted != len(self.pending):
            self._deduct_last()
        return counted - self._taken.get(class_key, 0)

    @property
    def grades(self) -> tuple[NodeGrade, ...]:
        """Return how the free resources are spread over the nodes, as node grades. Empty: this is
        not reported."""
        if self.capacity is not None:
            return self.capacity.grades
        return () if self.facts is None or self.facts.summary is None else self.facts.summary.grades

    def estimate(self, class_key: str, demand: Demand, claim: Claim | None = None) -> int:
        """Estimate how many more replicas of a class fit in the cluster, at least 0. It is the
        smallest of three numbers:
        - the class count (how many more fit, by the last capacity event) minus the pending replicas
          of the class (decided, but not yet counted);
        - how many replicas fit into the free totals of the cluster;
        - how many replicas are allowed by the quotas for `claim` (namespace and priority class).
          With None no quota applies.
        UNLIMITED: there is no bound, because the replicas request nothing. `demand`: what one
        replica takes. Example: a class count of 10 with 4 pending, and free CPU for 5 more, give 5.
        """
        most = self.ceiling(class_key, demand)
        if most > 0 and claim is not None:
            most = self.quotas.fits(claim, demand, most)
        if most <= 0:
            return 0
        room = self.room
        assert room is not None, "without room nothing may go there"
        fits = room.fits(demand, most)
        if fits < UNLIMITED:
            return fits if fits > 0 else 0
        return UNLIMITED if fits == NO_BOUND else UNLIMITED - 1

    def makeable(self, class_key: str, demand: Demand, claim: Claim | None = None) -> int:
        """Estimate how many more replicas of the class would fit on new nodes that the cluster's
        node pools could add. Replicas that fit on existing nodes (`estimate`) are not included. 0
        where the cluster is silent, refused the class, or has not reported its capacity.
        Pending replicas (decided, but not yet counted) use existing nodes first. If they are more
        than the class count (how many more fit on existing nodes, by the last capacity event), the
        difference is deducted. `demand`: what one replica takes. `claim`: namespace and priority
        class; the quotas that apply to them limit the result. None: no quota applies.
        Example: new nodes could hold 8 replicas, the class count is 5, and 7 are pending: 8 - (7 -
        5) = 6."""
        capacity = self.capacity
        if capacity is None or self.silent_since is not None or class_key in self.closed:
            return 0
        made = capacity.provisionable.get(class_key, 0)
        if made <= 0:
            return 0
        free = self.estimate(class_key, demand, claim)
        beyond = self.taken.get(class_key, 0) - capacity.classes.get(class_key, 0)
        made = max(0, min(made, made - beyond))
        if claim is not None and made:
            made = max(0, min(made, self.quotas.fits(claim, demand, free + made) - free))
        return made

    def estimated_by(self, class_key: str) -> str:
        """Return what the estimate of the class in this cluster is based on:
        - "silent" or "refused": the cluster is silent or refused the class; the estimate is 0.
        - "class": the estimator counted how many replicas of the class fit.
        - "grades": node grades (groups of nodes with a known minimum of free resources).
        - "summary": the free totals in the cluster's own summary.
        - "totals": the free totals that the estimator published.
        - "": nothing; the cluster has not reported its capacity."""
        if self.silent_since is not None:
            return "silent"
        if class_key in self.closed:
            return "refused"
        if self._room is None:
            return ""
        if self.capacity is not None and class_key in self.capacity.classes:
            return "class"
        if self.grades:
            return "grades"
        return "summary" if self.capacity is None else "totals"

    def disprove(self, class_key: str) -> None:
        """Close a class because its replicas did not fit, although the count said so. A later count
        opens the class again if it is higher, or if the count has fallen and risen again."""
        capacity = self.capacity
        through = {} if capacity is None else capacity.accounted_through
        self.closed[class_key] = through.get(cluster_stream(self.name), 0)
        if capacity is not None and (count := _count(capacity, class_key)):
            self.doubt[class_key] = max(count, self.doubt.get(class_key, 0))

    def reopen(self, class_key: str) -> bool:
        """Open a refused class again, so that its estimate is no longer 0. Return whether the class
        was opened.
        It is opened if the last capacity event includes the refusal and has a class count (how many
        more replicas fit) that is higher than `doubt`. `doubt` is the class count that turned out
        to be too high; 0 where there was none. If the class is opened, the new class count becomes
        `doubt`.
        Example: `doubt` is 5, and the cluster refused the class. With a new class count of 5 the
        class stays refused. With 7 it is opened, and `doubt` is 7."""
        capacity = self.capacity
        if (
            capacity is None
            or capacity.accounted_through.get(cluster_stream(self.name), 0) < self.closed[class_key]
        ):
            return False
        count = _count(capacity, class_key)
        if count <= self.doubt.get(class_key, 0):
            return False
        del self.closed[class_key]
        self.doubt[class_key] = count
        return True


POSITION, PENDING = attrgetter("position"), attrgetter("pending")
"""Of a `ClusterState`, read in C."""


def _count(capacity: CapacityEstimated, class_key: str) -> int:
    """Return how many replicas of the class the count shows: those that fit now, plus those on
    nodes that node pools could add."""
    return capacity.classes.get(class_key, 0) + capacity.provisionable.get(class_key, 0)
