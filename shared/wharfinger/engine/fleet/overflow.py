"""How many replicas each tier of an affinity with overflow groups gets: the affinity's own clusters first, then group after group.

Tier 0 is the affinity itself, tier i its i-th overflow group. Each tier then divides what it got by the binding's own strategy.

As Karmada does it (`strict`), every decision fills the tiers anew by what they hold and could hold, so that room that has come
free in the first tier takes replicas out of the second whenever anything is decided. Ours moves nothing that was not asked for:
scaling up adds what is missing, in order of the tiers, and scaling down takes away from the last tier first. What lies in a
later tier returns by a fresh decision, or by a rebalance where the policy allows one.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.engine.fleet.division import Shortage


def tier_targets(fits: Sequence[int], held: Sequence[int], replicas: int, *, refill: bool) -> list[int] | Shortage:
    """`fits`: how many more replicas fit into each tier; `held`: how many it has. `refill`: all tiers are filled anew."""
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
