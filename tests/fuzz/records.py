"""Records with key and headers, through the reading of services: a message, or a dead letter that
can be written; and parts of events never gather without bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from tests.fuzz.events import SAMPLES, held
from tests.fuzz.target import Check, Target, holds, kind_of, one_line
from tests.poison import POISON

from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.event_part import EventPart
from wharfinger.events.parts import divided
from wharfinger.events.streams import FOLLOWED, TOPICS, TOPICS_INCARNATION
from wharfinger.runtime.dead_letters import Letter
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.ledger.intake import EVENT_BYTES_MAX
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.reading import RawRecord, Reading
from wharfinger.runtime.unpacking import REFUSED

TOPIC = TOPICS[0].name
INCARNATION = 2
LIMIT = 900
"""Of a part, so that a sample is divided."""


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


class LetterReading(Reading):
    """A reading whose dead letters are kept here instead of in a ledger."""

    letters: list[Letter]

    async def _dead_letter(
        self,
        topic: str,
        raw: RawRecord,
        value: bytes,
        reason: str,
        ack: Callable[[], object] | None,
    ) -> None:
        self.letters.append(
            Letter.read(topic, INCARNATION, raw.partition, raw.offset, raw.key, value, reason)
        )


@contextmanager
def opened() -> Iterator[Check]:
    loop = asyncio.new_event_loop()
    try:
        yield lambda data: loop.run_until_complete(check(data))
    finally:
        loop.close()


async def check(data: bytes) -> str:
    """Records behind each other: `key`, then lines `name=value` of headers, an empty line, and the
    value up to the next line `--`."""
    reading = LetterReading(
        "fuzz",
        None,  # type: ignore[arg-type]  # letters do not come so far
        {TOPIC: INCARNATION},
        lambda wire: wire,
        METRICS.of("fuzz"),
        Decoded(0),
    )
    reading.letters = []
    records = [record_of(n, text) for n, text in enumerate(data.split(b"\n--\n")[:64])]
    messages = await reading.messages(records)
    for message in messages:
        read(message)
    for letter in reading.letters:
        written(letter)
    # there is no other way to see what it keeps
    held_back = sum(
        len(piece)
        for sets in reading._parts._open.values()
        for one in sets.values()
        for piece in one.pieces
    )
    holds(held_back <= len(data), "more parts are kept than came")
    kinds = sorted({m.event.type for m in messages})
    refusals = sorted({kind_of(letter.reason) for letter in reading.letters})
    return ",".join((kinds + refusals)[:3]) or ("parts" if held_back else "nothing")


def read(message: Message) -> None:
    held(message.event)
    holds(not isinstance(message.event.data, EventPart), "a part was handed over")
    holds(message.next_offset <= message.offset + 1, "reading would begin behind what it has")


def written(letter: Letter) -> None:
    """The letter is an event that the ledger takes, and is read from its topic."""
    one_line(letter.reason, 600)
    event = letter.event("fuzz")
    holds(len(event.body) < EVENT_BYTES_MAX, f"a letter of {len(event.body):,} bytes")
    found = decode(event.body)
    holds(isinstance(found.data, MessageDeadLettered), "a letter is another event")
    holds(found.data == event.data, "a letter is read otherwise than written")


def record_of(offset: int, text: bytes) -> Record:
    head, _, value = text.partition(b"\n\n")
    key, *lines = head.split(b"\n")
    headers = [
        (name.decode("utf-8", "replace"), content)
        for name, _, content in (line.partition(b"=") for line in lines)
    ]
    return Record(TOPIC, 0, offset, key or None, None if value == b"null" else value, headers)


def as_input(records: Sequence[tuple[bytes, Mapping[str, bytes], bytes]]) -> bytes:
    return b"\n--\n".join(
        key + b"".join(b"\n%s=%s" % (n.encode(), v) for n, v in headers.items()) + b"\n\n" + value
        for key, headers, value in records
    )


def seeds() -> Iterator[bytes]:
    bodies = [
        msgspec.json.encode(msgspec.json.decode(sample.read_bytes()))
        for sample in sorted(SAMPLES.glob("*.json"))[::6]
    ]
    for body in bodies:
        yield as_input([(b"key", {FOLLOWED: b"1"}, body)])
    for written_in in (b"1", b"2", b"-1", b"\xb2", b""):
        yield as_input([(b"key", {TOPICS_INCARNATION: written_in}, bodies[0])])
    long = max((b for b in bodies if len(b) < 3000), key=len)
    parts = divided(long, LIMIT + 600)
    yield as_input([(b"key", {}, part) for part in parts])
    yield as_input([(b"key", {}, part) for part in (*parts[:-1], *parts)])
    yield as_input([(b"key", {REFUSED: b"not unpacked: \x1b[2J"}, b"x")])
    yield as_input([(b"key", {}, b"null"), (b"\x00", {"h": b""}, b"")])
    yield from (
        as_input([(b"key", {}, body)]) for body in POISON.values() if len(body) < TARGET.bytes_max
    )
    try:
        divided(b"[]", 1)
    except UndecodableError as error:
        one_line(str(error))


TARGET = Target("records", "records with key and headers", opened, seeds, bytes_max=12_288)
