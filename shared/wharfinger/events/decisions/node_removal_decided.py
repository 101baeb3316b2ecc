"""A node may be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import ClusterName, EventId, NodeName, Remark
from wharfinger.domain.value import Value
from wharfinger.events.assignments import NodeClosed
from wharfinger.events.decisions.effects import NodeRemoval
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_outcome_item,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, trigger


class NodeRemovalDecided(Value, frozen=True):
    """The node is closed to new replicas and may be taken away. Decided only while it holds
    none."""

    TYPE: ClassVar[str] = "node-removal.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "node"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("removed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    node: NodeName
    reason: Remark
    proposal: EventId = ""

    def answered_proposal(self) -> str:
        return self.proposal

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"reason": self.reason}, ids={"proposal": self.proposal})
        yield StepResult("selection", {"outcome": "removed", self.node: ""})

    def sentence(self) -> str:
        return f"{self.cluster}: {self.reason}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, NodeClosed(seq, decision, self.node)

    def effect(self) -> NodeRemoval:
        return NodeRemoval(self.cluster, self.node)

    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
