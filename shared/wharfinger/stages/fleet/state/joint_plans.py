"""Holds what a fleet stream knows of plans that several fleet shards carry out together, see
`stages.fleet.joint_plans`. Part of snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.domain.ids import EventId, StreamName
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.room import PlanAnswered
from wharfinger.events.ticks import HeldEventsLaidAside, Ticked
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import begins_incarnation

SETTLED_MAX = 16
"""Of so many plans a coordinator remembers what it has decided for all."""


class ShardAnswers(Value, frozen=True):
    """What other shards have answered about one plan. `since`: when the first of it was heard, or
    the plan was requested here."""

    since: Micros
    answers: dict[StreamName, PlanOutcome] = {}

    def promised(self) -> tuple[str, ...]:
        return tuple([shard for shard, said in sorted(self.answers.items()) if said == "promised"])


@dataclass(slots=True)
class JointPlans:
    """`promised`: event id of the plan request that this stream has promised; None: of none.
    `promised_at`: the time of that round. `held`: events that came since, in order of arrival; they
    are folded when the plan is settled. `heard`: plan -> what other shards have answered.
    `settled`: plan -> what this stream has decided for all shards, of the newest plans.

    Derived: `committed_seq`: number of the commitment that this round has decided."""

    promised: UUID | None = None
    promised_at: Micros = 0
    held: list[Event[Value]] = field(default_factory=list)
    heard: dict[EventId, ShardAnswers] = field(default_factory=dict)
    settled: dict[EventId, PlanOutcome] = field(default_factory=dict)
    # derived
    committed_seq: int = 0

    def holds_back(self, event: Event[Value]) -> bool:
        """Whether the event must not change anything until a promised plan is settled; it is then
        kept. Answers to plans are let through, what changes times or the ids of decisions, and what
        lays kept events aside."""
        if self.promised is None:
            return False
        data = event.data
        through = isinstance(data, PlanAnswered | Ticked | HeldEventsLaidAside) or (
            begins_incarnation(data) or getattr(data, "REBASES_TIME", False)
        )
        if through:
            return False
        self.held.append(event)
        return True

    def releasable(self) -> Sequence[Event[Value]]:
        """The events that `released` yields next."""
        return self.held if self.promised is None else ()

    def released(self) -> Iterator[Event[Value]]:
        """Yield the events that were held back, and forget them. Nothing while a plan is
        promised."""
        if self.promised is None and self.held:
            held, self.held = self.held, []
            yield from held

    def lay_aside(self, events: Collection[EventId]) -> None:
        """Forget these held events: they are never applied. One that is not held changes
        nothing."""
        self.held = [event for event in self.held if str(event.id) not in events]

    def expect(self, plan: str, at: Micros) -> None:
        """Note that a plan was requested, or that something was heard about it."""
        self.heard.setdefault(plan, ShardAnswers(at))

    def hear(self, said: PlanAnswered, at: Micros) -> None:
        self.expect(said.plan, at)
        known = self.heard[said.plan]
        self.heard[said.plan] = ShardAnswers(
            known.since, {**known.answers, said.stream: said.outcome}
        )

    def settle(self, plan: str, outcome: PlanOutcome) -> None:
        """Note what this stream has decided for all shards of a plan."""
        self.settled.pop(plan, None)
        self.settled[plan] = outcome
        for oldest in list(self.settled)[:-SETTLED_MAX]:
            del self.settled[oldest]

    def fork(self) -> JointPlans:
        return JointPlans(
            self.promised,
            self.promised_at,
            self.held.copy(),
            self.heard.copy(),
            self.settled.copy(),
        )
