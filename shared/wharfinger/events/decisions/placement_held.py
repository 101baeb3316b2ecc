"""A better set of clusters waits for the stabilisation window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import as_clock, some
from wharfinger.domain.value import Name, Value
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import COMPARED_TEXTS
from wharfinger.events.decisions.steps import StepResult, encoded, trigger


class PlacementHeld(Value, frozen=True):
    """Other clusters have come to rank higher, and the stabilisation window keeps the set as it is
    until `until_us` (microseconds of the epoch): it moves then if that has been so all the time. 0:
    it is no longer so, nothing will move. `better`, `worse`: which clusters would come and go, a
    few of them."""

    TYPE: ClassVar[str] = "placement.held"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "placement"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("held", "settled")
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    placement: Name
    until_us: int = 0
    better: tuple[Name, ...] = ()
    worse: tuple[Name, ...] = ()

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        sets = {"better": encoded(self.better), "worse": encoded(self.worse)}
        yield StepResult(
            "selection",
            {
                "outcome": "held",
                "placement": self.placement,
                "until_us": str(self.until_us),
                **sets,
            },
        )

    def sentence(self) -> str:
        if not self.until_us:
            return "no change pending"
        return (
            f"unchanged until {as_clock(self.until_us)}: {some(self.better)} would come, "
            f"{some(self.worse)} go"
        )

    def why_not_renamed(self) -> str:
        return f"placement {self.placement} {COMPARED_TEXTS}"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
    effect = no_effect
