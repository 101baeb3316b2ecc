"""What each binding has in each cluster, as its fleet stream assigned it: the targets of failover
and eviction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.events.assignments import Assigned
from wharfinger.events.streams import fleet_stream
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler import emptiness, silent_clusters, strategies, taints
from wharfinger.stages.descheduler.facts import (
    BindingSpread,
    ClusterFacts,
    DeschedulerState,
    ShardOf,
    Share,
    Sighting,
)
from wharfinger.stages.interned import sharing

EVICTIONS: Sequence[str] = ("failover", "eviction", "unhealthy", "replaced", "unschedulable")
"""The kinds of causes that are about a binding in a cluster."""


def assigned(
    state: DeschedulerState,
    shard_of: ShardOf,
    name: str,
    cluster: ClusterFacts,
    item: Assigned,
    at: Micros,
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
    spread = state.spreads.setdefault(binding, BindingSpread())
    spread.clusters[name] = None
    spread.live += item.replicas
    cluster.shares[binding] = Share(
        item.replicas, item.priority, stream, Sighting(at, item.decision), live=True
    )
    if cluster.silenced:
        silent_clusters.judge(state, name, cluster, binding, at)
    if cluster.taints:
        taints.judge(state, name, cluster, binding, at)


def _whole(cluster: ClusterFacts, item: Assigned) -> Assigned:
    """Returns the assignment for the whole binding. The fleet stream assigns the components of a
    binding one by one, but proposals concern the whole binding. So the replicas of all components
    in this cluster are summed. Example: component A has 2 replicas and component B gets 3: the
    result has 5. For a binding without components, `item` is returned unchanged."""
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
    state.bindings[binding.name] = sharing(
        binding, state.placements.of(binding.placement), state.requirements.of(binding.requirements)
    )
    for name in state.clusters_of(binding.name):
        cluster = state.clusters[name]
        changed_hands = before is None or before.scheduler != binding.scheduler
        if changed_hands:
            silent_clusters.judge(state, name, cluster, binding.name, at)
        if changed_hands or (
            before and before.placement.tolerations != binding.placement.tolerations
        ):
            taints.judge(state, name, cluster, binding.name, at)


def withdraw(state: DeschedulerState, binding: str) -> None:
    """Removes a withdrawn binding and the causes of proposals about it. Its assigned replicas stay
    recorded until the fleet stage releases them."""
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
    """Removes everything that is stored about a cluster that left the fleet: among others its
    assigned replicas, its nodes, the proposed evictions from it, and the consolidation and
    descheduling passes over it. Only `through`, the highest seq folded from each stream, is kept. A
    cluster with the same name may join later, and its old items must not be folded twice."""
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
