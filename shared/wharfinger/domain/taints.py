"""Taints and tolerations of nodes and clusters. Which effects block whom is the engine's business;
here only matching."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wharfinger.domain.ids import LabelKey, LabelText
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.value import Value

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Value, frozen=True):
    key: LabelKey
    effect: Effect
    value: LabelText = ""


class Toleration(Value, frozen=True):
    """An empty `key` with Exists tolerates every taint; an empty `effect` every effect.

    Gt and Lt: the taint's value is an integer above, or below, `value`.
    `seconds`: how long a NoExecute taint is tolerated; None: forever, zero or less: not at all.
    """

    key: LabelKey = ""
    operator: Literal["Equal", "Exists", "Gt", "Lt"] = "Equal"
    value: LabelText = ""
    effect: Effect | Literal[""] = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Equal":
                return bool(self.key) and self.value == taint.value
            case "Gt" | "Lt":
                return bool(self.key) and Requirement(self.key, self.operator, (self.value,)).holds(
                    {taint.key: taint.value}
                )


def first_untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[Effect]
) -> Taint | None:
    """The first taint with one of `effects` that no toleration covers, in the order the taints are
    listed."""
    tolerations, effects = tuple(tolerations), tuple(effects)
    for taint in taints:
        if taint.effect in effects and not any(t.tolerates(taint) for t in tolerations):
            return taint
    return None


def toleration_seconds(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> int | None:
    """How long all NoExecute `taints` together are tolerated; 0: not at all, None: forever.

    The shortest finite time over the matching tolerations counts, as the taint manager of
    Kubernetes does.
    """
    tolerations = tuple(tolerations)
    shortest: int | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        matching = [t for t in tolerations if t.tolerates(taint)]
        if not matching:
            return 0
        for t in matching:
            if t.seconds is not None:
                seconds = max(0, t.seconds)
                shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest
