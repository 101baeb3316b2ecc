"""Exponential back-off: how long something is left alone after it failed or was refused."""

from __future__ import annotations

_DOUBLINGS_MAX = 62
"""The delay stops doubling after this many attempts. By then it has long reached its maximum.
Without this bound, an outage of a year would compute an integer of a thousand digits."""


def backoff_s(attempts: int, initial_s: int, max_s: int) -> int:
    """Computes an exponential back-off with a maximum. Returns the seconds to wait after `attempts`
    failed attempts: 0 for no attempt, `initial_s` for one, then twice as long for each further
    attempt, up to `max_s`. Example with 10 and 360: 10, 20, 40, ..., 320, 360. [kube-scheduler]"""
    if attempts <= 0:
        return 0
    return min(initial_s << min(attempts - 1, _DOUBLINGS_MAX), max_s)
