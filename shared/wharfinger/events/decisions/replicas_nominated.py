"""Room is being made on a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, FleetDecisionId, NodeName
from wharfinger.domain.text import as_clock, count
from wharfinger.domain.value import Value
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_assignment_items,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, trigger


class ReplicasNominated(Value, frozen=True):
    """Room is being made: `replicas` of the binding are to go to `node` once all that was released
    there for them has gone. The node is kept for them until then, and at `until_us` at the latest;
    then they are refused."""

    TYPE: ClassVar[str] = "replicas.nominated"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("nominated",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    node: NodeName
    replicas: int
    until_us: int

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"assignment": self.assignment})
        yield StepResult("selection", {"outcome": "nominated", self.node: f"until {self.until_us}"})
        yield StepResult("division", {self.node: str(self.replicas)})

    def sentence(self) -> str:
        return f"{self.node} for {count(self.replicas, 'replica')}, until {as_clock(self.until_us)}"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
    effect = no_effect
