"""Checks which taints of a cluster a placement tolerates, and until when.

A fleet has few distinct sets of taints, so a verdict is computed once per set and cached until time
changes it. The effects: NoSelect excludes all clusters, NoSelectIfNew excludes clusters that are
not selected yet, PreferNoSelect excludes none (see `TaintVerdict.disliked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster import ManagedTaint
from wharfinger.domain.selection import ClusterToleration

NEVER_NS = 2**80
_LONG_AGO_NS = -62_135_596_800 * 10**9
"""The start of year 1: the time at which a taint was added if it does not say when."""


class TolerationError(ValueError):
    """Raised for an invalid toleration. The text is OCM's."""


@dataclass(frozen=True, slots=True)
class TaintVerdict:
    """Holds whether a cluster's taints are tolerated (`borne`), and for how long.

    `until_ns`: the time at which the first of the used tolerations expires, in nanoseconds since
      the epoch; `NEVER_NS`: none expires.
    `disliked`: a PreferNoSelect taint is not tolerated.
    `changes_ns`: the earliest time at which the verdict may be different.
    """

    borne: bool
    until_ns: int = NEVER_NS
    disliked: bool = False
    changes_ns: int = NEVER_NS


def check(tolerations: Sequence[ClusterToleration]) -> None:
    """Raises TolerationError for the first invalid toleration."""
    for toleration in tolerations:
        if not toleration.key and toleration.operator != "Exists":
            raise TolerationError("If the key is empty, operator must be Exists.")
        if toleration.operator == "Exists" and toleration.value:
            raise TolerationError("If the operator is Exists, the value should be empty.")


def verdict(
    taints: Sequence[ManagedTaint],
    tolerations: Sequence[ClusterToleration],
    held: bool,
    at_ns: int,
    strict: bool,
) -> TaintVerdict:
    """Checks whether a placement tolerates all taints of one cluster at one time. Returns the
    answer and the times at which it ends or may change (`TaintVerdict`).

    `taints`: the taints of the cluster. A NoSelectIfNew taint is ignored if `held`. A
      PreferNoSelect taint never excludes a cluster; if it is not tolerated, the result has
      `disliked` set.
    `held`: whether the placement selects the cluster at present.
    `at_ns`: the time, in nanoseconds since 1970, UTC.
    `strict`: compute `tolerationSeconds` as a signed 64-bit number of nanoseconds, as OCM does.
      Then 9,223,372,037 seconds overflow to a negative duration, and the toleration has expired at
      once.
    """
    until, changes, disliked = NEVER_NS, NEVER_NS, False
    borne = True
    for taint in taints:
        if taint.effect == "NoSelectIfNew" and held:
            continue
        ends, first_end = _borne_until(taint, tolerations, at_ns, strict)
        changes = min(changes, first_end)
        if taint.effect == "PreferNoSelect":
            disliked = disliked or ends is None
        elif ends is None:
            borne = False
        else:
            until = min(until, ends)
    return TaintVerdict(borne, until if borne else NEVER_NS, disliked, changes)


def _borne_until(
    taint: ManagedTaint, tolerations: Sequence[ClusterToleration], at_ns: int, strict: bool
) -> tuple[int | None, int]:
    """Finds until when the tolerations of a placement cover one taint. Returns two times (a, b) in
    nanoseconds since 1970, UTC. Tolerations that do not match the taint, or have expired at
    `at_ns`, are ignored.

    - a: the expiry of the first remaining toleration in the list. None: no toleration remains, so
      the taint is not tolerated.
    - b: the earliest expiry of all remaining tolerations; the answer may change then.

    `NEVER_NS` as an expiry means that the toleration does not expire; b is also `NEVER_NS` if no
    toleration remains. `strict`: compute `tolerationSeconds` with OCM's 64-bit overflow.

    Example: two tolerations match, the first expires at 900 and the second at 500. The result is
    (900, 500).
    """
    first_end = NEVER_NS
    ends: int | None = None
    for toleration in tolerations:
        if not _matches(toleration, taint):
            continue
        end = _end(toleration, taint, strict)
        if at_ns < end:
            first_end = min(first_end, end)
            if ends is None:
                ends = end
    return ends, first_end


def _matches(toleration: ClusterToleration, taint: ManagedTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def _end(toleration: ClusterToleration, taint: ManagedTaint, strict: bool) -> int:
    if toleration.seconds is None:
        return NEVER_NS
    since = _LONG_AGO_NS if taint.added_us is None else taint.added_us * 1000
    lasts = toleration.seconds * 10**9
    if strict:  # counted in 64 bits there, so 9,223,372,037 seconds are over before they begin
        lasts = (lasts + 2**63) % 2**64 - 2**63
    return since + lasts
