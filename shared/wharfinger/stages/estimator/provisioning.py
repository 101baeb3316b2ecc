"""What the pools of a cluster could still create for each live class, and the lowest price of a
replica there.

An upper estimate, not a plan. For each pool: the instance type with the lowest price per replica,
and as many nodes as the pool's limits allow, at most a thousand. Each class is counted as if it
were the only one; the cluster, which solves for all at once (`engine.provisioning`), refuses what
is too many. Preferences are ignored. Replicas that exclude each other on a node (host ports,
required anti-affinity) count one per node.

A class is recounted only when pools, prices, daemons, used limits, or sold-out offerings change.
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
from wharfinger.stages.cluster_snapshots import used
from wharfinger.stages.pools import PoolFacts, PoolPolicies

NODES_MAX = 1000
"""Maximum number of new nodes that is assumed for a pool without a limit."""

TOGETHER_MAX = 16
"""Maximum number of replicas with devices that is tried on one node."""

Made = Mapping[str, tuple[int, int]]
"""Class -> (number of replicas that fit on new nodes, lowest price of one in billionths of a dollar
an hour). Classes that fit on no new node are left out."""


@dataclass(slots=True)
class Makers:
    """Counts what one cluster's pools could still create, and keeps the counts until an input
    changes. `told`: namespace -> objects, of which DaemonSets use room on every new node."""

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
        """Rebuilds the templates of new nodes, one for each node pool of cluster `name`, and
        deletes all stored numbers of replicas that fit on new nodes. Does this only if pools,
        prices, daemon pods, sold-out offerings or pools in back-off changed since the last call. A
        pool has no template if it has a fixed number of nodes (static), is in back-off (its last
        nodes could not be created), or has an incomplete catalogue of instance types."""
        sold_out, away = facts.unavailable(policies.types, at), facts.backing_off(at)
        now = (policies.version, sold_out, tuple(sorted(away)))
        if now == self._laid_out:
            return
        daemons = [
            one
            for _, told in sorted(self.told.items())
            for one in told
            if isinstance(one, DaemonPods)
        ]
        self._templates = [
            template_of(pool, policies.types[pool.catalogue], policies.overlays, daemons, sold_out)
            for pool in policies.of(name).values()
            if pool.catalogue in policies.types and pool.replicas is None and pool.name not in away
        ]
        self._laid_out, self._counted = now, {}


def next_return(facts: PoolFacts, at: Micros) -> Micros | None:
    """Returns the earliest time after `at` at which a sold-out offering may be requested again;
    None if there is none."""
    return min([known.until for known in facts.sold_out.values() if known.until > at], default=None)


def covered(book: Occupancy, facts: PoolFacts) -> dict[str, int]:
    """Returns class -> number of its replicas without a node for which a new node was requested.
    They need no room on the existing nodes."""
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
    """Returns for one class: (number of replicas that fit on new nodes of all pools together,
    lowest price of one replica). The price is in billionths of a dollar an hour. None if no pool
    can hold a replica.

    `templates`: the pools. `sums`: pool -> resource -> how much of the pool's limit is used.
    `needs`: the requirements of one replica. The number is at most `COUNT_MAX`. Example: one pool
    holds 40 replicas at price 5, another 10 at price 3: (50, 3).
    """
    needs = bare(needs)
    found = [
        one
        for template in templates
        if (one := _of_pool(template, Left.of(template.pool, sums.get(template.name, {})), needs))
        is not None
    ]
    if not found:
        return None
    return min(COUNT_MAX, sum(count for count, _ in found)), min(price for _, price in found)


def _of_pool(template: Template, left: Left, needs: Requirements) -> tuple[int, int] | None:
    """Returns for one pool: (number of replicas that fit on its new nodes, price of one replica).
    None if the pool can hold no replica.

    Takes the first alternative of the node affinity that some instance type of the pool satisfies.
    Then takes the instance type with the lowest price per replica. The number is (replicas per
    node) times (how many nodes of this type may still be created under the limits of the pool).
    Example: 4 replicas fit on a node and 10 nodes may be created: 40. A node price of 8 then gives
    2 per replica, rounded up. `template`: the pool and its instance types. `left`: the unused part
    of the pool's limits. `needs`: the requirements of one replica.
    """
    for asked in LabelSet.alternatives(needs):
        if template.refusal(needs.tolerations, asked):
            continue
        labels = template.labels.intersect(asked)
        types = template.types
        rows = (
            template.able & types.fitting(labels) & types.with_offering(labels) & left.within(types)
        )
        together = _together(template, rows, needs)
        rows = rows & (together > 0)
        if rows.any():
            price = np.where(rows, -(-types.cheapest(labels) // np.maximum(together, 1)), NO_PRICE)
            row = int(price.argmin())
            return int(together[row]) * _nodes(template, left, row), int(price[row])
    return None


def _together(template: Template, rows: Mask, needs: Requirements) -> Column:
    """Returns int64[types]: how many replicas fit on one new node of each instance type. The value
    is 0 for instance types outside `rows` (bool[types]).

    The number is the minimum over the requested resources of free amount // requested amount.
    Example: 7 CPUs and 16 GiB are free, a replica requests 2 CPUs and 4 GiB: min(3, 4) = 3. Pods
    with host ports or required anti-affinity fit at most once per node. If devices are requested,
    1, 2, ... up to 16 replicas (`TOGETHER_MAX`) are tried, and the largest number whose devices fit
    is an upper bound.
    """
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
    """Returns the number of nodes of the type in row `row` that the pool may still create within
    its limits, at most `NODES_MAX`."""
    count = NODES_MAX
    for name, amount in left.amounts.items():
        each = 1 if name == NODES else int(template.types.capacity_of(name)[row])
        if each > 0:
            count = min(count, amount // each)
    return max(0, count)
