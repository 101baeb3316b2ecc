"""Open Cluster Management's kinds: managed clusters and placements.

A Placement is checked and kept, but not acted on in this version: it selects clusters, and says nothing of replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from wharfinger.domain import cluster as domain
from wharfinger.domain import taints
from wharfinger.domain.policy import Policy
from wharfinger.manifests.errors import Path
from wharfinger.manifests.karmada import DEFAULT_NAMESPACE, lease_s
from wharfinger.manifests.kubernetes import LabelSelector, amounts
from wharfinger.manifests.model import Amounts, Carried, Int32, Model, Object, Unacted

REGION_CLAIM = "region.open-cluster-management.io"
PLATFORM_CLAIM = "platform.open-cluster-management.io"


class ManagedClusterTaint(Model):
    """NoSelectIfNew keeps new work away and leaves what is there, which is what NoSchedule means for a member cluster.

    NoSelect would also take away what is there: only the first half of that is acted on.
    """

    key: str
    effect: Literal["NoSelect", "NoSelectIfNew", "PreferNoSelect"]
    value: str = ""
    time_added: Carried = None

    def to_domain(self) -> taints.Taint:
        effect: taints.Effect = "PreferNoSchedule" if self.effect == "PreferNoSelect" else "NoSchedule"
        return taints.Taint(self.key, effect, self.value)

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        if self.effect == "NoSelect":
            yield (*path, "effect")


class ManagedClusterSpec(Model):
    taints: list[ManagedClusterTaint] = []
    hub_accepts_client: Carried = None
    lease_duration_seconds: Unacted = None
    managed_cluster_client_configs: Carried = None


class ClusterClaim(Model):
    name: str
    value: str


class ManagedClusterStatus(Model):
    allocatable: Amounts = {}
    cluster_claims: list[ClusterClaim] = []
    conditions: Unacted = None
    capacity: Carried = None
    managed_namespaces: Carried = None
    version: Carried = None


class ManagedCluster(Object):
    spec: ManagedClusterSpec = ManagedClusterSpec()
    status: ManagedClusterStatus = ManagedClusterStatus()

    def to_domain(self) -> domain.Cluster:
        """Region and provider come from its claims. Raises ExpectedError."""
        claims = {c.name: c.value for c in self.status.cluster_claims}
        allocatable = amounts(self.status.allocatable)
        return domain.Cluster(
            self.name,
            labels=dict(self.metadata.labels),
            provider=claims.get(PLATFORM_CLAIM, ""),
            region=claims.get(REGION_CLAIM, ""),
            taints=tuple(t.to_domain() for t in self.spec.taints),
            lease_s=lease_s(self),
            deleting=self.metadata.deletion_timestamp is not None,
            summary=domain.ResourceSummary(allocatable) if allocatable else None,
        )


class ClaimExpression(Model):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class ClaimSelector(Model):
    match_expressions: list[ClaimExpression] = []


class CelSelector(Model):
    cel_expressions: list[str] = []


class RequiredClusterSelector(Model):
    label_selector: LabelSelector | None = None
    claim_selector: ClaimSelector | None = None
    cel_selector: CelSelector | None = None


class Predicate(Model):
    required_cluster_selector: RequiredClusterSelector = RequiredClusterSelector()


class PlacementToleration(Model):
    key: str = ""
    operator: Literal["Equal", "Exists", ""] = "Equal"
    value: str = ""
    effect: Literal["NoSelect", "NoSelectIfNew", "PreferNoSelect", ""] = ""
    toleration_seconds: Int32 | None = None


class PlacementSpec(Model):
    cluster_sets: list[str] = []
    number_of_clusters: Int32 | None = None
    predicates: list[Predicate] = []
    tolerations: list[PlacementToleration] = []
    decision_strategy: Carried = None
    prioritizer_policy: Carried = None
    sort_by: Carried = None
    spread_policy: Carried = None
    score_rate_limit: Carried = None


class Placement(Object):
    spec: PlacementSpec = PlacementSpec()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def to_domain(self, manifest: str) -> Policy:
        return Policy(self.kind, self.name, self.namespace, manifest=manifest)

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield (*path, "spec")
