"""The arithmetic of the scores of one node, in one place: whoever asks node by node and whoever works on whole columns
computes with the same functions.

They know integers, floats and sequences of these, no objects, so that a kernel can be compiled of them. Integers wherever the rule
has them, division truncating as in Go; where the rule is about floats they are IEEE doubles in a fixed order, each operation
rounded by itself, and the only root is `sqrt`, which is exact: the same bits on every machine.

Source of the rules: kube-scheduler 1.34, and 1.36 where it is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

SCORE_MAX = 100

IMAGES_MIN = 23 * 2**20
"""Bytes of images below which it does not matter where they lie."""
IMAGES_MAX_EACH = 1000 * 2**20
"""Bytes of one container's images above which more of them does not matter."""


def truncated(amount: int, divisor: int) -> int:
    """amount / divisor towards zero; `divisor` is positive."""
    return amount // divisor if amount >= 0 else -(-amount // divisor)


# How much of a resource is left or taken, 0..100. `requested`: with the pod; `allocatable`: not 0.


def least_allocated(requested: int, allocatable: int) -> int:
    if requested > allocatable:
        return 0
    return (allocatable - requested) * SCORE_MAX // allocatable


def most_allocated(requested: int, allocatable: int) -> int:
    if requested > allocatable:
        return SCORE_MAX
    return requested * SCORE_MAX // allocatable


def shaped(requested: int, allocatable: int, utilizations: Sequence[int], scores: Sequence[int]) -> int:
    """By a shape: see `on_shape`. What holds nothing is full."""
    if allocatable == 0 or requested > allocatable:
        return on_shape(SCORE_MAX, utilizations, scores)
    return on_shape(requested * SCORE_MAX // allocatable, utilizations, scores)


def on_shape(utilization: int, utilizations: Sequence[int], scores: Sequence[int]) -> int:
    """The height of the line through the points (`utilizations` rising, percent; `scores`) at `utilization`; flat
    outside of them."""
    last = len(utilizations) - 1
    for i in range(last + 1):
        if utilization <= utilizations[i]:
            if i == 0:
                return scores[0]
            rise = (scores[i] - scores[i - 1]) * (utilization - utilizations[i - 1])
            return scores[i - 1] + truncated(rise, utilizations[i] - utilizations[i - 1])
    return scores[last]


def truncated_mean(total: int, weights: int) -> int:
    """The mean of scores: `total`, the sum of weight x score, by the sum of the weights; 0 without any."""
    return total // weights if weights > 0 else 0


def rounded_mean(total: int, weights: int) -> int:
    """As `truncated_mean`, rounded to the nearest, halves up."""
    return (2 * total + weights) // (2 * weights) if weights > 0 else 0


# How evenly the resources of a node are taken.


def balanced(requested: Sequence[int], allocatable: Sequence[int]) -> int:
    """100 less the standard deviation of the shares taken, in percent; a resource that the node has none of is left out."""
    known = 0
    total = first = second = 0.0
    for i in range(len(requested)):
        if allocatable[i] != 0:
            share = _share(requested[i], allocatable[i])
            if known == 0:
                first = share
            elif known == 1:
                second = share
            total += share
            known += 1
    deviation = 0.0
    if known == 2:
        deviation = abs((first - second) / 2.0)
    elif known > 2:
        centre = total / float(known)
        squares = 0.0
        for i in range(len(requested)):
            if allocatable[i] != 0:
                away = _share(requested[i], allocatable[i]) - centre
                squares = squares + away * away
        deviation = math.sqrt(squares / float(known))
    return int((1.0 - deviation) * 100.0)


def _share(requested: int, allocatable: int) -> float:
    share = float(requested) / float(allocatable)
    return 1.0 if share > 1.0 else share


def balance_change(with_pod: int, without_pod: int) -> int:
    """How much better balanced the node is with the pod than without, both by `balanced`: 75 where it is the same, 50..100 for
    any two resources. As kube-scheduler has it since 1.36."""
    return 50 + truncated(50 + with_pod - without_pod, 2)


# How much of the pod's images lies there.


def image_share(size: int, holding: int, nodes: int) -> int:
    """What `size` bytes of an image count for that `holding` of all `nodes` have: a little, where few do, so that pods do not all
    run after the one node that happened to pull it first."""
    return int(float(size) * (float(holding) / float(nodes)))


def images_score(total: int, containers: int) -> int:
    """`total`: the sum of `image_share` over the containers; there is at least one."""
    most = IMAGES_MAX_EACH * containers
    total = min(max(total, IMAGES_MIN), most)
    return SCORE_MAX * (total - IMAGES_MIN) // (most - IMAGES_MIN)


# Raw scores of all feasible nodes to 0..100.


def normalised(score: int, highest: int) -> int:
    """In proportion to the `highest`; 0 where that is 0."""
    return score * SCORE_MAX // highest if highest > 0 else 0


def normalised_reverse(score: int, highest: int) -> int:
    """The highest gets 0; all get 100 where it is 0."""
    return SCORE_MAX - score * SCORE_MAX // highest if highest > 0 else SCORE_MAX
