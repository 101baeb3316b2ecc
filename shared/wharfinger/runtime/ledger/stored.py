"""The stored bodies of events, unpacked, and of decisions, unpacked and decoded. One that cannot be
read is a corrupt ledger, named with its place. Next: `stored_events` decodes events."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.domain.value import Value
from wharfinger.events.ledger_codec import decode_data
from wharfinger.events.message_codec import UndecodableError
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.errors import CorruptLedger


def plain_body(stream: str, number: int, seq: int, encoding: int, stored: bytes) -> bytes:
    try:
        return stored if encoding == PLAIN else unpack(encoding, stored)
    except ValueError as error:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: {error}") from None


def data_of(
    stream: str,
    number: int,
    seq: int,
    type_: str,
    body: bytes,
    read: Callable[[str, bytes], Value] = decode_data,
) -> Value:
    try:
        return read(type_, body)
    except UndecodableError as error:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: {error}") from None
