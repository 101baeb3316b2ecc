"""A node takes no new pods of a binding for a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, NodeName, Remark, Word
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


class NodeBarred(Value, frozen=True):
    """No pod of the binding is placed on the node until `until_us`, because it did not take one
    that was. `failures`: how often in a row; each doubles the time. `reason`, `message`: in the
    words of the API server or the kubelet. What runs on the node stays."""

    TYPE: ClassVar[str] = "node.barred"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("barred",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    node: NodeName
    failures: int
    until_us: int
    reason: Word = ""
    message: Remark = ""

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"reason": self.reason, "failures": str(self.failures)})
        yield StepResult("selection", {"outcome": "barred", self.node: str(self.until_us)})
        yield StepResult("explanation", {"message": self.message})

    def sentence(self) -> str:
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        why = ": ".join([said for said in (self.reason, self.message) if said])
        return f"{self.node} did not take a pod {times}, so none is placed there: {why}"

    assignment_items = no_assignment_items
    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    effect = no_effect
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
