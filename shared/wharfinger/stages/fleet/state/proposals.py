"""Holds open proposals and plans, in the order of arrival. They are part of snapshots; each gets
exactly one answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from wharfinger.events.decisions import as_decision
from wharfinger.events.envelope import uuid_of
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Decision

Proposal = FailoverProposed | EvictionProposed | RescheduleProposed


@dataclass(slots=True)
class Proposals:
    """Holds the proposals and plans of a fleet stream that have no answer yet, in order of arrival.
    The keys are ids of events: of the proposal in `open`, of `PlanRequested` in `plans`."""

    open: dict[UUID, Proposal] = field(default_factory=dict)
    plans: dict[UUID, PlanRequested] = field(default_factory=dict)
    # derived
    on_behalf: dict[UUID, UUID] = field(default_factory=dict)
    """Proposal of a plan's step -> the event that committed the plan: the cause of the answer,
    which the same round gives."""

    def step(self, id: UUID, proposal: Proposal, cause: UUID) -> None:
        """Add the proposal of a plan's step. `id`: of the step. `cause`: the event that becomes the
        cause of the answer."""
        self.open[id], self.on_behalf[id] = proposal, cause

    def answered_by(self, decision: Decision) -> Proposal | None:
        """Remove and return the open proposal that the decision answers. None: it answers no
        proposal."""
        if not self.open or (id := _answered(decision)) is None:
            return None
        self.on_behalf.pop(id, None)
        return self.open.pop(id, None)

    def fork(self) -> Proposals:
        return Proposals(self.open.copy(), self.plans.copy(), self.on_behalf.copy())


def _answered(decision: Decision) -> UUID | None:
    """Return the id of the proposal that a decision may answer: the one that the decision names,
    otherwise its cause."""
    named = as_decision(decision.data).answered_proposal()
    return uuid_of(named) if named else decision.cause
