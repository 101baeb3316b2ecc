"""Empty nodes: which nodes of a pool hold nothing, since when, and when that is long enough to propose their removal.

A node is empty when no replica is placed on it and no pod is seen on it; the pod of a released replica keeps it as long
as it is seen. Nodes of no pool, and pools of no policy, are never proposed.

This is the rule of pools of which no more is known than how long a node may be empty. Where the prices of a pool's nodes
are known its nodes are looked at as a whole (`disruption`), the empty ones too, within the pool's budgets; then nothing is
proposed here.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node_pool import POOL_LABEL
from wharfinger.domain.policy import Policy
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState, Sighting, as_id


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
        judge_pool(state, pool, at)


def judge_pool(state: DeschedulerState, pool: str, at: Micros) -> None:
    for name, node in state.pool_nodes.get(pool, ()):
        _judge(state, name, state.clusters[name], node, at)


def nodes_changed(
    state: DeschedulerState, name: str, cluster: ClusterFacts, told: Iterable[str], sighting: Sighting
) -> None:
    """`told`: the nodes of which something was said, those that went among them."""
    nodes = cluster.book.nodes
    for node in told:
        facts = nodes.get(node)
        pool = "" if facts is None else facts.labels.get(POOL_LABEL, "")
        if pool != cluster.pool_of.get(node, ""):
            leave_pool(state, name, cluster, node)
            if pool:
                cluster.pool_of[node] = pool
                state.pool_nodes.setdefault(pool, {})[(name, node)] = None
                contents_changed(state, name, cluster, node, sighting)


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
    _judge(state, name, cluster, node, sighting.at)


def _judge(state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, at: Micros) -> None:
    pool = cluster.pool_of[node]
    patience, empty = state.empty_after_s(pool, name), cluster.empty.get(node)
    if patience is None or empty is None or node in cluster.book.closed:
        state.causes.remove(("node-removal", name, node))
        return
    reason = f"node {node} of pool {pool} has held nothing for {patience} s"
    proposal = NodeRemovalProposed(cluster_stream(name), name, node, reason)
    cause = Cause("node-removal", name, node, proposal, empty.by, empty.by, as_id(empty.by))
    state.causes.stand(cause, empty.at + patience * SECOND, at)
