"""Recovery is not replay: the recorded inputs and the recorded decisions are folded, nothing is decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Round


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round as the ledger holds it, with the events its inputs refer to, decoded."""

    round: Round
    events: Sequence[Event[Value]]


def recover(decider: Decider[S], state: S, rounds: Iterable[RecordedRound]) -> S:
    """Bring `state` forward through `rounds`, in place."""
    for recorded in rounds:
        at = recorded.round.at
        for event in recorded.events:
            decider.fold_input(state, event, at)
        for decision in recorded.round.decisions:
            decider.fold_decision(state, decision, at)
        decider.rest(state, len(recorded.round.decisions), recorded.round.profile)
    return state
