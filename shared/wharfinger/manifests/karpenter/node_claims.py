"""Karpenter's NodeClaim, as a cluster reports it, and the node classes from which providers create
nodes.

A NodeClaim is a fact of its cluster: the progress of a node that was requested. Requests of this
plane are published as NodeClaims of the same form (`events.claims`). Node classes belong to a
provider: they are accepted, so that a file with them can be applied as it is, but not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
)
from wharfinger.manifests.amounts import amounts
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes.pod import Source
from wharfinger.manifests.model import Amounts, Model, Object, micros

NOT_YET = frozenset({"", "AwaitingReconciliation"})
"""Reasons that mean only that no controller has examined the condition yet."""


class ResourceRequests(Model):
    requests: Amounts = {}


class NodeClaimSpec(
    Model,
    carried="requirements taints startupTaints nodeClassRef expireAfter terminationGracePeriod",
):
    """By what the node is to be made is Karpenter's business once it is asked for."""

    resources: ResourceRequests = ResourceRequests()


class NodeClaimCondition(Source):
    type: str
    status: str = ""
    reason: str = ""

    @property
    def holds(self) -> bool | None:
        return {"True": True, "False": False}.get(self.status)


class NodeClaimStatusSaid(Source):
    node_name: str = ""
    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: list[NodeClaimCondition] = []


class NodeClaim(ClusterFact):
    travels: ClassVar[bool] = False
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatusSaid = NodeClaimStatusSaid()

    def to_domain(self) -> NodeClaimStatus:
        meta, status, labels = self.metadata, self.status, self.metadata.labels
        told = {condition.type: condition for condition in status.conditions}
        launched, registered, initialized = (
            told[kind].holds if kind in told else None
            for kind in ("Launched", "Registered", "Initialized")
        )
        reason = told["Launched"].reason if "Launched" in told and not launched else ""
        return NodeClaimStatus(
            self.name,
            labels.get(POOL_LABEL, ""),
            labels.get(INSTANCE_TYPE_LABEL, ""),
            labels.get(ZONE_LABEL, ""),
            labels.get(CAPACITY_TYPE_LABEL, ""),
            status.node_name,
            launched,
            registered,
            initialized,
            "" if reason in NOT_YET else reason,
            amounts(self.spec.resources.requests),
            amounts(status.capacity),
            amounts(status.allocatable),
            meta.deletion_timestamp is not None,
            micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
        )


class NodeClass(Object, carried="spec status"):
    """EC2NodeClass, AKSNodeClass and the like."""

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield (*path, "kind")
