"""Topic `wharfinger.cluster-state`: the nodes, pods, quotas and other objects of member clusters.

State model, one key for each group:

- Nodes: cluster/nodes/bucket. There are `buckets` buckets, chosen by a stable hash of the node's
  name. A cluster's nodes are known only after every bucket has been received.
- Images on nodes: cluster/images/bucket, where they are not part of the nodes. There are `buckets`
  buckets, chosen by a stable hash of the image's name.
- Pods: cluster/pods/node.
- Pods without a node: cluster/waiting/namespace/bucket. The bucket is chosen by a stable hash of
  the pod's uid. (Earlier collectors reported them as `PodsObserved` of the node "".)
- Pods that have finished and still exist as objects: cluster/finished/node.
- Quotas: cluster/quotas/namespace.
- Other objects that placement depends on (services, budgets, namespaces, volumes, claims):
  cluster/objects/kind/namespace.
- The health of a binding: cluster/workloads/binding.

A node, pod, quota or object that is absent from the newest event of its key no longer exists.

A collector that reports pods and quotas reports the pods first. The used amounts of a quota are
assumed to include all pods reported before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wharfinger.domain.cluster import Places
from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.ids import (
    BindingName,
    Bounded,
    ClusterName,
    NamespaceName,
    NodeName,
    PolicyName,
    Token,
    Word,
)
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Value, canonical, stable_hash

NODES_BYTES_MAX = 400_000
"""Of one bucket of nodes. Well below what a record may have, so that a few more nodes do not change
the number of buckets: then all of them are reported again."""


WAITING_BUCKETS = 32
"""Of the waiting pods of a namespace: when one of 5,000 is bound, 160 are reported again."""


class NodesObserved(Value, frozen=True):
    """The nodes of one bucket. `places`, `scheduler`, `evicts`: as in `domain.cluster.Cluster`.
    They are said with the nodes so that no decision about nodes is made before they are known;
    while the buckets of a cluster disagree, none is made."""

    cluster: Bounded[ClusterName]
    bucket: int
    buckets: int
    nodes: tuple[Node, ...]
    places: Places = ""
    scheduler: PolicyName = ""
    evicts: bool = False


class ImageOnNodes(Value, frozen=True):
    """One image of one size: the nodes on which it is, in order of name. An image that has another
    size on other nodes has an entry for each size."""

    name: Token
    bytes: int
    nodes: tuple[NodeName, ...]


class NodeImagesObserved(Value, frozen=True):
    """The images of one bucket, in order of name and size. They are added to the nodes that are
    reported without images; without this event a node has no images. A report with another number
    of buckets replaces those of all buckets."""

    cluster: Bounded[ClusterName]
    bucket: int
    buckets: int
    images: tuple[ImageOnNodes, ...]


class PodsObserved(Value, frozen=True):
    cluster: Bounded[ClusterName]
    node: Bounded[NodeName]
    pods: tuple[Pod, ...]


class WaitingPodsObserved(Value, frozen=True):
    """The pods without a node of one bucket of a namespace, in order of uid, no matter which
    scheduler they wait for. `buckets`: how many buckets a namespace has (`WAITING_BUCKETS`)."""

    cluster: Bounded[ClusterName]
    namespace: Bounded[NamespaceName]
    bucket: int
    buckets: int
    pods: tuple[WaitingPod, ...]


class FinishedPodsObserved(Value, frozen=True):
    """The pods of a node whose phase is Succeeded or Failed (`upkeep.phase`) and that have not been
    deleted, in order of uid. They use nothing of the node, so no stage takes this event in: only
    the descheduler reads it. A finished pod never runs again."""

    cluster: Bounded[ClusterName]
    node: Bounded[NodeName]
    pods: tuple[Pod, ...]


class QuotasObserved(Value, frozen=True):
    """All quotas of one namespace of a cluster."""

    cluster: Bounded[ClusterName]
    namespace: Bounded[NamespaceName]
    quotas: tuple[Quota, ...]


class ObjectsObserved(Value, frozen=True):
    """All objects of one kind in one namespace of a cluster, in order of name. `kind`: as the
    cluster calls it; `namespace`: empty for kinds that are of the whole cluster."""

    cluster: Bounded[ClusterName]
    kind: Word
    namespace: NamespaceName
    objects: tuple[ClusterObject, ...]


Health = Literal["Healthy", "Unhealthy", "Unknown"]


class WorkloadObserved(Value, frozen=True):
    """The health of a binding's workload in a cluster. `health`: as the collector there reports
    it. `ready`: ready replicas; `unschedulable`: replicas for which no node has been found.
    `ill_since_us`, `unschedulable_since_us`: since when without a break; 0: not reported, and time
    counts from when the stage received this event."""

    cluster: Bounded[ClusterName]
    binding: Bounded[BindingName]
    health: Health = "Unknown"
    ready: int = 0
    unschedulable: int = 0
    ill_since_us: int = 0
    unschedulable_since_us: int = 0


def buckets_for(cluster: str, nodes: Iterable[Node], at_least: int) -> list[NodesObserved]:
    """As `into_buckets`, into `at_least` buckets, or twice, four times, ... as many: so many that
    no bucket is larger than `NODES_BYTES_MAX`. One node alone may be."""
    found = list(nodes)
    count = at_least
    while True:
        buckets = into_buckets(cluster, found, count)
        if all(
            len(bucket.nodes) < 2 or len(canonical(bucket)) <= NODES_BYTES_MAX for bucket in buckets
        ):
            return buckets
        count *= 2


def into_buckets(cluster: str, nodes: Iterable[Node], buckets: int) -> list[NodesObserved]:
    """All buckets of a cluster, empty ones too, nodes in order of name."""
    parts: list[list[Node]] = [[] for _ in range(buckets)]
    for node in sorted(nodes, key=lambda n: n.name):
        parts[stable_hash(node.name) % buckets].append(node)
    return [NodesObserved(cluster, i, buckets, tuple(part)) for i, part in enumerate(parts)]


def waiting_bucket(uid: str) -> int:
    """The bucket of a waiting pod among those of its namespace."""
    return stable_hash(uid) % WAITING_BUCKETS
