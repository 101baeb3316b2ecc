"""A plan was not carried out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.reasons import PlanOutcome, Refusal
from wharfinger.events.decisions.effects import PlanEnd
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_outcome_item,
    no_proposal,
)
from wharfinger.events.decisions.renaming import DIGESTS
from wharfinger.events.decisions.steps import StepResult, encoded, trigger


class PlanRefused(PlanEnd, frozen=True):
    """The plan is out of date, and nothing of it happened."""

    TYPE: ClassVar[str] = "plan.refused"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "plan"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("refused",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet", "cluster")

    @property
    def outcome(self) -> PlanOutcome:
        return "refused"

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"plan": self.plan})
        yield StepResult("held", dict.fromkeys(self.changed, ""))
        both = {"expected": self.expected, "found": self.found}
        outcomes = {name: encoded(outcome) for name, outcome in both.items() if outcome is not None}
        yield StepResult(
            "selection", {"outcome": f"refused: {self.reason}", "about": self.subject, **outcomes}
        )

    def sentence(self) -> str:
        about = f" for {self.subject}" if self.subject else ""
        changed = f"; changed: {', '.join(self.changed)}" if self.changed else ""
        return f"{self.reason}{about}{changed}"

    def refusal(self) -> Refusal:
        return self.reason

    def why_not_renamed(self) -> str:
        return f"plan {self.plan} {DIGESTS}"

    def effect(self) -> PlanEnd:
        return self

    answered_proposal = no_proposal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
