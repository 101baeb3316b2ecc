"""How much a pool may still grow.

A limit bounds the capacities of all nodes of a pool together, those on their way included, and `nodes` their number. What a
new node will be is open until it is launched, so each is counted as the largest it may become: a batch may need a second
round, but no pool ever passes its limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.resources import quantity_of
from wharfinger.engine.provisioning.catalogue import Mask, Types

NODES = "nodes"


@dataclass(frozen=True, slots=True)
class Left:
    """`amounts`: what is limited -> how much of it is left, below zero when the limit is passed already; `limits`: the
    limits themselves. What has no limit is not there."""

    pool: str
    amounts: Mapping[str, int]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, pool: NodePoolPolicy, used: Mapping[str, int]) -> Left:
        """`used`: capacity of the pool's nodes and claims, with `nodes` for their number."""
        left = {name: limit - used.get(name, 0) for name, limit in sorted(pool.limits.items())}
        return cls(pool.name, left, dict(sorted(pool.limits.items())))

    @property
    def closed(self) -> bool:
        """Whether not one more node may be made, of whatever type."""
        return self.amounts.get(NODES, 1) <= 0

    def within(self, types: Types) -> Mask:
        """bool[types]: of which one more node may be made."""
        found = np.full(len(types), not self.closed, dtype=np.bool_)
        for name, left in self.amounts.items():
            if name != NODES:
                found &= types.capacity_of(name) <= left
        return found

    def after(self, types: Types, among: Mask) -> Left:
        """What is left once a node was asked for that will be one of `among` (bool[types]): of each amount the most that
        one of them has is taken."""
        left = dict(self.amounts)
        for name in left:
            if name == NODES:
                left[name] -= 1
            elif among.any():
                left[name] -= int(types.capacity_of(name)[among].max())
        return Left(self.pool, left, self.limits)

    def refusal(self, types: Types, among: Mask) -> str:
        """Why none of `among` may be made, naming what is too little; empty when one may."""
        if (self.within(types) & among).any() or not among.any():
            return ""
        if self.closed:
            return f"pool {self.pool} has reached its limit of {self.limits[NODES]} nodes"
        short = [
            f"{name} {quantity_of(name, max(0, left))} of {quantity_of(name, self.limits[name])}"
            for name, left in self.amounts.items()
            if name != NODES and (types.capacity_of(name)[among] > left).any()
        ]
        return f"every instance type exceeds what the limits of pool {self.pool} leave ({', '.join(short)})"
