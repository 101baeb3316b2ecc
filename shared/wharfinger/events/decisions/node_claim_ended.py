"""What came of a node claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import dollars
from wharfinger.events.assignments import ClaimEnded
from wharfinger.events.decisions.effects import NodeClaimResult
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


class NodeClaimEnded(NodeClaimResult, frozen=True):
    """The result of the claim: a claim has one."""

    TYPE: ClassVar[str] = "node-claim.ended"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "claim"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("registered", "timed-out", "failed", "cancelled")
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"claim": self.claim})
        yield StepResult(
            "selection",
            {"outcome": self.outcome, self.node: self.instance_type, "reason": self.reason},
        )
        yield StepResult("estimate", {"price": str(self.price)})

    def sentence(self) -> str:
        made = f": {self.node}, {self.instance_type} at {dollars(self.price)}" if self.node else ""
        return f"{self.outcome}{made or f': {self.reason}'}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield (
            self.cluster,
            ClaimEnded(
                seq,
                decision,
                self.claim,
                self.pool,
                self.outcome,
                self.node,
                self.instance_type,
                self.zone,
                self.capacity_type,
            ),
        )

    def why_not_renamed(self) -> str:
        return f"{self.cluster}: {NAMES_OF_NODES}"

    def effect(self) -> NodeClaimResult:
        return self

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
