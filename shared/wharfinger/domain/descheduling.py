"""Rules by which pods are taken off nodes they should not be on: the descheduler's policy, as the stages read it.

Strategies stand in the order in which they run: first all that deschedule, of all profiles, then all that balance. Every
argument has its own type, with the defaults filled in; which limits hold between profiles stands in the policy.
"""

from __future__ import annotations

from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value


class Namespaces(Value, frozen=True):
    """`include` and `exclude` are not both set; with neither, all namespaces."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, namespace: str) -> bool:
        return namespace in self.include if self.include else namespace not in self.exclude


class EvictorArgs(Value, frozen=True):
    """Which pods may be evicted at all (DefaultEvictor). Lane-owned: fields follow."""

    node_fit: bool = False
    label_selector: LabelSelector | None = None


class Strategy(Value, frozen=True):
    """One plugin with its arguments; which type they have follows from the name. To be made a tagged union."""

    name: str


class DeschedulerProfile(Value, frozen=True):
    name: str
    evictor: EvictorArgs = EvictorArgs()
    deschedule: tuple[Strategy, ...] = ()
    balance: tuple[Strategy, ...] = ()


class DeschedulingPolicy(Value, frozen=True):
    """`per_node`, `per_namespace`, `total`: evictions of one pass at most; None: no limit. `every_s`: between two passes.
    `clusters`: where it holds; empty: everywhere."""

    profiles: tuple[DeschedulerProfile, ...] = ()
    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None
    every_s: int = 300
    clusters: tuple[str, ...] = ()
