"""Mutations that keep an input readable: of JSON one value is changed at a time, where changes of
bytes would break its brackets nearly always.

An input may be a head, an empty line and a body, and several of those behind each other; each JSON
text in it is found and changed where it stands. What has no JSON is left to the fuzzer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

Mutate = Callable[[bytes, int], bytes]
"""The fuzzer's own mutation of bytes, to at most so many."""

STRANGE: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 0.1, -0.0, 1e308, float("inf"), float("nan")),
    *(2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400),
    *("", " ", "a", "/", "a/b", "a/b/c", "..", "-", "*", "0", "-1", "1e9", "1e99Gi", "10m", "null"),
    *("a" * 64, "a" * 254, "a" * 600, "é", "漢", "\x00", "a\x00b", "\n", "a\nb", "\x1b[2J"),
    *("\x9b31m", "\u202e", "\u2028", "\ud800", "\U000e0001", "\U0001f469", "\x7f", "%00", "{}"),
    *("2026-11-21T05:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "2h", "1.0"),
    *([], {}, [[]], [None], {"": {}}, {"a": 1}, [1, 2]),
)


def mutated(data: bytes, most: int, seed: int, mutate: Mutate) -> bytes:
    """Another input of at most `most` bytes; the same arguments give the same one, as far as
    `mutate` does."""
    random = Random(seed)
    places = list(texts(data))
    if places and random.random() < 0.8:
        start, end = random.choice(places)
        value = json.loads(data[start:end])
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            value = changed(value, random, mutate)
        try:
            written = json.dumps(value, ensure_ascii=random.random() < 0.5)
        except (ValueError, RecursionError):
            return mutate(data, most)
        body = written.encode("utf-8", "surrogatepass")
        found = data[:start] + body + data[end:]
        if len(found) <= most:
            return found
    return mutate(data, most)


def texts(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each JSON text with a collection in it stands: behind the head, or the first byte."""
    begin = 0
    for part in data.split(b"\n--\n"):
        behind = part.find(b"\n\n") + 2
        start = min((i for i in (part.find(b"{"), part.find(b"[")) if i >= 0), default=-1)
        start = behind if behind >= 2 else start
        if 0 <= start < len(part):
            try:
                value = json.loads(part[start:])
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict | list) and value:
                yield begin + start, begin + len(part)
        begin += len(part) + 4


def changed(value: Any, random: Random, mutate: Mutate) -> Any:
    """`value` with one thing in it changed, in place where it is a collection."""
    holders = list(collections(value))
    if not holders:
        return deepcopy(random.choice(STRANGE))
    holder = random.choice(holders)
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = random.choice(keys)
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1:
            other = random.choice(holders)
            of_other = list(other.values()) if isinstance(other, dict) else list(other)
            if of_other:  # a copy: a value within itself is no JSON
                holder[key] = json.loads(json.dumps(random.choice(of_other)))
        case 2 if isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[key])))
        case 2:
            holder[str(random.choice(STRANGE))] = holder[key]
        case 3 | 4 if isinstance(holder[key], str):
            raw = holder[key].encode("utf-8", "surrogatepass")
            holder[key] = mutate(raw, len(raw) + 20).decode("utf-8", "replace")
        case 3 | 4 if type(holder[key]) is int:
            holder[key] += random.choice((-1, 1, 1000, -1000, 1 << 31, -holder[key]))
        case 5 if isinstance(holder[key], str):
            at = random.randint(0, len(holder[key]))
            piece = str(random.choice(STRANGE))
            holder[key] = holder[key][:at] + piece + holder[key][at:]
        case _:
            # a copy: it may be changed itself, and be put into itself
            holder[key] = deepcopy(random.choice(STRANGE))
    return value


def collections(value: Any) -> Iterator[Any]:
    """Every collection with something in it."""
    pending = [value]
    while pending:
        match pending.pop():
            case dict() as found if found:
                yield found
                pending += found.values()
            case list() as found if found:
                yield found
                pending += found
