"""Access records, as programs get them."""

from __future__ import annotations

from wharfinger.domain.text import as_time
from wharfinger.runtime.ledger.access import AccessRecord


def access_plain(record: AccessRecord) -> dict[str, object]:
    one = record.access
    return {
        "seq": record.seq,
        "time": as_time(record.at),
        "actor": one.actor,
        "action": one.action,
        "target": one.target,
        "outcome": one.outcome,
        "reason": one.reason,
        "request": one.request,
        "count": one.count,
    }
