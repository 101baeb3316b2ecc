"""A plan was carried out."""

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


class PlanCommitted(Value, frozen=True):
    """All steps of the plan were taken in this round, and what was expected of them follows here as
    decisions of their own. `tell`: the shards that have promised their parts, and carry them out
    now."""

    TYPE: ClassVar[str] = "plan.committed"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "plan"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("committed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet", "cluster")

    plan: EventId
    steps: int
    tell: tuple[StreamName, ...] = ()

    @property
    def outcome(self) -> PlanOutcome:
        return "committed"

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"plan": self.plan})
        yield StepResult("request", {"steps": str(self.steps)})
        yield StepResult("selection", {"outcome": "committed"})

    def sentence(self) -> str:
        return f"{count(self.steps, 'step')} as planned"

    def subject_meaning(self) -> Meaning:
        return Meaning.EVENT_ID

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    effect = no_effect
