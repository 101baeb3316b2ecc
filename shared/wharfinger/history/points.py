"""A place in history, as people name it: a round of a stream, a round, a time, an age, or now.

Streams number their rounds each for itself. A point that names a round of one stream means, for
every other stream, where that one stood at the same moment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NOW = "now"


class PointError(LedgerError):
    """What was said names no place in this history: one line that says what was expected."""


class UnknownPointError(PointError):
    """It would be one, but there is no such stream or round."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Exactly one of `round` and `at` is set; both None: now. `stream`: whose round, empty where
    the context says it."""

    text: str
    stream: str = ""
    round: int | None = None
    at: Micros | None = None


def point_of(text: str, now: Micros) -> HistoryPoint:
    """`fleet/0:12`, `12`, `2026-11-21T05:00:00Z`, `10m`, or `now`. PointError: none of these."""
    if text == NOW:
        return HistoryPoint(text)
    if text.isascii() and text.isdecimal():
        return HistoryPoint(text, round=int(text))
    stream, colon, number = text.rpartition(":")
    if colon and "/" in stream and number.isascii() and number.isdecimal():
        return HistoryPoint(text, stream, int(number))
    at = time_in(text, now)
    if at is None:
        raise PointError(
            "expected a round such as fleet/0:12, a time such as 2026-11-21T05:00:00Z, "
            f"an age such as 10m, or now; got {text!r}"
        )
    return HistoryPoint(text, at=at)


def time_in(text: str, now: Micros) -> Micros | None:
    """`2026-11-21T05:00:00Z`, or an age as `90s`, `10m`, `2h`, `1d`; None: it is neither. Without a
    zone UTC is meant."""
    if (age := span_s(text)) is not None:
        return now - age * 1_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def span_s(text: str) -> int | None:
    """The seconds of a span such as `90s`, `10m`, `2h` or `1d`; None: it is none."""
    span = re.fullmatch(r"(\d{1,9})([smhd])", text)
    return None if span is None else int(span[1]) * UNITS_S[span[2]]


async def moment_of(ledger: Ledger, point: HistoryPoint) -> Micros | None:
    """When that was; None: now. PointError: no such stream or round."""
    if point.round is None:
        return point.at
    if not point.stream:
        raise PointError(
            f"expected the stream of round {point.text} too, such as fleet/0:{point.text}"
        )
    await _require(ledger, point.stream, point.round)
    return (await ledger.head_at(point.stream, point.round)).at


async def round_of(ledger: Ledger, stream: str, point: HistoryPoint) -> int:
    """The last round of `stream` that had taken place then; 0: none. PointError: no such stream or
    round."""
    if point.round is not None and point.stream in ("", stream):
        await _require(ledger, stream, point.round)
        return point.round
    at = await moment_of(ledger, point)
    if at is None:
        return (await _head(ledger, stream)).round
    return await ledger.round_at(stream, at)


async def _require(ledger: Ledger, stream: str, number: int) -> None:
    head = await _head(ledger, stream)
    if number > head.round:
        raise UnknownPointError(
            f"{stream}: there is no round {number}; the last one is {head.round}"
        )


async def _head(ledger: Ledger, stream: str) -> Head:
    for head in await ledger.heads(stream):
        if head.stream == stream:
            return head
    raise UnknownPointError(f"unknown stream {stream}")
