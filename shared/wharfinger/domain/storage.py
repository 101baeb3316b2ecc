"""Volumes of a member cluster, as far as they say on which nodes a pod may run: what is there, who
claims it, how it is made.

Sizes are bytes. What lies on a volume, who mounts it how and what becomes of it afterwards is not
here.
"""

from __future__ import annotations

from wharfinger.domain.selectors import LabelSelector, NodeTerm
from wharfinger.domain.value import Name, Value

FILESYSTEM = "Filesystem"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes are made by people."""
EBS_DRIVER = "ebs.csi.aws.com"
GCE_DRIVER = "pd.csi.storage.gke.io"
"""The CSI drivers that have taken over the built-in kinds of disks: volumes of those are volumes of
theirs."""


class ClaimReference(Value, frozen=True):
    """The claim that a volume is bound to, or kept for. `uid` empty: whichever claim has that
    name."""

    namespace: str
    name: str
    uid: str = ""


class PersistentVolume(Value, frozen=True, tag="PersistentVolume"):
    """`node_terms`: the nodes that reach it, None: all. `claim`: the claim it is bound to.
    `available`: it is not bound. `driver`, `handle`: of CSI, and of the built-in sources that CSI
    drivers have taken over; empty for others. `deleting`: its deletion has begun."""

    name: Name
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    storage_class: str = ""
    mode: str = FILESYSTEM
    labels: dict[str, str] = {}
    node_terms: tuple[NodeTerm, ...] | None = None
    claim: ClaimReference | None = None
    available: bool = False
    driver: str = ""
    handle: str = ""
    deleting: bool = False
    attributes_class: str = ""

    def is_kept_for(self, claim: PersistentVolumeClaim) -> bool:
        mine = self.claim
        if mine is None or (mine.namespace, mine.name) != (claim.namespace, claim.name):
            return False
        return mine.uid in ("", claim.uid)

    def reached_from(self, labels: dict[str, str]) -> bool:
        """From a node with these labels."""
        return self.node_terms is None or any(term.matches(labels, "") for term in self.node_terms)


class PersistentVolumeClaim(Value, frozen=True, tag="PersistentVolumeClaim"):
    """`volume`: the name of its volume. `bound`: both sides know of it; with a volume and unbound
    it is kept for that one. `selected_node`: a node was chosen, and a volume is being made for it.
    `lost`: its volume is gone."""

    namespace: str
    name: Name
    uid: str = ""
    requested: int = 0
    access_modes: tuple[str, ...] = ()
    storage_class: str = ""
    mode: str = FILESYSTEM
    selector: LabelSelector | None = None
    volume: str = ""
    bound: bool = False
    selected_node: str = ""
    lost: bool = False
    deleting: bool = False
    attributes_class: str = ""


class StorageClass(Value, frozen=True, tag="StorageClass"):
    """`waits`: a claim is bound when a pod that uses it has its node (WaitForFirstConsumer), not
    before. `allowed_topologies`: alternatives; where volumes of it can be made, none:
    everywhere."""

    name: Name
    provisioner: str = ""
    waits: bool = False
    allowed_topologies: tuple[NodeTerm, ...] = ()

    def can_be_made_at(self, labels: dict[str, str]) -> bool:
        return not self.allowed_topologies or any(
            term.matches(labels, "") for term in self.allowed_topologies
        )


class CSINode(Value, frozen=True, tag="CSINode"):
    """`limits`: CSI driver -> how many of its volumes the node takes; a driver that is not here
    sets no limit."""

    name: Name
    limits: dict[str, int] = {}


class CSIDriver(Value, frozen=True, tag="CSIDriver"):
    """`tells_capacity`: it says by CSIStorageCapacity objects how much is free; where it says
    nothing, nothing is."""

    name: Name
    tells_capacity: bool = False


class CSIStorageCapacity(Value, frozen=True, tag="CSIStorageCapacity"):
    """How much is `free` for volumes of a class in a part of the cluster. `topology`: the labels of
    the nodes that reach it, None: no node does. `largest`: the largest volume that can be made,
    which may be less than all that is free."""

    namespace: str
    name: Name
    storage_class: str
    topology: LabelSelector | None = None
    free: int = 0
    largest: int = 0

    def serves(self, size: int, labels: dict[str, str]) -> bool:
        """Whether a volume of `size` can be made here for a node with these labels."""
        return self.largest >= size and self.topology is not None and self.topology.matches(labels)
