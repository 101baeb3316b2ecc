"""The occupancy of each cluster, folded from the clusters' reports and their streams' decisions.

The same structure (`engine.nodes.occupancy`) and the same items as in the cluster stage and the
estimator, so that all of them find the same.
"""

from __future__ import annotations

from typing import assert_never

from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    PreemptionOver,
    Recovered,
    Refused,
    Released,
    Silenced,
    UnplacedPods,
)
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler import emptiness, loads
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, Sighting


def fold_nodes(state: DeschedulerState, nodes: NodesObserved, sighting: Sighting) -> bool:
    """Folds the nodes of one bucket into the occupancy of the cluster (the nodes of the cluster,
    and which pods are on which node). Then updates two things for each node that is in the bucket
    now or was in it before: since when the node is empty, and which load it reports. Returns
    whether anything changed.

    If a cluster changes its number of buckets, it sends all buckets again. The new buckets are kept
    aside until the last of them arrives. Then they replace all nodes at once.
    """
    cluster = state.cluster(nodes.cluster)
    book, count = cluster.book, cluster.book.bucket_count
    before = (
        list(book.nodes) if nodes.buckets != count else list(book.buckets.get(nodes.bucket, ()))
    )
    if not cluster.pools.observe_nodes(book, state.policies, nodes.cluster, nodes, sighting.at):
        return False
    # A new set of buckets comes into force with its last one, all nodes of it at once.
    now = [node.name for node in nodes.nodes] if book.bucket_count == count else list(book.nodes)
    told = dict.fromkeys((*before, *now))
    emptiness.nodes_changed(state, nodes.cluster, cluster, told, sighting)
    loads.nodes_changed(cluster, told)
    return True


def fold_pods(state: DeschedulerState, pods: PodsObserved, sighting: Sighting) -> bool:
    cluster = state.cluster(pods.cluster)
    if not cluster.pools.observe_pods(cluster.book, pods, sighting.at):
        return False
    emptiness.contents_changed(state, pods.cluster, cluster, pods.node, sighting)
    return True


def fold_objects(state: DeschedulerState, told: ObjectsObserved) -> bool:
    cluster = state.cluster(told.cluster)
    if not cluster.objects.observe(told.kind, told.namespace, told.objects):
        return False
    return cluster.book.observe_objects(cluster.objects.all)


def fold_item(
    state: DeschedulerState, name: str, cluster: ClusterFacts, item: AssignmentItem, at: Micros
) -> None:
    """Folds an assignment item (one decision about a cluster) into the occupancy of the cluster:
    which replica is on which node. Except for assignments and refusals, it also folds the item into
    the node pools: node claims, disruption commands and idle times. Then it checks which nodes are
    empty now: the nodes that the item names, and the nodes from which the item moved replicas away.
    In a cluster without node pools, an item that puts replicas on nodes changes only the
    occupancy."""
    left = _left_by(cluster, item) if cluster.pool_of and isinstance(item, Placed) else []
    cluster.book.take(item, at)
    match item:
        case PodsRemoved(pods=uids, until_us=until):
            cluster.finished.removal_decided(uids, until)
            return
        case Assigned() | Refused() | UnplacedPods() | PodsPreempted() | PreemptionOver():
            return
        case Placed() if not cluster.pool_of:
            return
        case Placed(placed=shares) | Released(released=shares):
            touched = [*left, *(share.node for share in shares)]
        case NodeClosed():
            touched = [item.node]
        case Disrupting():
            touched = list(item.nodes)
        case Disrupted():
            touched = list(item.reopened)
        case Silenced() | Recovered() | Claimed() | ClaimEnded():
            touched = []
        case _:
            assert_never(item)
    cluster.pools.take(cluster.book, item, at)
    for node in dict.fromkeys(touched):
        emptiness.contents_changed(state, name, cluster, node, Sighting(at, item.decision))


def _left_by(cluster: ClusterFacts, item: Placed) -> list[str]:
    """Returns the nodes that replicas leave with this placement, because they are placed on another
    node before their release is reported."""
    held = cluster.book.held.get(item.binding)
    if held is None or not held.placed:
        return []
    before = [held.placed.get(ordinal) for share in item.placed for ordinal in share.ordinals]
    return [replica.node for replica in before if replica is not None]
