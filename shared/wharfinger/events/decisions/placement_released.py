"""A placement was removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count
from wharfinger.domain.value import Name, Value
from wharfinger.events.decisions.effects import SelectionEnd
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import COMPARED_TEXTS
from wharfinger.events.decisions.steps import StepResult, trigger


class PlacementReleased(Value, frozen=True):
    """The placement was removed, and its set with it. `clusters`: how many it held."""

    TYPE: ClassVar[str] = "placement.released"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "placement"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("released",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    placement: Name
    generation: int
    clusters: int = 0

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        held = {"generation": str(self.generation), "clusters": str(self.clusters)}
        yield StepResult("selection", {"outcome": "released", "placement": self.placement, **held})

    def sentence(self) -> str:
        return f"{count(self.clusters, 'cluster')} released"

    def why_not_renamed(self) -> str:
        return f"placement {self.placement} {COMPARED_TEXTS}"

    def effect(self) -> SelectionEnd:
        return SelectionEnd(self.placement)

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
