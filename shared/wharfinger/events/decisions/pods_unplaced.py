"""Waiting pods fit on no node at present."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, PodUid, Remark
from wharfinger.domain.reasons import ReplicasRefusal
from wharfinger.domain.text import count
from wharfinger.domain.value import Value
from wharfinger.events.assignments import UnplacedPods
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, filtered, trigger
from wharfinger.events.node_share import NodeShare


class PodsUnplaced(Value, frozen=True):
    """The waiting pods `pods` (uids) of a binding have no node, and why: `reason` of most nodes,
    `message` as a sentence. Nothing is charged or given back by it: the pods wait on,
    and are placed as soon as they fit."""

    TYPE: ClassVar[str] = "pods.unplaced"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("unplaced",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)
    placed: ClassVar[tuple[NodeShare, ...]] = ()
    """As in `ReplicasPlaced`."""

    cluster: ClusterName
    binding: BindingName
    pods: tuple[PodUid, ...]
    reason: ReplicasRefusal
    message: Remark = ""
    explanation: Explanation = Explanation()

    @property
    def named_pods(self) -> tuple[PodUid, ...]:
        """As in `ReplicasPlaced`."""
        return self.pods

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {})
        yield filtered(self.explanation, {})
        pods = {"pods": str(len(self.pods))}
        yield StepResult("selection", {"outcome": f"unplaced: {self.reason}", **pods})
        yield StepResult("explanation", {"message": self.message})

    def sentence(self) -> str:
        return f"{count(len(self.pods), 'pod')} without a node: {self.message}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield (
            self.cluster,
            UnplacedPods(seq, decision, self.binding, self.pods, self.reason, self.message),
        )

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    effect = no_effect
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
