"""Folds events and decisions about clusters into the fleet state (observed, counted, silent or
removed), and changes of policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

import msgspec

from wharfinger.domain.binding import set_key
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.engine.fleet.estimate import demand_of, demand_of_set
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.decisions import (
    ClusterRecovered,
    ClusterSilenced,
    FailoverHeld,
    FailoverResumed,
)
from wharfinger.events.room import RoomItem, RoomTaken
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.fleet.fold_bindings import regroup_peers
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.bindings import NOTHING
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending

FOLDS = DecisionFolds[FleetState]()
"""The folds of decisions about clusters."""


def apply_policy(
    state: FleetState, key: str, policy: Policy | None, cause: UUID, at: Micros
) -> None:
    """Fold a policy into three parts of the state: the quotas, the rebalancing policies, and the
    taints that policies put on clusters. If the taints of a cluster change, its facts are updated.
    `key`: the key of the policy. `policy`: the new version; None: the policy was removed. `cause`:
    id of the event. `at`: the time of the round."""
    if state.quotas.set(key, policy, state.bindings):
        state.retry_cause = cause
    if policy is not None and policy.rebalancing is not None:
        state.rebalancing[key] = policy.rebalancing
    else:
        state.rebalancing.pop(key, None)
    if state.tainting.set(key, None if policy is None else policy.taints):
        for name in sorted(state.tainting.told):
            cluster = state.clusters[name]
            _apply_facts(state, cluster, state.tainting.judge(name), cause, at)
            state.cluster_index.heard(cluster)


def observe_cluster(state: FleetState, told: Cluster, cause: UUID, at: Micros) -> None:
    cluster = state.clusters.get(told.name)
    if cluster is None:
        cluster = state.clusters[told.name] = ClusterState(told.name)
    if state.tainting.told.get(told.name) == told and not cluster.promises:
        return
    told = state.sharing_kinds(told)
    cluster.heard_at, cluster.heard_by = at, cause
    if state.selections is not None:
        state.selections.observe(told, cause)
    _apply_facts(state, cluster, state.tainting.tell(told), cause, at)
    state.cluster_index.heard(cluster)


def hear_clusters(state: FleetState, names: Iterable[str], cause: UUID, at: Micros) -> None:
    """Renew the leases of clusters by their heartbeat. A cluster that is unknown, or has no lease,
    is skipped. `cause`: id of the event. `at`: time of the round."""
    for name in names:
        cluster = state.clusters.get(name)
        if cluster is not None and cluster.facts is not None and cluster.promises:
            cluster.heard_at, cluster.heard_by = at, cause
            state.cluster_index.heard(cluster)


def _apply_facts(
    state: FleetState, cluster: ClusterState, facts: Cluster, cause: UUID, at: Micros
) -> None:
    """Set the present facts of a cluster, including the taints that policies add, and update
    everything that depends on the facts. Do nothing if the facts are the same as before. `cause`:
    id of the event. `at`: time of the event.

    Replicas that were decided but that no capacity report includes yet are kept as pending entries.
    If the cluster has no estimator and its summary changed, the pending entries that the new
    summary includes are deleted; these are all of them if it does not report which. If the cluster
    is being deleted, its bindings are decided again.
    """
    old = cluster.facts
    if old == facts:
        return
    cluster.facts = facts
    state.cluster_index.changed(cluster)
    cluster.tainted_at = {
        taint.key + "=" + taint.value: cluster.tainted_at.get(taint.key + "=" + taint.value, at)
        for taint in facts.taints
        if taint.effect == "NoExecute"
    }
    if old is None or old.summary != facts.summary:
        if cluster.capacity is None:
            cluster.summarised(state.stream)
        cluster.refresh()
    if old is None:
        state.clusters_changed()
    elif msgspec.structs.replace(old, summary=None) != msgspec.structs.replace(facts, summary=None):
        state.estimates.facts_changed(cluster)
    state.touch(cluster)
    if facts.deleting:
        state.waiting.open.update(dict.fromkeys(state.by_cluster.get(facts.name, ())))
    state.retry(cause)


def remove_cluster(state: FleetState, name: str, cause: UUID) -> None:
    cluster = state.clusters.get(name)
    if cluster is None or cluster.facts is None:
        return
    state.tainting.forget(name)
    if state.selections is not None:
        state.selections.forget(name, cause)
    del state.clusters[name]
    _claims_changed(state, state.cluster_index.forget(name))
    for binding in state.binding_index.leave_all(name):
        record = state.bindings[binding]
        record.targets = {c: n for c, n in record.targets.items() if c != name} or NOTHING
        regroup_peers(state, record.spec, cause)
        if not record.asked:
            record.cause = cause
        state.waiting.open[binding] = None
        state.changed(binding)
    state.clusters_changed()
    state.retry(cause)


def apply_capacity(state: FleetState, counted: CapacityEstimated, cause: UUID, at: Micros) -> None:
    cluster = state.clusters.get(counted.cluster)
    if cluster is None:
        cluster = state.clusters[counted.cluster] = ClusterState(counted.cluster)
    elif cluster.capacity == counted:
        return
    before = cluster.capacity
    cluster.count(counted, state.stream)
    cluster.counted_at = at
    if before is None:
        state.cluster_index.counted(cluster)
    if _is_indexed(counted) or (before is not None and _is_indexed(before)):
        _claims_changed(state, state.cluster_index.changed(cluster))
    state.moves.stale = True
    state.estimates.recount(cluster)
    state.retry(cause)


def _is_indexed(counted: CapacityEstimated) -> bool:
    """Return whether `ClusterIndex` has an entry because of this count."""
    return bool(counted.provisionable or counted.quotas)


def deduct_promised(state: FleetState, taken: RoomTaken) -> None:
    """Fold the capacity that another fleet stream took in clusters (`taken`). The capacity is
    deducted until the capacity report of the cluster includes it. Items that were folded before,
    and items of this stream itself, are skipped."""
    seen = state.outcomes.get(taken.stream, 0)
    if taken.through <= seen or taken.stream == state.stream:
        return
    state.outcomes[taken.stream] = taken.through
    for item in taken.items:
        cluster = state.clusters.get(item.cluster)
        if cluster is None:
            cluster = state.clusters[item.cluster] = ClusterState(item.cluster)
        if item.seq > seen and cluster.deduct_promised(taken.stream, promised(item)):
            state.touch(cluster)


def promised(item: RoomItem) -> Pending:
    """Return the pending entry (replicas that were decided but that no capacity report includes
    yet) for capacity that another fleet stream took. `item`: the cluster, the number of replicas,
    and the requirements of a replica or the components of a set. The entry is not deducted from any
    quota of this stream, because one stream decides all bindings of a namespace."""
    components = item.components
    return Pending(
        item.seq,
        set_key(components) if components else item.requirements.class_key,
        item.replicas,
        item.requirements,
        demand_of_set(components) if components else demand_of(item.requirements),
        Claim(),
        components,
    )


def _claims_changed(state: FleetState, namespaces: Collection[str]) -> None:
    """Estimate the bindings of these namespaces again. This is needed where a namespace gets its
    first quota in any cluster, or loses the last one."""
    if namespaces:
        for record in state.bindings.values():
            if record.spec.resource.namespace in namespaces:
                _regroup(state, record)


def _regroup(state: FleetState, record: BindingState) -> None:
    """Put a binding into another waiting group, because its claim (the namespace and priority class
    whose quotas apply) changed. Evaluate that group again."""
    deferred = record.deferred
    state.waiting.forget(record)
    state.read(record)
    state.wait(record)
    group = state.waiting.groups.get(record.group)
    if group is not None:
        group.values = None
    if deferred:
        state.waiting.defer(record)


@FOLDS.of(ClusterSilenced)
def silenced(state: FleetState, data: ClusterSilenced, decision: Decision, at: Micros) -> None:
    _set_silent(state, data.cluster, data.silent_since_us)


@FOLDS.of(ClusterRecovered)
def recovered(state: FleetState, data: ClusterRecovered, decision: Decision, at: Micros) -> None:
    _set_silent(state, data.cluster, None)


@FOLDS.of(FailoverHeld)
def failover_held(state: FleetState, data: FailoverHeld, decision: Decision, at: Micros) -> None:
    state.held = True


@FOLDS.of(FailoverResumed)
def failover_resumed(
    state: FleetState, data: FailoverResumed, decision: Decision, at: Micros
) -> None:
    state.held = False


def _set_silent(state: FleetState, name: str, since: Micros | None) -> None:
    """Mark a cluster as silent or as recovered, and update what depends on it. `since`: the time of
    its last heartbeat; None: it has recovered."""
    cluster = state.clusters.get(name)
    if cluster is None:
        return
    cluster.silent_since = since
    state.cluster_index.changed(cluster)
    state.estimates.facts_changed(cluster)
    state.waiting.retry_due = True
    state.touch(cluster)
    state.cluster_index.heard(cluster)
