"""Empty nodes: which nodes of a pool are empty, since when, and when their removal is proposed.

A node is empty when no replica is placed on it and no pod is reported on it, including pods of
released replicas. Nodes without a pool, and pools without a policy, are never proposed.

This rule is for pools of which only the maximum time of emptiness is known. Pools with known prices
are evaluated by `disruption`, empty nodes included, within their budgets; then nothing is proposed
here.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node_pool import POOL_LABEL
from wharfinger.domain.policy import Policy
from wharfinger.domain.time import SECOND
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.streams import cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, Sighting, as_id
from wharfinger.stages.descheduler.proposal_causes import ProposalCause


def fold_policy(state: DeschedulerState, policy: Policy, at: Micros) -> None:
    """Folds a policy event: stores the node pool that the policy defines, and judges again whether
    the nodes of that pool are empty. If the policy defined another pool before, or defines none
    now, the earlier definition is removed and the nodes of the earlier pool are judged again."""
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
    state: DeschedulerState,
    name: str,
    cluster: ClusterFacts,
    told: Iterable[str],
    sighting: Sighting,
) -> None:
    """Updates the pool of each node in `told` after a node event. A node that came to a pool is
    checked for emptiness (no replica and no pod on it). A node that left its pool is no longer
    watched. `told`: names of the nodes in the event, including removed nodes. `sighting`: time and
    id of the event."""
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


def contents_changed(
    state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, sighting: Sighting
) -> None:
    """Updates since when the node is empty, after its contents may have changed. `sighting`: time
    and id of the event; it counts as the beginning if the node is empty now and was not before."""
    if node not in cluster.pool_of:
        return
    if cluster.holds_something(node):
        cluster.empty.pop(node, None)
    else:
        cluster.empty.setdefault(node, sighting)
    _judge(state, name, cluster, node, sighting.at)


def _judge(
    state: DeschedulerState, name: str, cluster: ClusterFacts, node: str, at: Micros
) -> None:
    pool = cluster.pool_of[node]
    patience, empty = state.empty_after_s(pool, name), cluster.empty.get(node)
    if patience is None or empty is None or node in cluster.book.closed:
        state.causes.remove(("node-removal", name, node))
        return
    reason = f"node {node} of pool {pool} has held nothing for {patience} s"
    proposal = NodeRemovalProposed(cluster_stream(name), name, node, reason)
    cause = ProposalCause("node-removal", name, node, proposal, empty.by, empty.by, as_id(empty.by))
    state.causes.stand(cause, empty.at + patience * SECOND, at)
