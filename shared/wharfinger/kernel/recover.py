"""Recovery folds recorded inputs and recorded decisions; it never decides (replay does)."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.rebase import rebase_of, rebased
from wharfinger.kernel.round import RecordedRound as RecordedRound


def recover(decider: Decider[S], state: S, rounds: Iterable[RecordedRound]) -> S:
    """Folds recorded rounds into `state` and returns it. It is changed in place, except by a round
    that corrects the stream's time (`rebase`), so use the returned state."""
    for recorded in rounds:
        at = recorded.round.at
        if rebase_of(recorded.events) is not None:
            state = rebased(
                decider, state, recorded.round.stream, recorded.events, at, recorded.round.profile
            )
            continue
        for event in recorded.events:
            decider.fold_input(state, event, at)
        for decision in recorded.round.decisions:
            decider.fold_decision(state, decision, at)
        decider.end_round(state, len(recorded.round.decisions), recorded.round.profile)
    return state
