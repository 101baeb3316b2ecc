"""Topic `wharfinger.policies`: what users applied.

State model: key = kind/namespace/name; each PolicyApplied is the whole state of its key.
PolicyRemoved ends it.
"""

from __future__ import annotations

from wharfinger.domain.ids import NamespaceName, PolicyName, Word
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value


class PolicyApplied(Value, frozen=True):
    policy: Policy


class PolicyRemoved(Value, frozen=True):
    kind: Word
    name: PolicyName
    namespace: NamespaceName = ""


EVERY_SHARD_KINDS = frozenset(("FederatedResourceQuota", "ClusterTaintPolicy", "RebalancePolicy"))
"""Kinds of policies that every fleet shard acts on, and no cluster stream."""

FIRST_SHARD_KINDS = frozenset(
    (
        "Placement",
        "ManagedClusterSet",
        "ManagedClusterSetBinding",
        "AddOnPlacementScore",  # decided by the first shard alone
        "PropagationPolicy",
        "ClusterPropagationPolicy",
        "DeschedulerPolicy",
        "PriorityClass",
        "PodGroup",
        "Workload",
        "PlacementDecision",  # of a hub; only compared with what is decided
    )
)
"""Kinds that the first shard takes in, which keeps the record, and no other stream needs. The
second line is acted on elsewhere: it comes with the bindings, or an observer reads it."""

NODE_KINDS = frozenset(
    (
        "KubeSchedulerConfiguration",
        "Policy",
        "DynamicSchedulerPolicy",
        "NodePool",
        "NodeOverlay",
        "InstanceTypes",
    )
)
"""Kinds that say how pods are placed on nodes and which nodes there can be: for every cluster
stream, and the first shard."""


def concerns_nodes(data: PolicyApplied | PolicyRemoved) -> bool:
    """Whether the policy is for the cluster streams.

    This and `concerns_every_shard` depend on the kind alone, so that what a stream takes in never
    depends on what it knew when the event came, and a removal goes where the policy went. A kind
    that is in no list is for every stream.
    """
    return kind_of(data) not in EVERY_SHARD_KINDS | FIRST_SHARD_KINDS


def concerns_every_shard(data: PolicyApplied | PolicyRemoved) -> bool:
    """Whether the policy is for all fleet shards; every policy is for the first one."""
    return kind_of(data) not in FIRST_SHARD_KINDS | NODE_KINDS


def kind_of(data: PolicyApplied | PolicyRemoved) -> str:
    return data.policy.kind if isinstance(data, PolicyApplied) else data.kind
