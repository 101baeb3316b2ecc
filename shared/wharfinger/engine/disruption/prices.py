"""Provides the prices of existing nodes, and the instance types and prices of new nodes, per pool.

A node's price is that of its offering: instance type, zone and capacity type by its labels, in its
pool's catalogue, with overlays. If it is unknown, removing the node counts as saving nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster_objects import DaemonPods
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    NodeOverlay,
    NodePoolPolicy,
)
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.provisioning.catalogue import SoldOut, Types
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.templates import Template
from wharfinger.engine.provisioning.type_index import InstanceTypeIndex


@dataclass(frozen=True, slots=True)
class Bought:
    """The offering as which a node was bought. `price`: billionths of a dollar an hour; None: not
    known."""

    instance_type: str
    zone: str
    capacity_type: str
    price: int | None


class NodePrices:
    """Looks up the price of existing nodes and the template of new nodes, by pool.

    `types`: catalogue -> its instance types. `sold_out`: offerings that cannot be bought now;
    existing nodes of such offerings still have a price. `type_index`: the index over the same
    types, for `provisioning.solve`.
    """

    def __init__(
        self,
        types: Mapping[str, Sequence[InstanceType]],
        overlays: Sequence[NodeOverlay] = (),
        sold_out: SoldOut = frozenset(),
        daemons: Sequence[DaemonPods] = (),
    ) -> None:
        self.type_index = InstanceTypeIndex(types, overlays, daemons, sold_out)
        self._required: dict[str, LabelSet] = {}
        self._bought: dict[tuple[str, str, str, str], Bought] = {}

    @classmethod
    def of(cls, scene: ClusterSnapshot) -> NodePrices:
        return cls(scene.types, scene.overlays, scene.sold_out, scene.objects.daemons)

    def template(self, pool: NodePoolPolicy) -> Template:
        """Returns the template of new nodes of this pool. It has no instance types if the pool's
        catalogue is not known."""
        return self.type_index.template(pool)

    def types(self, pool: NodePoolPolicy) -> Types:
        return self.template(pool).types

    def required(self, pool: NodePoolPolicy) -> LabelSet:
        """Returns the label values that the pool's requirements allow on its nodes. Only the
        requirements count, not the labels of instance types."""
        found = self._required.get(pool.name)
        if found is None:
            found = self._required[pool.name] = LabelSet.of_pool(pool.requirements)
        return found

    def bought(self, node: Node, pool: NodePoolPolicy) -> Bought:
        labels = node.labels
        kind, zone = labels.get(INSTANCE_TYPE_LABEL, ""), labels.get(ZONE_LABEL, "")
        capacity_type = labels.get(CAPACITY_TYPE_LABEL, "")
        key = (pool.name, kind, zone, capacity_type)
        found = self._bought.get(key)
        if found is None:
            price = self.types(pool).price_of(kind, zone, capacity_type)
            found = self._bought[key] = Bought(kind, zone, capacity_type, price)
        return found
