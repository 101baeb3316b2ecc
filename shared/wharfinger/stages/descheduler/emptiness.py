"""Empty nodes: which nodes of a pool hold nothing, since when, and when that is long enough to propose their removal.

A node is empty when no replica is placed on it and no pod is seen on it; the pod of a released replica keeps it as long
as it is seen. Nodes of no pool, and pools of no policy, are never proposed.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.policy import Policy
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import NodeShare
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import (
    POOL_LABEL,
    SECOND,
    ClusterFacts,
    DeschedulerState,
    Replica,
    Sighting,
    as_id,
)


def fold_policy(state: DeschedulerState, policy: Policy, at: Micros) -> None:
    """A policy without a node pool takes back what its key said before."""
    before = state.pool_of_policy.pop(policy.key, None)
    if before is not None:
        del state.pools[before][policy.key]
    touched = [] if before is None else [before]
    if policy.node_pool is not None:
        pool = policy.node_pool.name
        state.pool_of_policy[policy.key] = pool
        state.pools.setdefault(pool, {})[policy.key] = policy.node_pool
        touched.append(pool)
    for pool in dict.fromkeys(touched):
        for name, node in state.pool_nodes.get(pool, ()):
            _judge_removal(state, name, state.clusters[name], node, at)


def fold_nodes(state: DeschedulerState, nodes: NodesObserved, sighting: Sighting) -> None:
    name = nodes.cluster
    cluster = state.cluster(name)
    change = cluster.nodes.fold(nodes)
    for node in change.gone:
        cluster.closed.discard(node)
        cluster.pods.discard(node)
        leave_pool(state, name, cluster, node)
    for facts in change.seen:
        pool = facts.labels.get(POOL_LABEL, "")
        if pool != cluster.pool_of.get(facts.name, ""):
            leave_pool(state, name, cluster, facts.name)
            if pool:
                cluster.pool_of[facts.name] = pool
                state.pool_nodes.setdefault(pool, {})[(name, facts.name)] = None
                contents_changed(state, name, cluster, facts.name, sighting)


def leave_pool(state: DeschedulerState, name: str, cluster: ClusterFacts, node: str) -> None:
    pool = cluster.pool_of.pop(node, None)
    if pool is not None:
        del state.pool_nodes[pool][(name, node)]
        cluster.empty.pop(node, None)
        state.causes.forget(("node-removal", name, node))


def contents_changed(state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, sighting: Sighting) -> None:
    """What the node holds may have changed; `sighting` is what would have emptied it."""
    if node not in cluster.pool_of:
        return
    if cluster.holds_something(node):
        cluster.empty.pop(node, None)
    else:
        cluster.empty.setdefault(node, sighting)
    _judge_removal(state, name, cluster, node, sighting.at)


def _judge_removal(state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, at: Micros) -> None:
    pool = cluster.pool_of[node]
    patience, empty = state.empty_after_s(pool), cluster.empty.get(node)
    if patience is None or empty is None or node in cluster.closed:
        state.causes.remove(("node-removal", name, node))
        return
    reason = f"node {node} of pool {pool} has held nothing for {patience} s"
    cause = Cause("node-removal", name, node, cluster_stream(name), empty.by, empty.by, reason, as_id(empty.by))
    state.causes.stand(cause, empty.at + patience * SECOND, at)


def place(
    state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, replica: Replica, sighting: Sighting
) -> None:
    before = cluster.where.get(replica)
    if before == node:
        return
    if before is not None:  # told on a new node before its release from the old one was: it moved
        take_back(state, name, cluster, before, replica, sighting)
    cluster.where[replica] = node
    cluster.replicas.setdefault(node, set()).add(replica)
    contents_changed(state, name, cluster, node, sighting)


def take_back(
    state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, replica: Replica, sighting: Sighting
) -> None:
    if cluster.where.get(replica) != node:  # it is elsewhere by now
        return
    del cluster.where[replica]
    held = cluster.replicas[node]
    held.discard(replica)
    if not held:
        del cluster.replicas[node]
        contents_changed(state, name, cluster, node, sighting)


def replicas(binding: str, shares: Iterable[NodeShare]) -> Iterable[tuple[str, Replica]]:
    return ((share.node, (binding, ordinal)) for share in shares for ordinal in share.ordinals)
