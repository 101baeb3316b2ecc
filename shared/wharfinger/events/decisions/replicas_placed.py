"""Replicas have their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, FleetDecisionId, PodUid
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Placed
from wharfinger.events.decisions.effects import ReplicaChange
from wharfinger.events.decisions.explanation import Explanation
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
from wharfinger.events.decisions.steps import (
    StepResult,
    explained,
    filtered,
    scored,
    shared,
    trigger,
)
from wharfinger.events.decisions.wording import shares_text
from wharfinger.events.node_share import NodeShare


class ReplicasPlaced(Value, frozen=True):
    """Replicas newly bound to nodes. `assignment`: id of the fleet decision that asked for them."""

    TYPE: ClassVar[str] = "replicas.placed"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("placed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    placed: tuple[NodeShare, ...]
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()

    @property
    def named_pods(self) -> tuple[PodUid, ...]:
        """The waiting pods that the decision is about; empty: replicas without pods."""
        return tuple([uid for share in self.placed for uid in share.pods])

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        why = self.explanation
        yield trigger(cause, ids={"assignment": self.assignment})
        yield StepResult("request", {"class": self.requirements.class_key})
        yield filtered(why, {})
        yield scored((*why.chosen, *why.runners_up), why.best)
        yield StepResult(
            "selection", {"outcome": "placed", **{share.node: "" for share in self.placed}}
        )
        yield from shared(self.placed, {})
        yield explained(why)

    def sentence(self) -> str:
        return f"on {shares_text(self.placed)}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, Placed(seq, decision, self.binding, self.placed, self.requirements)

    def result(self) -> tuple[object, ...]:
        return "placed", self.placed

    def effect(self) -> ReplicaChange:
        return ReplicaChange(
            self.cluster, self.binding, self.assignment, self.placed, self.requirements
        )

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
