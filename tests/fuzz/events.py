"""Bodies of records: an event, or one error; and what was read is written back and read the
same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tests.fuzz.target import Check, Target, holds, kind_of, one_line
from tests.poison import POISON

from wharfinger.domain.value import Value, canonical
from wharfinger.events.codec import (
    UndecodableError,
    decode,
    decode_data,
    decode_data_to_fold,
    decode_recorded,
    encode,
    frame_of,
)
from wharfinger.events.envelope import Event
from wharfinger.events.event_part import EventPart
from wharfinger.events.names import wrong_name

SAMPLES = Path(__file__).parents[1] / "contract" / "samples"


@contextmanager
def opened() -> Iterator[Check]:
    yield check


def check(body: bytes) -> str:
    try:
        event = decode(body)
    except UndecodableError as error:
        one_line(str(error))
        return kind_of(str(error))
    held(event)
    return event.type


def held(event: Event[Value]) -> None:
    """What is true of every event that was read."""
    body = event.body
    holds(decode(body) == event, "one body is two events")
    recorded = decode_recorded(body, event.id, event.sha256)
    holds(recorded == event, "what was recorded is read as another event")
    frame = frame_of(body)
    holds(frame.source == event.source and frame.subject == event.subject, "two envelopes")
    again = encode(
        event.data,
        id=event.id,
        source=event.source,
        subject=event.subject,
        causation=event.causation,
        correlation=event.correlation,
        version=event.version,
    )
    written = decode(again)
    holds(written.data == event.data, "what was written again is other data")
    holds(written.id == event.id, "what was written again has another id")
    holds(
        (written.type, written.version, written.causation, written.correlation)
        == (event.type, event.version, event.causation, event.correlation),
        "what was written again has another envelope",
    )
    data = canonical(event.data)
    holds(canonical(written.data) == data, "the canonical bytes are not canonical")
    holds(decode_data(event.type, data) == event.data, "the ledger's form is other data")
    folded = decode_data_to_fold(event.type, data)
    holds(isinstance(folded, type(event.data)), "what is folded is of another class")
    holds(len(data) <= 4 * len(body) + 64, f"{len(body):,} bytes became {len(data):,}")
    msgspec.to_builtins(event.data)
    if not isinstance(event.data, EventPart) and (wrong := wrong_name(event.data)):
        one_line(wrong)


def seeds() -> Iterator[bytes]:
    for sample in sorted(SAMPLES.glob("*.json")):
        yield msgspec.json.encode(msgspec.json.decode(sample.read_bytes()))
    yield from (body for body in POISON.values() if len(body) < TARGET.bytes_max)


TARGET = Target("events", "bodies of records on topics", opened, seeds)
