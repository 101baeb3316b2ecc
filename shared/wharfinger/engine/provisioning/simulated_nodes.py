"""A simulated provider: the node that a claim would become.

Used for demonstrations, what-if and tests, where no real machines are bought. It buys as a provider
does: reserved capacity first, then spot, then on-demand; the cheapest instance type that the claim
allows, in the cheapest zone.
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
from wharfinger.events.decisions import NodeClaim

_PREFERRED = {"reserved": 0, "spot": 1, "on-demand": 2}


def bought(
    claim: NodeClaim, types: Mapping[str, InstanceType]
) -> tuple[InstanceType, Offering] | None:
    """Chooses the instance type and the offering that a provider would launch for a node claim.
    Returns None if no offering that the claim allows is available.

    Reserved offerings come first, then spot, then on-demand. Within a capacity type the cheapest
    comes first. Equal prices are ordered by type name, then by zone. Example: spot at $2 is chosen
    before on-demand at $1. `types`: name -> instance type.
    """
    found = list(_to_be_had(claim, types))
    if not found:
        return None
    return min(
        found,
        key=lambda one: (_PREFERRED[one[1].capacity_type], one[1].price, one[0].name, one[1].zone),
    )


def delivered(claim: NodeClaim, types: Mapping[str, InstanceType], at: int) -> Node | None:
    """Returns the node that a provider would create for a node claim, or None if no offering that
    the claim allows is available.

    The node has the name of the claim, is ready, and has no startup taints. Its labels are those of
    the claim, of the chosen instance type and of the offering. `types`: name -> instance type.
    `at`: the creation time of the node, microseconds.
    """
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
        claim.claim,
        kind.allocatable,
        kind.devices,
        labels,
        claim.taints,
        annotations=dict(claim.annotations),
        created_us=at,
    )


def _to_be_had(
    claim: NodeClaim, types: Mapping[str, InstanceType]
) -> Iterator[tuple[InstanceType, Offering]]:
    asked = LabelSet.of_pool(claim.requirements)
    zones, ways = asked.get(ZONE_LABEL), asked.get(CAPACITY_TYPE_LABEL)
    for kind in [types[name] for name in claim.instance_types if name in types]:
        for offering in kind.offerings:
            sold = not offering.available or (
                offering.capacity_type == "reserved" and offering.left <= 0
            )
            if sold or (claim.ceiling and offering.price >= claim.ceiling):
                continue
            if _allows(zones, offering.zone) and _allows(ways, offering.capacity_type):
                yield kind, offering


def _allows(values: ValueSet | None, value: str) -> bool:
    return values is None or values.allows(value)


def _only(asked: LabelSet) -> dict[str, str]:
    """Returns the labels for which the claim allows exactly one value."""
    return {key: only for key, values in asked.items() if (only := values.only) is not None}


def by_name(types: Sequence[InstanceType]) -> dict[str, InstanceType]:
    return {kind.name: kind for kind in types}
