"""The one base of all domain values: frozen, ordered fields, encodable as canonical JSON.

Values are msgspec structs rather than dataclasses because the same value travels through the engine
and over the wire, and decoding must not be what limits a service. `canonical` is the only encoder
whose bytes are ever hashed: fields in declared order, mapping keys sorted, defaults left out.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Annotated, Any, TypeVar, overload

import msgspec

T = TypeVar("T")

NAME_LENGTH_MAX = 512
Name = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
"""The name of a thing that decisions are about. They are found by it, and an index entry holds
2,704 bytes; the longest name that Kubernetes can make (namespace, name and kind) has 381
characters."""

_encoder = msgspec.json.Encoder(order="deterministic")


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every domain value and every event's data."""


def canonical(value: object) -> bytes:
    """The canonical JSON of a value: same value, same bytes, in every process and on every
    machine."""
    return _encoder.encode(value)


# msgspec reads the annotations of a struct when its type is used for the first time. Where two
# threads do that for one struct, the second works on a description that is not complete, and the
# process ends with a segmentation fault (0.22.0).
reading_types = threading.RLock()
"""Held while msgspec reads the types of structs."""

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...


@overload
def json_decoder(kind: object) -> msgspec.json.Decoder[Any]: ...


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON into values of a type, for all who ask. Threads may ask and use it at the
    same time."""
    found = _decoders.get(kind)
    if found is None:
        with reading_types:
            found = _decoders.get(kind) or msgspec.json.Decoder(kind)
            _decoders[kind] = found
    return found


def converted(value: object, kind: type[T]) -> T:
    """`msgspec.convert`, for threads. msgspec.ValidationError: the value is none of the type."""
    with reading_types:
        return msgspec.convert(value, kind)


def digest(value: object, length: int = 16) -> str:
    """The first `length` hex digits of the sha256 of a value's canonical JSON."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()[:length]


def stable_hash(*parts: str) -> int:
    """A 64-bit hash of names for tie breaks; independent of `PYTHONHASHSEED`."""
    return int.from_bytes(
        hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).digest(), "big"
    )
