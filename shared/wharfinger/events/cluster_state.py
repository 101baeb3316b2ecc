"""Topic `wharfinger.cluster-state`: the nodes, pods, quotas and other objects of member clusters.

State model: nodes lie in `buckets` fixed buckets by stable hash of the node's name, key = cluster/nodes/bucket; a node
absent from its bucket is gone. Pods lie by node, key = cluster/pods/node; a pod absent is gone. A cluster's nodes are
known only once every bucket has been seen. Quotas lie by namespace, key = cluster/quotas/namespace; a quota absent is gone.
Whatever else pods are placed by (services, budgets, namespaces, volumes, claims) lies by kind and namespace, key =
cluster/objects/kind/namespace; an object absent is gone. How a binding fares lies by binding, key = cluster/workloads/binding.

Who reports both tells pods before the quotas that count them: what a quota says is used is taken to hold the pods seen by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Name, Value, stable_hash


class NodesObserved(Value, frozen=True):
    cluster: Name
    bucket: int
    buckets: int
    nodes: tuple[Node, ...]


class PodsObserved(Value, frozen=True):
    cluster: Name
    node: Name
    pods: tuple[Pod, ...]


class QuotasObserved(Value, frozen=True):
    """All quotas of one namespace of a cluster."""

    cluster: Name
    namespace: Name
    quotas: tuple[Quota, ...]


class ObjectsObserved(Value, frozen=True):
    """All objects of one kind in one namespace of a cluster, in order of name. `kind`: as the cluster calls it; `namespace`: empty
    for kinds that are of the whole cluster."""

    cluster: Name
    kind: str
    namespace: str
    objects: tuple[ClusterObject, ...]


Health = Literal["Healthy", "Unhealthy", "Unknown"]


class WorkloadObserved(Value, frozen=True):
    """How what a binding has in a cluster fares there. `health`: as whoever watches it there judges. `ready`: replicas that
    serve; `unschedulable`: replicas for which no node has been found. `ill_since_us`, `unschedulable_since_us`: since when without
    a break; 0: it was not said, and time counts from when this was heard."""

    cluster: Name
    binding: Name
    health: Health = "Unknown"
    ready: int = 0
    unschedulable: int = 0
    ill_since_us: int = 0
    unschedulable_since_us: int = 0


def into_buckets(cluster: str, nodes: Iterable[Node], buckets: int) -> list[NodesObserved]:
    """All buckets of a cluster, empty ones too, nodes in order of name."""
    parts: list[list[Node]] = [[] for _ in range(buckets)]
    for node in sorted(nodes, key=lambda n: n.name):
        parts[stable_hash(node.name) % buckets].append(node)
    return [NodesObserved(cluster, i, buckets, tuple(part)) for i, part in enumerate(parts)]
