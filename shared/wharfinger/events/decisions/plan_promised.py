"""A fleet shard promised its part of a plan over several shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import EventId, Meaning, StreamName
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.text import count
from wharfinger.domain.value import Value
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    names_replaceable,
    no_assignment_items,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, trigger


class PlanPromised(Value, frozen=True):
    """The part of this stream would come out as planned. Until the shard `tell` has decided for
    all, this stream takes nothing in and decides nothing else."""

    TYPE: ClassVar[str] = "plan.promised"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "plan"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("promised",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    plan: EventId
    steps: int
    tell: tuple[StreamName, ...]

    @property
    def outcome(self) -> PlanOutcome:
        return "promised"

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"plan": self.plan})
        yield StepResult("request", {"steps": str(self.steps)})
        yield StepResult("selection", {"outcome": "promised"})

    def sentence(self) -> str:
        return f"{count(self.steps, 'step')}, if {', '.join(self.tell)} commits the plan"

    def subject_meaning(self) -> Meaning:
        return Meaning.EVENT_ID

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    effect = no_effect
