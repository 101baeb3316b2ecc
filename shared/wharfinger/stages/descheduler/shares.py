"""What bindings have in which cluster, as their fleet streams assign it: by it failover and eviction find their targets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.events.assignments import Assigned
from wharfinger.events.streams import fleet_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler import emptiness, silence, strategies, taints
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, ShardOf, Share, Sighting, Spread

EVICTIONS: Sequence[str] = ("failover", "eviction", "unhealthy", "replaced", "unschedulable")
"""The kinds of causes that are about a binding in a cluster."""


def assigned(
    state: DeschedulerState, shard_of: ShardOf, name: str, cluster: ClusterFacts, item: Assigned, at: Micros
) -> None:
    item = _whole(cluster, item)
    binding = item.binding
    share = cluster.shares.get(binding)
    if item.replicas <= 0:
        if share is not None:
            end_share(state, name, cluster, binding)
        return
    if share is not None:
        if share.live:
            state.spreads[binding].live += item.replicas - share.replicas
        share.replicas, share.priority = item.replicas, item.priority
        return
    stream = fleet_stream(shard_of(binding))
    spread = state.spreads.setdefault(binding, Spread())
    spread.clusters[name] = None
    spread.live += item.replicas
    cluster.shares[binding] = Share(item.replicas, item.priority, stream, Sighting(at, item.decision), live=True)
    if cluster.silenced:
        silence.judge(state, name, cluster, binding, at)
    if cluster.taints:
        taints.judge(state, name, cluster, binding, at)


def _whole(cluster: ClusterFacts, item: Assigned) -> Assigned:
    """Components of a binding are assigned one by one, and leave together: what is proposed is about all of them."""
    whole = whole_of(item.binding)
    if whole == item.binding:
        return item
    parts = cluster.parts.setdefault(whole, {})
    parts[item.binding] = item.replicas
    replicas = sum(parts.values())
    if not replicas:
        del cluster.parts[whole]
    return msgspec.structs.replace(item, binding=whole, replicas=replicas)


def fold_binding(state: DeschedulerState, binding: Binding, at: Micros) -> None:
    before = state.bindings.get(binding.name)
    state.bindings[binding.name] = binding
    for name in state.clusters_of(binding.name):
        cluster = state.clusters[name]
        changed_hands = before is None or before.scheduler != binding.scheduler
        if changed_hands:
            silence.judge(state, name, cluster, binding.name, at)
        if changed_hands or (before and before.placement.tolerations != binding.placement.tolerations):
            taints.judge(state, name, cluster, binding.name, at)


def withdraw(state: DeschedulerState, binding: str) -> None:
    """Nothing more to propose for it; its shares end when the fleet stage lets them go."""
    state.bindings.pop(binding, None)
    for name in state.clusters_of(binding):
        for kind in EVICTIONS:
            state.causes.remove((kind, name, binding))


def end_share(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str) -> None:
    share, spread = cluster.shares.pop(binding), state.spreads[binding]
    if share.live:
        spread.live -= share.replicas
    del spread.clusters[name]
    if not spread.clusters:
        del state.spreads[binding]
    state.upkeep.forget(name, binding)
    for kind in EVICTIONS:
        state.causes.forget((kind, name, binding))


def forget_cluster(state: DeschedulerState, name: str) -> None:
    """The cluster left, and its replicas with it. How far its streams were read is kept: a cluster of that name may join
    again, and its streams go on."""
    state.tainting.forget(name)
    cluster = state.clusters.get(name)
    if cluster is None:
        return
    for binding in list(cluster.shares):
        end_share(state, name, cluster, binding)
    for node in list(cluster.pool_of):
        emptiness.leave_pool(state, name, cluster, node)
    state.looks.discard((name,))
    state.watches.pop(name, None)
    state.surveys.pop(name, None)
    strategies.forget_cluster(state, name)
    del state.clusters[name]
    state.cluster(name).through = cluster.through
