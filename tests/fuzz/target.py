"""What a fuzz target is, and what every target asks of a line that a person may read.

A target takes bytes from outside to the code that reads them, and then asks more than that nothing
fails: its oracle raises `BrokenError` where a promise does not hold. Any other exception is one
that the reader was not to raise.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

Check = Callable[[bytes], str]
"""Takes one input through reader and oracle. Returns what came of it, such as the type of an event
or the kind of a refusal, without values of the input: the fuzzer counts a new one as coverage,
since it sees nothing of readers that are compiled."""

LINE_MAX = 1500
"""Characters of an error that names what it found."""


class BrokenError(AssertionError):
    """A promise does not hold for this input."""


@dataclass(frozen=True, slots=True)
class Target:
    """`reads`: what it takes in, in words. `opened`: everything that it needs, and then its check.
    `seeds`: inputs of the repository to begin with. `bytes_max`: of one input. `database`: it needs
    PostgreSQL."""

    name: str
    reads: str
    opened: Callable[[], AbstractContextManager[Check]]
    seeds: Callable[[], Iterator[bytes]]
    bytes_max: int = 8192
    database: bool = False


def holds(true: bool, what: str) -> None:
    """BrokenError: it does not. No `assert`: an optimised interpreter leaves those out."""
    if not true:
        raise BrokenError(what)


def steers(text: str) -> bool:
    """Whether there is a character in it that does something instead of being seen."""
    return any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text)


def one_line(text: str, most: int = LINE_MAX) -> None:
    """An error is a line of bounded length; as commands and dead letters show it, nothing in it
    steers a terminal."""
    from wharfinger.domain.text import escaped, printable  # not before it is instrumented

    holds(bool(text), "an error that says nothing")
    holds(len(text) <= most, f"an error of {len(text):,} characters: {text[:80]!r}")
    holds("\n" not in text and "\r" not in text, f"an error of several lines: {text[:200]!r}")
    holds(not steers(escaped(text)), "an escaped error steers a terminal")
    holds(not steers(printable(text)), "a printable error steers a terminal")


def kind_of(text: str) -> str:
    """The words of an error without what it quotes, so that errors of one cause are one kind."""
    head = text.partition("got")[0].partition(" - at ")[0]
    return "".join(c for c in head if c.isalpha() and c.isascii())[:60]
