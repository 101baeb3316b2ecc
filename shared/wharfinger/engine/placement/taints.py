"""Which tainted clusters a placement bears, and until when.

Taints come in few sorts even in a large fleet, so a verdict is found once for a sort of tainted cluster and kept for as long as
time does not change it. Of NoSelect, NoSelectIfNew and PreferNoSelect the second keeps only new clusters away, and the third keeps
none: see `Verdict.disliked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster import ManagedTaint
from wharfinger.domain.selection import ClusterToleration

NEVER_NS = 2**80
_LONG_AGO_NS = -62_135_596_800 * 10**9
"""Year 1, where the clock of a taint that does not say since when begins."""


class TolerationError(ValueError):
    """A toleration that says nothing sensible; the text is OCM's."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`until_ns`: when a toleration it rests on ends; NEVER_NS: none does. `disliked`: a PreferNoSelect taint that no toleration
    matches is among them. `changes_ns`: from when on the verdict may be another."""

    borne: bool
    until_ns: int = NEVER_NS
    disliked: bool = False
    changes_ns: int = NEVER_NS


def check(tolerations: Sequence[ClusterToleration]) -> None:
    """Raises TolerationError for the first wrong one."""
    for toleration in tolerations:
        if not toleration.key and toleration.operator != "Exists":
            raise TolerationError("If the key is empty, operator must be Exists.")
        if toleration.operator == "Exists" and toleration.value:
            raise TolerationError("If the operator is Exists, the value should be empty.")


def verdict(
    taints: Sequence[ManagedTaint], tolerations: Sequence[ClusterToleration], held: bool, at_ns: int, strict: bool
) -> Verdict:
    """Of one cluster at one time. `held`: it stands in the placement's own decision."""
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
    return Verdict(borne, until if borne else NEVER_NS, disliked, changes)


def _borne_until(
    taint: ManagedTaint, tolerations: Sequence[ClusterToleration], at_ns: int, strict: bool
) -> tuple[int | None, int]:
    """Until when the first live toleration in the list bears it, None: none does; and when the first of them all ends."""
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
