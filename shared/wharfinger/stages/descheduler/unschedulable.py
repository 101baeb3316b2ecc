"""Replicas for which their cluster has found no node for so long that they are better placed elsewhere.

Where the cluster stage places, it says so itself: what fits nowhere is refused. This is for fleets whose clusters have schedulers
of their own, and is told by them: as a number with the workload's health, or by pods without a node. Only where capacity divides
the replicas (a fixed share is a wish, not a count), never below what is ready, and as patiently as the most impatient
RebalancePolicy that means the cluster says. Source: Karmada's descheduler, whose five minutes are the policy's here.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.value import Value
from wharfinger.engine.fleet.filters import matches
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import PodsObserved, WorkloadObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import SECOND, DeschedulerState, Sighting, as_id
from wharfinger.stages.descheduler.taints import another_schedulers, priority


def fold(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    """After `unhealthy.fold`, which writes down what is told of workloads, and `rebalancing.fold`, which has the policies."""
    at = sighting.at
    match data:
        case WorkloadObserved(cluster=name, binding=binding):
            _judge(state, name, binding, at)
        case PodsObserved(cluster=name, node=""):
            for binding in state.upkeep.see_pods(data, at, sighting.by):
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
    cluster, facts, fares = state.clusters.get(name), state.bindings.get(binding), state.upkeep.known(name, binding)
    share = None if cluster is None else cluster.shares.get(binding)
    told, waiting = state.tainting.told.get(name), None if fares is None else fares.waiting
    if cluster is None or facts is None or fares is None or share is None or told is None or waiting is None:
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
    proposal = EvictionProposed(share.stream, binding, name, reason, "unschedulable", count, assignment)
    origin = f"{since.by} {count} {assignment}"
    cause = Cause("unschedulable", name, binding, proposal, origin, stay, as_id(since.by), priority(facts, share))
    state.causes.stand(cause, since.at + patience * SECOND, at)


def patience_s(state: DeschedulerState, cluster: Cluster) -> int | None:
    """How long replicas of the cluster may wait for a node; None: for ever."""
    policies = state.upkeep.rebalancing.values()
    patience = [p.unschedulable_after_s for p in policies if matches(p.target, cluster)]
    return min([seconds for seconds in patience if seconds is not None], default=None)


def _by_capacity(facts: Binding) -> bool:
    scheduling = facts.placement.replicas
    by_room = scheduling.preference == "Aggregated" or scheduling.dynamic or scheduling.within_capacity
    return scheduling.type == "Divided" and by_room and facts.replicas > 0 and not facts.components
