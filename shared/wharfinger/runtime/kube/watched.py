"""What is read of a cluster, each kind with the reason: the one list that the collector's
reflectors, the rights that are printed and the check of a joined cluster follow.

A kind that a server does not have (`/apis/<group>/<version>` without it) is not read there. Of a
kind in two versions the first that the server has is read.
"""

from __future__ import annotations

from dataclasses import dataclass

VERBS = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """`group`: "" is the core group. `version`: that is read. `becomes`: the facts that are made of
    it. `required`: without the right to read it a cluster is not joined."""

    group: str
    version: str
    resource: str
    kind: str
    becomes: str
    verbs: tuple[str, ...] = VERBS
    required: bool = True

    @property
    def group_version(self) -> str:
        """As manifests say it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """Where the server lists the kinds of this group and version."""
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """As kubectl names it, such as `statefulsets.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


_STORAGE = "storage.k8s.io"
_DEVICES = "resource.k8s.io"

NODE_METRICS = WatchedKind(
    "metrics.k8s.io",
    "v1beta1",
    "nodes",
    "NodeMetrics",
    "load of nodes, where no Prometheus is set",
    verbs=("get", "list"),
    required=False,
)
"""Is asked for from time to time: the server has no watch of it."""

WATCHED: tuple[WatchedKind, ...] = (
    WatchedKind("", "v1", "nodes", "Node", "nodes, images on them"),
    WatchedKind("", "v1", "pods", "Pod", "pods on nodes, pods that wait"),
    # The uid of kube-system says which cluster this is; affinity terms select by labels.
    WatchedKind("", "v1", "namespaces", "Namespace", "affinity over namespaces"),
    WatchedKind("", "v1", "resourcequotas", "ResourceQuota", "quotas"),
    # What selects a pod is what default spreading counts.
    WatchedKind("", "v1", "services", "Service", "default spreading"),
    WatchedKind("", "v1", "replicationcontrollers", "ReplicationController", "default spreading"),
    WatchedKind("apps", "v1", "replicasets", "ReplicaSet", "default spreading, owners"),
    WatchedKind("apps", "v1", "statefulsets", "StatefulSet", "default spreading"),
    WatchedKind("apps", "v1", "daemonsets", "DaemonSet", "room for daemons"),
    WatchedKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "budgets"),
    WatchedKind("", "v1", "persistentvolumes", "PersistentVolume", "volumes"),
    WatchedKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "volumes"),
    WatchedKind(_STORAGE, "v1", "storageclasses", "StorageClass", "volumes"),
    WatchedKind(_STORAGE, "v1", "csinodes", "CSINode", "limits of volumes"),
    WatchedKind(_STORAGE, "v1", "csidrivers", "CSIDriver", "capacity of storage"),
    WatchedKind(
        _STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity", "capacity of storage"
    ),
    WatchedKind(_DEVICES, "v1", "deviceclasses", "DeviceClass", "devices"),
    WatchedKind(_DEVICES, "v1", "resourceslices", "ResourceSlice", "devices"),
    WatchedKind(_DEVICES, "v1", "resourceclaims", "ResourceClaim", "claims of devices"),
    WatchedKind(_DEVICES, "v1beta2", "deviceclasses", "DeviceClass", "devices"),
    WatchedKind(_DEVICES, "v1beta2", "resourceslices", "ResourceSlice", "devices"),
    WatchedKind(_DEVICES, "v1beta2", "resourceclaims", "ResourceClaim", "claims of devices"),
    WatchedKind("karpenter.sh", "v1", "nodeclaims", "NodeClaim", "nodes to come"),
    NODE_METRICS,
)

_KARMADA_POLICY = "policy.karmada.io"
_KARMADA_WORK = "work.karmada.io"
_OCM = "cluster.open-cluster-management.io"

HUB_WATCHED: tuple[WatchedKind, ...] = (
    # Its uid says which hub this is.
    WatchedKind("", "v1", "namespaces", "Namespace", "which server this is", verbs=("get",)),
    WatchedKind("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", "clusters"),
    WatchedKind(
        _KARMADA_POLICY, "v1alpha1", "propagationpolicies", "PropagationPolicy", "policies"
    ),
    WatchedKind(
        _KARMADA_POLICY,
        "v1alpha1",
        "clusterpropagationpolicies",
        "ClusterPropagationPolicy",
        "policies",
    ),
    WatchedKind(_KARMADA_WORK, "v1alpha2", "resourcebindings", "ResourceBinding", "bindings"),
    WatchedKind(
        _KARMADA_WORK, "v1alpha2", "clusterresourcebindings", "ClusterResourceBinding", "bindings"
    ),
    WatchedKind(_OCM, "v1", "managedclusters", "ManagedCluster", "clusters"),
    WatchedKind(_OCM, "v1beta2", "managedclustersets", "ManagedClusterSet", "sets of clusters"),
    WatchedKind(
        _OCM, "v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding", "sets of clusters"
    ),
    WatchedKind(_OCM, "v1beta1", "placements", "Placement", "placements"),
    # What its own scheduler chose, for shadow.
    WatchedKind(
        _OCM, "v1beta1", "placementdecisions", "PlacementDecision", "choices of its scheduler"
    ),
    WatchedKind(
        _OCM, "v1alpha1", "addonplacementscores", "AddOnPlacementScore", "scores of clusters"
    ),
    WatchedKind("karpenter.sh", "v1", "nodepools", "NodePool", "node pools"),
    WatchedKind("karpenter.sh", "v1alpha1", "nodeoverlays", "NodeOverlay", "node pools"),
)
"""What is read of a hub: a server that holds the objects of a fleet."""


def watched_of(hub: bool) -> tuple[WatchedKind, ...]:
    return HUB_WATCHED if hub else WATCHED


NON_RESOURCE = ("/readyz", "/version")
"""Paths that are no objects: whether the server works, and which version it is."""

DISCOVERY = ("/api/*", "/apis/*")
"""Which kinds the server has, by group and version."""
