"""Pool options merged for a whole cluster: how nodes are requested and consolidated.

A provisioning problem covers a cluster, and Solve may put one pod into any pool, so the options of
all pools (`NodePoolPolicy`) are merged. The most conservative value wins: an option that relaxes
something applies only where every concerned pool sets it. `min_values` concerns pools with a
minimum of values, `spot_to_spot` and `reserved` pools that may buy such capacity, `preferences` all
pools. The largest `least_saving` wins. Packing like Karpenter applies when one pool sets it. Static
pools are ignored: Solve makes none of their nodes, and they are not consolidated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, LEAST_SAVING, NodePoolPolicy
from wharfinger.engine.provisioning.problem import SolveOptions
from wharfinger.engine.provisioning.templates import labels_of


def options_of(pools: Iterable[NodePoolPolicy]) -> SolveOptions:
    asked = _asked(pools)
    counting = [pool for pool in asked if any(r.min_values > 0 for r in pool.requirements)]
    best_effort = _all(pool.min_values == "BestEffort" for pool in counting)
    ignore = _all(pool.preferences == "Ignore" for pool in asked)
    fallback = _all(pool.reserved == "Fallback" for pool in asked if _may_buy(pool, "reserved"))
    return SolveOptions(
        min_values="BestEffort" if best_effort else "Strict",
        preferences="Ignore" if ignore else "Respect",
        reserved_strict=not fallback,
        spot_to_spot=_all(pool.spot_to_spot for pool in asked if _may_buy(pool, "spot")),
        packing="first-fit" if any(pool.packing == "first-fit" for pool in asked) else "priced",
    )


def least_saving(pools: Iterable[NodePoolPolicy]) -> int:
    """Returns the largest `least_saving` of the pools that are not static, in billionths of a
    dollar an hour; at least 1."""
    return max(1, max((pool.least_saving for pool in _asked(pools)), default=LEAST_SAVING))


def _asked(pools: Iterable[NodePoolPolicy]) -> Sequence[NodePoolPolicy]:
    return [pool for pool in pools if pool.replicas is None]


def _all(said: Iterable[bool]) -> bool:
    """Returns whether all values are true. Unlike `all`, returns False if there is no value."""
    found = list(said)
    return bool(found) and all(found)


def _may_buy(pool: NodePoolPolicy, capacity_type: str) -> bool:
    """Returns whether the pool's requirements and labels allow this capacity type."""
    own = labels_of(pool).get(CAPACITY_TYPE_LABEL)
    return own is None or own.allows(capacity_type)
