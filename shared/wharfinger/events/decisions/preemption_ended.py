"""A waiting pod does not get the room that was made for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, NodeName, PodName, PodUid, Remark, Word
from wharfinger.domain.text import as_clock
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.events.assignments import PreemptionOver
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
from wharfinger.events.decisions.steps import StepResult, trigger


class PreemptionEnded(Value, frozen=True):
    """Nothing is evicted for the waiting pod `pod` (uid) any more, and `node` keeps no room for it.
    A pod that was placed ends its preemption by that, without this decision. `reason`: `Expired`,
    `NotEvicted`, `RoomTaken`, `NodeGone` or `NotAllowed`. Before `retry_us` nothing else is
    preempted for the pod."""

    TYPE: ClassVar[str] = "preemption.ended"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("not-preempted",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    pod: PodUid
    name: PodName
    node: NodeName
    reason: Word
    message: Remark
    retry_us: Micros

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"pod": self.pod})
        yield StepResult("selection", {"outcome": f"not preempted: {self.reason}"})
        yield StepResult("division", {self.node: f"not before {self.retry_us}"})
        yield StepResult("explanation", {"message": self.message})

    def sentence(self) -> str:
        return f"{self.node} for {self.name}: {self.message}; not before {as_clock(self.retry_us)}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, PreemptionOver(seq, decision, self.pod)

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    effect = no_effect
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
