"""A binding was scheduled: all its replicas are assigned to target clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.binding import Component, TargetCluster
from wharfinger.domain.ids import (
    AffinityName,
    BindingName,
    Bounded,
    ClusterName,
    EventId,
    Word,
    WorkloadName,
    WorkloadUid,
)
from wharfinger.domain.reasons import Trigger
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions.answer_steps import chosen_clusters, divided, requested
from wharfinger.events.decisions.assigning import Growth, all_targets, growth, sets_of_components
from wharfinger.events.decisions.explanation import Explanation
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
from wharfinger.events.decisions.steps import StepResult, counts, explained, trigger
from wharfinger.events.decisions.wording import targets_text


class Leaving(Value, frozen=True):
    """A graceful eviction: the binding has to leave `cluster`, and its replicas there are kept
    until their replacements are ready. `until_us`: when they are removed at the latest, in
    microseconds of the epoch; 0: no limit. `cause`: as in `EvictionProposed`."""

    cluster: Bounded[ClusterName]
    until_us: Micros = 0
    cause: Word = ""


class ScheduleDecided(Value, frozen=True):
    """The binding now has exactly `targets`; before it had `previous`. Fully placed: the targets
    hold all replicas.

    `suspect`: target clusters that are silent, or that the binding is being evicted from. Their
    replicas may still run, and as many are assigned to other clusters meanwhile. `leaving`: those
    of them with a graceful eviction. `answers`: id of the proposal that this answers, where the
    cause of the decision is another event (a plan or a replay). `move`: the kind of a voluntary
    move that the policy's steadiness allows (`failback`, `rebalance`), else empty. `components`: of
    a workload that has several kinds of pods; each target gets one whole set of them, and its
    `replicas` are 0. `former`: names of components that were assigned before and that the workload
    no longer has; the clusters get zero of them."""

    TYPE: ClassVar[str] = "schedule.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("scheduled",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    binding: BindingName
    uid: WorkloadUid
    trigger: Trigger
    replicas: int
    targets: tuple[TargetCluster, ...]
    previous: tuple[TargetCluster, ...] = ()
    suspect: tuple[ClusterName, ...] = ()
    affinity: AffinityName = ""
    priority: int = 0
    requirements: Requirements = Requirements()
    explanation: Explanation = Explanation()
    answers: EventId = ""
    move: Word = ""
    components: tuple[Component, ...] = ()
    former: tuple[WorkloadName, ...] = ()
    leaving: tuple[Leaving, ...] = ()

    def answered_proposal(self) -> str:
        return self.answers

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        why, targets = self.explanation, counts(self.targets)
        yield trigger(
            cause, {"trigger": self.trigger, **({"move": self.move} if self.move else {})}
        )
        sets = {
            f"component {c.name}": f"{c.replicas} of {c.requirements.class_key}"
            for c in self.components
        }
        yield requested(self, sets)
        yield StepResult("held", counts(self.previous))
        yield from chosen_clusters(why, self.affinity)
        suspect = {f"suspect {name}": "" for name in self.suspect}
        yield StepResult(
            "selection", {"outcome": "scheduled", **dict.fromkeys(targets, ""), **suspect}
        )
        yield divided(why, targets)
        yield explained(why)

    def sentence(self) -> str:
        leaving = [one.cluster for one in self.leaving]
        silent = [name for name in self.suspect if name not in leaving]
        was = (
            f" (was {targets_text(self.previous)})"
            if self.previous and self.previous != self.targets
            else ""
        )
        return (
            f"{targets_text(self.targets) or 'nowhere'}{was}"
            + (f"; heartbeat missing: {', '.join(silent)}" if silent else "")
            + (f"; eviction pending: {', '.join(leaving)}" if leaving else "")
        )

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        if self.former or self.components:
            return sets_of_components(seq, decision, self, self.components)
        return all_targets(seq, decision, self)

    def growth(self) -> Iterator[Growth]:
        return growth(self, self.components)

    def result(self) -> tuple[object, ...]:
        return "scheduled", self.targets, self.suspect

    refusal = no_refusal
    outcome_item = no_outcome_item
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
    effect = no_effect
