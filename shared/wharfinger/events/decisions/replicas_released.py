"""Replicas are let go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import BindingName, ClusterName, FleetDecisionId, ResourceName, Word
from wharfinger.domain.resources import quantity_of
from wharfinger.domain.text import some
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Released
from wharfinger.events.decisions.effects import ReplicaChange
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    ShardItem,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, shared, trigger
from wharfinger.events.decisions.wording import shares_text
from wharfinger.events.node_share import NodeShare


class ReplicasReleased(Value, frozen=True):
    """Replicas let go: from nodes (`released`) and not yet bound ones (`unbound`). The pods that a
    share names are to be evicted; it names none where they are gone or are to stay.

    `preemptor`: the binding for which they are preempted (reason `Preempted`); empty in events that
    were recorded before it was. `short`: of a node that shrank (reason `NodeShrank`), or that has
    no room for a pod that is not bound yet (`InsufficientResources`, `InsufficientDevices`),
    resource -> by how much its pods requested more than the node has, before any release."""

    TYPE: ClassVar[str] = "replicas.released"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("released",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: ClusterName
    binding: BindingName
    assignment: FleetDecisionId
    released: tuple[NodeShare, ...] = ()
    unbound: int = 0
    reason: Word = ""
    preemptor: BindingName = ""
    short: dict[ResourceName, int] = {}

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        why = {"reason": self.reason}
        if self.preemptor:
            why["preemptor"] = self.preemptor
        short = {f"short of {name}": str(amount) for name, amount in sorted(self.short.items())}
        yield trigger(cause, {**why, **short}, ids={"assignment": self.assignment})
        yield StepResult(
            "selection", {"outcome": "released", **{share.node: "" for share in self.released}}
        )
        yield from shared(self.released, {"not yet placed": str(self.unbound)})

    def sentence(self) -> str:
        unbound = f", {self.unbound} not yet bound" if self.unbound else ""
        reason = f": {self.reason}" if self.reason else ""
        if self.preemptor:
            reason += f" by {self.preemptor}"
        if self.short:
            lacks = [f"{quantity_of(name, n)} {name}" for name, n in sorted(self.short.items())]
            reason += f", its pods request {some(lacks)} more than it has"
        return f"from {shares_text(self.released) or 'no node'}{unbound}{reason}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        item = Released(seq, decision, self.binding, self.released, self.unbound, self.reason)
        yield self.cluster, item

    def outcome_item(self, seq: int, decision: str) -> ShardItem | None:
        return self.cluster, self.binding, self._item(seq, decision)

    def _item(self, seq: int, decision: str) -> Released:
        return Released(seq, decision, self.binding, self.released, self.unbound)

    def result(self) -> tuple[object, ...]:
        return "released", self.released, self.unbound, self.reason

    def effect(self) -> ReplicaChange:
        return ReplicaChange(
            self.cluster, self.binding, self.assignment, released=self.released, reason=self.reason
        )

    answered_proposal = no_proposal
    refusal = no_refusal
    why_not_renamed = names_replaceable
    subject_meaning = meaning_of_about
