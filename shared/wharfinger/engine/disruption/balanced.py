"""Whether a saving is worth the disturbance, for pools that ask so (`consolidationPolicy: Balanced`). [Karpenter]

What a command saves of all that its pool costs is held against what it disturbs of all that could be disturbed there:
the one must be at least half of the other. A tenth of the price for a fifth of the pods is worth it, less is not. It
is all integers, so nothing is divided."""

from __future__ import annotations

from wharfinger.domain.instance_types import dollars

K = 2
"""The saving's share must be at least one K-th of the disruption's."""


def approves(saving: int, disruption: int, pool_price: int, pool_disruption: int) -> bool:
    """`saving` and `pool_price` in one unit, `disruption` and `pool_disruption` in another."""
    return K * saving * pool_disruption >= disruption * pool_price


def sentence(pool: str, saving: int, disruption: int, pool_price: int, pool_disruption: int) -> str:
    saved = saving * 1000 // max(1, pool_price)
    disturbed = disruption * 1000 // max(1, pool_disruption)
    return (
        f"pool {pool} is balanced: {dollars(saving)} is {_share(saved)} of what it costs, for {_share(disturbed)} of what could be "
        f"disturbed in it, and the one must be at least 1/{K} of the other"
    )


def _share(thousandths: int) -> str:
    return f"{thousandths // 10}.{thousandths % 10} %"
