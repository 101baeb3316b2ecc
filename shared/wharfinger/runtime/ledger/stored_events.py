"""The stored events, decoded: they are of every type, and who relays the ledger leaves them as they
are. One that cannot be read is a corrupt ledger, named with its place."""

from __future__ import annotations

from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode, decode_recorded
from wharfinger.events.envelope import Event
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.errors import CorruptLedger


def input_event(
    stream: str, number: int, ordinal: int, encoding: int, stored: bytes
) -> Event[Value]:
    try:
        return decode(stored if encoding == PLAIN else unpack(encoding, stored))
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"input {ordinal}: {error}") from None


def trusted_event(
    stream: str, number: int, ordinal: int, encoding: int, stored: bytes, id_: UUID, sha256: bytes
) -> Event[Value]:
    try:
        return decode_recorded(
            stored if encoding == PLAIN else unpack(encoding, stored), id_, sha256
        )
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"input {ordinal}: {error}") from None
