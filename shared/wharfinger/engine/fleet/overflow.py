"""Computes how many replicas each tier of an affinity with overflow groups gets: the affinity's own
clusters first, then group after group.

Tier 0 is the affinity itself, tier i its i-th overflow group. The replicas of a tier are divided
over its clusters by the binding's own strategy.

Karmada (`strict`) fills the tiers from scratch in every decision, by the replicas they hold plus
those that fit, so capacity that becomes free in the first tier pulls replicas out of the second.
Without `strict` nothing moves that was not requested: scaling up adds in order of the tiers,
scaling down removes from the last tier first. Replicas return from a later tier by a fresh
decision, or by a rebalance where the policy allows one.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.engine.fleet.division import Shortage


def tier_targets(
    fits: Sequence[int], held: Sequence[int], replicas: int, *, refill: bool
) -> list[int] | Shortage:
    """Fills the tiers of an affinity in order and returns the number of replicas of each tier. Tier
    0 has the affinity's own clusters, tier i the clusters of its i-th overflow group, which are
    used when the tiers before it are full.

    `fits`: how many more replicas fit into each tier.
    `held`: how many replicas each tier holds.
    `replicas`: the number wanted in all tiers together.
    `refill`: compute all tiers from zero; the capacity of a tier is then `fits` + `held`.

    Without `refill`, scaling up adds the missing replicas in order of the tiers, and scaling down
    removes from the last tier first. Returns Shortage if too few replicas fit.

    Example: `held` 4 and 2, `fits` 1 and 9. 10 replicas are divided 5 and 5; 5 replicas are divided
    4 and 1.
    """
    if refill:
        return _filled([more + now for more, now in zip(fits, held, strict=True)], replicas)
    missing = replicas - sum(held)
    if missing < 0:
        return _filled(held, replicas)
    added = _filled(fits, missing)
    if isinstance(added, Shortage):
        return added
    return [now + more for now, more in zip(held, added, strict=True)]


def _filled(rooms: Sequence[int], replicas: int) -> list[int] | Shortage:
    out = []
    left = replicas
    for room in rooms:
        out.append(min(left, room))
        left -= out[-1]
    return Shortage(replicas, replicas - left) if left > 0 else out
