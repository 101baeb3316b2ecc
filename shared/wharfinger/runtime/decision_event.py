"""A decision as the world gets it: one CloudEvent, the same bytes by every way and at every
time."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from wharfinger.events.message_codec import encode_raw
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import FIRST
from wharfinger.runtime.ledger import LedgerRow


@lru_cache(maxsize=64)
def rfc3339(at: Micros) -> str:
    seconds, micros = divmod(at, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def incarnation_text(incarnation: int) -> str:
    """As it is in an envelope: the first is left out."""
    return "" if incarnation == FIRST else str(incarnation)


def decision_event(row: LedgerRow, position: int, correlation: UUID, incarnation: str) -> bytes:
    """`position`, `correlation`: of the feed. `incarnation`: of the ledger when it was decided, as
    `incarnation_text` gives it."""
    return encode_raw(
        row.body,
        row.type,
        id=str(row.id),
        source=f"/wharfinger/{row.stream}",
        subject=row.subject,
        time=rfc3339(row.at),
        causation=str(row.cause) if row.cause else "",
        correlation=str(correlation),
        sequence=str(row.seq),
        incarnation=incarnation,
        position=str(position),
    )
