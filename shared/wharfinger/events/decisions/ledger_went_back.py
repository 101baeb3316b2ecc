"""The ledger lost decisions that had been published. A decision of the stream `ledger`, and an
input of every other stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import StreamName
from wharfinger.domain.text import count
from wharfinger.domain.value import Value
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
from wharfinger.events.decisions.renaming import NAMES_OF_STREAMS
from wharfinger.events.decisions.steps import StepResult, trigger


class LedgerWentBack(Value, frozen=True):
    """The database was restored, or taken over by a standby that lagged: decisions that had been
    published are not in it.

    A decision of the stream `ledger`, and an input of every other stream. `kept`: stream -> the
    last seq that is in the ledger; what was published of an earlier incarnation with a higher seq
    is lost, and so is every decision of a stream that is not named. `published`: stream -> the
    highest seq that had been published, of the streams that lost something.
    """

    TYPE: ClassVar[str] = "ledger.went-back"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "ledger"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("went-back",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("ledger",)
    BEGINS_INCARNATION: ClassVar[bool] = True

    incarnation: int
    kept: dict[StreamName, int]
    published: dict[StreamName, int] = {}

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        yield StepResult("held", {name: str(seq) for name, seq in self.kept.items()})
        published = {f"published {name}": str(seq) for name, seq in self.published.items()}
        yield StepResult(
            "selection", {"outcome": "went-back", "incarnation": str(self.incarnation), **published}
        )

    def sentence(self) -> str:
        return (
            f"incarnation {self.incarnation}: {count(len(self.published), 'stream')} lost "
            "published decisions"
        )

    def why_not_renamed(self) -> str:
        return f"{type(self).__name__} {NAMES_OF_STREAMS}"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
    effect = no_effect
