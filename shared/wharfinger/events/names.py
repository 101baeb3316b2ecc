"""Names in events that come from outside, checked as Kubernetes checks them.

Names become keys, subjects and streams. A cluster named `a/b` would make a stream of its own that
stays, and a name with control characters would reach terminals. Names by which things are found
(`domain.ids.Bounded`), and those of the event itself, are checked where an event enters. They are
not where history is read: what was recorded stays readable.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from wharfinger.domain.ids import Meaning
from wharfinger.domain.text import printable
from wharfinger.domain.value import Value
from wharfinger.events.streams import CLUSTER, FLEET

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
SHOWN_MAX = 80

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_SEGMENT = re.compile(r"(?!\.{1,2}$)[!-~]+")
"""Kubernetes' own rule for any name is that it may stand in a path; names of roles have colons and
capitals."""
_SHARD = re.compile(r"0|[1-9][0-9]{0,5}")

Check = Callable[[str], str]
"""What was expected instead, "" where the name is one."""


def _is(pattern: re.Pattern[str], most: int, expected: str) -> Check:
    def check(name: str) -> str:
        return "" if len(name) <= most and pattern.fullmatch(name) else expected

    return check


wrong_namespace = _is(
    _LABEL,
    LABEL_MAX,
    "a namespace: at most 63 of a-z, 0-9 and -, with a letter or digit at its ends",
)
_subdomain = _is(
    _SUBDOMAIN,
    SUBDOMAIN_MAX,
    "a DNS subdomain: at most 253 of a-z, 0-9, - and ., with a letter or digit at its ends",
)


def _binding(name: str) -> str:
    namespace, slash, own = name.rpartition("/")
    if slash and wrong_namespace(namespace):
        return "namespace/name, with a namespace of at most 63 of a-z, 0-9 and -"
    if len(own) > SUBDOMAIN_MAX or "%" in own or not _SEGMENT.fullmatch(own):
        return "namespace/name, with a name of at most 253 characters that may stand in a path"
    return ""


def _stream(name: str) -> str:
    if name.startswith(CLUSTER):
        return _subdomain(name.removeprefix(CLUSTER))
    if name.startswith(FLEET) and _SHARD.fullmatch(name.removeprefix(FLEET)):
        return ""
    return "a stream: fleet/<number> or cluster/<name>"


_CHECKS: dict[Meaning, Check] = {
    Meaning.CLUSTER: _subdomain,
    Meaning.NODE: _subdomain,
    Meaning.NAMESPACE: wrong_namespace,
    Meaning.BINDING: _binding,
    Meaning.STREAM: _stream,
}

MAY_BE_EMPTY = (Meaning.NODE, Meaning.NAMESPACE)
"""Pods may be on no node, objects in no namespace."""

SEEN_MAX = 100_000
_seen: dict[Meaning, set[str]] = {meaning: set() for meaning in _CHECKS}
"""Names that were found right lately, by meaning: `SEEN_MAX` of each at most."""


def wrong_name(data: Value) -> str:
    """The first name in the event that is none, as one line: the field, the name, what was
    expected. "" where all are names."""
    if _all_right(data, True):
        return ""
    for path, meaning, required, name in _names(data, "", True):
        if (name or required) and (expected := _CHECKS[meaning](name)):
            return f"{path}: expected {expected}, got {printable(name, SHOWN_MAX)!r}"
    raise AssertionError("one of the names is wrong")


def _all_right(data: Value, whole: bool) -> bool:
    """Whether every name in the event is one. This is the fast way, without the paths that an error
    would name: most names were found right lately."""
    for field, meaning, seen, required in _fields(type(data), whole):
        value: Any = getattr(data, field)
        if meaning is not None and seen is not None:
            if value not in seen and (value or required):
                if _CHECKS[meaning](value):
                    return False
                if len(seen) >= SEEN_MAX:
                    seen.clear()
                seen.add(value)
        elif isinstance(value, Value):
            if not _all_right(value, False):
                return False
        elif isinstance(value, tuple):
            for item in value:
                if not _all_right(item, False):
                    return False
    return True


def _names(data: Value, path: str, whole: bool) -> Iterator[tuple[str, Meaning, bool, str]]:
    for field, meaning, _, required in _fields(type(data), whole):
        value: Any = getattr(data, field)
        where = f"{path}.{field}" if path else field
        if meaning is not None:
            yield where, meaning, required, value
        elif isinstance(value, Value):
            yield from _names(value, where, False)
        elif isinstance(value, tuple):
            for number, item in enumerate(value):
                yield from _names(item, f"{where}[{number}]", False)


_Field = tuple[str, Meaning | None, set[str] | None, bool]
"""Name of a field, what names it has, those found right lately, whether it is required. None twice:
it holds values with such fields."""


@cache
def _fields(cls: type[Value], whole: bool) -> tuple[_Field, ...]:
    """The fields that are such names, or hold values that have some. `whole`: it is the class of an
    event's data."""
    hints = get_type_hints(cls, include_extras=True)
    found: list[_Field] = []
    for field in msgspec.structs.fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            marks = get_args(hint)[1:]
            meaning = next((mark for mark in marks if isinstance(mark, Meaning)), None)
            if meaning in _CHECKS and (
                whole or any(isinstance(mark, msgspec.Meta) for mark in marks)
            ):
                required = field.required and meaning not in MAY_BE_EMPTY
                found.append((field.name, meaning, _seen[meaning], required))
        elif (held := _held(hint)) is not None and held is not cls and _fields(held, False):
            found.append((field.name, None, None, False))
    return tuple(found)


def _held(hint: Any) -> type[Value] | None:
    """The class of a field that is a value, may be one, or is a tuple of them."""
    candidates = get_args(hint) if get_origin(hint) in (tuple, types.UnionType) else (hint,)
    classes = [c for c in candidates if isinstance(c, type) and issubclass(c, Value)]
    others = [c for c in candidates if c not in (*classes, types.NoneType, ...)]
    return classes[0] if len(classes) == 1 and not others else None
