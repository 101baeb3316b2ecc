"""Topic `wharfinger.capacity`: what still fits into a cluster, as its estimator counts.

State model: key = cluster; each CapacityEstimated is the whole state of its key, all live requirement classes in it.
"""

from __future__ import annotations

from wharfinger.domain.cluster import NodeGrade
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.value import Value


class DeviceTotals(Value, frozen=True):
    """Free devices of one kind and model: `whole` entirely free ones, `milli` free thousandths over all."""

    kind: str
    model: str
    whole: int
    milli: int


class QuotaRoom(Value, frozen=True):
    """What the quota `name` leaves to pods of its namespace that its scope covers, by resource (units: domain.resources), less what
    was assigned and is not yet in what it says is used."""

    namespace: str
    name: str
    left: dict[str, int]
    scope: tuple[Requirement, ...] = ()


class CapacityEstimated(Value, frozen=True):
    """`free`: totals over the cluster's usable nodes less all that is assigned, bound or observed (units: domain.resources).
    `classes`: requirement class key -> how many more replicas fit, counted node by node and device by device.
    `accounted_through`: stream -> highest seq of it that is counted in, sound because one cluster's `assignments`
    partition carries every decision that touches the cluster in stream order. `quotas`: whoever is placed has to find room
    in each of them that covers it, too. `grades`: how `free` lies scattered where no nodes are reported, for classes not
    counted yet. `provisionable`: requirement class key -> how many more replicas would fit on nodes that the cluster's pools may
    still make; `price_of`: class key -> what one of them costs there at least (billionths of a dollar an hour).
    """

    cluster: str
    nodes: int
    free: dict[str, int]
    classes: dict[str, int]
    accounted_through: dict[str, int] = {}
    devices: tuple[DeviceTotals, ...] = ()
    quotas: tuple[QuotaRoom, ...] = ()
    grades: tuple[NodeGrade, ...] = ()
    provisionable: dict[str, int] = {}
    price_of: dict[str, int] = {}
