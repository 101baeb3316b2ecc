"""A proposal is not taken up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import Meaning
from wharfinger.domain.reasons import Refusal
from wharfinger.events.decisions.effects import ProposalEnd
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    names_replaceable,
    no_assignment_items,
    no_outcome_item,
)
from wharfinger.events.decisions.steps import StepResult, trigger
from wharfinger.events.proposals import NodeRemovalProposed


class ProposalRefused(ProposalEnd, frozen=True):
    """The proposal is refused: nothing comes of it."""

    TYPE: ClassVar[str] = "proposal.refused"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "proposal"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("refused",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet", "cluster")

    def answered_proposal(self) -> str:
        return self.proposal

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(
            cause, {"kind": self.kind, "target": self.target}, ids={"proposal": self.proposal}
        )
        detail = f" ({self.detail})" if self.detail else ""
        yield StepResult("selection", {"outcome": f"refused: {self.reason}{detail}"})

    def sentence(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.kind} of {self.target}: {self.reason}{detail}"

    def refusal(self) -> Refusal:
        return self.reason

    def subject_meaning(self) -> Meaning:
        return Meaning.NODE if self.kind == NodeRemovalProposed.__name__ else Meaning.BINDING

    def effect(self) -> ProposalEnd:
        return self

    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
