"""Causes: why something is proposed, and when.

A cause stands from the fact that raised it until a fact takes it away. While it stands its proposal is made when it is
due and again after a pause, because a refusal is not told to who proposed; at most so many at a time, the important ones
first, the rest with the next call.

Ids: the first proposal of a cause is named by kind, target and cause alone, so that a restarted observer repeats it under
the same id and nobody acts twice. Later ones are also named by their time in units of the pause: counting them would
make a restarted observer repeat old ids, and nobody listen to it for as long as its predecessor had been insisting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal
from uuid import UUID

from wharfinger.events.envelope import derived_id
from wharfinger.kernel.decider import Micros
from wharfinger.stages.agenda import Agenda

Kind = Literal["failover", "eviction", "node-removal"]

CauseKey = tuple[str, str, str]
"""Kind, cluster, and the binding or node."""

_Rank = tuple[int, int, str, str, str]


@dataclass(frozen=True, slots=True)
class Cause:
    """`stream`: whose target it is. `origin`: what raised it, in words that a redelivery gives again. `by`: the decision or
    event that raised it. `live_wanted`: for a failover, how many replicas elsewhere make up for the lost ones."""

    kind: Kind
    cluster: str
    target: str
    stream: str
    origin: str
    reason: str
    by: UUID | None = None
    priority: int = 0
    live_wanted: int = 0

    @property
    def key(self) -> CauseKey:
        return (self.kind, self.cluster, self.target)

    @property
    def rank(self) -> _Rank:
        """Bindings by priority and name; nodes last, nobody waits for their removal."""
        return (self.kind == "node-removal", -self.priority, self.target, self.cluster, self.kind)

    def proposal_id(self, attempt: int) -> UUID:
        """`attempt` 0 is the first."""
        return derived_id("proposal", self.kind, self.stream, self.cluster, self.target, self.origin, attempt)


@dataclass(slots=True)
class Causes:
    """All standing causes. `agenda`: when each is to be proposed next. `waiting`: those whose time has come, with that time;
    `ready`: the same by rank, with outdated entries among them. `proposed`: those that were proposed before."""

    standing: dict[CauseKey, Cause] = field(default_factory=dict)
    agenda: Agenda[CauseKey] = field(default_factory=Agenda)
    waiting: dict[CauseKey, Micros] = field(default_factory=dict)
    ready: list[tuple[_Rank, CauseKey]] = field(default_factory=list)
    proposed: set[CauseKey] = field(default_factory=set)

    def stand(self, cause: Cause, due: Micros, at: Micros) -> None:
        """At `at` the cause is known to stand, and to be due at `due`.

        One of the same origin that is due already goes on as it is, pauses and all; one that is due later than was
        thought (a toleration was prolonged) is silent until then.
        """
        key = cause.key
        before = self.standing.get(key)
        if before is not None and before.origin == cause.origin:
            if due <= at and (key in self.waiting or key in self.proposed):
                return
            self.waiting.pop(key, None)
        else:
            self.remove(key)
        self.standing[key] = cause
        self.agenda.set(key, due)

    def remove(self, key: CauseKey) -> None:
        if self.standing.pop(key, None) is not None:
            self.agenda.discard(key)
            self.waiting.pop(key, None)
            self.proposed.discard(key)

    def take(self, at: Micros) -> Cause | None:
        """The most important cause that is due, taken off; it is to be given back with `again`."""
        for key in self.agenda.pop(at):
            self.waiting[key] = at
            heappush(self.ready, (self.standing[key].rank, key))
        while self.ready:
            rank, key = heappop(self.ready)
            if key in self.waiting and self.standing[key].rank == rank:
                del self.waiting[key]
                return self.standing[key]
        return None

    def again(self, cause: Cause, due: Micros) -> None:
        self.agenda.set(cause.key, due)

    def next_due(self) -> Micros | None:
        if self.waiting:
            return next(iter(self.waiting.values()))
        return self.agenda.next()
