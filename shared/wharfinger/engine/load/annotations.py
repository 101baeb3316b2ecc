"""Loads in node annotations, in crane's format: `0.65000,2026-03-01T12:00:00Z`, a fraction and the
time of measurement.

crane's annotator writes them and its scheduler reads them. The `Z` is a literal there, not a time
zone: the time is the writer's local time, so both have to agree on a zone. We write UTC. A reader's
zone is an argument, since zone data is read from the machine.

`parted` and `share_of` parse one annotation as crane does; `read` parses all annotations of a node
into the integers that placement uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction
from typing import Literal

from wharfinger.domain.node import Node
from wharfinger.engine.load.node_loads import HOT_VALUE, LOAD_MAX, WHOLE, LoadBook, Written
from wharfinger.engine.load.policy import METRIC
from wharfinger.engine.load.records import Micros

NANOS = 10**9
Nanos = int

HOT_MAX = 10**6

Fault = Literal["format", "expired-or-bad-timestamp", "float", "negative"]

_STAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?Z"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_DIGITS_MAX = 4300
"""Longer texts are not parsed as numbers."""


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A parsed annotation. `number`: the text of the value; `at_ns`: its time, in nanoseconds since
    1970 UTC."""

    number: str
    at_ns: Nanos


def parted(text: str, zone: tzinfo = UTC) -> WrittenValue | Fault:
    """Splits an annotation `<number>,<time>` and parses the time, which is written in `zone`.
    Returns both, or the first fault that is found."""
    if text.count(",") != 1:
        return "format"
    number, _, stamped = text.partition(",")
    at = stamp_ns(stamped, zone)
    return "expired-or-bad-timestamp" if at is None else WrittenValue(number, at)


def share_of(number: str) -> float | Fault:
    """Parses the number of an annotation, a fraction of the whole: 0.65 is 65 %. Returns it, or the
    fault. The result may be infinite or NaN."""
    share = go_float(number)
    if share is None:
        return "float"
    return "negative" if share < 0 else share


def stamp_ns(text: str, zone: tzinfo = UTC) -> Nanos | None:
    """Parses a time such as `2026-03-01T12:00:00Z`. Returns nanoseconds since 1970 in UTC; None if
    the text is not a valid time.

    The text is a local time in `zone`; the `Z` has no meaning. Digits after the ninth decimal place
    of a second are ignored. When daylight saving time begins or ends, some local times do not exist
    or exist twice. Then the offset of the zone is chosen as in Go's time package: look up the
    offset at the local time read as UTC, subtract this offset, and look up the offset again at the
    result. The second offset is used.

    Example: 12:00 in a zone with offset +1 hour is 11:00 in UTC.
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
    """Formats a time (nanoseconds since 1970 UTC) as local time in `zone`, without fractions of a
    second."""
    at_s = at_ns // NANOS
    moment = _EPOCH + timedelta(seconds=at_s + _offset_s(at_s, zone))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)


def _offset_s(at_s: int, zone: tzinfo) -> int:
    """Returns the zone's offset from UTC at a time, in seconds; positive east of Greenwich. Returns
    0 for years that Python's dates do not cover."""
    try:
        offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
    except OverflowError:
        return 0
    return 0 if offset is None else int(offset.total_seconds())


def go_float(text: str) -> float | None:
    """Parses a floating-point number with the syntax that Go accepts: decimal, hexadecimal with a
    binary exponent (`0x1p-2` is 0.25), `_` between digits, `Inf`, `NaN`; no spaces. Returns None if
    the text is invalid or the number is too large for a double."""
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
    """Returns whether every underscore in the text is where Go permits it: between two digits, or
    between a base prefix (`0x`, `0b`, `0o`) and a digit. Examples: `1_000` and `0x_1F` are valid;
    `_1`, `1__0` and `1_.5` are not."""
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
    """Parses the load annotations of one node. Returns the load of each metric and the hot value,
    each with the time of its measurement; None if no annotation is valid.

    An annotation is valid if its key is a metric name as Prometheus defines it and if its text is
    `number,time` with a finite number of 0 or more. The age is not checked here. Loads are rounded
    to 1/100,000 and limited to `LOAD_MAX`. Hot values are truncated to integers and limited to
    `HOT_MAX`. `zone`: time zone of the writer.

    Example: `cpu_usage_avg_5m` with `0.65000,2026-03-01T12:00:00Z` gives the load 65000.
    """
    loads: dict[str, tuple[int, Micros]] = {}
    hot: tuple[int, Micros] | None = None
    for key, text in sorted(annotations.items()):
        found = parted(text, zone) if METRIC.fullmatch(key) else "format"
        share = share_of(found.number) if isinstance(found, WrittenValue) else found
        if isinstance(found, str) or isinstance(share, str) or not math.isfinite(share):
            continue
        at_us = found.at_ns // 1000
        if key == HOT_VALUE:
            hot = (min(int(share), HOT_MAX), at_us)
        else:
            loads[key] = (min(round(Fraction(share) * WHOLE), LOAD_MAX), at_us)
    return Written(loads, hot) if loads or hot is not None else None


def written_of(node: Node) -> Written | None:
    """Returns the loads in the annotations of the node; None if there are none."""
    return read(node.measured) if node.measured else None


def written_load(load: int, at_us: Micros, zone: tzinfo = UTC) -> str:
    """Formats a load as an annotation. `load`: in 1/100,000 of the whole."""
    return f"{load // WHOLE}.{load % WHOLE:05d},{stamp(at_us * 1000, zone)}"


def written_hot(hot: int, at_us: Micros, zone: tzinfo = UTC) -> str:
    return f"{hot},{stamp(at_us * 1000, zone)}"


def annotated(
    book: LoadBook, nodes: Iterable[str], at_us: Micros, zone: tzinfo = UTC
) -> dict[str, dict[str, str]]:
    """Returns the load annotations that crane's annotator would write: node -> annotation key ->
    text.

    Each of `nodes` gets one annotation for the latest load of every metric that was measured on the
    node. Each node also gets its hot value at time `at_us` (microseconds since 1970), computed from
    the placements in this cluster. A metric without a measurement on the node is left out, not
    written as zero. `book`: the measured loads of the cluster. `zone`: time zone of the written
    times.

    Example for one node: `cpu_usage_avg_5m` -> `0.65000,2026-03-01T12:00:00Z` and `node_hot_value`
    -> `2,2026-03-01T12:00:00Z`.
    """
    found: dict[str, dict[str, str]] = {}
    for node in sorted(nodes):
        texts = {
            metric: written_load(told.loads[node], told.measured_at_us, zone)
            for metric, told in sorted(book.measured.items())
            if node in told.loads
        }
        found[node] = {
            **texts,
            HOT_VALUE: written_hot(book.hot_value(node, at_us, damped=True), at_us, zone),
        }
    return found
