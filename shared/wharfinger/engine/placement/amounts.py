"""Quantities as the doubles that resource scores are calculated from.

The number is the quantity's digits as an integer times a power of ten, both as Kubernetes keeps them, multiplied in double
precision: `1500m` is 1500 times 0.001, which is not always the double nearest to the quantity. Scores are compared with what the
other system gives, so this is kept to the bit.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]+))"
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TEXT_MAX = 128
_EXPONENT_MAX = 99
_SCALE_LEAST = 9
"""Decimals that are kept: nanos. What is finer is rounded away from zero."""
_LARGEST_BINARY = 2**63 - 1


@lru_cache(maxsize=16384)
def approximate(text: str) -> float | None:
    """The quantity in units, None where it is none."""
    match = _TEXT.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if match is None or not (match["whole"] or match["part"]):
        return None
    part = match["part"] or ""
    digits, decimals = int((match["whole"] + part) or "0"), len(part)
    if match["binary"]:
        digits <<= _BINARY[match["binary"]]
    else:
        exponent = int(match["exponent"]) if match["exponent"] is not None else _DECIMAL[match["decimal"] or ""]
        if abs(exponent) > _EXPONENT_MAX:
            return None
        decimals -= exponent
    if decimals > _SCALE_LEAST:
        digits, decimals = -(-digits // 10 ** (decimals - _SCALE_LEAST)), _SCALE_LEAST
    if match["binary"] and digits > _LARGEST_BINARY * 10 ** max(decimals, 0):
        digits, decimals = _LARGEST_BINARY, 0
    value = float(digits) if decimals == 0 else float(digits) * float(f"1e{-decimals}")
    return -value if match["sign"] == "-" else value
