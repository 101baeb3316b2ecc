"""The score formulas of one node, shared by the plugins (node by node) and the kernels (whole
columns), so that both compute the same.

The functions take integers, floats and sequences of these, and no objects, so that they can be
compiled. They use integers where the original does, with division truncating as in Go. Where the
original uses floats, these are IEEE doubles in a fixed order, and each operation is rounded
separately; the only root is `sqrt`, which is correctly rounded. So the result has the same bits on
every machine.

Source of the rules: kube-scheduler 1.34, and 1.36 where noted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache

SCORE_MAX = 100

IMAGES_MIN = 23 * 2**20
"""In bytes. A node with less than this of the pod's images scores 0 for image locality."""
IMAGES_MAX_EACH = 1000 * 2**20
"""In bytes for each container. A node with this or more of the pod's images scores 100."""


def truncated(amount: int, divisor: int) -> int:
    """Divide `amount` by `divisor`, truncating towards zero: -7 by 2 is -3. `divisor` is
    positive."""
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


def shaped(
    requested: int, allocatable: int, utilizations: Sequence[int], scores: Sequence[int]
) -> int:
    """Score a resource of a node by the shape in the profile: interpolate (`on_shape`) at the
    utilisation in whole percent. `requested`: the sum of the requests on the node, including the
    new pod; same unit as `allocatable`. `utilizations` and `scores`: the points of the shape. A
    resource with no capacity, or with more requested than allocatable, counts as 100 percent used.
    """
    if allocatable == 0 or requested > allocatable:
        return on_shape(SCORE_MAX, utilizations, scores)
    return on_shape(requested * SCORE_MAX // allocatable, utilizations, scores)


def on_shape(utilization: int, utilizations: Sequence[int], scores: Sequence[int]) -> int:
    """Interpolate piecewise linearly at `utilization` (percent) through the points
    (`utilizations[i]`, `scores[i]`); `utilizations` is strictly increasing. Before the first point
    the result is the first score, after the last point it is the last score. Divisions truncate
    towards zero. Example: points (0, 0) and (100, 10) give 4 at 45."""
    last = len(utilizations) - 1
    for i in range(last + 1):
        if utilization <= utilizations[i]:
            if i == 0:
                return scores[0]
            rise = (scores[i] - scores[i - 1]) * (utilization - utilizations[i - 1])
            return scores[i - 1] + truncated(rise, utilizations[i] - utilizations[i - 1])
    return scores[last]


def truncated_mean(total: int, weights: int) -> int:
    """Return the weighted mean of scores, rounded down. `total`: sum of weight * score. `weights`:
    sum of the weights; the mean is 0 where this is 0."""
    return total // weights if weights > 0 else 0


def rounded_mean(total: int, weights: int) -> int:
    """Return the weighted mean of scores, rounded to the nearest integer, halves up. `total`: sum
    of weight * score. `weights`: sum of the weights; the mean is 0 where this is 0."""
    return (2 * total + weights) // (2 * weights) if weights > 0 else 0


# How evenly the resources of a node are taken.


def balanced(requested: Sequence[int], allocatable: Sequence[int]) -> int:
    """Score how evenly the resources of one node are used (kube-scheduler's balanced allocation).
    Return 100 * (1 - standard deviation of the used fractions), truncated; 0 to 100.

    - `requested[i]`, `allocatable[i]`: amounts of resource i on the node, in the same unit.
    - Used fraction of a resource: requested / allocatable, at most 1. A resource with 0 allocatable
      is left out.
    - With fewer than two resources the deviation is 0, so the score is 100.

    Example: cpu 50 % and memory 30 % used deviate by 0.1, so the score is 90.
    """
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
    """Score how much the pod improves the balance of the node. `with_pod`, `without_pod`: results
    of `balanced` with and without the pod. The result is 75 where the balance does not change, and
    50..100 with two resources. [kube-scheduler 1.36]"""
    return 50 + truncated(50 + with_pod - without_pod, 2)


# How much of the pod's images lies there.


def image_share(size: int, holding: int, nodes: int) -> int:
    """Return how many bytes an image adds to the score of a node that has it: `size` * `holding` /
    `nodes`, truncated. `size`: bytes of the image. `holding`: how many of all `nodes` have the
    image. An image that few nodes have adds little. Otherwise all pods would go to the first node
    that pulled the image."""
    return int(float(size) * (float(holding) / float(nodes)))


def images_score(total: int, containers: int) -> int:
    """Score image locality, 0..100, linear in `total`. `total`: the sum of `image_share` over the
    containers, in bytes. `containers`: number of containers of the pod, at least 1. The score is 0
    up to `IMAGES_MIN` bytes, and 100 from `IMAGES_MAX_EACH` bytes per container on."""
    most = IMAGES_MAX_EACH * containers
    total = min(max(total, IMAGES_MIN), most)
    return SCORE_MAX * (total - IMAGES_MIN) // (most - IMAGES_MIN)


# How much each pod counts in one of few domains.


_CONTEXT = Context(prec=50)


@lru_cache(maxsize=8192)
def domains_weight(domains: int) -> float:
    """Return ln(`domains` + 2), the weight of a topology spread constraint, rounded to the nearest
    double. `domains`: number of topology domains. Computed in decimal arithmetic, because the last
    bit of `math.log` differs between machines."""
    return float(_CONTEXT.ln(Decimal(domains + 2)))


# Raw scores of all feasible nodes to 0..100.


def normalised(score: int, highest: int) -> int:
    """Scale a score to 0..100 in proportion to `highest`, the highest raw score of all nodes;
    rounded down. 0 where `highest` is 0."""
    return score * SCORE_MAX // highest if highest > 0 else 0


def normalised_reverse(score: int, highest: int) -> int:
    """Scale a score to 0..100 in reverse: the highest raw score becomes 0 and a raw score of 0
    becomes 100. `highest`: the highest raw score of all nodes; where it is 0, all become 100."""
    return SCORE_MAX - score * SCORE_MAX // highest if highest > 0 else SCORE_MAX
