"""Objects of a member cluster that are neither nodes nor pods, and by which the placing of pods on
nodes goes.

Each is the whole state of its name. `ClusterObjects` is all of them together, as one decision sees
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from wharfinger.domain.device_claims import DeviceClass, ResourceClaim, ResourceSlice
from wharfinger.domain.ids import (
    AmountText,
    Bounded,
    LabelKey,
    LabelText,
    NamespaceName,
    PodName,
    Word,
    WorkloadName,
)
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from wharfinger.domain.value import Name, Value
from wharfinger.domain.workload import Requirements

T = TypeVar("T")


class NamespaceLabels(Value, frozen=True, tag="Namespace"):
    name: Bounded[NamespaceName]
    labels: dict[LabelKey, LabelText] = {}


class PodSelecting(Value, frozen=True, tag="PodSelecting"):
    """A Service, ReplicaSet, ReplicationController or StatefulSet, of which only matters which pods
    it selects: by them the pods of one application are spread by default."""

    kind: Word
    namespace: NamespaceName
    name: Bounded[WorkloadName]
    selector: LabelSelector


class DisruptionBudget(Value, frozen=True, tag="PodDisruptionBudget"):
    """`allowed`: how many of the pods that `selector` matches may be disrupted now, as the cluster
    reports it; None: it has not, and the number follows from `min_available` or `max_unavailable`
    (a count, or a percentage as `30%`). `disrupted`: names of pods whose disruption was let through
    and is not done yet. `selector` None matches no pod, an empty one all of the namespace."""

    namespace: NamespaceName
    name: Bounded[WorkloadName]
    selector: LabelSelector | None = None
    allowed: int | None = None
    min_available: AmountText = ""
    max_unavailable: AmountText = ""
    disrupted: tuple[PodName, ...] = ()


class DaemonPods(Value, frozen=True, tag="DaemonSet"):
    """A DaemonSet, of which matters what one pod of it asks of each node that will have it."""

    namespace: NamespaceName
    name: Bounded[WorkloadName]
    requirements: Requirements
    priority: int = 0


class NodeClaimStatus(Value, frozen=True, tag="NodeClaim"):
    """A Karpenter NodeClaim as its cluster has it. `launched`, `registered`, `initialized`: its
    conditions; None: not said. `failure`: why it was not launched, as `InsufficientCapacityError`.
    `node`: what became of it. `requests`: what it was made to hold."""

    name: Name
    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    node: str = ""
    launched: bool | None = None
    registered: bool | None = None
    initialized: bool | None = None
    failure: str = ""
    requests: dict[str, int] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    deleting: bool = False
    created_us: int = 0


ClusterObject = (
    NamespaceLabels
    | PodSelecting
    | DisruptionBudget
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | DeviceClass
    | ResourceSlice
    | ResourceClaim
    | DaemonPods
    | NodeClaimStatus
)


class ClusterObjects(Value, frozen=True):
    """In order of namespace and name."""

    namespaces: tuple[NamespaceLabels, ...] = ()
    selecting: tuple[PodSelecting, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    capacities: tuple[CSIStorageCapacity, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    daemons: tuple[DaemonPods, ...] = ()
    node_claims: tuple[NodeClaimStatus, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[ClusterObject]) -> ClusterObjects:
        by_type: dict[type, list[Any]] = {}
        for found in sorted(objects, key=_place):
            by_type.setdefault(type(found), []).append(found)

        def only(kind: type[T]) -> tuple[T, ...]:
            return tuple(cast("list[T]", by_type.get(kind, [])))

        return cls(
            only(NamespaceLabels),
            only(PodSelecting),
            only(DisruptionBudget),
            only(PersistentVolume),
            only(PersistentVolumeClaim),
            only(StorageClass),
            only(CSINode),
            only(CSIDriver),
            only(CSIStorageCapacity),
            only(DeviceClass),
            only(ResourceSlice),
            only(ResourceClaim),
            only(DaemonPods),
            only(NodeClaimStatus),
        )

    def volume(self, name: str) -> PersistentVolume | None:
        return _found(self.volumes, name)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return _found(self.claims, name, namespace)

    def storage_class(self, name: str) -> StorageClass | None:
        return _found(self.storage_classes, name)

    def csi_node(self, name: str) -> CSINode | None:
        return _found(self.csi_nodes, name)

    def csi_driver(self, name: str) -> CSIDriver | None:
        return _found(self.csi_drivers, name)

    def device_class(self, name: str) -> DeviceClass | None:
        return _found(self.device_classes, name)

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return _found(self.resource_claims, name, namespace)


def _place(found: Any) -> tuple[str, str]:
    """The namespace, empty for what is of the whole cluster, and the name."""
    return getattr(found, "namespace", ""), found.name


def _found(among: Sequence[T], name: str, namespace: str = "") -> T | None:
    at = bisect_left(among, (namespace, name), key=_place)
    return among[at] if at < len(among) and _place(among[at]) == (namespace, name) else None
