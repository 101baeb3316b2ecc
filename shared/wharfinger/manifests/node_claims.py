"""Karpenter's NodeClaim, as a cluster has it, and the classes of nodes by which providers make them.

A NodeClaim is a fact of its cluster: how far a node that was asked for has come. What is asked for here leaves as NodeClaims of the
same form (`events.claims`). Node classes are a provider's own: they are taken, so that a file with them can be applied as it is,
and nothing here acts on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL
from wharfinger.manifests.amounts import amounts
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import Amounts, Carried, Model, Object, micros
from wharfinger.manifests.pod import Source

NOT_YET = frozenset({"", "AwaitingReconciliation"})
"""Reasons of a condition that only say that nobody has looked yet."""


class ResourceRequests(Model):
    requests: Amounts = {}


class NodeClaimSpec(Model):
    """By what the node is to be made is Karpenter's business once it is asked for."""

    resources: ResourceRequests = ResourceRequests()
    requirements: Carried = None
    taints: Carried = None
    startup_taints: Carried = None
    node_class_ref: Carried = None
    expire_after: Carried = None
    termination_grace_period: Carried = None


class Condition(Source):
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
    conditions: list[Condition] = []


class NodeClaim(ClusterFact):
    travels: ClassVar[bool] = False
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatusSaid = NodeClaimStatusSaid()

    def to_domain(self) -> NodeClaimStatus:
        meta, status, labels = self.metadata, self.status, self.metadata.labels
        told = {condition.type: condition for condition in status.conditions}
        launched, registered, initialized = (
            told[kind].holds if kind in told else None for kind in ("Launched", "Registered", "Initialized")
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


class NodeClass(Object):
    """EC2NodeClass, AKSNodeClass and the like."""

    spec: Carried = None
    status: Carried = None

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield (*path, "kind")
