"""What touching a node costs those who are on it, in thousandths. [Karpenter]

A pod costs one, a little more or less by the deletion cost somebody put on it and by its priority; a node costs one more than its
pods together. Pods that may go for nothing never lower what the others cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

UNIT = 1000
MOST = 10 * UNIT
"""And so much below zero at least."""

_DELETION_COST_UNIT = 2**27
_PRIORITY_UNIT = 2**25

_INT32 = 2**31


def eviction_cost(pod: Pod) -> int:
    """1 + deletion cost / 2**27 + priority / 2**25, between -10 and 10; in thousandths, rounded up, so that what costs
    anything costs something here, too. A deletion cost that is no 32-bit number counts as none."""
    if not pod.priority and (pod.upkeep is None or not pod.upkeep.annotations):
        return UNIT
    said = "" if pod.upkeep is None else pod.upkeep.annotations.get(DELETION_COST, "")
    scaled = UNIT * (_number(said) + pod.priority * (_DELETION_COST_UNIT // _PRIORITY_UNIT))
    return max(-MOST, min(MOST, UNIT - (-scaled // _DELETION_COST_UNIT)))


def node_cost(pods: Iterable[Pod]) -> int:
    """`pods`: those that would have to move."""
    return UNIT + sum(max(0, eviction_cost(pod)) for pod in pods)


def _number(said: str) -> int:
    digits = said.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return 0
    number = int(said)
    return number if -_INT32 <= number < _INT32 else 0
