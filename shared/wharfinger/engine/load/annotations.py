"""Loads as they are written on nodes: `0.65000,2026-03-01T12:00:00Z`, a share of the whole and when it was measured.

crane's annotator writes them and its scheduler reads them. The `Z` is a letter there and no zone: the time is local
time of whoever wrote it, so reader and writer have to agree on a zone. We write UTC; a reader's zone is an argument
here, since what a zone's clock shows is looked up in data of the machine.

`usage` reads one the way crane does, with the number left a float as it stands there; `read` takes all that a node
carries into the whole numbers that placing goes by."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction
from typing import Literal

from wharfinger.domain.node import Node
from wharfinger.engine.load.book import HOT_VALUE, LOAD_MAX, WHOLE, LoadBook, Written
from wharfinger.engine.load.policy import METRIC
from wharfinger.engine.load.records import Micros

NANOS = 10**9
Nanos = int

HOT_MAX = 10**6

Fault = Literal["format", "expired-or-bad-timestamp", "float", "negative"]

_STAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?Z")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_DIGITS_MAX = 4300
"""Of an exponent or number: what is longer is no measurement."""


@dataclass(frozen=True, slots=True)
class Usage:
    """`share`: of the whole, 0.65 for 65 %; may be infinite, or NaN."""

    share: float


def usage(text: str, active_ns: Nanos, now_ns: Nanos, zone: tzinfo = UTC) -> Usage | Fault:
    """What an annotation says now, or the first reason why it says nothing. It counts strictly before its time + `active_ns`; a
    time that is still to come counts. (crane-scheduler's reader.)"""
    if text.count(",") != 1:
        return "format"
    number, _, stamped = text.partition(",")
    at = stamp_ns(stamped, zone)
    if at is None or not now_ns < at + active_ns:
        return "expired-or-bad-timestamp"
    share = go_float(number)
    if share is None:
        return "float"
    return "negative" if share < 0 else Usage(share)


def stamp_ns(text: str, zone: tzinfo = UTC) -> Nanos | None:
    """Nanoseconds since 1970 of a stamp whose wall clock is that of `zone`; None: it is none.

    A time that the zone's clock skipped or showed twice is read as Go's time package does: with the offset that holds when
    the wall clock is first taken with the offset it would have if it were UTC.
    """
    found = _STAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = (date(year, month, day) - _EPOCH_DAY).days
    except ValueError:
        return None
    wall = days * 86_400 + hour * 3600 + minute * 60 + second
    utc = wall - _offset_s(wall - _offset_s(wall, zone), zone)
    return utc * NANOS + int((found[7] or "")[:9].ljust(9, "0"))


def stamp(at_ns: Nanos, zone: tzinfo = UTC) -> str:
    """The stamp of a moment, a part of a second cut off."""
    at_s = at_ns // NANOS
    moment = _EPOCH + timedelta(seconds=at_s + _offset_s(at_s, zone))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)


def _offset_s(at_s: int, zone: tzinfo) -> int:
    """How far the zone's clock is ahead of UTC then; 0 beyond the years that it can be asked about."""
    try:
        offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
    except OverflowError:
        return 0
    return 0 if offset is None else int(offset.total_seconds())


def go_float(text: str) -> float | None:
    """A number as Go reads it: decimal, hexadecimal with a binary exponent, `_` between digits, `Inf`, `NaN`; no blanks. None:
    it is none, or too large for a double."""
    if len(text) > _DIGITS_MAX:
        return None
    if _INFINITE.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    if text.lower() == "nan":
        return math.nan
    if "_" in text:
        if not _underscores_part_digits(text):
            return None
        text = text.replace("_", "")
    try:
        if _HEX.fullmatch(text):
            return float.fromhex(text)
        if _DECIMAL.fullmatch(text):
            value = float(text)
            return value if math.isfinite(value) else None
    except OverflowError:
        return None
    return None


def _underscores_part_digits(text: str) -> bool:
    """Each stands between two digits, or between `0x` and a digit."""
    bare = text[1:] if text[:1] in ("+", "-") else text
    digits = "0123456789"
    before = "^"
    if bare[:2].lower() in ("0b", "0o", "0x"):
        digits = "0123456789abcdefABCDEF" if bare[1] in "xX" else digits
        bare, before = bare[2:], "0"
    for sign in bare:
        if sign in digits:
            before = "0"
        elif sign == "_":
            if before != "0":
                return False
            before = "_"
        elif before == "_":
            return False
        else:
            before = "!"
    return before != "_"


# Whole numbers, in and out.


def read(annotations: Mapping[str, str], zone: tzinfo = UTC) -> Written | None:
    """What the annotations of a node say of its load; None: nothing. A value counts here when its key can be a
    metric's name and it reads as crane would read it, whatever its age; NaN and infinity are no measurements.
    `zone`: the writer's."""
    loads: dict[str, tuple[int, Micros]] = {}
    hot: tuple[int, Micros] | None = None
    for key, text in sorted(annotations.items()):
        number, comma, stamped = text.partition(",")
        at = stamp_ns(stamped, zone) if comma and METRIC.fullmatch(key) else None
        share = go_float(number) if at is not None else None
        if at is None or share is None or not math.isfinite(share) or share < 0:
            continue
        at_us = at // 1000
        if key == HOT_VALUE:
            hot = (min(int(share), HOT_MAX), at_us)
        else:
            loads[key] = (min(round(Fraction(share) * WHOLE), LOAD_MAX), at_us)
    return Written(loads, hot) if loads or hot is not None else None


def written_of(node: Node) -> Written | None:
    """What the node says of its own load."""
    return read(node.measured) if node.measured else None


def written_load(load: int, at_us: Micros, zone: tzinfo = UTC) -> str:
    """`load` in hundred-thousandths."""
    return f"{load // WHOLE}.{load % WHOLE:05d},{stamp(at_us * 1000, zone)}"


def written_hot(hot: int, at_us: Micros, zone: tzinfo = UTC) -> str:
    return f"{hot},{stamp(at_us * 1000, zone)}"


def annotated(book: LoadBook, nodes: Iterable[str], at_us: Micros, zone: tzinfo = UTC) -> dict[str, dict[str, str]]:
    """What crane's annotator would have written on each of `nodes`: the latest of each metric that was measured, and
    the hot value at `at_us`, as the cluster's own placements make it. A metric that a node was not measured by is
    left out: nothing is written as if it were zero."""
    found: dict[str, dict[str, str]] = {}
    for node in sorted(nodes):
        texts = {
            metric: written_load(told.loads[node], told.measured_at_us, zone)
            for metric, told in sorted(book.measured.items())
            if node in told.loads
        }
        found[node] = {**texts, HOT_VALUE: written_hot(book.hot_value(node, at_us, damped=True), at_us, zone)}
    return found


def patches(wanted: Mapping[str, str], has: Iterable[str]) -> tuple[dict[str, str], ...]:
    """JSON patches that put annotations on a node which has the keys `has`. (On a node without any annotation the API server
    takes none of them: nothing can be added below what is not there.)"""
    there = frozenset(has)
    return tuple(
        {"op": "replace" if key in there else "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}
        for key, value in wanted.items()
    )


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
