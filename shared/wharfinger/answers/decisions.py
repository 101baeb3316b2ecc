"""A recorded decision as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.domain.text import as_time
from wharfinger.events.message_codec import PREFIX
from wharfinger.events.registry import EVENT_TYPES
from wharfinger.events.streams import DECISIONS
from wharfinger.runtime.ledger import LedgerRow

Plain = Mapping[str, object]
"""A JSON object."""

TYPES = tuple(event.type for event in EVENT_TYPES if event.topic is DECISIONS)


def as_plain(row: LedgerRow) -> Plain:
    """The decision as programs read it. `data` is the recorded body itself, nothing added."""
    return {**_frame(row), "data": msgspec.json.decode(row.body)}


def _frame(row: LedgerRow) -> dict[str, object]:
    return {
        "id": str(row.id),
        "stream": row.stream,
        "seq": row.seq,
        "round": row.round,
        "type": row.type,
        "subject": row.subject,
        "outcome": row.outcome,
        "time": as_time(row.at),
        "cause": None if row.cause is None else str(row.cause),
    }


def as_line(row: LedgerRow) -> str:
    """The same as one line of JSON. The body goes in as it is stored: nothing is read, nothing can
    change."""
    return msgspec.json.encode({**_frame(row), "data": msgspec.Raw(row.body)}).decode()


def short_type(type_: str) -> str:
    """`io.wharfinger.schedule.decided.v1` is `schedule.decided` in a table."""
    return type_.removeprefix(PREFIX).rpartition(".v")[0]
