"""The values of `wharfinger.history` over the wire: as JSON that says of which class each is.

A command prints the same page whether it has read the ledger itself or asked a server, because it
prints the same value. The form is for commands of the same version, not for other programs, whose
forms are the other modules of this package. Only classes of the modules in `MODULES` are made.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

import msgspec

from wharfinger.domain.value import converted
from wharfinger.events.codec import decode
from wharfinger.events.envelope import Event

MEDIA_TYPE = "application/vnd.wharfinger.value+json"

MODULES = (
    "wharfinger.answers.",
    "wharfinger.history.",
    "wharfinger.runtime.ledger.",
    "wharfinger.runtime.plane",
    "wharfinger.runtime.process_status",
    "wharfinger.kernel.round",
    "wharfinger.rules.changes",
    "wharfinger.stages.cluster.trace",
    "wharfinger.stages.fleet.",
    "wharfinger.engine.",
    "wharfinger.events.",
    "wharfinger.domain.",
)

_CLASS, _BYTES, _ID, _EVENT, _MAP, _SET = "$class", "$bytes", "$id", "$event", "$map", "$set"


class TypedError(ValueError):
    """The bytes are no value of this version."""


def encoded(value: object) -> bytes:
    return msgspec.json.encode(_plain(value))


def decoded(body: bytes) -> Any:
    """TypedError: these bytes are no value of this version."""
    try:
        return _value(msgspec.json.decode(body))
    except (
        msgspec.MsgspecError,
        ImportError,
        AttributeError,
        TypeError,
        ValueError,
        KeyError,
    ) as error:
        raise TypedError(
            f"expected a value as this version of wharfinger has it ({error})"
        ) from error


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case UUID():
            return {_ID: str(value)}
        case Event():
            return {_EVENT: base64.b64encode(value.body).decode()}
        case Mapping():
            return {_MAP: [[_plain(key), _plain(item)] for key, item in value.items()]}
        case frozenset():
            return {_SET: [_plain(item) for item in sorted(value)]}
        case tuple() if hasattr(value, "_fields"):
            return {_CLASS: _name(value), "items": [_plain(item) for item in value]}
        case list() | tuple():
            return [_plain(item) for item in value]
        case msgspec.Struct():
            return {_CLASS: _name(value), "value": msgspec.to_builtins(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {_CLASS: _name(value), "fields": fields}
    raise TypeError(f"{type(value).__name__} has no form")


def _name(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _value(found: Any) -> Any:
    match found:
        case list():
            return tuple(_value(item) for item in found)
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$id": str(text)}:
            return UUID(text)
        case {"$event": str(text)}:
            return decode(base64.b64decode(text))
        case {"$set": list(items)}:
            return frozenset(_value(item) for item in items)
        case {"$map": list(items)}:
            return {_value(key): _value(item) for key, item in items}
        case {"$class": str(name), "value": value}:
            return converted(value, _class(name, msgspec.Struct))
        case {"$class": str(name), "items": list(items)}:
            return _class(name, tuple)(*[_value(item) for item in items])
        case {"$class": str(name), "fields": dict(fields)}:
            make: Any = _class(name, object)
            if not dataclasses.is_dataclass(make):
                raise TypedError(f"{name[:80]} is not sent")
            return cast(Any, make)(**{str(key): _value(item) for key, item in fields.items()})
        case dict():
            raise TypedError("an object without a class")
        case _:
            return found


def _class(name: str, base: type) -> Any:
    module, _, qualified = name.partition(":")
    if not module.startswith(MODULES) or not qualified.isidentifier():
        raise TypedError(f"{name[:80]} is not sent")
    made = getattr(importlib.import_module(module), qualified)
    if not isinstance(made, type) or not issubclass(made, base):
        raise TypedError(f"{name[:80]} is not sent")
    return made
