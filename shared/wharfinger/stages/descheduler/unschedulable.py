"""Proposes to move replicas that their cluster could not schedule for too long. After Karmada's
descheduler.

This is for clusters with their own schedulers; our cluster stage refuses such replicas itself. The
count is the number of unschedulable replicas in the workload's health, or of observed pods without
a node, whichever is larger. The rule applies only where capacity divides the replicas, and never
evicts ready ones. The waiting time is the shortest `unschedulable_after_s` of the RebalancePolicies
that select the cluster (Karmada: fixed five minutes).
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import PodsObserved, WaitingPodsObserved, WorkloadObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.rules.clusters.affinity import matches
from wharfinger.stages.descheduler.facts import DeschedulerState, Sighting, as_id
from wharfinger.stages.descheduler.proposal_causes import ProposalCause
from wharfinger.stages.descheduler.taints import another_schedulers, priority


def fold(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    """Updates the proposals to take unschedulable replicas off a cluster, after an event about the
    health of a workload, pods without a node, a binding, assignments, a cluster or a policy. A
    withdrawn binding loses its proposals; for the other events the bindings concerned are judged
    again. Before this function the caller must call `unhealthy.fold`, which records the health, and
    `rebalancing.fold`, which records the policies."""
    at = sighting.at
    match data:
        case WorkloadObserved(cluster=name, binding=binding):
            _judge(state, name, binding, at)
        case PodsObserved(cluster=name, node=""):
            for binding in state.upkeep.see_pods(data, at, sighting.by):
                _judge(state, name, binding, at)
        case WaitingPodsObserved(cluster=name):
            waiting = state.cluster(name).book.waiting
            for binding in state.upkeep.see_waiting(data, waiting, at, sighting.by):
                _judge(state, name, binding, at)
        case BindingRequested(binding=spec) if state.upkeep.fares:
            for name in state.clusters_of(spec.name):
                _judge(state, name, spec.name, at)
        case BindingWithdrawn(name=binding):
            for name in state.clusters_of(binding):
                state.causes.remove(("unschedulable", name, binding))
        case AssignmentsDecided(cluster=name, items=items) if name in state.upkeep.fares:
            for item in items:
                if isinstance(item, Assigned):
                    _judge(state, name, item.binding, at)
        case ClusterObserved(cluster=cluster) if cluster.name in state.upkeep.fares:
            _judge_cluster(state, cluster.name, at)
        case PolicyApplied() | PolicyRemoved():
            for name in sorted(state.upkeep.fares):
                _judge_cluster(state, name, at)
        case _:
            pass


def _judge_cluster(state: DeschedulerState, name: str, at: Micros) -> None:
    for binding in sorted(state.upkeep.fares[name]):
        _judge(state, name, binding, at)


def _judge(state: DeschedulerState, name: str, binding: str, at: Micros) -> None:
    key = ("unschedulable", name, binding)
    cluster, facts, fares = (
        state.clusters.get(name),
        state.bindings.get(binding),
        state.upkeep.known(name, binding),
    )
    share = None if cluster is None else cluster.shares.get(binding)
    told, waiting = state.tainting.told.get(name), None if fares is None else fares.waiting
    if (
        cluster is None
        or facts is None
        or fares is None
        or share is None
        or told is None
        or waiting is None
    ):
        state.causes.remove(key)
        return
    patience = patience_s(state, told)
    count, since = waiting
    count = min(count, share.replicas - fares.ready)
    if patience is None or count <= 0 or not _by_capacity(facts) or another_schedulers(facts):
        state.causes.remove(key)
        return
    held = cluster.book.held.get(binding)
    assignment, stay = "" if held is None else held.assignment, share.since.by
    reason = f"{count:,} replicas have found no node there for {patience:,} s"
    proposal = EvictionProposed(
        share.stream, binding, name, reason, "unschedulable", count, assignment
    )
    origin = f"{since.by} {count} {assignment}"
    cause = ProposalCause(
        "unschedulable",
        name,
        binding,
        proposal,
        origin,
        stay,
        as_id(since.by),
        priority(facts, share),
    )
    state.causes.stand(cause, since.at + patience * SECOND, at)


def patience_s(state: DeschedulerState, cluster: Cluster) -> int | None:
    """Returns the number of seconds that replicas of the cluster may wait for a node: the shortest
    time of all RebalancePolicies that select the cluster. None if no such policy sets a time; then
    nothing is proposed."""
    policies = state.upkeep.rebalancing.values()
    patience = [p.unschedulable_after_s for p in policies if matches(p.target, cluster)]
    return min([seconds for seconds in patience if seconds is not None], default=None)


def _by_capacity(facts: Binding) -> bool:
    scheduling = facts.placement.replicas
    by_room = (
        scheduling.preference == "Aggregated" or scheduling.dynamic or scheduling.within_capacity
    )
    return scheduling.type == "Divided" and by_room and facts.replicas > 0 and not facts.components
