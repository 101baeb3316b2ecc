"""The CloudEvents 1.0 frame (structured JSON mode) that every message wears.

`time` is the producer's and is never used as a clock. `partitionkey` is the key that chooses the
partition, `causationid` the event or decision that led to this one, `correlationid` the first cause
of the chain. `sequence` is a decision's seq in the stream that `source` names, `incarnation` that
of the ledger in which it was made; without it, the first. `position` is its place among the
decisions of all streams (the feed); `authtype`, `authid`, `changereason` and `changerevision` say
who brought an event in and why (`origin`). `factversion` says which state of its key
a fact is (`events.versions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value, json_decoder

NAMESPACE = UUID("6a1f6d0c-52b0-5f0e-9a4e-77686172660a")
"""Under which all ids of ours are made; what-if runs have a namespace of their own."""

_NAMESPACE_BYTES = NAMESPACE.bytes
_VERSION_5 = 5 << 76 | 0b10 << 62
_NEITHER_VERSION_NOR_VARIANT = ~(0xF << 76 | 0b11 << 62)

OUR_SOURCES = "/wharfinger/"
"""How the sources of the plane's own programs begin. One fact has the same id by whichever of them
it came, so they count as one source here."""

SPECVERSION = "1.0"
MEDIA_TYPE = "application/cloudevents+json"

FactVersion = tuple[int, int]
"""(epoch, version) of a fact, both at least 0; compared in this order."""

NO_VERSION: FactVersion = (0, 0)
"""Not said."""

_members = json_decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()

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
    authtype: str = ""
    authid: str = ""
    changereason: str = ""
    changerevision: str = ""
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
    return scoped_id(source, text) if id is None else id


def scoped_id(source: str, text: str) -> UUID:
    """The id that follows from both, also where `text` is a UUID."""
    return named_id(f"{source}\x00{text}")


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


def is_ours(source: str) -> bool:
    """Whether this is the source of a program of the plane. It is what the sender claims."""
    return source.startswith(OUR_SOURCES)


def same_source(one: str, other: str) -> bool:
    return one == other or (is_ours(one) and is_ours(other))


def told_apart(events: Iterable[Event[D_co]], sources: Mapping[UUID, str]) -> list[Event[D_co]]:
    """The events, in order, each under an id that no other source has used before it.

    The plane takes an id in once, and an id that another source sends early would keep the real
    event out. The later of the two gets an id that follows from its source and its own id, in its
    envelope too, so that what is recorded needs no second name.

    `sources`: id -> source, of ids that were taken in before; an empty source is not known, and
    equals every other. An id that is given here may be in use as well: ask for `sources` of the
    result until nothing new is asked for."""
    used = dict(sources)
    found: list[Event[D_co]] = []
    for event in events:
        while (first := used.setdefault(event.id, event.source)) and not same_source(
            first, event.source
        ):
            event = _renamed(event)
        found.append(event)
    return found


def _renamed(event: Event[D_co]) -> Event[D_co]:
    id_ = scoped_id(event.source, str(event.id))
    members = _members.decode(event.body)
    members["id"] = msgspec.Raw(_encoder.encode(str(id_)))
    body = _encoder.encode(members)
    return msgspec.structs.replace(event, id=id_, body=body, sha256=hashlib.sha256(body).digest())


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
