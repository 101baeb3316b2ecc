"""Ticks: time as an input. Made by the writer of a stream when its state's next due time has come,
recorded in the round like any other input, never sent over a topic."""

from __future__ import annotations

from wharfinger.domain.ids import StreamName
from wharfinger.domain.value import Value


class Ticked(Value, frozen=True):
    """`due_us`: what was due, microseconds since the epoch."""

    stream: StreamName
    due_us: int
