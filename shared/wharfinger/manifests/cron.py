"""Cron schedules as Karpenter's budgets write them: five fields or a name such as `@daily`, in UTC.

Checked here, so that a slip of the pen is told with its line instead of closing a budget for good. What is handed on has five
fields that everybody reads alike: `?` is `*`; of the two kinds of days a `*/2` is its list of days, since there programs
disagree on whether it still counts as every day; and a span of one number is that number, for some take `0-0/1` for `0/1`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.manifests.model import ExpectedError

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
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
        if not (text.isascii() and text.isdigit() and len(text) <= 2 and self.low <= int(text) <= self.high):
            raise ExpectedError(f"a cron schedule whose {self.what} lies from {self.low} to {self.high}")
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
    if text in NAMED:
        return NAMED[text]
    fields = text.split()
    if len(fields) != len(FIELDS) or len(text) > LENGTH_MAX:
        raise ExpectedError("a cron schedule of five fields such as '0 9 * * mon-fri', or @daily and the like")
    return " ".join(_plain(i, field) for i, field in enumerate(fields))


def _plain(i: int, text: str) -> str:
    parts = [_part(FIELDS[i], part) for part in text.split(",")]
    if any(every for _, every in parts):
        return "*"
    one = any(len(numbers) == 1 and "-" in part for part, (numbers, _) in zip(text.split(","), parts, strict=True))
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
        raise ExpectedError(f"a cron schedule whose {field.what} runs from a smaller number to a larger one")
    if slash and not (step.isascii() and step.isdigit() and len(step) <= 2 and int(step) > 0):
        raise ExpectedError(f"a cron schedule whose {field.what} goes in steps of a number above 0")
    every = int(step) if slash else 1
    return range(first, last + 1, every), span in ("*", "?") and every == 1
