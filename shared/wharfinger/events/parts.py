"""An event that is too large for one Kafka record travels as several: `divided` makes the parts,
`Assembler` joins them.

A broker refuses records above a limit (1 MiB by default), and a refused record would block all
records behind it. So the writer divides an event of any kind that is too large, and the reader
joins the parts before it decodes them. Deciders, observers and the ledger only ever see the whole
event, with its original bytes, id and hash.

All parts of an event are on its partition, in order and under its key. On a compacted topic the
parts after the first have a key of their own (`part_key`), because compaction would otherwise keep
the last part only. The first part keeps the key of the event. So a later record under that key
(another event, its parts, a null record) replaces the first part, and readers ignore the other
parts without it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from wharfinger.domain.value import Value, canonical
from wharfinger.events.envelope import Event, Frame, derived_id
from wharfinger.events.event_part import EventPart
from wharfinger.events.ledger_codec import type_of
from wharfinger.events.message_codec import UndecodableError, encode_raw, frame_of

PART_ROOM_MIN = 256
"""A part that carries fewer bytes of its event than this is not worth sending."""

STALE_AFTER = 1000
"""A set of parts that has not grown for so many offsets is given up: its writer stopped in the
middle and sent it again."""

JOINED_BYTES_MAX = 64 * 1024 * 1024
"""Of one event in parts, four times what the ledger accepts as one fact (`runtime.ledger.intake`).
Without a bound, parts that never end would fill the memory of each reader."""

HELD_BYTES_MAX = 2 * JOINED_BYTES_MAX
"""Of all parts that are held of one partition."""

PARTS_MAX = JOINED_BYTES_MAX // PART_ROOM_MIN

_ENCODED, _RAW = 4, 3  # base64: three bytes are four characters


class TooSmallLimitError(ValueError):
    """No part of this event fits into a record of that size."""


def divided(message: bytes, limit: int) -> list[bytes]:
    """`message` itself where it has at most `limit` bytes, else the messages of its parts, each of
    at most `limit` bytes.

    The same message and limit make the same parts. UndecodableError: it is too large and no
    CloudEvent. TooSmallLimitError: not even the envelope fits.
    """
    if len(message) <= limit:
        return [message]
    frame, digest = frame_of(message), hashlib.sha256(message).hexdigest()
    empty = _part(frame, EventPart(frame.id, len(message), len(message), digest, ""))
    size = (limit - len(empty)) // _ENCODED * _RAW
    if size < PART_ROOM_MIN:
        raise TooSmallLimitError(
            f"a record of at most {limit:,} bytes cannot carry a part of this event: "
            f"expected at least {least_limit(message):,}"
        )
    count = -(-len(message) // size)
    pieces = (message[start : start + size] for start in range(0, len(message), size))
    return [
        _part(frame, EventPart(frame.id, number, count, digest, base64.b64encode(piece).decode()))
        for number, piece in enumerate(pieces, 1)
    ]


def least_limit(message: bytes) -> int:
    """The smallest limit by which `message` can be divided: its envelope and a little of it."""
    frame = frame_of(message)
    empty = _part(frame, EventPart(frame.id, len(message), len(message), "0" * 64, ""))
    return len(empty) + (PART_ROOM_MIN // _RAW + 1) * _ENCODED


def part_key(key: bytes, number: int) -> bytes:
    """The record key of a part on a compacted topic."""
    return key if number == 1 else key + b"#part-%d" % number


def _part(frame: Frame, part: EventPart) -> bytes:
    """Its id is derived from what it carries: parts of another cut are other events."""
    id = derived_id("event-part", frame.source, part.event, part.sha256, part.part, part.parts)
    return encode_raw(
        canonical(part),
        type_of(part),
        id=str(id),
        source=frame.source,
        subject=frame.subject,
        key=frame.partitionkey,
        sequence=frame.sequence,
        incarnation=frame.incarnation,
    )


Ack = Callable[[], object]
Place = tuple[str, int]
"""Topic and partition."""
_Key = tuple[str, str, int]
"""Source, id and number of parts of an event."""


@dataclass(frozen=True, slots=True)
class Joined:
    """An event whose last part has come. `body`: as it was before it was divided. `ack`: of all of
    its records."""

    body: bytes
    ack: Ack | None


@dataclass(slots=True)
class _Set:
    """Parts of one event up to now. `first`, `last`: offsets of the first and the latest of
    them."""

    first: int
    last: int
    size: int = 0
    pieces: list[bytes] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)

    def ack(self) -> None:
        for ack in self.acks:
            ack()


class Assembler:
    """Joins parts, each partition by itself. The parts of one event come in order; other records
    may come between them.

    A part whose predecessors were not seen belongs to an event that cannot be joined any more (its
    first part was replaced by compaction, or its writer stopped and sends it again): it is passed
    over and acknowledged.

    `joined_max`: bytes of one event; more are refused. `held_max`: of all that is held of a
    partition; beyond it the event that has not grown for longest is given up.
    """

    def __init__(self, joined_max: int = JOINED_BYTES_MAX, held_max: int = HELD_BYTES_MAX) -> None:
        self._open: dict[Place, dict[_Key, _Set]] = {}
        self._held: dict[Place, int] = {}
        """Bytes of the pieces of all that is open there."""
        self._joined_max, self._held_max = joined_max, held_max

    def add(
        self, place: Place, offset: int, event: Event[Value], part: EventPart, ack: Ack | None
    ) -> Joined | None:
        """The event, where this was its last part. UndecodableError: what was joined is not what
        was divided, or it is larger than an event may be; its parts are dropped then."""
        if not 1 <= part.part <= part.parts <= PARTS_MAX:
            raise UndecodableError(
                f"event {part.event}: expected a part of at most {PARTS_MAX:,}, "
                f"got {part.part} of {part.parts}"
            )
        sets = self._open.setdefault(place, {})
        key = (event.source, part.event, part.parts)
        pending = sets.get(key)
        if part.part == 1:
            if pending is not None:  # sent again from its start
                self._drop(place, key)
            pending = self._open.setdefault(place, {})[key] = _Set(offset, offset)
        elif pending is None or part.part != len(pending.pieces) + 1:
            if ack is not None:
                ack()
            return None
        piece = _payload(part)
        if pending.size + len(piece) > self._joined_max:
            self._drop(place, key)
            raise UndecodableError(
                f"event {part.event}: expected at most {self._joined_max:,} bytes, got more"
            )
        pending.pieces.append(piece)
        pending.size += len(piece)
        self._held[place] = self._held.get(place, 0) + len(piece)
        pending.last = offset
        if ack is not None:
            pending.acks.append(ack)
        if part.part < part.parts:
            self._make_room(place)
            return None
        self._close(place, key)
        body = b"".join(pending.pieces)
        if hashlib.sha256(body).hexdigest() != part.sha256:
            pending.ack()
            raise UndecodableError(
                f"event {part.event}: its {part.parts} parts do not make the message they were "
                "cut from"
            )
        return Joined(body, pending.ack if pending.acks else None)

    def reached(self, place: Place, offset: int) -> int:
        """Where a reader has to begin to have everything that is not handed over once the record at
        `offset` is."""
        sets = self._open.get(place)
        if not sets:
            return offset + 1
        for key, pending in list(sets.items()):
            if pending.last + STALE_AFTER < offset:
                self._drop(place, key)
        return min((pending.first for pending in sets.values()), default=offset + 1)

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are read from another place now: what is open there ends without its
        acknowledgement."""
        for place in places:
            self._open.pop(place, None)
            self._held.pop(place, None)

    def _make_room(self, place: Place) -> None:
        while self._held[place] > self._held_max:
            sets = self._open[place]
            self._drop(place, min(sets, key=lambda key: sets[key].last))

    def _drop(self, place: Place, key: _Key) -> None:
        """What is held of the event is done with."""
        self._close(place, key).ack()

    def _close(self, place: Place, key: _Key) -> _Set:
        sets = self._open[place]
        closed = sets.pop(key)
        self._held[place] -= closed.size
        if not sets:
            del self._open[place], self._held[place]
        return closed


def _payload(part: EventPart) -> bytes:
    try:
        return base64.b64decode(part.payload, validate=True)
    except ValueError as error:
        raise UndecodableError(
            f"part {part.part} of event {part.event}: payload: {error}"
        ) from None
