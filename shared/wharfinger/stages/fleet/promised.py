"""Computes what a round of a fleet stream sends to the other fleet shards: the capacity that the
round has promised to bindings."""

from __future__ import annotations

from wharfinger.events.promises import Promises
from wharfinger.events.room import RoomTaken
from wharfinger.kernel.round import Round


def promised_in(round_: Round) -> list[RoomTaken]:
    """Return the messages that the publisher makes from the round."""
    promises = Promises()
    found: list[RoomTaken] = []
    for decision in round_.decisions:
        found += promises.add(round_.stream, round_.number, decision.seq, decision.data)
    return [*found, *promises.rest()]
