"""What nodes cost that are there, and what nodes to be made could be and cost, pool by pool.

A node's price is that of its very offering: instance type, zone and capacity type by its labels, in the catalogue of
its pool, with the overlays. A node whose price is not known saves nothing that anybody could tell."""

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
from wharfinger.engine.disruption.scene import Scene
from wharfinger.engine.provisioning.catalogue import SoldOut, Types
from wharfinger.engine.provisioning.requirements import LabelSet
from wharfinger.engine.provisioning.shop import Shop
from wharfinger.engine.provisioning.templates import Template


@dataclass(frozen=True, slots=True)
class Bought:
    """As what a node was bought. `price`: billionths of a dollar an hour, None: not known."""

    instance_type: str
    zone: str
    capacity_type: str
    price: int | None


class Prices:
    """`types`: catalogue -> its instance types; what is sold out can still have a price. `shop`: to solve with."""

    def __init__(
        self,
        types: Mapping[str, Sequence[InstanceType]],
        overlays: Sequence[NodeOverlay] = (),
        sold_out: SoldOut = frozenset(),
        daemons: Sequence[DaemonPods] = (),
    ) -> None:
        self.shop = Shop(types, overlays, daemons, sold_out)
        self._required: dict[str, LabelSet] = {}
        self._bought: dict[tuple[str, str, str, str], Bought] = {}

    @classmethod
    def of(cls, scene: Scene) -> Prices:
        return cls(scene.types, scene.overlays, scene.sold_out, scene.objects.daemons)

    def template(self, pool: NodePoolPolicy) -> Template:
        """What the pool could make; of no type where its catalogue is not known."""
        return self.shop.template(pool)

    def types(self, pool: NodePoolPolicy) -> Types:
        return self.template(pool).types

    def required(self, pool: NodePoolPolicy) -> LabelSet:
        """What its nodes' labels must be, by its requirements alone."""
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
