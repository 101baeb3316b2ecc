"""Computes what a round of a fleet stream sends to the other fleet shards: the capacity that the
round has promised to bindings, and its answers to plans of several shards."""

from __future__ import annotations

from wharfinger.events.promises import Promises, plan_answer
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.kernel.round import Round


def promised_in(round_: Round) -> list[RoomTaken]:
    """Return the messages that the publisher makes from the round."""
    promises = Promises()
    found: list[RoomTaken] = []
    for decision in round_.decisions:
        found += promises.add(round_.stream, round_.number, decision.seq, decision.data)
    return [*found, *promises.rest()]


def plan_answers_in(round_: Round) -> list[PlanAnswered]:
    """Return the answers to plans that the publisher sends of the round."""
    answers = [plan_answer(round_.stream, d.seq, d.data) for d in round_.decisions]
    return [answer for answer in answers if answer is not None]
