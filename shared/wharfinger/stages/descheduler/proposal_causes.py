"""Causes: why and when each proposal is made.

A cause is active from the fact that raised it until a fact clears it. While active, its proposal is
published when due, and again after a pause, because the observer does not receive refusals.
Proposals are limited per call, in order of rank; the rest follows with the next call.

Ids: the first proposal of a cause has an id derived from kind, target and cause, so a restarted
observer repeats the same id and the stage ignores the duplicate. Later ones also include the time
in units of the pause. A counter would repeat old ids after a restart, and the proposals would be
ignored as duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal
from uuid import UUID

from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.kernel.decider import Micros
from wharfinger.stages.due_times import Agenda

Kind = Literal["failover", "eviction", "unhealthy", "replaced", "unschedulable", "node-removal"]

Proposal = FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed

CauseKey = tuple[str, str, str]
"""Kind, cluster, and the binding or node."""

_Rank = tuple[int, int, str, str, str]


@dataclass(frozen=True, slots=True)
class ProposalCause:
    """Holds one reason for a proposal.

    `proposal`: the proposal to publish. `origin`: text that identifies the event that raised the
    cause; equal for a redelivered event. `episode`: the pause between proposals continues as long
    as this is equal, even if the origin changes, for example from one taint of a cluster to
    another. `by`: id of the decision or event that raised the cause. `live_wanted`: for a failover,
    the replicas needed in live clusters to replace the lost ones.
    """

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
        """Returns the stream that owns the target."""
        return self.proposal.stream

    @property
    def rank(self) -> _Rank:
        """Returns the sort key of the proposal order: bindings by priority and name; nodes last,
        because no replica waits for their removal."""
        return (self.kind == "node-removal", -self.priority, self.target, self.cluster, self.kind)


@dataclass(slots=True)
class Causes:
    """Holds all active causes in a priority queue with lazy deletion.

    `pause`: time between two proposals of one cause. `agenda`: when each cause is due. `waiting`:
    due causes with the time since when; `ready`: a heap of the same causes by rank, which may
    contain outdated entries. `proposed`: episode and time of the last proposal for a target. That
    entry stays when the cause is cleared, because the cause may return.
    """

    pause: Micros
    active: dict[CauseKey, ProposalCause] = field(default_factory=dict)
    agenda: Agenda[CauseKey] = field(default_factory=Agenda)
    waiting: dict[CauseKey, Micros] = field(default_factory=dict)
    ready: list[tuple[_Rank, CauseKey]] = field(default_factory=list)
    proposed: dict[CauseKey, tuple[str, Micros]] = field(default_factory=dict)

    def stand(self, cause: ProposalCause, due: Micros, at: Micros) -> None:
        """Adds a cause (why a proposal is made), or replaces the active cause with the same key.
        The key is the kind of the cause (such as `failover` or `eviction`), the cluster, and the
        binding or node. `due`: when the proposal of the cause is to be published.

        Causes with the same key and the same `episode` share the pause between two proposals
        (`self.pause`). If a proposal was already published for this episode, the new one is due at
        the earliest when this pause is over. If the cause is due, is waiting in the queue and was
        raised by the same event as before, it keeps its place in the queue.
        """
        key = cause.key
        before, last = self.active.get(key), self.proposed.get(key)
        if last is not None and last[0] == cause.episode:
            due = max(due, last[1] + self.pause)
        if (
            before is not None
            and before.origin == cause.origin
            and due <= at
            and key in self.waiting
        ):
            return  # it keeps its place in the queue
        self.remove(key)
        self.active[key] = cause
        self.agenda.set(key, due)

    def remove(self, key: CauseKey) -> None:
        """Clears a cause that no longer holds. The time of its last proposal is kept."""
        if self.active.pop(key, None) is not None:
            self.agenda.discard(key)
            self.waiting.pop(key, None)

    def forget(self, key: CauseKey) -> None:
        """Clears a cause and the time of its last proposal, because its target no longer exists."""
        self.remove(key)
        self.proposed.pop(key, None)

    def take(self, at: Micros) -> ProposalCause | None:
        """Returns the first of the active causes (why a proposal is made) that are due at `at`;
        None if none is due. Causes about bindings come first, by priority and then by name;
        removals of nodes come last, because no replica waits for them. Schedules the returned cause
        again after `self.pause`, because this service does not learn whether the proposal was
        refused.
        """
        for key in self.agenda.pop(at):
            self.waiting[key] = at
            heappush(self.ready, (self.active[key].rank, key))
        while self.ready:
            rank, key = heappop(self.ready)
            if key in self.waiting and self.active[key].rank == rank:
                del self.waiting[key]
                self.agenda.set(key, at + self.pause)
                return self.active[key]
        return None

    def proposal_id(self, cause: ProposalCause, at: Micros) -> UUID:
        """Returns the id for proposing the cause now, and records the proposal. The first id of an
        episode depends on the cause alone; later ids also include the time in units of the pause.
        """
        last = self.proposed.get(cause.key)
        attempt = 1 + at // self.pause if last is not None and last[0] == cause.episode else 0
        self.proposed[cause.key] = (cause.episode, at)
        return derived_id(
            "proposal", cause.kind, cause.stream, cause.cluster, cause.target, cause.origin, attempt
        )

    def next_due(self) -> Micros | None:
        if self.waiting:
            return next(iter(self.waiting.values()))
        return self.agenda.next()
