"""What came of a disruption command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count, dollars
from wharfinger.events.assignments import Disrupted
from wharfinger.events.decisions.effects import DisruptionResult
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import NAMES_OF_NODES
from wharfinger.events.decisions.steps import StepResult, trigger


class DisruptionEnded(DisruptionResult, frozen=True):
    """The result of the command: a command has one."""

    TYPE: ClassVar[str] = "disruption.ended"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "command"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("done", "rolled-back")
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"command": self.command})
        removed = dict.fromkeys(self.removed, "")
        yield StepResult("selection", {"outcome": self.outcome, "reason": self.reason, **removed})
        yield StepResult(
            "score", {"predicted": str(self.predicted), "realised": str(self.realised)}
        )
        yield StepResult("division", {"moved": str(self.moved)})

    def sentence(self) -> str:
        if self.outcome != "done":
            return f"rolled back: {self.reason}"
        saves = f"{dollars(self.realised)} ({dollars(self.predicted)} predicted)"
        return (
            f"{count(len(self.removed), 'node')} removed, {count(self.moved, 'replica')} moved; "
            f"saves {saves}"
        )

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        reopened = tuple([name for name in self.nodes if name not in self.removed])
        yield (
            self.cluster,
            Disrupted(
                seq, decision, self.command, self.method, self.outcome, reopened, self.reason
            ),
        )

    def why_not_renamed(self) -> str:
        return f"{self.cluster}: {NAMES_OF_NODES}"

    def effect(self) -> DisruptionResult:
        return self

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
