"""Finished pods may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import ClusterName, EventId, NodeName, Remark, Word
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.events.assignments import PodsRemoved
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_effect,
    no_outcome_item,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, trigger
from wharfinger.events.proposals import FinishedPod

NAMED_MAX = 3
"""Number of pods that the sentence names."""


class PodRemovalDecided(Value, frozen=True):
    """The objects of finished pods of one node may be deleted, each only while it has this uid.
    Nothing becomes free by it: a finished pod uses nothing of its node.

    `strategy`: the descheduler's strategy that found them. `until_us`: until when the decision
    stands, in microseconds. A pod that still exists then may be decided about again."""

    TYPE: ClassVar[str] = "pod-removal.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "node"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("pods-removed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    node: NodeName
    pods: tuple[FinishedPod, ...]
    strategy: Word
    reason: Remark
    until_us: Micros
    proposal: EventId = ""

    def answered_proposal(self) -> str:
        return self.proposal

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"strategy": self.strategy}, ids={"proposal": self.proposal})
        removed = {str(pod): "" for pod in self.pods}
        yield StepResult("selection", {"outcome": "pods-removed", "node": self.node, **removed})

    def sentence(self) -> str:
        named = ", ".join(str(pod) for pod in self.pods[:NAMED_MAX])
        more = f" and {len(self.pods) - NAMED_MAX} more" if len(self.pods) > NAMED_MAX else ""
        pods = "pod" if len(self.pods) == 1 else "pods"
        return f"{self.cluster}: finished {pods} {named}{more} ({self.strategy}: {self.reason})"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield (
            self.cluster,
            PodsRemoved(seq, decision, tuple([p.uid for p in self.pods]), self.until_us),
        )

    refusal = no_refusal
    outcome_item = no_outcome_item
    effect = no_effect
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
