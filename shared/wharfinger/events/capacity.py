"""Topic `wharfinger.capacity`: what still fits into a cluster, as its estimator counts.

State model: key = cluster; each CapacityEstimated is the whole state of its key, all live
requirement classes in it.
"""

from __future__ import annotations

from wharfinger.domain.cluster import NodeGrade
from wharfinger.domain.ids import (
    ClassKey,
    ClusterName,
    DeviceModel,
    NamespaceName,
    PolicyName,
    ResourceName,
    StreamName,
)
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.value import Value


class DeviceTotals(Value, frozen=True):
    """Free devices of one kind and model: `whole` entirely free ones, `milli` free thousandths over
    all."""

    kind: ResourceName
    model: DeviceModel
    whole: int
    milli: int


class QuotaRoom(Value, frozen=True):
    """What the quota `name` leaves to pods of its namespace that its scope covers, by resource
    (units: domain.resources), less what was assigned and is not yet in what it says is used."""

    namespace: NamespaceName
    name: PolicyName
    left: dict[ResourceName, int]
    scope: tuple[Requirement, ...] = ()


class CapacityEstimated(Value, frozen=True):
    """`free`: totals over the cluster's usable nodes less all that is assigned, bound or observed
    (units: domain.resources). `classes`: requirement class key -> how many more replicas fit,
    counted node by node and device by device. `accounted_through`: stream -> highest seq of it that
    is counted in, sound because one cluster's `assignments` partition carries every decision that
    touches the cluster in stream order. `quotas`: a replica also has to fit into every one of
    them that covers it. `grades`: where no nodes are reported, how `free` is distributed
    over nodes, for classes not counted yet. `provisionable`: requirement class key -> how many more
    replicas would fit on nodes that the cluster's pools may still add; `price_of`: class key -> the
    lowest price of one of them there (billionths of a dollar an hour). `unplaced`: requirement
    class key -> by how many replicas its count may be too high, because replicas of other classes
    are assigned and on no node yet.
    """

    cluster: ClusterName
    nodes: int
    free: dict[ResourceName, int]
    classes: dict[ClassKey, int]
    accounted_through: dict[StreamName, int] = {}
    devices: tuple[DeviceTotals, ...] = ()
    quotas: tuple[QuotaRoom, ...] = ()
    grades: tuple[NodeGrade, ...] = ()
    provisionable: dict[ClassKey, int] = {}
    price_of: dict[ClassKey, int] = {}
    unplaced: dict[ClassKey, int] = {}
