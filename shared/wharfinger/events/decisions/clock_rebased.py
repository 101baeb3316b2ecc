"""A wrong time was set right. A decision of the stream `ledger`, and an input of every other stream
that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import as_clock, count
from wharfinger.events.decisions.effects import TimeCorrection
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import NAMES_OF_STREAMS
from wharfinger.events.decisions.steps import StepResult, trigger


class ClockRebased(TimeCorrection, frozen=True):
    """The time of some streams is set right."""

    TYPE: ClassVar[str] = "clock.rebased"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "ledger"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("rebased",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("ledger",)
    REBASES_TIME: ClassVar[bool] = True

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        yield StepResult("held", {name: str(one.from_us) for name, one in self.streams.items()})
        yield StepResult(
            "selection", {"outcome": "rebased", "to": str(self.to_us), "by": str(self.by_us)}
        )

    def sentence(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{count(len(self.streams), 'stream')} set back to {as_clock(self.to_us)}{why}"

    def why_not_renamed(self) -> str:
        return f"{type(self).__name__} {NAMES_OF_STREAMS}"

    def effect(self) -> TimeCorrection:
        return self

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
