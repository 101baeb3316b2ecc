"""Failover stops for the whole fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count
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
from wharfinger.events.decisions.steps import StepResult


class FailoverHeld(Value, frozen=True):
    """Over half the fleet is silent: the fault is more likely ours. No failover until `silent` is
    at most half of `clusters`."""

    TYPE: ClassVar[str] = "failover.held"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "fleet"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("held",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    silent: int
    clusters: int

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield StepResult("filter", {"silent": str(self.silent), "clusters": str(self.clusters)})
        yield StepResult("selection", {"outcome": "held"})

    def sentence(self) -> str:
        return f"heartbeat missing from {self.silent} of {count(self.clusters, 'cluster')}"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
    effect = no_effect
