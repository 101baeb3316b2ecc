"""Pods that have nodes already are replicas of a binding from now on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, FleetDecisionId
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Placed
from wharfinger.events.decisions.effects import ReplicaChange
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, shared, trigger
from wharfinger.events.decisions.wording import shares_text
from wharfinger.events.node_share import NodeShare

WhyAdopted = Literal["already-there", "bound-elsewhere", "reassigned"]
"""The pods had their nodes before anything was decided about them; they have another node than the
one that was decided; or their workload was assigned by the fleet, and they were replicas of the
cluster's own binding of that workload."""

_WORDS: dict[WhyAdopted, str] = {
    "already-there": "which were there already",
    "bound-elsewhere": "which others bound to these nodes",
    "reassigned": "which were placed before the fleet assigned the workload",
}


class ReplicasAdopted(Value, frozen=True):
    """Pods that have nodes already are replicas of the binding from now on. No pod is moved, and
    nothing is charged to a node twice. `placed` names the pods by uid. `assignment`: id of the
    fleet decision about the binding; empty: the fleet does not know it."""

    TYPE: ClassVar[str] = "replicas.adopted"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("adopted",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    placed: tuple[NodeShare, ...]
    requirements: Requirements
    why: WhyAdopted

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"why": self.why}, ids={"assignment": self.assignment})
        yield StepResult("request", {"class": self.requirements.class_key})
        yield StepResult(
            "selection", {"outcome": "adopted", **{share.node: "" for share in self.placed}}
        )
        yield from shared(self.placed, {})

    def sentence(self) -> str:
        return f"pods on {shares_text(self.placed)}, {_WORDS[self.why]}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, Placed(seq, decision, self.binding, self.placed, self.requirements)

    def result(self) -> tuple[object, ...]:
        return "adopted", self.placed

    def effect(self) -> ReplicaChange:
        return ReplicaChange(
            self.cluster, self.binding, self.assignment, self.placed, self.requirements
        )

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
