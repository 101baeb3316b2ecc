"""The CloudEvents 1.0 frame (structured JSON mode) that every message wears.

`time` is the producer's and is never used as a clock. `partitionkey` is the key that chooses the partition, `causationid`
the event or decision that led to this one, `correlationid` the first cause of the chain. `sequence` is a decision's seq in
the stream that `source` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID, uuid5

import msgspec

from wharfinger.domain.value import Value

NAMESPACE = UUID("6a1f6d0c-52b0-5f0e-9a4e-77686172660a")
"""Under which all ids of ours are made; what-if runs have a namespace of their own."""

SPECVERSION = "1.0"
MEDIA_TYPE = "application/cloudevents+json"

D_co = TypeVar("D_co", bound=Value, covariant=True)


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The envelope on the wire. `data` stays raw until the type is known.

    `specversion` has no default: a default would be left out, and a message without it is no CloudEvent.
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
    data: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Event(Generic[D_co]):
    """A decoded message: identity, provenance, typed data, and the bytes it came as.

    `id` is the producer's where that is a UUID, else derived from source and id. `sha256` is of `body`.
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


def event_id(source: str, text: str) -> UUID:
    """The UUID by which the plane knows an event: CloudEvents promises only that (source, id) is unique."""
    if len(text) == 36:
        try:
            return UUID(text)
        except ValueError:
            pass
    return uuid5(NAMESPACE, f"{source}\x00{text}")


def derived_id(*parts: str | int) -> UUID:
    """The id of an event of ours: a function of what it is, so that making it again makes the same id."""
    return uuid5(NAMESPACE, "\x00".join(str(p) for p in parts))
