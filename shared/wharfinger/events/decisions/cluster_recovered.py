"""A cluster reports again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import ClusterName
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Recovered
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


class ClusterRecovered(Value, frozen=True):
    TYPE: ClassVar[str] = "cluster.recovered"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "cluster"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("recovered",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    cluster: ClusterName

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        yield StepResult("selection", {"outcome": "recovered", "cluster": self.cluster})

    def sentence(self) -> str:
        return "heartbeat received"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, Recovered(seq, decision)

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
    effect = no_effect
