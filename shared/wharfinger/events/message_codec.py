"""Bytes to events and back, for whichever types a codec is made for. What cannot be read is said in
one line (`UndecodableError`), for the dead letter.

`codec` reads and writes every type, `ledger_codec` those that come from the ledger: a program loads
the classes of the events that it reads. The envelope alone is read and written here without any
class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol, Union, cast
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.events.envelope import (
    NO_VERSION,
    SPECVERSION,
    Event,
    FactVersion,
    Frame,
    event_id,
    version_of,
    version_text,
)
from wharfinger.events.streams import Topic
from wharfinger.events.upcasts import UPCASTS, upcast

PREFIX = "io.wharfinger."

SCHEMA_ROOT = "https://wharfinger.io/schemas/"

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
"""What the engine's columns hold and every JSON encoder can write: a number beyond it is poison for
all who come after."""

_DIGITS = bytes(
    ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256)
)
_LONG_NUMBER = b"0" * len(str(INT64_MAX))

_frame_decoder = json_decoder(Frame)
_encoder = msgspec.json.Encoder(order="deterministic")


class UndecodableError(ValueError):
    """A message that is not an event of ours; the text is one line and names what was expected."""


@dataclass(frozen=True, slots=True)
class EventType:
    """`name` without version and prefix; `topic` None: never on a topic of its own."""

    name: str
    version: int
    data: type[Value]
    topic: Topic | None

    @property
    def type(self) -> str:
        return f"{PREFIX}{self.name}.v{self.version}"


# --- the envelope


def frame_of(body: bytes) -> Frame:
    """The envelope alone, data left raw. Raises UndecodableError."""
    try:
        return _frame_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableError(f"not a CloudEvent in structured JSON: {error}") from None


def encode_raw(
    data: bytes,
    type: str,
    *,
    id: str,
    source: str,
    subject: str,
    key: str = "",
    time: str = "",
    causation: str = "",
    correlation: str = "",
    sequence: str = "",
    version: FactVersion = NO_VERSION,
    incarnation: str = "",
    position: str = "",
) -> bytes:
    """As `MessageCodec.encode`, for data that is canonical JSON already (a decision's body as the
    ledger holds it)."""
    return _encoder.encode(
        Frame(
            specversion=SPECVERSION,
            id=id,
            source=source,
            type=type,
            subject=subject,
            time=time,
            datacontenttype="application/json",
            dataschema=SCHEMA_ROOT + type,
            partitionkey=key,
            causationid=causation,
            correlationid=correlation,
            sequence=sequence,
            factversion=version_text(version),
            incarnation=incarnation,
            position=position,
            data=msgspec.Raw(data),
        )
    )


# --- the data


class _Message(Protocol):
    """A frame with its data read. The type is the name under which its struct stands in the
    union."""

    specversion: str
    id: str
    source: str
    subject: str
    causationid: str
    correlationid: str
    factversion: str
    data: Value


class _MessageDecoder(Protocol):
    def decode(self, body: bytes, /) -> _Message: ...


_LATER = ("position", "authtype", "authid", "changereason", "changerevision")
"""Fields of the frame that events of before may have meant otherwise: nothing here reads them."""

_TEXTS = tuple(name for name in Frame.__struct_fields__ if name not in ("type", "data", *_LATER))


def _message_struct(place: int, data: type[Value], type_: str) -> Callable[..., _Message]:
    """All fields of `Frame`, so that what is no text there is refused as ever."""
    fields: list[tuple[str, object] | tuple[str, object, object]] = [("data", data)]
    fields += [(name, str, "") for name in _TEXTS]
    struct = msgspec.defstruct(
        f"_Message{place}", fields, tag_field="type", tag=type_, frozen=True, kw_only=True
    )
    return cast(Callable[..., _Message], struct)


def _unexplained(data: type[Value]) -> type[Value]:
    fields = (
        [("explanation", msgspec.Raw, msgspec.Raw(b"{}"))]
        if "explanation" in data.__struct_fields__
        else []
    )
    struct = msgspec.defstruct(
        data.__name__, fields, bases=(data,), frozen=True, omit_defaults=True
    )
    return cast("type[Value]", struct) if fields else data


def _type_of(message: _Message) -> str:
    tag: str = type(message).__struct_config__.tag  # type: ignore[attr-defined]
    return tag


def _version(text: str) -> FactVersion:
    try:
        return version_of(text)
    except ValueError as error:
        raise UndecodableError(f"factversion: {error}") from None


def _texts(value: object) -> Iterator[str]:
    """Every text in `value`, which is made of JSON's types; names of members too."""
    match value:
        case str():
            yield value
        case dict():
            for name, member in value.items():
                yield name
                yield from _texts(member)
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def _beyond_int64(value: object) -> int | None:
    """The first number in `value`, which is made of JSON's types, that 64 bits with a sign do not
    hold."""
    match value:
        case int():
            return None if INT64_MIN <= value <= INT64_MAX else value
        case dict():
            inside: Iterable[object] = value.values()
        case list() | tuple():
            inside = value
        case _:
            return None
    return next((number for item in inside if (number := _beyond_int64(item)) is not None), None)


