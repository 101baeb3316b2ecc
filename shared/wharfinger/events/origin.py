"""Who brought an event in, why, and from which revision of a source: in the envelope, and so inside
the bytes that the ledger hashes.

`authtype` and `authid` are CloudEvents' auth context extension. What a producer claims about itself
is replaced by who handed the event in. Events of before have none of it, and stay as they are.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from wharfinger.domain.value import Value, json_decoder
from wharfinger.events.envelope import Event

D = TypeVar("D", bound=Value)

AUTH_TYPES = (
    "app_user",
    "user",
    "service_account",
    "api_key",
    "system",
    "unauthenticated",
    "unknown",
)
"""As CloudEvents has them."""

TEXT_MAX = 500
"""Characters of an id, a reason or a revision."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """`authid`: of a person or program, such as `unix:ada` or `wharfinger:collector`. `reason`: in
    a person's words. `revision`: of the source that the change was made in, such as a commit.

    ValueError: one line that names the field."""

    authtype: str = ""
    authid: str = ""
    changereason: str = ""
    changerevision: str = ""

    def __post_init__(self) -> None:
        if self.authtype and self.authtype not in AUTH_TYPES:
            raise ValueError(
                f"authtype: expected one of {', '.join(AUTH_TYPES)}, got {self.authtype!r}"
            )
        for name, text in (
            ("authid", self.authid),
            ("reason", self.changereason),
            ("revision", self.changerevision),
        ):
            if len(text) > TEXT_MAX or not text.isprintable():
                raise ValueError(
                    f"{name}: expected one line of at most {TEXT_MAX} characters, got {text[:50]!r}"
                )


SERVICE = "wharfinger:"
"""Begins the `authid` of a service of the plane."""

AS_IT_CAME = Origin()
"""Of an event that is accepted with the bytes that it has."""

_FIELDS = Origin.__struct_fields__
_raw = json_decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def of_service(name: str) -> Origin:
    """Of what a service of the plane brings in by itself."""
    return Origin("service_account", f"{SERVICE}{name}")


def stamped(event: Event[D], origin: Origin) -> Event[D]:
    """The event with its origin in the envelope; everything else byte for byte as it was."""
    if origin == AS_IT_CAME:
        return event
    members = {name: raw for name, raw in _raw(event.body).items() if name not in _FIELDS}
    for name in _FIELDS:
        if text := getattr(origin, name):
            members[name] = msgspec.Raw(_encode(text))
    body = _encode(members)
    return msgspec.structs.replace(event, body=body, sha256=hashlib.sha256(body).digest())


def origin_plain(body: bytes) -> dict[str, str]:
    """What is known about the origin, by the attributes' names."""
    origin = origin_of(body)
    return {name: text for name in _FIELDS if (text := getattr(origin, name))}


def origin_of(body: bytes) -> Origin:
    """Of an event as it was recorded; empty where it says nothing, or nothing that can be read."""
    try:
        return json_decoder(Origin).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return AS_IT_CAME
