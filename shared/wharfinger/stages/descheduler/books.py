"""The book of each cluster: its nodes and what is on them, written from what clusters say and what their streams decided.

The same book as the cluster stage's own and the estimator's (`engine.nodes.occupancy`), from the same items, so that what is
found here is found there as well.
"""

from __future__ import annotations

from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    Refused,
    Released,
)
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler import emptiness, loads
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, Sighting


def fold_nodes(state: DeschedulerState, nodes: NodesObserved, sighting: Sighting) -> bool:
    """False, here and below: nothing changed."""
    cluster = state.cluster(nodes.cluster)
    book, count = cluster.book, cluster.book.bucket_count
    before = list(book.nodes) if nodes.buckets != count else list(book.buckets.get(nodes.bucket, ()))
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


def fold_item(state: DeschedulerState, name: str, cluster: ClusterFacts, item: AssignmentItem, at: Micros) -> None:
    """The most frequent first; what happens to nodes of no pool is nothing to anybody but the book."""
    book = cluster.book
    match item:
        case Assigned():
            book.assign(item.binding, item.uid, item.decision, item.replicas, item.requirements, item.priority)
            return
        case Placed():
            touched = _left_by(cluster, item) if cluster.pool_of else []
            book.place(item.binding, item.placed, item.requirements, at)
            if not cluster.pool_of:
                return
            touched += [share.node for share in item.placed]
        case Released():
            book.release(item.binding, item.released, item.unbound)
            touched = [share.node for share in item.released]
        case Refused():
            book.refuse(item.binding, item.assignment, item.count)
            return
        case NodeClosed():
            book.close(item.node)
            touched = [item.node]
        case Disrupting():
            touched = list(item.nodes)
            for node in touched:
                book.close(node)
        case Disrupted():
            touched = list(item.reopened)
            for node in touched:
                book.reopen(node)
        case _:
            touched = []  # silence and claims move nothing on nodes
    cluster.pools.take(book, item, at)
    for node in dict.fromkeys(touched):
        emptiness.contents_changed(state, name, cluster, node, Sighting(at, item.decision))


def _left_by(cluster: ClusterFacts, item: Placed) -> list[str]:
    """Nodes that a replica leaves by being placed on another before its release was told."""
    held = cluster.book.held.get(item.binding)
    if held is None or not held.placed:
        return []
    before = [held.placed.get(ordinal) for share in item.placed for ordinal in share.ordinals]
    return [replica.node for replica in before if replica is not None]
