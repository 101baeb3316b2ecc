"""What a cluster's pools could still make for each live class, and what a replica costs there at least.

Not a plan: for each pool the instance type on which a replica of the class is cheapest is taken, and as many nodes of it as the
pool's limits leave, a thousand where nothing limits it. Classes are counted each by itself, as if no other came; who is too many in
the end is refused by the cluster, which solves for all at once (`engine.provisioning`). Preferences are left aside. Replicas that
may not share a node (host ports, required anti-affinity) are counted one a node.

A class is counted anew only when pools, prices, daemons, what the pools have used of their limits, or what could not be bought are
others than before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wharfinger.domain.cluster_objects import ClusterObject, DaemonPods
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.count import COUNT_MAX
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.provisioning.catalogue import NO_PRICE, PODS, Column, Mask
from wharfinger.engine.provisioning.limits import NODES, Left
from wharfinger.engine.provisioning.relaxation import bare
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.templates import Template, template_of
from wharfinger.events.cluster_state import ObjectsObserved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.pools import PoolFacts, PoolPolicies
from wharfinger.stages.scenes import used

NODES_MAX = 1000
"""So many nodes a pool is taken to make where its limits do not say."""

TOGETHER_MAX = 16
"""Replicas with devices: so many are tried on one node."""

Made = Mapping[str, tuple[int, int]]
"""Class -> how many more replicas, and what one costs at least an hour; classes that fit on no node that could be made are left
out."""


@dataclass(slots=True)
class Makers:
    """Of one cluster. `told`: its daemons by namespace, which come to every new node."""

    told: dict[str, tuple[ClusterObject, ...]] = field(default_factory=dict)
    _laid_out: tuple[object, ...] = ()
    _templates: list[Template] = field(default_factory=list)
    _seen: tuple[object, ...] = ()
    _used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _counted: dict[str, tuple[int, int] | None] = field(default_factory=dict)

    def observe(self, told: ObjectsObserved) -> None:
        self.told[told.namespace] = told.objects
        self._laid_out = ()

    def count(
        self,
        name: str,
        policies: PoolPolicies,
        facts: PoolFacts,
        book: Occupancy,
        classes: Mapping[str, Requirements],
        at: Micros,
    ) -> Made:
        if not policies.known(name):
            return {}
        self._lay_out(name, policies, facts, at)
        seen = (policies.version, book.table.facts.end, tuple(facts.claims))
        if seen != self._seen:
            self._seen, sums = seen, used(book, policies, facts, name)
            if sums != self._used:
                self._used, self._counted = sums, {}
        for gone in [key for key in self._counted if key not in classes]:
            del self._counted[gone]
        for key, needs in classes.items():
            if key not in self._counted:
                self._counted[key] = _of_class(self._templates, self._used, needs)
        return {key: found for key, found in sorted(self._counted.items()) if found is not None}

    def _lay_out(self, name: str, policies: PoolPolicies, facts: PoolFacts, at: Micros) -> None:
        """The pools anew, where what they can make is not what it was."""
        sold_out, away = facts.unavailable(policies.types, at), facts.backing_off(at)
        now = (policies.version, sold_out, tuple(sorted(away)))
        if now == self._laid_out:
            return
        daemons = [one for _, told in sorted(self.told.items()) for one in told if isinstance(one, DaemonPods)]
        self._templates = [
            template_of(pool, policies.types[pool.catalogue], policies.overlays, daemons, sold_out)
            for pool in policies.of(name).values()
            if pool.catalogue in policies.types and pool.replicas is None and pool.name not in away
        ]
        self._laid_out, self._counted = now, {}


def next_return(facts: PoolFacts, at: Micros) -> Micros | None:
    """When something that could not be bought may be asked for again."""
    return min([known.until for known in facts.sold_out.values() if known.until > at], default=None)


def covered(book: Occupancy, facts: PoolFacts) -> dict[str, int]:
    """Class -> how many replicas wait for nodes that were asked for on their behalf: they take no room of what there is."""
    waiting: dict[str, int] = {}
    for claim in facts.claims.values():
        for binding, count in claim.replicas.items():
            held = book.held.get(binding)
            if held is not None and count > 0:
                waiting[held.cls.key] = waiting.get(held.cls.key, 0) + count
    return {key: min(n, book.unbound.get(key, 0)) for key, n in sorted(waiting.items())}


def _of_class(
    templates: Sequence[Template], sums: Mapping[str, Mapping[str, int]], needs: Requirements
) -> tuple[int, int] | None:
    """Over all pools together; the price is the least of theirs."""
    needs = bare(needs)
    found = [
        one
        for template in templates
        if (one := _of_pool(template, Left.of(template.pool, sums.get(template.name, {})), needs)) is not None
    ]
    if not found:
        return None
    return min(COUNT_MAX, sum(count for count, _ in found)), min(price for _, price in found)


def _of_pool(template: Template, left: Left, needs: Requirements) -> tuple[int, int] | None:
    """By the first of its alternatives that some type of the pool can be: how many, and the price of one."""
    for asked in LabelSet.alternatives(needs):
        if template.refusal(needs.tolerations, asked):
            continue
        labels = template.labels.intersect(asked)
        types = template.types
        rows = template.able & types.fitting(labels) & types.with_offering(labels) & left.within(types)
        together = _together(template, rows, needs)
        rows = rows & (together > 0)
        if rows.any():
            price = np.where(rows, -(-types.cheapest(labels) // np.maximum(together, 1)), NO_PRICE)
            row = int(price.argmin())
            return int(together[row]) * _nodes(template, left, row), int(price[row])
    return None


def _together(template: Template, rows: Mask, needs: Requirements) -> Column:
    """int64[types]: how many replicas one new node holds."""
    types = template.types
    none = np.zeros(len(types), np.int64)
    amounts = types.amounts(needs.requests)
    if amounts is None:
        return none
    amounts[PODS] += 1
    asked = np.flatnonzero(amounts)
    most = np.maximum(0, (template.room[:, asked] // amounts[asked]).min(axis=1))
    traits = needs.traits
    if traits.ports or traits.anti_affinity:
        most = np.minimum(most, 1) * template.free_of(traits.ports)
    if needs.devices:
        fit = none.copy()
        for n in range(1, min(TOGETHER_MAX, int(most.max(initial=0))) + 1):
            holds = template.holding(needs.devices * n) & rows
            if not holds.any():
                break
            fit[holds] = n
        most = np.minimum(most, fit)
    return np.where(rows, most, 0)


def _nodes(template: Template, left: Left, row: int) -> int:
    """How many nodes of the type the pool may still make."""
    count = NODES_MAX
    for name, amount in left.amounts.items():
        each = 1 if name == NODES else int(template.types.capacity_of(name)[row])
        if each > 0:
            count = min(count, amount // each)
    return max(0, count)
