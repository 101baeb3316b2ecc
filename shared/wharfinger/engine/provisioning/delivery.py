"""What a claim becomes where nobody sells real machines: the node that a provider would make of it.

Who tries the plane out, a what-if and tests need a provider that keeps its word and costs nothing. It buys as a provider does:
reserved capacity first, then spot, then on demand, of the cheapest instance type that the claim allows, in the cheapest zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wharfinger.domain.instance_types import InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    CLAIM_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
)
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet, ValueSet
from wharfinger.events.provisioning import NodeClaimRequested

_PREFERRED = {"reserved": 0, "spot": 1, "on-demand": 2}


def bought(claim: NodeClaimRequested, types: Mapping[str, InstanceType]) -> tuple[InstanceType, Offering] | None:
    """What a provider would take: of the preferred way to buy the cheapest that the claim allows. None: nothing is to be had."""
    found = list(_to_be_had(claim, types))
    if not found:
        return None
    return min(found, key=lambda one: (_PREFERRED[one[1].capacity_type], one[1].price, one[0].name, one[1].zone))


def delivered(claim: NodeClaimRequested, types: Mapping[str, InstanceType], at: int) -> Node | None:
    """The node, ready, its startup taints gone. It is called as the claim is."""
    taken = bought(claim, types)
    if taken is None:
        return None
    kind, offering = taken
    labels = {
        **_only(LabelSet.of_pool(claim.requirements)),
        **{key: values[0] for key, values in sorted(kind.labels.items()) if len(values) == 1},
        **claim.labels,
        POOL_LABEL: claim.pool,
        INSTANCE_TYPE_LABEL: kind.name,
        ZONE_LABEL: offering.zone,
        CAPACITY_TYPE_LABEL: offering.capacity_type,
        HOSTNAME_LABEL: claim.claim,
        CLAIM_LABEL: claim.claim,
        INITIALIZED_LABEL: "true",
    }
    return Node(
        claim.claim, kind.allocatable, kind.devices, labels, claim.taints, annotations=dict(claim.annotations),
        created_us=at,
    )  # fmt: skip


def _to_be_had(claim: NodeClaimRequested, types: Mapping[str, InstanceType]) -> Iterator[tuple[InstanceType, Offering]]:
    asked = LabelSet.of_pool(claim.requirements)
    zones, ways = asked.get(ZONE_LABEL), asked.get(CAPACITY_TYPE_LABEL)
    for kind in [types[name] for name in claim.instance_types if name in types]:
        for offering in kind.offerings:
            sold = not offering.available or (offering.capacity_type == "reserved" and offering.left <= 0)
            if sold or (claim.ceiling and offering.price >= claim.ceiling):
                continue
            if _allows(zones, offering.zone) and _allows(ways, offering.capacity_type):
                yield kind, offering


def _allows(values: ValueSet | None, value: str) -> bool:
    return values is None or values.allows(value)


def _only(asked: LabelSet) -> dict[str, str]:
    """Labels that the claim leaves no choice about."""
    return {key: only for key, values in asked.items() if (only := values.only) is not None}


def by_name(types: Sequence[InstanceType]) -> dict[str, InstanceType]:
    return {kind.name: kind for kind in types}
