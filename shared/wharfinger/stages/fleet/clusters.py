"""What the fleet stage knows of one cluster: its facts, when it was heard, and what still fits into it.

Capacity is the last `CapacityEstimated`, less what this stream decided since (`pending`), by class and by resource vector. An
entry goes when a capacity event accounts for its seq; what is released is credited by such an event only. A class that the
cluster refused is closed until a later count, which accounts for the refusal, shows more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import Cluster, NodeGrade
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import NO_BOUND, Demand, Room, room_of_count, room_of_summary, scattered
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.quota_room import Claim, QuotasLeft, quotas_left

SECOND: Micros = 1_000_000

UNLIMITED = 2**31 - 1
"""The estimate of a cluster for replicas that ask for nothing: as many as are wanted (Karmada's max-int32)."""


class Pending(msgspec.Struct, frozen=True):
    """Replicas decided by this stream that the cluster's estimator has not accounted for yet. `demand`: of the requirements.
    `claim`: whose quotas they fall under. `components`: where it is whole sets of them, and not replicas."""

    seq: int
    class_key: str
    replicas: int
    requirements: Requirements
    demand: Demand
    claim: Claim
    components: tuple[Component, ...] = ()


@dataclass(slots=True)
class ClusterState:
    """`facts` None: only its capacity is known so far. `silent_since`: when it was last heard before silence was decided,
    None while it is not silent. `tainted_at`: when each NoExecute taint was first seen here. `counted_at`: when `capacity` was
    taken in.

    `closed`: refused class -> seq of the refusal. `doubt`: class -> the count that was believed when it was last opened; after
    another refusal a later count has to exceed it, or to have come down meanwhile.
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
    closed: dict[str, int] = field(default_factory=dict)
    doubt: dict[str, int] = field(default_factory=dict)
    # derived
    position: int = -1
    touched: int = -1
    _room: Room | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    _quotas: QuotasLeft = field(default_factory=QuotasLeft)
    _deducted: int = 0
    """How many of `pending` are deducted from what is left. The others are when somebody asks: of a decision over thousands of
    clusters most are counted again before anybody does."""

    @property
    def room(self) -> Room | None:
        """What is left, less all that is pending; None: nothing is known."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._room

    @property
    def taken(self) -> dict[str, int]:
        """Class -> replicas pending."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._taken

    @property
    def quotas(self) -> QuotasLeft:
        """What its quotas leave, less all that is pending."""
        if self._deducted != len(self.pending):
            self._deduct_last()
        return self._quotas

    @property
    def lease_us(self) -> Micros | None:
        """How long its silence is normal. A lease of no time promises nothing."""
        facts = self.facts
        if facts is None or facts.lease_s is None or facts.lease_s <= 0:
            return None
        return facts.lease_s * SECOND

    @property
    def promises(self) -> bool:
        """Whether hearing of it matters though it says nothing new."""
        return self.lease_us is not None or self.silent_since is not None

    @property
    def tainted(self) -> bool:
        return bool(self.tainted_at)

    @property
    def deleting(self) -> bool:
        return self.facts is not None and self.facts.deleting

    def count(self, counted: CapacityEstimated, stream: str) -> None:
        """A new count: what it accounts for is no longer deducted, and refusals it has seen may be over."""
        self.capacity = counted
        through = counted.accounted_through.get(stream, 0)
        while self.pending and self.pending[0].seq <= through:
            self.pending.popleft()
        for class_key in list(self.doubt):
            count = _count(counted, class_key)
            if count == 0 or (count < self.doubt[class_key] and class_key not in self.closed):
                del self.doubt[class_key]  # the doubted number is no longer claimed
        for class_key in list(self.closed):
            self.reopen(class_key)
        self.refresh()

    def refresh(self) -> None:
        """Room from the estimator's count, else from the cluster's own summary; None: nothing is known."""
        if self.capacity is not None:
            self._room = room_of_count(self.capacity.free, self.capacity.devices)
        elif self.facts is not None and self.facts.summary is not None:
            self._room = room_of_summary(self.facts.summary)
        else:
            self._room = None
        self._quotas = quotas_left(() if self.capacity is None else self.capacity.quotas)
        self._taken.clear()
        self._deducted = 0

    def take(self, entry: Pending) -> None:
        self.pending.append(entry)

    def _deduct_last(self) -> None:
        pending, taken, room = self.pending, self._taken, self._room
        for place in range(self._deducted, len(pending)):
            entry = pending[place]
            taken[entry.class_key] = taken.get(entry.class_key, 0) + entry.replicas
            if room is not None:
                room.take(entry.demand, entry.replicas)
            if self._quotas:
                self._quotas.take(entry.claim, entry.demand, entry.replicas)
        self._deducted = len(pending)

    def ceiling(self, class_key: str, demand: Demand) -> int:
        """How many more replicas of the class may go there by everything but its room: 0 where it cannot be asked, NO_BOUND where
        nobody has counted the class and no grades tell how the room lies scattered."""
        if self._room is None or self.silent_since is not None or class_key in self.closed:
            return 0
        counted = None if self.capacity is None else self.capacity.classes.get(class_key)
        if counted is None:
            counted = scattered(self.grades, demand)
        return NO_BOUND if counted == NO_BOUND else counted - self.taken.get(class_key, 0)

    @property
    def grades(self) -> tuple[NodeGrade, ...]:
        """How its room lies scattered, where that is told instead of nodes."""
        if self.capacity is not None:
            return self.capacity.grades
        return () if self.facts is None or self.facts.summary is None else self.facts.summary.grades

    def estimate(self, class_key: str, demand: Demand, claim: Claim | None = None) -> int:
        """How many more replicas of the class fit; and, with a claim, within the quotas it falls under."""
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
        """How many more replicas of the class would fit on nodes that the cluster's pools could make, beyond what fits now; and,
        with a claim, within the quotas it falls under."""
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
        """Where the estimate is from; empty: nothing is known."""
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
        """What is counted for the class is not so, by what was seen of its replicas: closed until a count shows more, or has come
        down and up again."""
        capacity = self.capacity
        through = {} if capacity is None else capacity.accounted_through
        self.closed[class_key] = through.get(cluster_stream(self.name), 0)
        if capacity is not None and (count := _count(capacity, class_key)):
            self.doubt[class_key] = max(count, self.doubt.get(class_key, 0))

    def reopen(self, class_key: str) -> bool:
        """Open a refused class again when the last count accounts for the refusal and shows more than was disproved."""
        capacity = self.capacity
        if capacity is None or capacity.accounted_through.get(cluster_stream(self.name), 0) < self.closed[class_key]:
            return False
        count = _count(capacity, class_key)
        if count <= self.doubt.get(class_key, 0):
            return False
        del self.closed[class_key]
        self.doubt[class_key] = count
        return True


def _count(capacity: CapacityEstimated, class_key: str) -> int:
    """What fits now, and on nodes that could be made."""
    return capacity.classes.get(class_key, 0) + capacity.provisionable.get(class_key, 0)
