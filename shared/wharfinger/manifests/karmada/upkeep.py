"""Karmada's kinds that keep a fleet in order: rebalancers, quotas over all clusters, taints by
condition.

A rebalancer is no thing that stays: it asks once that some workloads be decided again. Quota and
taints are policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator

from wharfinger.domain import taints
from wharfinger.domain.placement import ClusterAffinity as AnyCluster
from wharfinger.domain.policy import ConditionMatch, ConditionTaints, FederatedQuota, Policy
from wharfinger.domain.quota import limited_resource
from wharfinger.domain.value import digest
from wharfinger.domain.workload import ObjectRef
from wharfinger.manifests.amounts import quota_amounts
from wharfinger.manifests.cluster_fact import DEFAULT_NAMESPACE
from wharfinger.manifests.errors import Path
from wharfinger.manifests.karmada.placement import ClusterAffinityManifest
from wharfinger.manifests.model import Amounts, ExpectedError, Model, Object

T = TypeVar("T")


# The rebalancer.


class RebalancedWorkload(Model):
    api_version: str
    kind: str
    name: str
    namespace: str = ""

    def to_domain(self) -> ObjectRef:
        return ObjectRef(self.api_version, self.kind, self.name, self.namespace)


def _at_least_one(found: list[T]) -> list[T]:
    if not found:
        raise ExpectedError("at least one")
    return found


class WorkloadRebalancerSpec(Model, carried="ttlSecondsAfterFinished"):
    workloads: Annotated[list[RebalancedWorkload], AfterValidator(_at_least_one)]


class WorkloadRebalancer(Object):
    spec: WorkloadRebalancerSpec

    @property
    def token(self) -> str:
        """What its workloads are asked again under. Applied again the same object asks nothing new;
        another of its name, or one with other workloads, does."""
        meta = self.metadata
        said = [meta.uid, meta.creation_timestamp, [w.to_domain() for w in self.spec.workloads]]
        return f"{self.kind}/{self.name}/{digest(said)}"


# The quota.


class StaticAssignment(Model):
    cluster_name: str
    hard: Amounts = {}


class FederatedResourceQuotaSpec(Model):
    overall: Amounts
    static_assignments: list[StaticAssignment] = []


class FederatedResourceQuota(Object):
    spec: FederatedResourceQuotaSpec

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or DEFAULT_NAMESPACE

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Limits on what is no request of a replica."""
        yield from super().unacted(path)
        for name in self.spec.overall:
            if not _limited(name):
                yield (*path, "spec", "overall", name)
        for i, assignment in enumerate(self.spec.static_assignments):
            for name in assignment.hard:
                if not limited_resource(name):
                    yield (*path, "spec", "staticAssignments", i, "hard", name)

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for a cluster that is assigned twice."""
        clusters: dict[str, dict[str, int]] = {}
        for i, assignment in enumerate(self.spec.static_assignments):
            if assignment.cluster_name in clusters:
                raise ExpectedError(
                    "each cluster once", "spec", "staticAssignments", i, "clusterName"
                )
            clusters[assignment.cluster_name] = quota_amounts(assignment.hard)
        quota = FederatedQuota(_by_resource(quota_amounts(self.spec.overall)), clusters)
        return Policy(self.kind, self.name, self.namespace, quota=quota, manifest=manifest)


def _by_resource(limits: Mapping[str, int]) -> dict[str, int]:
    """Resource -> limit; of two names for one resource the tighter counts."""
    found: dict[str, int] = {}
    for name, amount in limits.items():
        if resource := _limited(name):
            found[resource] = min(amount, found.get(resource, amount))
    return found


def _limited(name: str) -> str:
    """The resource whose requests a limit is about; empty: none. Karmada compares requests by their
    own names, so that here an extended resource may go without the prefix that quotas of a cluster
    want."""
    plain = "/" in name and not name.startswith(("count/", "limits.", "requests."))
    return name if plain else limited_resource(name)


# The taints.


class MatchCondition(Model):
    condition_type: str
    operator: Literal["In", "NotIn"]
    status_values: list[str]

    def to_domain(self) -> ConditionMatch:
        return ConditionMatch(self.condition_type, self.operator, tuple(self.status_values))


class ConditionTaint(Model):
    key: str
    effect: Literal["NoSchedule", "NoExecute"]
    value: str = ""

    def to_domain(self) -> taints.Taint:
        return taints.Taint(self.key, self.effect, self.value)


class ClusterTaintPolicySpec(Model):
    taints: Annotated[list[ConditionTaint], AfterValidator(_at_least_one)]
    target_clusters: ClusterAffinityManifest | None = None
    add_on_conditions: list[MatchCondition] = []
    remove_on_conditions: list[MatchCondition] = []


class ClusterTaintPolicy(Object):
    spec: ClusterTaintPolicySpec

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError where the target clusters cannot be told."""
        spec = self.spec
        if spec.target_clusters is not None:
            spec.target_clusters.refuse(("spec", "targetClusters"))
        by_condition = ConditionTaints(
            spec.target_clusters.to_domain() if spec.target_clusters else AnyCluster(),
            tuple(taint.to_domain() for taint in spec.taints),
            tuple(match.to_domain() for match in spec.add_on_conditions),
            tuple(match.to_domain() for match in spec.remove_on_conditions),
        )
        return Policy(self.kind, self.name, taints=by_condition, manifest=manifest)
