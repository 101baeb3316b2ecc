"""Computes how much a node pool may still grow under its limits.

A limit bounds the total capacity of all nodes of a pool, pending ones included; `nodes` bounds
their number. The type of a new node is not known before launch, so each counts as the largest it
may become. A batch may therefore need a second round, but a new node never makes a pool exceed its
limits.
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
    """What remains of a pool's limits. Immutable; `after` returns what remains after one more node.

    `amounts`: resource -> limit less usage, negative when exceeded. `limits`: resource -> limit.
    Both have only the resources that are limited.
    """

    pool: str
    amounts: Mapping[str, int]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, pool: NodePoolPolicy, used: Mapping[str, int]) -> Left:
        """Computes what remains of a pool's limits. `used`: resource -> capacity of the pool's
        nodes and claims, with `nodes` for their number."""
        left = {name: limit - used.get(name, 0) for name, limit in sorted(pool.limits.items())}
        return cls(pool.name, left, dict(sorted(pool.limits.items())))

    @property
    def closed(self) -> bool:
        """Returns whether the limit on the number of nodes is reached, so that the pool can create
        no more nodes of any type."""
        return self.amounts.get(NODES, 1) <= 0

    def within(self, types: Types) -> Mask:
        """Returns the types of which one more node stays within the limits, as bool[types]."""
        found = np.full(len(types), not self.closed, dtype=np.bool_)
        for name, left in self.amounts.items():
            if name != NODES:
                found &= types.capacity_of(name) <= left
        return found

    def after(self, types: Types, among: Mask) -> Left:
        """Returns what remains after a new node is requested that will be one of the types at
        `among` (bool[types]). Its type is not known yet, so of each resource the most that any of
        these types has is subtracted."""
        left = dict(self.amounts)
        for name in left:
            if name == NODES:
                left[name] -= 1
            elif among.any():
                left[name] -= int(types.capacity_of(name)[among].max())
        return Left(self.pool, left, self.limits)

    def refusal(self, types: Types, among: Mask) -> str:
        """Returns a sentence that explains why the limits of the pool allow no new node of any type
        in `among` (bool[types]). The sentence names each resource of which too little is left, with
        the amount left and the limit. Example: `every instance type exceeds what the limits of pool
        a leave (cpu 2 of 10)`. If the limit on the number of nodes is reached, the sentence names
        only that limit. Returns an empty text if the limits allow at least one of the types, or if
        `among` has no type."""
        if (self.within(types) & among).any() or not among.any():
            return ""
        if self.closed:
            return f"pool {self.pool} has reached its limit of {self.limits[NODES]} nodes"
        short = [
            f"{name} {quantity_of(name, max(0, left))} of {quantity_of(name, self.limits[name])}"
            for name, left in self.amounts.items()
            if name != NODES and (types.capacity_of(name)[among] > left).any()
        ]
        return (
            f"every instance type exceeds what the limits of pool {self.pool} leave "
            f"({', '.join(short)})"
        )
