"""Decisions of a cluster stream about nodes to be made, on topic `wharfinger.decisions`.

The stream requests a claim (`NodeClaimRequested`). A claim ends once: its node registered, no node
came in time, no provider could create one, or the node is no longer needed. The node provider
(Karpenter's provider, a script, a person) reads the request and labels the new node with the
claim's name (`wharfinger.io/node-claim`). The stream recognises the result by this label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count, dollars, some
from wharfinger.events.assignments import Claimed
from wharfinger.events.decisions.effects import NodeClaim
from wharfinger.events.decisions.kind import (
    About,
    ClusterItem,
    Writer,
    meaning_of_about,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import NAMES_OF_NODES
from wharfinger.events.decisions.steps import StepResult, encoded, filtered, trigger


class NodeClaimRequested(NodeClaim, frozen=True):
    """The claim, as the node provider reads it."""

    TYPE: ClassVar[str] = "node-claim.requested"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "claim"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("claimed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, {"command": self.command})
        yield StepResult(
            "request", {"requests": encoded(self.requests), "until": str(self.until_us)}
        )
        yield filtered(self.explanation, {"ceiling": str(self.ceiling)})
        types = {name: str(place) for place, name in enumerate(self.instance_types)}
        yield StepResult("estimate", {"price": str(self.price), **types})
        made_of = {"requirements": encoded(self.requirements), "taints": encoded(self.taints)}
        yield StepResult(
            "selection", {"outcome": "claimed", self.pool: "", self.claim: "", **made_of}
        )
        yield StepResult(
            "division",
            {name: str(count) for name, count in (*self.replicas.items(), *self.others.items())},
        )
        yield StepResult("explanation", {"note": self.explanation.note})

    def sentence(self) -> str:
        ceiling = f", for less than {dollars(self.ceiling)}" if self.ceiling else ""
        replicas = count(sum(self.replicas.values()), "replica")
        if others := sum(self.others.values()):
            pods = f"{count(others, 'pod')} of other schedulers"
            replicas = f"{replicas} and {pods}" if self.replicas else pods
        return (
            f"{self.pool}: {some(self.instance_types)} from {dollars(self.price)}{ceiling}, "
            f"for {replicas}"
        )

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        yield (
            self.cluster,
            Claimed(
                seq,
                decision,
                self.claim,
                self.pool,
                self.instance_types,
                self.requests,
                self.replicas,
                self.command,
                self.until_us,
                self.requirements,
                self.others,
            ),
        )

    def why_not_renamed(self) -> str:
        return f"{self.cluster}: {NAMES_OF_NODES}"

    def effect(self) -> NodeClaim:
        return self

    answered_proposal = no_proposal
    refusal = no_refusal
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
