"""The decisions about a binding and their causes as JSON."""

from __future__ import annotations

from wharfinger.answers.decisions import Plain, as_plain
from wharfinger.answers.event_text import because
from wharfinger.events.origin import origin_plain
from wharfinger.history.timeline import DecisionCause, Timeline, TimelineEntry


def history_plain(found: Timeline) -> Plain:
    return {
        "binding": found.binding,
        "total": found.total,
        "decisions": [_entry_plain(entry) for entry in found.entries],
    }


def _entry_plain(entry: TimelineEntry) -> Plain:
    after = None if entry.after is None else entry.after / 1_000_000
    return {**as_plain(entry.row), "after_s": after, "because": cause_plain(entry.cause)}


def cause_plain(cause: DecisionCause) -> Plain:
    kind = (
        "event"
        if cause.event
        else "decision"
        if cause.decision
        else "time"
        if cause.id is None
        else "unknown"
    )
    named: dict[str, object] = {
        "kind": kind,
        "id": None if cause.id is None else str(cause.id),
        "said": because(cause),
    }
    if cause.event is not None:
        named |= {
            "type": cause.event.type,
            "source": cause.event.source,
            "subject": cause.event.subject,
            **origin_plain(cause.event.body),
        }
    if cause.decision is not None:
        row = cause.decision
        named |= {"type": row.type, "stream": row.stream, "seq": row.seq, "subject": row.subject}
    return named
