"""What the ledger says of itself: how far each stream had been published."""

from __future__ import annotations

from wharfinger.domain.value import Value


class StreamPublished(Value, frozen=True):
    """How far a stream had been published: a record of the ledger's timeline, kept outside the
    database.

    `hash`: of `round`, hexadecimal; it covers the whole history of the stream up to there.
    """

    stream: str
    incarnation: int
    round: int
    seq: int
    hash: str
