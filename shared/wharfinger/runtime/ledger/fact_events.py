"""The facts that the ledger keeps, decoded, for those who fold or show them."""

from __future__ import annotations

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger.bodies import PLAIN
from wharfinger.runtime.ledger.facts import Fact
from wharfinger.runtime.ledger.stored_events import input_event


def event_of(fact: Fact) -> Event[Value]:
    """CorruptLedger: the body is no event."""
    return input_event(INTAKE, 0, fact.seq, PLAIN, fact.body)
