"""What the pools of a cluster say together of how nodes are asked for and consolidated.

A problem or a scene is of a whole cluster, and Solve may put one pod into any of its pools, so what each pool says by itself
(`NodePoolPolicy`) has to become one word. The more careful one holds: what is allowed to give up something holds only
where every pool that it concerns says so. `min_values` concerns pools that ask for a minimum of values, `spot_to_spot` and
`reserved` pools that may buy such capacity, `preferences` all of them. The largest `least_saving` holds. Packing as Karpenter does
is what one asks for to get Karpenter's answers, so one pool that does is enough. Pools of a fixed number of nodes are asked
nothing: Solve makes none of their nodes, and they are not consolidated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, LEAST_SAVING, NodePoolPolicy
from wharfinger.engine.provisioning.problem import Options
from wharfinger.engine.provisioning.templates import labels_of


def options_of(pools: Iterable[NodePoolPolicy]) -> Options:
    asked = _asked(pools)
    counting = [pool for pool in asked if any(r.min_values > 0 for r in pool.requirements)]
    best_effort = _all(pool.min_values == "BestEffort" for pool in counting)
    ignore = _all(pool.preferences == "Ignore" for pool in asked)
    fallback = _all(pool.reserved == "Fallback" for pool in asked if _may_buy(pool, "reserved"))
    return Options(
        min_values="BestEffort" if best_effort else "Strict",
        preferences="Ignore" if ignore else "Respect",
        reserved_strict=not fallback,
        spot_to_spot=_all(pool.spot_to_spot for pool in asked if _may_buy(pool, "spot")),
        packing="first-fit" if any(pool.packing == "first-fit" for pool in asked) else "priced",
    )


def least_saving(pools: Iterable[NodePoolPolicy]) -> int:
    """Billionths of a dollar an hour; at least one, whatever was said."""
    return max(1, max((pool.least_saving for pool in _asked(pools)), default=LEAST_SAVING))


def _asked(pools: Iterable[NodePoolPolicy]) -> Sequence[NodePoolPolicy]:
    return [pool for pool in pools if pool.replicas is None]


def _all(said: Iterable[bool]) -> bool:
    """Of nobody at all it is not so."""
    found = list(said)
    return bool(found) and all(found)


def _may_buy(pool: NodePoolPolicy, capacity_type: str) -> bool:
    """As far as its requirements and labels say."""
    own = labels_of(pool).get(CAPACITY_TYPE_LABEL)
    return own is None or own.allows(capacity_type)
