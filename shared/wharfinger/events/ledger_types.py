"""The types of events that come from the ledger: what its streams decide, and the messages that the
publisher makes of it.

Who relays the ledger reads and writes these and no others: what the intake accepted is relayed as
bytes. `registry` has them among all types.
"""

from __future__ import annotations

from typing import cast

from wharfinger.domain.value import Value
from wharfinger.events import (
    acceptance,
    assignments,
    dead_letters,
    decisions,
    event_part,
    ledger,
    outcomes,
    room,
    streams,
)
from wharfinger.events.message_codec import EventType

LEDGER_TYPES: tuple[EventType, ...] = (
    EventType("assignments.decided", 1, assignments.AssignmentsDecided, streams.ASSIGNMENTS),
    EventType("outcomes.decided", 1, outcomes.OutcomesDecided, streams.OUTCOMES),
    EventType("room.taken", 1, room.RoomTaken, streams.ROOM),
    EventType("plan.answered", 1, room.PlanAnswered, streams.ROOM),
    *(
        EventType(kind.TYPE, kind.VERSION, cast(type[Value], kind), streams.DECISIONS)
        for kind in decisions.KINDS
    ),
    EventType("stream.published", 1, ledger.StreamPublished, streams.TIMELINE),
    EventType("message.dead-lettered", 1, dead_letters.MessageDeadLettered, streams.DEAD_LETTERS),
    EventType("message.accepted", 1, acceptance.MessageAccepted, None),
    EventType("event.part", 1, event_part.EventPart, None),
)
