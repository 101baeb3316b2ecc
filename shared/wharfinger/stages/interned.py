"""What is made of values, once for all that are equal.

A stream has many bindings of few policies and classes. Each request comes with its own copy of
placement and requirements; states keep one of each and let the others go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import intern
from typing import Generic, TypeVar

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import ObjectRef, Requirements

T = TypeVar("T", bound=Value)
V = TypeVar("V")

KEPT_MAX = 4096
"""All are forgotten when so many are kept."""


class Interned(Generic[T, V]):
    """`make`: called with a value and its canonical bytes; what it returns is what all equal values
    get. Values are equal where their canonical bytes are. `given`: `make` is called with these
    before it is with others that equal them."""

    __slots__ = ("_given", "_kept", "_latest", "_make")

    def __init__(self, make: Callable[[T, bytes], V], given: Iterable[T] = ()) -> None:
        self._make = make
        self._given = {key: make(value, key) for value in given for key in [canonical(value)]}
        self._kept = self._given.copy()
        self._latest: tuple[T, V] | None = None

    def of(self, value: T) -> V:
        latest = self._latest
        if latest is None or not (latest[0] is value or latest[0] == value):
            latest = self._latest = value, self._found(value)
        return latest[1]

    def _found(self, value: T) -> V:
        key = canonical(value)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept = self._given.copy()
            found = self._kept[key] = self._make(value, key)
        return found

    def copy(self) -> Interned[T, V]:
        other = Interned(self._make)
        other._given, other._kept, other._latest = self._given, self._kept.copy(), self._latest
        return other


class InternedJson(Generic[V]):
    """What is made of JSON, once for all that is written alike: of values that come again and
    again, only the first is decoded. `make`: called with the JSON, which is empty where the field
    was left out."""

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[bytes], V]) -> None:
        self._make = make
        self._kept: dict[bytes, V] = {}

    def of(self, raw: msgspec.Raw) -> V:
        key = bytes(raw)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[key] = self._make(key)
        return found


def itself(value: T, _: bytes) -> T:
    """As `make`: the first of equal values is what all of them get."""
    return value


def sharing(spec: Binding, placement: Placement, requirements: Requirements) -> Binding:
    """Return the request with these parts, which are equal to its own and shared with others. The
    words that many workloads have in common are shared too."""
    if spec.placement is placement and spec.requirements is requirements:
        return spec
    return msgspec.structs.replace(
        spec,
        resource=with_shared_words(spec.resource),
        placement=placement,
        requirements=requirements,
    )


def with_shared_words(of: ObjectRef) -> ObjectRef:
    return ObjectRef(intern(of.api_version), intern(of.kind), of.name, intern(of.namespace))
