"""Decisions of a cluster stream about nodes that go, on topic `wharfinger.decisions`.

A command is decided whole (`DisruptionDecided`): which nodes, what replaces them, where each
replica on them goes. Its nodes take nothing new from then on. Replacements are asked for in the
same round (`NodeClaimRequested`), waited for, and only then replicas move, as many at a time as
their budgets allow: released there and placed here in one round. When a node holds nothing any more
its removal is decided. The command ends once (`DisruptionEnded`): done, or rolled back, and then
its nodes take replicas again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import some
from wharfinger.events.assignments import Disrupting
from wharfinger.events.decisions.effects import DisruptionCommand
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    no_outcome_item,
    no_refusal,
)
from wharfinger.events.decisions.renaming import NAMES_OF_NODES
from wharfinger.events.decisions.steps import StepResult, trigger


class DisruptionDecided(DisruptionCommand, frozen=True):
    """The command, decided as a whole."""

    TYPE: ClassVar[str] = "disruption.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "command"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("disrupting",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    def answered_proposal(self) -> str:
        return self.proposal

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"method": self.method}, ids={"proposal": self.proposal})
        yield StepResult("filter", {"why": self.explanation.note})
        yield StepResult(
            "estimate", {node.name: f"{node.price} {node.disruption}" for node in self.nodes}
        )
        yield StepResult("score", {"saving": str(self.saving), "disruption": str(self.disruption)})
        nodes = {node.name: node.instance_type for node in self.nodes}
        claims = {f"claim {name}": "" for name in self.claims}
        yield StepResult("selection", {"outcome": "disrupted", **nodes, **claims})
        yield StepResult(
            "division",
            {f"{m.binding} {m.ordinal}": f"{m.source} to {m.target}" for m in self.moves},
        )
        yield StepResult("explanation", {"reason": self.reason, "until": str(self.until_us)})

    def sentence(self) -> str:
        return f"{self.method} of {some(node.name for node in self.nodes)}: {self.reason}"

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        names = tuple([node.name for node in self.nodes])
        yield self.cluster, Disrupting(seq, decision, self.command, self.method, names)

    def why_not_renamed(self) -> str:
        return f"{self.cluster}: {NAMES_OF_NODES}"

    def effect(self) -> DisruptionCommand:
        return self

    refusal = no_refusal
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
