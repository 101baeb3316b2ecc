"""Every kind that is read, in one list: what a manifest may be, and under which model it is
checked."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.manifests import crane, ocm
from wharfinger.manifests.descheduler import policy as descheduler
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.karmada import upkeep as karmada_upkeep
from wharfinger.manifests.karpenter import node_claims
from wharfinger.manifests.karpenter import pools as karpenter
from wharfinger.manifests.kubernetes import cluster_objects, device_claims, storage
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes import scheduler as kube_scheduler
from wharfinger.manifests.kubernetes import scheduler_policy as kube_policy
from wharfinger.manifests.model import Resource
from wharfinger.manifests.wharfinger import rebalancing


@dataclass(frozen=True, slots=True)
class Kind:
    """`namespaced`: its name is unique within a namespace only.

    `open`: fields of newer releases are accepted and reported. Our own kinds and configurations of
    schedulers are closed: each of their fields steers decisions, and the programs they are written
    for refuse unknown ones as well.
    """

    api_version: str
    kind: str
    model: type[Resource]
    namespaced: bool = True

    @property
    def open(self) -> bool:
        return (
            self.api_version.partition("/")[0] not in CLOSED
            and self.model is not kube_policy.PolicyFile
        )


CLOSED = frozenset(
    ("wharfinger.io", "kubescheduler.config.k8s.io", "descheduler", "scheduler.policy.crane.io")
)
"""Groups of our own kinds and of configurations."""


KINDS: tuple[Kind, ...] = (
    # The fleet.
    Kind("cluster.karmada.io/v1alpha1", "Cluster", karmada.ClusterManifest, namespaced=False),
    Kind(
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
        ocm.ManagedCluster,
        namespaced=False,
    ),
    Kind("v1", "Node", kubernetes.NodeManifest, namespaced=False),
    # Policies.
    Kind("policy.karmada.io/v1alpha1", "PropagationPolicy", karmada.PropagationPolicy),
    Kind(
        "policy.karmada.io/v1alpha1",
        "ClusterPropagationPolicy",
        karmada.ClusterPropagationPolicy,
        namespaced=False,
    ),
    Kind("cluster.open-cluster-management.io/v1beta1", "Placement", ocm.PlacementManifest),
    Kind("cluster.open-cluster-management.io/v1beta1", "PlacementDecision", ocm.PlacementDecision),
    Kind(
        "cluster.open-cluster-management.io/v1beta2",
        "ManagedClusterSet",
        ocm.ManagedClusterSet,
        namespaced=False,
    ),
    Kind(
        "cluster.open-cluster-management.io/v1beta2",
        "ManagedClusterSetBinding",
        ocm.ManagedClusterSetBinding,
    ),
    Kind(
        "cluster.open-cluster-management.io/v1alpha1",
        "AddOnPlacementScore",
        ocm.AddOnPlacementScore,
    ),
    Kind(
        "policy.karmada.io/v1alpha1",
        "FederatedResourceQuota",
        karmada_upkeep.FederatedResourceQuota,
    ),
    Kind(
        "policy.karmada.io/v1alpha1",
        "ClusterTaintPolicy",
        karmada_upkeep.ClusterTaintPolicy,
        namespaced=False,
    ),
    Kind(
        "scheduler.policy.crane.io/v1alpha1",
        "DynamicSchedulerPolicy",
        crane.DynamicSchedulerPolicy,
        namespaced=False,
    ),
    Kind("karpenter.sh/v1", "NodePool", karpenter.NodePool, namespaced=False),
    Kind("karpenter.sh/v1beta1", "NodePool", karpenter.BetaNodePool, namespaced=False),
    Kind("karpenter.sh/v1alpha1", "NodeOverlay", karpenter.NodeOverlayManifest, namespaced=False),
    Kind(descheduler.V1ALPHA2, descheduler.KIND, descheduler.DeschedulerPolicy, namespaced=False),
    Kind(
        descheduler.V1ALPHA1, descheduler.KIND, descheduler.OldDeschedulerPolicy, namespaced=False
    ),
    Kind(
        rebalancing.API_VERSION,
        rebalancing.KIND,
        rebalancing.RebalancePolicyManifest,
        namespaced=False,
    ),
    Kind(
        kube_scheduler.V1,
        kube_scheduler.KIND,
        kube_scheduler.KubeSchedulerConfiguration,
        namespaced=False,
    ),
    Kind(
        kube_scheduler.V1BETA3,
        kube_scheduler.KIND,
        kube_scheduler.BetaConfiguration,
        namespaced=False,
    ),
    Kind(
        kube_scheduler.V1BETA2,
        kube_scheduler.KIND,
        kube_scheduler.BetaConfiguration,
        namespaced=False,
    ),
    Kind(
        kube_scheduler.V1ALPHA1,
        kube_scheduler.KIND,
        kube_policy.ProviderConfiguration,
        namespaced=False,
    ),
    Kind("v1", "Policy", kube_policy.PolicyFile, namespaced=False),
    Kind(kube_scheduler.V1, "Policy", kube_policy.PolicyFile, namespaced=False),
    Kind("scheduling.k8s.io/v1", "PriorityClass", cluster_objects.PriorityClass, namespaced=False),
    Kind("scheduling.k8s.io/v1beta1", "PodGroup", cluster_objects.PodGroup),
    Kind("scheduling.k8s.io/v1alpha2", "PodGroup", cluster_objects.PodGroup),
    Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", cluster_objects.PodGroup),
    Kind("scheduling.volcano.sh/v1beta1", "PodGroup", cluster_objects.PodGroup),
    Kind("scheduling.k8s.io/v1alpha1", "Workload", cluster_objects.GangWorkload),
    # How a provider makes nodes: taken along, and not acted on.
    Kind("karpenter.k8s.aws/v1", "EC2NodeClass", node_claims.NodeClass, namespaced=False),
    Kind("karpenter.k8s.aws/v1beta1", "EC2NodeClass", node_claims.NodeClass, namespaced=False),
    Kind("karpenter.azure.com/v1beta1", "AKSNodeClass", node_claims.NodeClass, namespaced=False),
    Kind("karpenter.azure.com/v1alpha2", "AKSNodeClass", node_claims.NodeClass, namespaced=False),
    Kind("karpenter.k8s.gcp/v1alpha1", "GCENodeClass", node_claims.NodeClass, namespaced=False),
    Kind("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", node_claims.NodeClass, namespaced=False),
    # What is asked once.
    Kind(
        "apps.karmada.io/v1alpha1",
        "WorkloadRebalancer",
        karmada_upkeep.WorkloadRebalancer,
        namespaced=False,
    ),
    # Workloads.
    Kind("apps/v1", "Deployment", kubernetes.Deployment),
    Kind("apps/v1", "StatefulSet", kubernetes.StatefulSet),
    Kind("apps/v1", "ReplicaSet", kubernetes.ReplicaSet),
    Kind("batch/v1", "Job", kubernetes.Job),
    Kind("v1", "Pod", kubernetes.PodManifest),
    # Objects without replicas.
    Kind("apps/v1", "DaemonSet", kubernetes.DaemonSet),
    Kind("batch/v1", "CronJob", kubernetes.CronJob),
    Kind("v1", "ConfigMap", kubernetes.ConfigMap),
    Kind("v1", "Namespace", kubernetes.Namespace, namespaced=False),
    Kind("v1", "ResourceQuota", kubernetes.ResourceQuota),
    # By which the pods of a member cluster are placed; those that can travel are objects without
    # replicas elsewhere.
    Kind("v1", "Service", cluster_objects.ServiceManifest),
    Kind("v1", "ReplicationController", cluster_objects.ReplicationController),
    Kind("karpenter.sh/v1", "NodeClaim", node_claims.NodeClaim, namespaced=False),
    Kind("policy/v1", "PodDisruptionBudget", cluster_objects.PodDisruptionBudget),
    Kind("v1", "PersistentVolumeClaim", storage.PersistentVolumeClaimManifest),
    Kind("v1", "PersistentVolume", storage.PersistentVolumeManifest, namespaced=False),
    Kind("storage.k8s.io/v1", "StorageClass", storage.StorageClassManifest, namespaced=False),
    Kind("storage.k8s.io/v1", "CSINode", storage.CSINodeManifest, namespaced=False),
    Kind("storage.k8s.io/v1", "CSIDriver", storage.CSIDriverManifest, namespaced=False),
    Kind("storage.k8s.io/v1", "CSIStorageCapacity", storage.CSIStorageCapacityManifest),
    Kind("resource.k8s.io/v1", "DeviceClass", device_claims.DeviceClassManifest, namespaced=False),
    Kind(
        "resource.k8s.io/v1", "ResourceSlice", device_claims.ResourceSliceManifest, namespaced=False
    ),
    Kind("resource.k8s.io/v1", "ResourceClaim", device_claims.ResourceClaimManifest),
    Kind(
        "resource.k8s.io/v1beta2",
        "DeviceClass",
        device_claims.DeviceClassManifest,
        namespaced=False,
    ),
    Kind(
        "resource.k8s.io/v1beta2",
        "ResourceSlice",
        device_claims.ResourceSliceManifest,
        namespaced=False,
    ),
    Kind("resource.k8s.io/v1beta2", "ResourceClaim", device_claims.ResourceClaimManifest),
    # Bindings written by hand or exported.
    Kind("work.karmada.io/v1alpha2", "ResourceBinding", karmada.ResourceBinding),
    Kind("work.karmada.io/v1alpha1", "ResourceBinding", karmada.ResourceBinding),
    Kind(
        "work.karmada.io/v1alpha2",
        "ClusterResourceBinding",
        karmada.ClusterResourceBinding,
        namespaced=False,
    ),
    Kind(
        "work.karmada.io/v1alpha1",
        "ClusterResourceBinding",
        karmada.ClusterResourceBinding,
        namespaced=False,
    ),
)

BY_NAME = {(k.api_version, k.kind): k for k in KINDS}


def versions_of(kind: str) -> list[str]:
    """The apiVersions under which a kind of this name is read."""
    return [k.api_version for k in KINDS if k.kind == kind]
