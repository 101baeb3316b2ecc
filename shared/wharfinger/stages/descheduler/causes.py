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
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, NodeRemovalProposed, RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.agenda import Agenda

Kind = Literal["failover", "eviction", "unhealthy", "replaced", "unschedulable", "node-removal"]

Proposal = FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed

CauseKey = tuple[str, str, str]
"""Kind, cluster, and the binding or node."""

_Rank = tuple[int, int, str, str, str]


@dataclass(frozen=True, slots=True)
class Cause:
    """`proposal`: what is proposed while it stands. `origin`: what raised it, in words that a redelivery gives again. `episode`:
    within which the pause is kept even if the origin changes, say from one taint of a cluster to another. `by`: the decision
    or event that raised it. `live_wanted`: for a failover, how many replicas elsewhere make up for the lost ones."""

    kind: Kind
    cluster: str
    target: str
    proposal: Proposal
    origin: str
    episode: str
    by: UUID | None = None
    priority: int = 0
    live_wanted: int = 0

    @property
    def key(self) -> CauseKey:
        return (self.kind, self.cluster, self.target)

    @property
    def stream(self) -> str:
        """Whose target it is."""
        return self.proposal.stream

    @property
    def rank(self) -> _Rank:
        """Bindings by priority and name; nodes last, nobody waits for their removal."""
        return (self.kind == "node-removal", -self.priority, self.target, self.cluster, self.kind)


@dataclass(slots=True)
class Causes:
    """All standing causes. `pause`: between two proposals of one cause. `agenda`: when each is to be proposed next.
    `waiting`: those whose time has come, with that time; `ready`: the same by rank, with outdated entries among them.
    `proposed`: episode and time of a target's last proposal, kept when the cause goes, for it may come back."""

    pause: Micros
    standing: dict[CauseKey, Cause] = field(default_factory=dict)
    agenda: Agenda[CauseKey] = field(default_factory=Agenda)
    waiting: dict[CauseKey, Micros] = field(default_factory=dict)
    ready: list[tuple[_Rank, CauseKey]] = field(default_factory=list)
    proposed: dict[CauseKey, tuple[str, Micros]] = field(default_factory=dict)

    def stand(self, cause: Cause, due: Micros, at: Micros) -> None:
        """At `at` the cause is known to stand, and to be due at `due`, but not before the pause after its last proposal."""
        key = cause.key
        before, last = self.standing.get(key), self.proposed.get(key)
        if last is not None and last[0] == cause.episode:
            due = max(due, last[1] + self.pause)
        if before is not None and before.origin == cause.origin and due <= at and key in self.waiting:
            return  # it keeps its place in the queue
        self.remove(key)
        self.standing[key] = cause
        self.agenda.set(key, due)

    def remove(self, key: CauseKey) -> None:
        """The cause stands no more."""
        if self.standing.pop(key, None) is not None:
            self.agenda.discard(key)
            self.waiting.pop(key, None)

    def forget(self, key: CauseKey) -> None:
        """The target is not there any more, nor will this cause come back."""
        self.remove(key)
        self.proposed.pop(key, None)

    def take(self, at: Micros) -> Cause | None:
        """The most important cause that is due. It is due again after the pause."""
        for key in self.agenda.pop(at):
            self.waiting[key] = at
            heappush(self.ready, (self.standing[key].rank, key))
        while self.ready:
            rank, key = heappop(self.ready)
            if key in self.waiting and self.standing[key].rank == rank:
                del self.waiting[key]
                self.agenda.set(key, at + self.pause)
                return self.standing[key]
        return None

    def proposal_id(self, cause: Cause, at: Micros) -> UUID:
        """The id under which the cause is proposed now, and the note that it was."""
        last = self.proposed.get(cause.key)
        attempt = 1 + at // self.pause if last is not None and last[0] == cause.episode else 0
        self.proposed[cause.key] = (cause.episode, at)
        return derived_id("proposal", cause.kind, cause.stream, cause.cluster, cause.target, cause.origin, attempt)

    def next_due(self) -> Micros | None:
        if self.waiting:
            return next(iter(self.waiting.values()))
        return self.agenda.next()
