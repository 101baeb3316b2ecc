"""What led to what, as JSON."""

from __future__ import annotations

from wharfinger.answers.decisions import Plain
from wharfinger.answers.event_text import said
from wharfinger.domain.text import as_time
from wharfinger.events.decisions import as_decision
from wharfinger.events.origin import origin_plain
from wharfinger.history.lineage import Lineage, Link


def lineage_plain(found: Lineage) -> Plain:
    return {
        "subject": found.subject,
        "cut": found.cut,
        "roots": [_link_plain(root, found) for root in found.roots],
    }


def _link_plain(link: Link, found: Lineage) -> Plain:
    named: dict[str, object] = {
        "id": str(link.id),
        "kind": "decision" if link.decision else "event" if link.event else "unrecorded",
        "time": None if link.at is None else as_time(link.at),
        "asked": link.id in found.asked,
    }
    if link.decision is not None:
        row = link.decision
        named |= {
            "type": row.type,
            "subject": row.subject,
            "stream": row.stream,
            "seq": row.seq,
            "round": row.round,
            "outcome": row.outcome,
            "said": as_decision(row.data()).sentence(),
        }
    if link.event is not None:
        event = link.event
        named |= {
            "type": event.type,
            "subject": event.subject,
            "source": event.source,
            "said": said(event.data, link.before),
            **origin_plain(event.body),
        }
    return {**named, "children": [_link_plain(child, found) for child in link.children]}