class MessageCodec:
    """Reads and writes events of these types.

    A message is read in one pass, envelope and data together: its `type` chooses among structs that
    are made here, one a type. Only what cannot be read so is read again in two steps, to find out
    what to say of it.

    Decoders are made with their first use: all of them together take longer than most programs need
    theirs.
    """

    def __init__(self, types: Sequence[EventType]) -> None:
        self._types = types
        self._by_type = {e.type: e for e in types}
        # later versions stand below earlier ones, so the last entry of a class wins
        self._latest = {e.data: e.type for e in types}
        self._data_decoder = cache(self._new_data_decoder)
        self._fold_decoder = cache(self._new_fold_decoder)

    def type_of(self, data: Value) -> str:
        """The full type name under which this data is written today."""
        return self._latest[type(data)]

    def decode(self, body: bytes) -> Event[Value]:
        """The event in `body`. Raises UndecodableError when it is not one, has no id, or a type or
        version unknown here."""
        message = self._message_of(body)
        data = message.data
        # Looking at every number would cost more than decoding does. Most messages have no run of
        # digits that is long enough, which is found out in less than a microsecond; those that have
        # one, if only in a name, are looked at.
        if (
            _LONG_NUMBER in body.translate(_DIGITS)
            and (number := _beyond_int64(msgspec.to_builtins(data))) is not None
        ):
            type_ = _type_of(message)
            raise UndecodableError(
                f"data of {type_}: expected numbers of at most 64 bits, got {number}"
            )
        # U+0000 can stand in JSON, though only as this escape, and in no text of a database. A lone
        # byte is found many times faster than the escape.
        if b"\\" in body and b"\\u0000" in body:
            envelope = (
                message.id,
                message.source,
                message.subject,
                message.causationid,
                message.correlationid,
            )
            if any("\0" in text for text in (*envelope, *_texts(msgspec.to_builtins(data)))):
                raise UndecodableError("expected text, got the character U+0000")
        return Event(
            event_id(message.source, message.id),
            _type_of(message),
            message.source,
            message.subject,
            upcast(data) if UPCASTS else data,
            body,
            hashlib.sha256(body).digest(),
            message.causationid,
            message.correlationid,
            _version(message.factversion),
        )

    def decode_recorded(self, body: bytes, id: UUID, sha256: bytes) -> Event[Value]:
        """The event in a body that `decode` has read before it was recorded, under the id and hash
        by which it stands in the record.

        For those who take the record at its word, as recovery does. Whether the body still makes
        them is what verify and audit ask, by `decode`. Raises UndecodableError.
        """
        message = self._message_of(body)
        return Event(
            id,
            _type_of(message),
            message.source,
            message.subject,
            upcast(message.data) if UPCASTS else message.data,
            body,
            sha256,
            message.causationid,
            message.correlationid,
            _version(message.factversion),
        )

    def decode_data(self, type: str, body: bytes) -> Value:
        """The data of a decision as the ledger holds it: canonical JSON without an envelope. Raises
        UndecodableError."""
        decoder = self._data_decoder(type)
        if decoder is None:
            raise UndecodableError(f"type: {type!r} is not a known event type and version")
        try:
            data = decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UndecodableError(f"data of {type}: {error}") from None
        return upcast(data) if UPCASTS else data

    def decode_data_to_fold(self, type: str, body: bytes) -> Value:
        """As `decode_data`, with the recorded explanation left unread: it is half of most
        decisions, and no fold looks at it.

        What comes back is of a subclass that has bytes there; it is folded and then thrown away.
        Raises UndecodableError.
        """
        decoder = self._fold_decoder(type)
        if decoder is None or UPCASTS:  # a step from one version to the next reads all of it
            return self.decode_data(type, body)
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UndecodableError(f"data of {type}: {error}") from None

    def encode(
        self,
        data: Value,
        *,
        id: UUID,
        source: str,
        subject: str,
        key: str = "",
        time: str = "",
        causation: str = "",
        correlation: str = "",
        version: FactVersion = NO_VERSION,
        incarnation: str = "",
    ) -> bytes:
        """The message that carries `data`; `key` is the partition key when it differs from the
        subject."""
        return encode_raw(
            canonical(data),
            self.type_of(data),
            id=str(id),
            source=source,
            subject=subject,
            key=key,
            time=time,
            causation=causation,
            correlation=correlation,
            version=version,
            incarnation=incarnation,
        )

    def made(
        self,
        data: Value,
        *,
        id: UUID,
        source: str,
        subject: str,
        key: str = "",
        time: str = "",
        causation: str = "",
        correlation: str = "",
        version: FactVersion = NO_VERSION,
    ) -> Event[Value]:
        """An event of ours, encoded and ready to be folded, recorded or sent."""
        body = self.encode(
            data,
            id=id,
            source=source,
            subject=subject,
            key=key,
            time=time,
            causation=causation,
            correlation=correlation,
            version=version,
        )
        return Event(
            id,
            self.type_of(data),
            source,
            subject,
            data,
            body,
            hashlib.sha256(body).digest(),
            causation,
            correlation,
            version,
        )

    def _message_of(self, body: bytes) -> _Message:
        try:
            message = self._message_decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._in_two_steps(body)
        if message.specversion != SPECVERSION or not message.id or not message.source:
            return self._in_two_steps(body)
        return message

    def _in_two_steps(self, body: bytes) -> _Message:
        """First the envelope, then the data: slower, and it finds what is wrong."""
        frame = frame_of(body)
        if frame.specversion != SPECVERSION:
            raise UndecodableError(
                f"specversion: expected {SPECVERSION!r}, got {frame.specversion!r}"
            )
        for name, text in (("id", frame.id), ("source", frame.source), ("type", frame.type)):
            if not text:
                raise UndecodableError(
                    f"{name}: missing or empty; every event needs its producer's {name}"
                )
        struct = self._messages.get(frame.type)
        decoder = self._data_decoder(frame.type)
        if struct is None or decoder is None:
            raise UndecodableError(f"type: {frame.type!r} is not a known event type and version")
        try:
            data = decoder.decode(frame.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UndecodableError(f"data of {frame.type}: {error}") from None
        texts = {name: getattr(frame, name) for name in _TEXTS}
        return struct(data=data, **texts)

    # --- decoders

    def _new_data_decoder(self, type: str) -> msgspec.json.Decoder[Value] | None:
        known = self._by_type.get(type)
        return None if known is None else json_decoder(known.data)

    def _new_fold_decoder(self, type: str) -> msgspec.json.Decoder[Value] | None:
        known = self._by_type.get(type)
        return None if known is None else json_decoder(_unexplained(known.data))

    @cached_property
    def _messages(self) -> dict[str, Callable[..., _Message]]:
        """type -> its struct."""
        return {
            e.type: _message_struct(place, e.data, e.type) for place, e in enumerate(self._types)
        }

    @cached_property
    def _message_decoder(self) -> _MessageDecoder:
        structs = tuple(self._messages.values())
        # there is no `|` of a list
        return cast(_MessageDecoder, json_decoder(Union[structs]))  # noqa: UP007
