"""Running pods of one node make room for a waiting pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, NamespaceName, NodeName, PodName, PodUid
from wharfinger.domain.text import as_clock, count
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.events.assignments import PodsPreempted
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

NAMED_MAX = 3
"""Number of victims that the sentence names."""


class PreemptedPod(Value, frozen=True):
    """A pod that is to be evicted. `binding`: the replica that it is; empty: a pod of others."""

    uid: PodUid
    namespace: NamespaceName
    name: PodName
    priority: int = 0
    binding: BindingName = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PreemptionDecided(Value, frozen=True):
    """The `victims` are to be evicted, each only while it has its uid, so that the waiting pod
    `pod` (uid) of the binding fits on `node`. All of them have a lower priority than the pod. The
    node keeps room for it until `until_us`, and nothing is evicted later.

    Nothing becomes free by the decision: a victim is charged to its node until it is gone."""

    TYPE: ClassVar[str] = "preemption.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("preempting",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    pod: PodUid
    name: PodName
    priority: int
    node: NodeName
    victims: tuple[PreemptedPod, ...]
    until_us: Micros

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"pod": self.pod, "priority": str(self.priority)})
        victims = {victim.uid: str(victim.priority) for victim in self.victims}
        yield StepResult("selection", {"outcome": "preempting", "node": self.node, **victims})
        yield StepResult("division", {"until": str(self.until_us)})

    def sentence(self) -> str:
        named = ", ".join(str(victim) for victim in self.victims[:NAMED_MAX])
        left = len(self.victims) - NAMED_MAX
        more = f" and {left} more" if left > 0 else ""
        victims = count(len(self.victims), "pod")
        until = as_clock(self.until_us)
        return f"{self.node} for {self.name}, evicting {victims} until {until}: {named}{more}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        victims = tuple([victim.uid for victim in self.victims])
        yield self.cluster, PodsPreempted(seq, decision, self.pod, victims, self.until_us)

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    effect = no_effect
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
