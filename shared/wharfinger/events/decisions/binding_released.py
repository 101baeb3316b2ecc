"""A binding was withdrawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.binding import TargetCluster, part_of
from wharfinger.domain.ids import BindingName, WorkloadName, WorkloadUid
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Assigned
from wharfinger.events.decisions.effects import BindingEnd
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
from wharfinger.events.decisions.steps import StepResult, counts, trigger
from wharfinger.events.decisions.wording import targets_text


class BindingReleased(Value, frozen=True):
    """The binding was withdrawn, and all its targets are released. `former`: names of the
    components that were assigned to clusters."""

    TYPE: ClassVar[str] = "binding.released"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("released",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    binding: BindingName
    uid: WorkloadUid
    previous: tuple[TargetCluster, ...] = ()
    former: tuple[WorkloadName, ...] = ()

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"binding": self.binding, "uid": self.uid})
        yield StepResult(
            "held", {**counts(self.previous), **{f"component {name}": "" for name in self.former}}
        )
        yield StepResult("selection", {"outcome": "released"})

    def sentence(self) -> str:
        return (
            f"withdrawn from {targets_text(self.previous)}"
            if self.previous
            else "withdrawn; it had no replicas"
        )

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        for name in (self.binding, *(part_of(self.binding, c) for c in self.former)):
            for cluster in dict.fromkeys(t.cluster for t in self.previous):
                yield cluster, Assigned(seq, decision, name, self.uid, 0)

    def result(self) -> tuple[object, ...]:
        return ("released",)

    def effect(self) -> BindingEnd:
        return BindingEnd(self.binding)

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
