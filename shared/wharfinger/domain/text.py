"""Numbers, prices, lists and times as text for people: the same in every table, page and
message."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

SHOWN_MAX = 4

PRINTED_MAX = 2000
"""Characters of one text from outside that are printed."""


def printable(text: str, most: int = PRINTED_MAX) -> str:
    """Text from outside on one line: control characters, line breaks, and the invisible characters
    that change the direction of text appear as escapes (`\\x1b`, `\\n`, `\\u202e`). Longer text is
    cut after `most` characters, which is said.

    A backslash stays as it is, so that ordinary text is unchanged.
    """
    if len(text) > most:
        text = f"{text[:most]}... ({len(text):,} characters)"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def escaped(text: str, *, lines: bool = False) -> str:
    """Text with nothing in it that steers a terminal or misleads who reads it. What is not
    printable appears as JSON would escape it (`\\u001b`, `\\u202e`, `\\n`), so that JSON still says
    the same. `lines`: line breaks stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    if character == "\n":
        return "\\n"
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 round`, `2 rounds`, `8,152 rounds`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some(parts: Iterable[str]) -> str:
    """The first few parts and the number of the others: `a, b, c, d and 3 more`."""
    whole = list(parts)
    more = f" and {len(whole) - SHOWN_MAX} more" if len(whole) > SHOWN_MAX else ""
    return ", ".join(whole[:SHOWN_MAX]) + more


def as_clock(micros: int) -> str:
    """For a table: date and time of day to the second, UTC."""
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_time(micros: int) -> str:
    """RFC 3339 in UTC with microseconds, as the ledger keeps them."""
    return (
        datetime.fromtimestamp(micros / 1_000_000, UTC)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )


PRICE_UNIT = 1_000_000_000
"""One dollar an hour, in the integers that prices are."""


def dollars(price: int) -> str:
    """A price in words, exactly: `0.192 $/h`."""
    whole, rest = divmod(abs(price), PRICE_UNIT)
    part = f"{rest:09d}".rstrip("0")
    sign = "-" if price < 0 else ""
    return f"{sign}{whole}.{part} $/h" if part else f"{sign}{whole} $/h"


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks; the name of its class where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
