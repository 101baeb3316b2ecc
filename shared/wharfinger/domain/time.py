"""Moments, as the streams count them, and how those in a saved state are moved when a stream's time
was wrong.

`Micros` marks what a stream's own clock has stamped, or will: the times of rounds, and what is due
after a duration from there. A time that a fact says of itself (a pod's creation) is a plain `int`:
another clock made it, and it is never moved.

A wrong clock is known by a time `since`: every moment that the stream noted before is earlier,
every moment that it noted under the wrong clock is not. So `moved` changes what is not earlier than
`since`, and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

_MOMENT = "a moment of a stream's time"

Micros: TypeAlias = Annotated[int, _MOMENT]
"""Microseconds since the epoch, UTC. A round's `at` is the only clock a decision sees."""

SECOND: Micros = 1_000_000


def moved(value: Any, kind: Any, since: Micros, by: int) -> Any:
    """`value`, of the type `kind`, with `by` microseconds added to each moment in it that is not
    earlier than `since`."""
    if not _has_moments(kind):
        return value
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        if _MOMENT in parts[1:]:
            return value + by if value >= since else value
        return moved(value, parts[0], since, by)
    if origin in (Union, UnionType):
        found = next((part for part in parts if isinstance(value, _class_of(part))), NoneType)
        return moved(value, found, since, by)
    if origin in (dict, Mapping):
        return {key: moved(item, parts[1], since, by) for key, item in value.items()}
    if origin is list or parts[1:] == (...,):
        return origin([moved(item, parts[0], since, by) for item in value])
    if origin is tuple:
        return tuple(
            [moved(item, part, since, by) for item, part in zip(value, parts, strict=True)]
        )
    fields = {
        name: moved(getattr(value, name), hint, since, by)
        for name, hint in _moving_fields(kind).items()
    }
    return msgspec.structs.replace(value, **fields)


@cache
def _has_moments(kind: Any) -> bool:
    """Whether a value of this type can have a moment in it, at any depth. Types may be
    recursive."""
    seen: set[Any] = set()
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if get_origin(one) is Annotated and _MOMENT in get_args(one)[1:]:
            return True
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            waiting += get_type_hints(one, include_extras=True).values()
        elif get_origin(one) is not Literal:
            waiting += [part for part in get_args(one) if part is not ...]
    return False


@cache
def _moving_fields(kind: Any) -> dict[str, Any]:
    return {
        name: hint
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if _has_moments(hint)
    }


def _class_of(kind: Any) -> type:
    origin = get_origin(kind)
    found = _class_of(get_args(kind)[0]) if origin is Annotated else origin or kind
    assert isinstance(found, type)
    return found
