"""The lease of a cluster has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import ClusterName
from wharfinger.domain.text import as_clock
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Silenced
from wharfinger.events.decisions.effects import HeartbeatEnd
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
from wharfinger.events.decisions.steps import StepResult, trigger


class ClusterSilenced(Value, frozen=True):
    """Nothing was heard from the cluster for longer than its lease. Silent is not dead: nothing is
    released."""

    TYPE: ClassVar[str] = "cluster.silenced"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "cluster"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("silenced",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    cluster: ClusterName
    silent_since_us: int

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(
            cause, {"cluster": self.cluster, "silent_since_us": str(self.silent_since_us)}
        )
        yield StepResult("selection", {"outcome": "silenced"})

    def sentence(self) -> str:
        return f"no heartbeat since {as_clock(self.silent_since_us)}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, Silenced(seq, decision)

    def effect(self) -> HeartbeatEnd:
        return HeartbeatEnd(self.cluster, self.silent_since_us)

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
