"""The load of nodes as strategies use it: measurements, and annotations on nodes."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.policy import Policy
from wharfinger.engine.load.annotations import written_of
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState


def fold_policy(state: DeschedulerState, policy: Policy) -> None:
    """Updates the load policy of this key in all clusters. The policy determines how long a
    measurement is valid."""
    if policy.load is None:
        state.load_policies.pop(policy.key, None)
    else:
        state.load_policies[policy.key] = policy.load
    for cluster in state.clusters.values():
        cluster.load.policy_applied(policy.key, policy.load)


def fold_load(state: DeschedulerState, told: NodeLoadObserved | HotValueObserved) -> None:
    state.cluster(told.cluster).load.observe(told)


def nodes_changed(cluster: ClusterFacts, told: Iterable[str]) -> None:
    """Updates the loads that nodes publish in their annotations. Removes those of nodes that no
    longer exist. `told`: names of the nodes in the event."""
    load: LoadBook = cluster.load
    for name in told:
        node = cluster.book.nodes.get(name)
        if name in load.written or (node is not None and node.measured):
            load.written_on(name, None if node is None else written_of(node))
