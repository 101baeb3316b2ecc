"""Inputs that the writer of a stream makes itself, recorded in the round like any other input and
never sent over a topic: time, when the state's next due time has come, and held events that the
stream fails on."""

from __future__ import annotations

from wharfinger.domain.ids import EventId, StreamName
from wharfinger.domain.value import Value


class Ticked(Value, frozen=True):
    """`due_us`: what was due, microseconds since the epoch."""

    stream: StreamName
    due_us: int


class HeldEventsLaidAside(Value, frozen=True):
    """`stream` never applies the events with the ids `events`, which it took in and held back: it
    fails on each of them. Each is a dead letter, which says why."""

    stream: StreamName
    events: tuple[EventId, ...]
