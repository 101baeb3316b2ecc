"""Messages of decisions that the ledger has lost: they are still on the topics after the database
went back, and readers leave them out. `timeline` finds out that it did."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.envelope import Event
from wharfinger.events.message_codec import frame_of
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.kernel.incarnations import FIRST
from wharfinger.runtime.ledger import WentBack


class Abandoned:
    """Which messages of our own services speak of decisions that the ledger has lost. They are
    still on the topics, and what the ledger decides now has the same numbers."""

    def __init__(self, history: Sequence[WentBack] = ()) -> None:
        self._history = [one.data for one in history]

    def __call__(self, event: Event[Value]) -> bool:
        if not self._history:
            return False
        match event.data:
            case (
                AssignmentsDecided(stream=stream, through=through)
                | OutcomesDecided(stream=stream, through=through)
                | RoomTaken(stream=stream, through=through)
                | PlanAnswered(stream=stream, through=through)
            ):
                return self.lost(stream, through, _incarnation(event))
            case CapacityEstimated():
                # It says up to which decisions it has counted; the estimator estimates again when
                # it starts.
                return _incarnation(event) < self._history[-1].incarnation
            case _:
                return False

    def lost(self, stream: str, seq: int, incarnation: int) -> bool:
        """Whether a decision that was published in this incarnation is no decision of the ledger
        any more."""
        return any(
            one.incarnation > incarnation and seq > one.kept.get(stream, 0) for one in self._history
        )


def _incarnation(event: Event[Value]) -> int:
    return incarnation_of(frame_of(event.body).incarnation)


def incarnation_of(text: str) -> int:
    """As a message has it in its envelope; without it the first."""
    return int(text) if text.isdecimal() else FIRST
