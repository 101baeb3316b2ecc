"""A part of an event that is too large for one record, on the topic of that event. `events.parts`
makes and joins them."""

from __future__ import annotations

from wharfinger.domain.value import Value


class EventPart(Value, frozen=True):
    """Part `part` (from 1) of `parts` of an event that is too large for one record; `payload`: its
    bytes, base64.

    The payloads of all parts, joined in order, are the message of the event `event`; `sha256`: of
    that message, in hex.
    """

    event: str
    part: int
    parts: int
    sha256: str
    payload: str
