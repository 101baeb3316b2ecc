"""`consolidationPolicy: Balanced`: whether a saving is worth the disruption. [Karpenter]

The command's share of the pool's total price is compared with its share of the pool's total
disruption cost: the first must be at least half of the second. Example: saving a tenth of the price
by disrupting a fifth of the pods is accepted, less is not. Integers only: the fractions are
compared by cross-multiplication.
"""

from __future__ import annotations

from wharfinger.domain.text import dollars

K = 2
"""The saving's share of the price must be at least 1/K of the disruption's share."""


def approves(saving: int, disruption: int, pool_price: int, pool_disruption: int) -> bool:
    """Returns whether a saving is worth its disruption: `saving / pool_price` must be at least
    `disruption / pool_disruption / K`. The fractions are compared by cross-multiplication, in
    integers. Example with K = 2: a command that disrupts 20 % must save at least 10 %.

    `saving`, `pool_price`: what the command saves, and what all nodes of the pool cost, both in
    billionths of a dollar an hour. `disruption`, `pool_disruption`: the disruption cost of the
    command, and that of all nodes of the pool, both in thousandths of an ordinary pod (`costs`).
    """
    return K * saving * pool_disruption >= disruption * pool_price


def sentence(pool: str, saving: int, disruption: int, pool_price: int, pool_disruption: int) -> str:
    saved = saving * 1000 // max(1, pool_price)
    disturbed = disruption * 1000 // max(1, pool_disruption)
    return (
        f"pool {pool} is balanced: {dollars(saving)} is {_share(saved)} of what it costs, "
        f"for {_share(disturbed)} of what could be "
        f"disturbed in it, and the one must be at least 1/{K} of the other"
    )


def _share(thousandths: int) -> str:
    return f"{thousandths // 10}.{thousandths % 10} %"
