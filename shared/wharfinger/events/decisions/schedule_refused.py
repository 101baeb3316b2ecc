"""A binding has no (further) place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.ids import AffinityName, BindingName, EventId, WorkloadName, WorkloadUid
from wharfinger.domain.reasons import Refusal, ScheduleRefusal, Trigger
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions.answer_steps import chosen_clusters, divided, requested
from wharfinger.events.decisions.assigning import Growth, changed_targets, components_kept, growth
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_effect,
    no_outcome_item,
)
from wharfinger.events.decisions.steps import StepResult, counts, explained, trigger
from wharfinger.events.decisions.wording import targets_text


class ScheduleRefused(Value, frozen=True):
    """No (further) place was found. The binding keeps its `targets`, and waits until something
    changes.

    `answers`: as in `ScheduleDecided`. `former`: names of the components that were assigned to
    clusters. A cluster that is no target has none of them any more."""

    TYPE: ClassVar[str] = "schedule.refused"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("refused",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)
    suspect: ClassVar[tuple[str, ...]] = ()
    """As in `ScheduleDecided`: a refusal replaces nothing."""

    binding: BindingName
    uid: WorkloadUid
    trigger: Trigger
    replicas: int
    reason: ScheduleRefusal
    targets: tuple[TargetCluster, ...] = ()
    previous: tuple[TargetCluster, ...] = ()
    affinity: AffinityName = ""
    priority: int = 0
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()
    answers: EventId = ""
    former: tuple[WorkloadName, ...] = ()

    def answered_proposal(self) -> str:
        return self.answers

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        why, targets = self.explanation, counts(self.targets)
        yield trigger(cause, {"trigger": self.trigger})
        yield requested(self, {})
        yield StepResult("held", counts(self.previous))
        yield from chosen_clusters(why, self.affinity)
        outcome = f"refused: {self.reason}{f' ({why.note})' if why.note else ''}"
        yield StepResult("selection", {"outcome": outcome, **dict.fromkeys(targets, "")})
        yield divided(why, targets)
        yield explained(why)

    def sentence(self) -> str:
        kept = f"; keeps {targets_text(self.targets)}" if self.targets else ""
        return f"{self.reason}{kept}"

    def refusal(self) -> Refusal:
        return self.reason

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        return (components_kept if self.former else changed_targets)(seq, decision, self)

    def growth(self) -> Iterator[Growth]:
        return growth(self, ())

    def result(self) -> tuple[object, ...]:
        return "refused", self.targets, self.reason

    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
    effect = no_effect
