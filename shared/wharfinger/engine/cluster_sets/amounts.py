"""Converts quantities to the IEEE doubles from which resource scores are calculated.

The value is the quantity's digits as an integer times a power of ten, both as Kubernetes stores
them, multiplied in double precision: `1500m` is 1500 * 0.001, which is not always the double
nearest to 1.5. Scores have to equal OCM's exactly, so this is reproduced to the bit.
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
"""Decimal places that are kept (nanos). Finer digits are rounded away from zero."""
_LARGEST_BINARY = 2**63 - 1


@lru_cache(maxsize=16384)
def approximate(text: str) -> float | None:
    """Converts a Kubernetes quantity (an amount as text, such as `1500m` or `2Gi`) to a double,
    rounded as Kubernetes does. Returns None if `text` is not a quantity, is longer than 128
    characters, or has a decimal exponent below -99 or above 99.

    Digits finer than nanos (10**-9) are rounded away from zero. With a binary suffix (Ki to Ei), an
    amount above 2**63 - 1 becomes 2**63 - 1. All digits without the point form an integer. The
    result is this integer times a power of ten, multiplied in double precision.

    Example: `1500m` gives 1500 * 0.001 = 1.5. `2Ki` gives 2048.0.
    """
    match = _TEXT.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if match is None or not (match["whole"] or match["part"]):
        return None
    part = match["part"] or ""
    digits, decimals = int((match["whole"] + part) or "0"), len(part)
    if match["binary"]:
        digits <<= _BINARY[match["binary"]]
    else:
        exponent = (
            int(match["exponent"])
            if match["exponent"] is not None
            else _DECIMAL[match["decimal"] or ""]
        )
        if abs(exponent) > _EXPONENT_MAX:
            return None
        decimals -= exponent
    if decimals > _SCALE_LEAST:
        digits, decimals = -(-digits // 10 ** (decimals - _SCALE_LEAST)), _SCALE_LEAST
    if match["binary"] and digits > _LARGEST_BINARY * 10 ** max(decimals, 0):
        digits, decimals = _LARGEST_BINARY, 0
    value = float(digits) if decimals == 0 else float(digits) * float(f"1e{-decimals}")
    return -value if match["sign"] == "-" else value
