"""The CloudEvents 1.0 frame (structured JSON mode) that every message wears.

`time` is the producer's and is never used as a clock. `partitionkey` is the key that chooses the
partition, `causationid` the event or decision that led to this one, `correlationid` the first cause
of the chain. `sequence` is a decision's seq in the stream that `source` names, `incarnation` that
of the ledger in which it was made; without it, the first. `position` is its place among the
decisions of all streams (the feed). `factversion` says which state of its key
a fact is (`events.versions`).
"""

from __future__ import annotations

import hashlib
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value

NAMESPACE = UUID("6a1f6d0c-52b0-5f0e-9a4e-77686172660a")
"""Under which all ids of ours are made; what-if runs have a namespace of their own."""

_NAMESPACE_BYTES = NAMESPACE.bytes
_VERSION_5 = 5 << 76 | 0b10 << 62
_NEITHER_VERSION_NOR_VARIANT = ~(0xF << 76 | 0b11 << 62)

SPECVERSION = "1.0"
MEDIA_TYPE = "application/cloudevents+json"

FactVersion = tuple[int, int]
"""(epoch, version) of a fact, both at least 0; compared in this order."""

NO_VERSION: FactVersion = (0, 0)
"""Not said."""

D_co = TypeVar("D_co", bound=Value, covariant=True)


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The envelope on the wire. `data` stays raw until the type is known.

    `specversion` has no default: a default would be left out, and a message without it is no
    CloudEvent.
    """

    specversion: str
    id: str = ""
    source: str = ""
    type: str = ""
    subject: str = ""
    time: str = ""
    datacontenttype: str = ""
    dataschema: str = ""
    partitionkey: str = ""
    causationid: str = ""
    correlationid: str = ""
    sequence: str = ""
    factversion: str = ""
    incarnation: str = ""
    position: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class Event(msgspec.Struct, Generic[D_co], frozen=True):
    """A decoded message: identity, provenance, typed data, and the bytes it came as.

    A struct, as is all that is made once an event or decision: a frozen dataclass takes ten times
    as long to make.

    `id` is the producer's where that is a UUID, else derived from source and id. `sha256` is of
    `body`.
    """

    id: UUID
    type: str
    source: str
    subject: str
    data: D_co
    body: bytes
    sha256: bytes
    causation: str = ""
    correlation: str = ""
    version: FactVersion = NO_VERSION


def event_id(source: str, text: str) -> UUID:
    """The UUID by which the plane knows an event: CloudEvents promises only that (source, id) is
    unique."""
    id = uuid_of(text) if len(text) == 36 else None
    return named_id(f"{source}\x00{text}") if id is None else id


def derived_id(*parts: str | int) -> UUID:
    """The id of an event of ours: a function of what it is, so that making it again makes the same
    id."""
    return named_id("\x00".join([str(p) for p in parts]))


def named_id(name: str) -> UUID:
    """`uuid5(NAMESPACE, name)`, in a third of its time: every decision has such an id, and every
    replay makes it again."""
    sha1 = hashlib.sha1(_NAMESPACE_BYTES + name.encode(), usedforsecurity=False).digest()
    number = int.from_bytes(sha1[:16], "big") & _NEITHER_VERSION_NOR_VARIANT | _VERSION_5
    return msgspec.convert(number.to_bytes(16, "big"), UUID)


def version_of(text: str) -> FactVersion:
    """The version in `epoch.version`; ValueError where it is not one."""
    if not text:
        return NO_VERSION
    epoch, dot, version = text.partition(".")
    if not dot or not all(
        part.isascii() and part.isdecimal() and len(part) < 20 for part in (epoch, version)
    ):
        raise ValueError(f"expected epoch.version, two whole numbers, got {text[:50]!r}")
    return int(epoch), int(version)


def version_text(version: FactVersion) -> str:
    """As it stands in the frame; empty where it is not said."""
    return "" if version == NO_VERSION else f"{version[0]}.{version[1]}"


def uuid_of(text: str) -> UUID | None:
    """The UUID in `text`; None when it is none. The usual spelling is read fast, every other as
    `UUID` reads it."""
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        pass
    try:
        return UUID(text)
    except ValueError:
        return None
