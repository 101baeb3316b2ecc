"""Kubernetes' storage kinds, as far as they say where a pod with volumes may run: volumes, claims,
classes, and what nodes and drivers can take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from wharfinger.domain import storage as domain
from wharfinger.domain.quantities import parse_units
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.storage import EBS_DRIVER, GCE_DRIVER
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.kubernetes.pod import AwsDisk, GceDisk, Source
from wharfinger.manifests.model import Amounts, Count, Model, NotEmpty, Object, Quantity
from wharfinger.manifests.selectors import LabelSelectorManifest, NodeSelector

STORAGE = "storage"

BOUND = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim: the binding was seen through from both sides."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which a volume is being made."""
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation of a claim or volume: its class, as it was said before there was a field. It goes
first, as there."""

AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
VolumeMode = Literal["Filesystem", "Block"]


def _size(amounts: Mapping[str, str]) -> int:
    """Bytes of storage; 0 where none is named."""
    return parse_units(amounts.get(STORAGE, "0"))


def _class(found: Object, said: str) -> str:
    return found.annotations.get(OLD_CLASS) or said


# Volumes.


class ClaimRef(Model, carried="apiVersion fieldPath kind resourceVersion"):
    name: NotEmpty
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(Model):
    required: NodeSelector | None = None


class Csi(Source):
    driver: NotEmpty
    volume_handle: NotEmpty


class PersistentVolumeSpec(
    Model,
    carried="azureDisk azureFile cephfs cinder fc flexVolume flocker glusterfs hostPath iscsi "
    "local mountOptions nfs persistentVolumeReclaimPolicy photonPersistentDisk "
    "portworxVolume quobyte rbd scaleIO storageos vsphereVolume",
):
    """Of its source only matters which CSI driver has it, for that counts its volumes by node."""

    capacity: Amounts = {}
    access_modes: list[AccessMode] = []
    storage_class_name: str = ""
    volume_mode: VolumeMode = "Filesystem"
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()
    claim_ref: ClaimRef | None = None
    volume_attributes_class_name: str = ""
    csi: Csi | None = None
    aws_elastic_block_store: AwsDisk | None = None
    gce_persistent_disk: GceDisk | None = None

    @property
    def attached(self) -> tuple[str, str]:
        """CSI driver and handle; empty where no driver has it."""
        if self.csi is not None:
            return self.csi.driver, self.csi.volume_handle
        if self.aws_elastic_block_store is not None:
            return EBS_DRIVER, self.aws_elastic_block_store.volume_id
        if self.gce_persistent_disk is not None:
            return GCE_DRIVER, self.gce_persistent_disk.pd_name
        return "", ""


class PersistentVolumeStatus(Source):
    phase: Literal["Pending", "Available", "Bound", "Released", "Failed", ""] = ""


class PersistentVolumeManifest(ClusterFact):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    def to_domain(self) -> domain.PersistentVolume:
        spec, ref = self.spec, self.spec.claim_ref
        required = spec.node_affinity.required
        driver, handle = spec.attached
        return domain.PersistentVolume(
            self.name,
            _size(spec.capacity),
            tuple(spec.access_modes),
            _class(self, spec.storage_class_name),
            spec.volume_mode,
            dict(self.metadata.labels),
            None if required is None else required.to_domain(),
            None if ref is None else domain.ClaimReference(ref.namespace, ref.name, ref.uid),
            self.status.phase == "Available",
            driver,
            handle,
            self.metadata.deletion_timestamp is not None,
            spec.volume_attributes_class_name,
        )


# Claims.


class ClaimResources(Model):
    requests: Amounts = {}
    limits: Amounts = {}


class PersistentVolumeClaimSpec(Model, carried="dataSource dataSourceRef"):
    access_modes: list[AccessMode] = []
    resources: ClaimResources = ClaimResources()
    selector: LabelSelectorManifest | None = None
    storage_class_name: str = ""
    volume_mode: VolumeMode = "Filesystem"
    volume_name: str = ""
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(Source):
    phase: Literal["Pending", "Bound", "Lost", ""] = ""


class PersistentVolumeClaimManifest(ClusterFact):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    def to_domain(self) -> domain.PersistentVolumeClaim:
        spec = self.spec
        return domain.PersistentVolumeClaim(
            self.namespace,
            self.name,
            self.metadata.uid or "",
            _size(spec.resources.requests),
            tuple(spec.access_modes),
            _class(self, spec.storage_class_name),
            spec.volume_mode,
            None if spec.selector is None else spec.selector.to_domain(),
            spec.volume_name,
            BOUND in self.annotations,
            self.annotations.get(SELECTED_NODE, ""),
            self.status.phase == "Lost",
            self.metadata.deletion_timestamp is not None,
            spec.volume_attributes_class_name,
        )


# How volumes are made.


class TopologyExpression(Model):
    key: NotEmpty
    values: list[str]


class TopologyTerm(Model):
    match_label_expressions: list[TopologyExpression] = []

    def to_domain(self) -> NodeTerm:
        return NodeTerm(
            tuple(Requirement(e.key, "In", tuple(e.values)) for e in self.match_label_expressions)
        )


class StorageClassManifest(
    ClusterFact, carried="allowVolumeExpansion mountOptions parameters reclaimPolicy"
):
    provisioner: NotEmpty
    volume_binding_mode: Literal["Immediate", "WaitForFirstConsumer"] = "Immediate"
    allowed_topologies: list[TopologyTerm] = []

    def to_domain(self) -> domain.StorageClass:
        return domain.StorageClass(
            self.name,
            self.provisioner,
            self.volume_binding_mode == "WaitForFirstConsumer",
            tuple(term.to_domain() for term in self.allowed_topologies),
        )


# What nodes and drivers can take.


class DriverAllocatable(Model):
    count: Count | None = None


class NodeDriver(Model, carried="nodeID topologyKeys"):
    name: NotEmpty
    allocatable: DriverAllocatable = DriverAllocatable()


class CSINodeSpec(Model):
    drivers: list[NodeDriver] = []


class CSINodeManifest(ClusterFact):
    travels: ClassVar[bool] = False
    spec: CSINodeSpec = CSINodeSpec()

    def to_domain(self) -> domain.CSINode:
        limits = {
            d.name: count for d in self.spec.drivers if (count := d.allocatable.count) is not None
        }
        return domain.CSINode(self.name, limits)


class CSIDriverSpec(Source):
    """Besides `storageCapacity` it says how volumes are mounted, which is the kubelet's
    business."""

    storage_capacity: bool = False


class CSIDriverManifest(ClusterFact):
    spec: CSIDriverSpec = CSIDriverSpec()

    def to_domain(self) -> domain.CSIDriver:
        return domain.CSIDriver(self.name, self.spec.storage_capacity)


class CSIStorageCapacityManifest(ClusterFact):
    travels: ClassVar[bool] = False
    storage_class_name: NotEmpty
    node_topology: LabelSelectorManifest | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    def to_domain(self) -> domain.CSIStorageCapacity:
        topology, free = self.node_topology, self.capacity or "0"
        return domain.CSIStorageCapacity(
            self.namespace,
            self.name,
            self.storage_class_name,
            None if topology is None else topology.to_domain(),
            parse_units(free),
            parse_units(self.maximum_volume_size or free),
        )
