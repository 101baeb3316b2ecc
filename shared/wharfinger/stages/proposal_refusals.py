"""The refusal of a proposal: how every stage drafts it, and what follows from it in its state."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.time import Micros
from wharfinger.events.decisions import ProposalRefused
from wharfinger.kernel.decider import Decision, Draft, S
from wharfinger.kernel.folds import DecisionFolds


def declined(
    proposal: str, kind: str, target: str, reason: ProposalRefusal, detail: str, cause: UUID | None
) -> Draft:
    """Drafts the refusal of a proposal. `proposal`: its id; `kind`: the name of its class;
    `target`: the node or binding that it is about, also the subject of the decision."""
    return Draft(ProposalRefused(proposal, kind, target, reason, detail), target, "refused", cause)


def refusal_folds(forget: Callable[[S, str], object]) -> DecisionFolds[S]:
    """Builds the fold of a proposal's refusal. `forget`: removes the proposal with this id from the
    state, because it is answered."""
    folds = DecisionFolds[S]()

    @folds.of(ProposalRefused)
    def refused(state: S, data: ProposalRefused, decision: Decision, at: Micros) -> None:
        forget(state, data.proposal)

    return folds
