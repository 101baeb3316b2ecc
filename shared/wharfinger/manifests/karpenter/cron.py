"""Cron schedules as Karpenter's budgets write them: five fields or a name such as `@daily`, in UTC.

Checked here, so that a typing error is reported with its line instead of closing a budget for ever.
The result has five fields that every cron program reads alike. `?` becomes `*`. In the two day
fields `*/2` becomes its list of days, because programs disagree on whether it counts as every day.
A range of one number becomes that number, because some programs read `0-0/1` as `0/1`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.node_pool import CRON_NAMES
from wharfinger.manifests.model import ExpectedError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LENGTH_MAX = 256


@dataclass(frozen=True, slots=True)
class _Field:
    """`names`: words for the numbers from `low` on."""

    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        if text.lower() in self.names:
            return self.low + self.names.index(text.lower())
        if not (
            text.isascii()
            and text.isdigit()
            and len(text) <= 2
            and self.low <= int(text) <= self.high
        ):
            raise ExpectedError(
                f"a cron schedule whose {self.what} lies from {self.low} to {self.high}"
            )
        return int(text)


FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 6, DAYS),
)
_OF_DAYS = (2, 4)


def schedule(text: str) -> str:
    """The five fields. Raises ExpectedError."""
    if text in CRON_NAMES:
        return CRON_NAMES[text]
    fields = text.split()
    if len(fields) != len(FIELDS) or len(text) > LENGTH_MAX:
        raise ExpectedError(
            "a cron schedule of five fields such as '0 9 * * mon-fri', or @daily and the like"
        )
    return " ".join(_plain(i, field) for i, field in enumerate(fields))


def _plain(i: int, text: str) -> str:
    parts = [_part(FIELDS[i], part) for part in text.split(",")]
    if any(every for _, every in parts):
        return "*"
    one = any(
        len(numbers) == 1 and "-" in part
        for part, (numbers, _) in zip(text.split(","), parts, strict=True)
    )
    if one or (i in _OF_DAYS and ("*" in text or "?" in text)):
        return ",".join(str(n) for n in sorted({n for numbers, _ in parts for n in numbers}))
    return text.replace("?", "*")


def _part(field: _Field, text: str) -> tuple[range, bool]:
    """What a part of a list names, and whether that is everything."""
    span, slash, step = text.partition("/")
    low, dash, high = span.partition("-")
    if span in ("*", "?"):
        first, last = field.low, field.high
    else:
        first = field.number(low)
        last = field.number(high) if dash else field.high if slash else first
    if last < first:
        raise ExpectedError(
            f"a cron schedule whose {field.what} runs from a smaller number to a larger one"
        )
    if slash and not (step.isascii() and step.isdigit() and len(step) <= 2 and int(step) > 0):
        raise ExpectedError(f"a cron schedule whose {field.what} goes in steps of a number above 0")
    every = int(step) if slash else 1
    return range(first, last + 1, every), span in ("*", "?") and every == 1
