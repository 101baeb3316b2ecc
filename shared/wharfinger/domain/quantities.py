"""Kubernetes quantities: `500m`, `1.5Gi`, `1e3` as exact integers, and back.

A quantity is held as whole nanos, the finest part Kubernetes keeps; what is finer is rounded away
from zero on reading, as there. Nothing passes through floating point. Amounts in the plane are then
taken as `milli` (cpu) or `units` (everything else), each rounded away from zero, so that a request
is never counted smaller than it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

NANOS = 10**9
LIMIT = 2**63 - 1
"""The largest amount the plane counts with; also where Kubernetes caps quantities with a binary
suffix."""

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]+))"
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

# Far above any real amount, and low enough that a hostile exponent costs nothing.
_TEXT_MAX = 128
_EXPONENT_MAX = 99


class QuantityError(ValueError):
    """Not a quantity; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """`nanos`: the value in units of 10^-9. `format`: the family of suffix it was written with."""

    nanos: int
    format: Format = "DecimalSI"

    @property
    def milli(self) -> int:
        return _away_from_zero(self.nanos, 10**6)

    @property
    def units(self) -> int:
        return _away_from_zero(self.nanos, NANOS)

    @property
    def canonical(self) -> str:
        """The text Kubernetes prints: the largest suffix that leaves an integer."""
        # A small binary amount would lose its fraction, so it is written with decimal suffixes.
        if self.format == "BinarySI" and abs(self.nanos) >= 1024 * NANOS:
            return _with_binary_suffix(self.units)
        return _with_decimal_suffix(self.nanos, exponents=self.format == "DecimalExponent")


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Reads a quantity exactly. Raises QuantityError."""
    match = _TEXT.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(f"expected a quantity such as 500m, 2 or 1.5Gi, got {text[:40]!r}")
    whole, part = match["whole"], match["part"] or ""
    digits, scale = int(whole + part), -len(part)
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _EXPONENT_MAX:
            raise QuantityError(
                f"expected a quantity with an exponent up to {_EXPONENT_MAX}, got {text[:40]!r}"
            )
        format_: Format = "DecimalExponent"
        nanos = _scaled(digits, scale + exponent + 9)
    elif match["binary"]:
        nanos = min(_scaled(digits << (10 * _BINARY[match["binary"]]), scale + 9), LIMIT * NANOS)
        # A part of one unit has no binary suffix that could name it.
        format_ = "DecimalSI" if 0 < nanos < NANOS else "BinarySI"
    else:
        format_ = "DecimalSI"
        nanos = _scaled(digits, scale + _DECIMAL[match["decimal"] or ""] + 9)
    return Quantity(-nanos if match["sign"] == "-" else nanos, format_)


def parse_milli(text: str) -> int:
    """Thousandths, rounded away from zero (cpu). Raises QuantityError, also beyond 63 bits."""
    return _within_limit(parse_quantity(text).milli, text)


def parse_units(text: str) -> int:
    """Whole units, rounded away from zero (bytes, counts). Raises QuantityError, also beyond 63
    bits."""
    return _within_limit(parse_quantity(text).units, text)


def format_milli(milli: int) -> str:
    """The canonical text of thousandths: 1500 is `1500m`, 2000 is `2`."""
    return Quantity(milli * 10**6).canonical


def format_units(units: int, format: Format = "DecimalSI") -> str:
    """The canonical text of whole units: 2^30 is `1Gi` as BinarySI."""
    return Quantity(units * NANOS, format).canonical


def _within_limit(amount: int, text: str) -> int:
    if abs(amount) > LIMIT:
        raise QuantityError(f"expected a quantity below 2^63, got {text[:40]!r}")
    return amount


def _scaled(digits: int, power: int) -> int:
    """digits * 10^power, rounded up to a whole number; `digits` is not negative."""
    return digits * 10**power if power >= 0 else _away_from_zero(digits, 10**-power)


def _away_from_zero(amount: int, divisor: int) -> int:
    quotient = -(-abs(amount) // divisor)
    return -quotient if amount < 0 else quotient


def _with_binary_suffix(units: int) -> str:
    power = 0
    while power < 6 and units and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _with_decimal_suffix(nanos: int, exponents: bool) -> str:
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    suffix = None if exponents else _DECIMAL_SUFFIX.get(exponent)
    if suffix is None:
        suffix = f"e{exponent}" if exponent else ""
    return f"{nanos}{suffix}"
