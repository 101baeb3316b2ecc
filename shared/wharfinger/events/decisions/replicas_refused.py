"""Replicas fit on no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClassKey, ClusterName, FleetDecisionId
from wharfinger.domain.reasons import Refusal, ReplicasRefusal
from wharfinger.domain.text import count
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Refused
from wharfinger.events.decisions.effects import ReplicaChange
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    ShardItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_proposal,
)
from wharfinger.events.decisions.steps import StepResult, filtered, trigger
from wharfinger.events.node_share import NodeShare


class ReplicasRefused(Value, frozen=True):
    """`count` replicas do not fit and are given back to the fleet stage. `class_key`: their
    requirement class."""

    TYPE: ClassVar[str] = "replicas.refused"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("refused",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)
    placed: ClassVar[tuple[NodeShare, ...]] = ()
    """As in `ReplicasPlaced`."""

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    count: int
    class_key: ClassKey
    reason: ReplicasRefusal
    explanation: Explanation = Explanation()

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"assignment": self.assignment})
        yield StepResult("request", {"class": self.class_key})
        yield filtered(self.explanation, {})
        yield StepResult("selection", {"outcome": f"refused: {self.reason}"})
        yield StepResult("division", {"refused": str(self.count)})
        yield StepResult("explanation", {"note": self.explanation.note})

    def sentence(self) -> str:
        return f"{count(self.count, 'replica')} returned to the fleet: {self.reason}"

    def refusal(self) -> Refusal:
        return self.reason

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, self._item(seq, decision)

    def outcome_item(self, seq: int, decision: str) -> ShardItem | None:
        return self.cluster, self.binding, self._item(seq, decision)

    def _item(self, seq: int, decision: str) -> Refused:
        return Refused(
            seq, decision, self.binding, self.assignment, self.count, self.class_key, self.reason
        )

    def result(self) -> tuple[object, ...]:
        return "refused", self.count, self.reason

    def effect(self) -> ReplicaChange:
        return ReplicaChange(self.cluster, self.binding, self.assignment, returned=self.count)

    answered_proposal = no_proposal
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
