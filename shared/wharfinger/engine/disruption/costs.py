"""Computes the disruption cost of a node, in thousandths of an ordinary pod. [Karpenter]

A pod costs one unit, adjusted by its pod-deletion-cost annotation and its priority, between -10 and
10. A node costs one unit plus the sum of its pods. A negative pod cost counts as 0 in this sum, so
it never lowers the cost of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

UNIT = 1000
MOST = 10 * UNIT
"""The highest cost of one pod. The lowest is -MOST."""

_DELETION_COST_UNIT = 2**27
_PRIORITY_UNIT = 2**25

_INT32 = 2**31


def eviction_cost(pod: Pod) -> int:
    """Computes the cost of evicting a pod, in thousandths of an ordinary pod: 1 + deletion cost /
    2**27 + priority / 2**25, at least -10 and at most 10, times 1000. [Karpenter]

    The deletion cost is the pod's annotation pod-deletion-cost; without it, or if it is not a
    32-bit integer, it is 0. The result is rounded up, so a tiny positive deletion cost still adds
    one thousandth.

    Example: a pod without deletion cost and with priority 2**25 gives 2000.
    """
    if not pod.priority and (pod.upkeep is None or not pod.upkeep.annotations):
        return UNIT
    said = "" if pod.upkeep is None else pod.upkeep.annotations.get(DELETION_COST, "")
    scaled = UNIT * (_number(said) + pod.priority * (_DELETION_COST_UNIT // _PRIORITY_UNIT))
    return max(-MOST, min(MOST, UNIT - (-scaled // _DELETION_COST_UNIT)))


def node_cost(pods: Iterable[Pod]) -> int:
    """Computes the disruption cost of a node in thousandths: 1000 for the node, plus the eviction
    cost of each pod. Negative eviction costs count as 0. `pods`: the pods that would have to move.
    """
    return UNIT + sum(max(0, eviction_cost(pod)) for pod in pods)


def _number(said: str) -> int:
    digits = said.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return 0
    number = int(said)
    return number if -_INT32 <= number < _INT32 else 0
