"""Replicas fit on no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClassKey, ClusterName, FleetDecisionId, PodUid
from wharfinger.domain.reasons import Displacement, Refusal, ReplicasRefusal
from wharfinger.domain.text import count, some
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Refused
from wharfinger.events.decisions.effects import ReplicaChange
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    ShardItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_proposal,
)
from wharfinger.events.decisions.steps import StepResult, filtered, trigger
from wharfinger.events.node_share import NodeShare


class DisplacedReplicas(Value, frozen=True):
    """Replicas that had a node of the cluster and lost it. `preemptor`: the binding for which they
    were preempted; empty for other reasons."""

    reason: Displacement
    replicas: int
    preemptor: BindingName = ""

    def __str__(self) -> str:
        return f"{self.reason} by {self.preemptor}" if self.preemptor else self.reason


class ReplicasRefused(Value, frozen=True):
    """`count` replicas do not fit and are given back to the fleet stage. `class_key`: their
    requirement class. `reason`: why most nodes are not feasible for them, or a reason of the
    request.

    `displaced`: those of them that had a node of the cluster before, and why they lost it. If these
    are all, nothing that was requested is refused: the decision is a return (`returned`)."""

    TYPE: ClassVar[str] = "replicas.refused"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("refused", "returned")
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)
    placed: ClassVar[tuple[NodeShare, ...]] = ()
    named_pods: ClassVar[tuple[PodUid, ...]] = ()
    """Both as in `ReplicasPlaced`."""

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    count: int
    class_key: ClassKey
    reason: ReplicasRefusal
    explanation: Explanation = Explanation()
    displaced: tuple[DisplacedReplicas, ...] = ()

    @property
    def is_return(self) -> bool:
        return sum(entry.replicas for entry in self.displaced) >= self.count > 0

    @property
    def outcome(self) -> str:
        return "returned" if self.is_return else "refused"

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        lost = {str(entry): str(entry.replicas) for entry in self.displaced}
        yield trigger(cause, lost, ids={"assignment": self.assignment})
        yield StepResult("request", {"class": self.class_key})
        yield filtered(self.explanation, {})
        yield StepResult("selection", {"outcome": f"{self.outcome}: {self.reason}"})
        yield StepResult("division", {self.outcome: str(self.count)})
        yield StepResult("explanation", {"note": self.explanation.note})

    def sentence(self) -> str:
        given_back = f"{count(self.count, 'replica')} returned to the fleet"
        if self.is_return and len(self.displaced) == 1:
            lost = str(self.displaced[0])
        else:
            lost = some(f"{entry.replicas} {entry}" for entry in self.displaced)
        if self.is_return:
            return f"{given_back}: {lost}, and no other node is feasible: {self.reason}"
        return f"{given_back}: {self.reason}" + (f" ({lost})" if lost else "")

    def refusal(self) -> Refusal:
        return self.displaced[-1].reason if self.is_return else self.reason

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield self.cluster, self._item(seq, decision)

    def outcome_item(self, seq: int, decision: str) -> ShardItem | None:
        return self.cluster, self.binding, self._item(seq, decision)

    def _item(self, seq: int, decision: str) -> Refused:
        return Refused(
            seq, decision, self.binding, self.assignment, self.count, self.class_key, self.reason
        )

    def result(self) -> tuple[object, ...]:
        return self.outcome, self.count, self.reason, self.displaced

    def effect(self) -> ReplicaChange:
        return ReplicaChange(self.cluster, self.binding, self.assignment, returned=self.count)

    answered_proposal = no_proposal
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
