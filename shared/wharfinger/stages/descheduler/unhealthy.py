"""Eviction of unhealthy bindings, and the end of graceful evictions.

Two proposals to the fleet stream that owns the binding. *Unhealthy* for longer than the policy
tolerates: release there. It names the decision by which the binding has those replicas, and is
refused when that has changed. *Replaced*: the replicas elsewhere are ready, so the copy that waited
for them may be released. Which copies wait is not known here, so the second is made whenever its
condition holds, and refused where no copy waits.

Unknown health is not unhealthy, and nothing is proposed from the last report of a silent cluster.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Assigned, AssignmentsDecided, Placed
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import WorkloadObserved
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import (
    ClusterFacts,
    DeschedulerState,
    Share,
    Sighting,
    as_id,
)
from wharfinger.stages.descheduler.health import Fares
from wharfinger.stages.descheduler.proposal_causes import ProposalCause
from wharfinger.stages.descheduler.taints import another_schedulers, priority


def fold(state: DeschedulerState, data: Value, sighting: Sighting) -> None:
    match data:
        case WorkloadObserved(cluster=name, binding=binding):
            state.upkeep.of(name, binding).see(data, sighting.at, sighting.by)
            _judge_everywhere(state, binding, sighting.at)
        case BindingRequested(binding=spec):
            if _careful(spec):
                state.upkeep.careful[spec.name] = None
            elif spec.name not in state.upkeep.careful:
                return
            _judge_everywhere(state, spec.name, sighting.at)
            if not _careful(spec):
                del state.upkeep.careful[spec.name]
        case BindingWithdrawn(name=binding):
            _judge_everywhere(state, binding, sighting.at)
            state.upkeep.careful.pop(binding, None)
        case AssignmentsDecided(items=items) if state.upkeep.careful:
            for binding in dict.fromkeys(
                whole_of(i.binding) for i in items if isinstance(i, Assigned | Placed)
            ):
                _judge_everywhere(state, binding, sighting.at)
        case _:
            pass


def _careful(spec: Binding) -> bool:
    return spec.placement.application is not None or spec.placement.cluster_purge == "Gracefully"


def _judge_everywhere(state: DeschedulerState, binding: str, at: Micros) -> None:
    """Evaluates the binding in each of its clusters, because replicas that become ready in one
    cluster may replace those in another. Only for bindings with an application policy or graceful
    purge (`Upkeep.careful`)."""
    if binding not in state.upkeep.careful:
        return
    for name in state.clusters_of(binding):
        _judge(state, name, state.clusters[name], binding, at)


def _judge(
    state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros
) -> None:
    facts, share = state.bindings.get(binding), cluster.shares[binding]
    fares = state.upkeep.known(name, binding)
    if facts is None or another_schedulers(facts):
        state.causes.remove(("unhealthy", name, binding))
        state.causes.remove(("replaced", name, binding))
        return
    due = _judge_illness(state, name, cluster, facts, share, fares, at)
    _judge_replaced(state, name, cluster, facts, share, due, at)


def _judge_illness(
    state: DeschedulerState,
    name: str,
    cluster: ClusterFacts,
    facts: Binding,
    share: Share,
    fares: Fares | None,
    at: Micros,
) -> Micros | None:
    """Schedules the eviction of a binding that is unhealthy in cluster `name`. Clears a scheduled
    eviction if the binding is not unhealthy in that cluster.

    The eviction is due when the binding has been unhealthy for `toleration_s`, a setting of its
    application policy. Example: unhealthy since 10:00, 300 seconds: due at 10:05. Returns this due
    time in microseconds. Returns None if the binding is healthy, if its health is not known, or if
    it has no application policy. `fares`: the health of the binding in the cluster; None: never
    reported.
    """
    application = facts.placement.application
    if application is None or fares is None or fares.ill is None:
        state.causes.remove(("unhealthy", name, facts.name))
        return None
    due = fares.ill.at + application.toleration_s * SECOND
    assignment, stay = _assignment(cluster, facts), share.since.by
    reason = f"unhealthy there for {application.toleration_s:,} s"
    proposal = EvictionProposed(share.stream, facts.name, name, reason, "unhealthy", 0, assignment)
    cause = ProposalCause(
        "unhealthy",
        name,
        facts.name,
        proposal,
        f"{fares.ill.by} {assignment} {stay}",
        stay,
        as_id(fares.ill.by),
        priority(facts, share),
    )
    state.causes.stand(cause, due, at)
    return due


def _judge_replaced(
    state: DeschedulerState,
    name: str,
    cluster: ClusterFacts,
    facts: Binding,
    share: Share,
    ill_enough_at: Micros | None,
    at: Micros,
) -> None:
    """Raises or clears the proposal to release the replicas of the binding in cluster `name`,
    because replicas in other clusters have replaced them.

    The proposal is raised if two conditions hold:

    - The binding has replicas in other clusters, and all of these are ready. For a divided binding,
      the other clusters must hold all its replicas.
    - The binding leaves this cluster gracefully (purge mode `Gracefully`): it is unhealthy here, or
      its eviction from this cluster by a taint was proposed.

    `ill_enough_at`: time at which the binding has been unhealthy here for its toleration time;
    None: it is not known to be unhealthy, or it has no application policy. If the binding leaves
    because it is unhealthy, the proposal is not due before this time.
    """
    application, key = facts.placement.application, ("replaced", name, facts.name)
    graceful = (
        ill_enough_at is not None and application is not None and application.purge == "Gracefully"
    )
    evicted = ("eviction", name, facts.name)
    tainted = evicted in state.causes.active and evicted in state.causes.proposed
    tainted = tainted and facts.placement.cluster_purge == "Gracefully"
    if not (graceful or tainted) or not _stands_elsewhere(state, name, facts):
        state.causes.remove(key)
        return
    assignment = _assignment(cluster, facts)
    reason = (
        "what replaces it stands in "
        f"{', '.join(c for c in state.clusters_of(facts.name) if c != name)}"
    )[:200]
    proposal = EvictionProposed(share.stream, facts.name, name, reason, "replaced", 0, assignment)
    due = ill_enough_at if graceful and ill_enough_at is not None else at
    cause = ProposalCause(
        "replaced", name, facts.name, proposal, assignment, assignment, None, priority(facts, share)
    )
    state.causes.stand(cause, max(due, at), at)


def _stands_elsewhere(state: DeschedulerState, name: str, facts: Binding) -> bool:
    """Returns whether the binding has replicas in other clusters and all of them are ready. For a
    divided binding, the other clusters must hold all its replicas. In a cluster that reports no
    health, replicas count as ready once they are placed on nodes."""
    others = [c for c in state.clusters_of(facts.name) if c != name]
    if not others or (_divided(facts) and not counted_elsewhere(state, name, facts)):
        return False
    return all(_stands(state, c, facts.name) for c in others)


def counted_elsewhere(state: DeschedulerState, name: str, facts: Binding) -> bool:
    """Returns whether other clusters already have all replicas of a divided binding, so that the
    replicas in this cluster only wait for their release."""
    others = [
        state.clusters[c].shares[facts.name] for c in state.clusters_of(facts.name) if c != name
    ]
    return _divided(facts) and sum(share.replicas for share in others) >= facts.replicas


def _divided(facts: Binding) -> bool:
    return (
        facts.placement.replicas.type == "Divided" and facts.replicas > 0 and not facts.components
    )


def _stands(state: DeschedulerState, name: str, binding: str) -> bool:
    cluster = state.clusters[name]
    wanted, fares = cluster.shares[binding].replicas, state.upkeep.known(name, binding)
    if fares is not None and fares.health != "Unknown":
        return fares.health == "Healthy" and fares.ready >= wanted
    held = cluster.book.held.get(binding)
    return held is not None and len(held.placed) >= wanted and not cluster.silenced


def _assignment(cluster: ClusterFacts, facts: Binding) -> str:
    """Returns the id of the decision that assigned the binding's replicas to the cluster. Empty if
    there are several decisions, one for each component, or none was received."""
    held = cluster.book.held.get(facts.name)
    return "" if held is None or facts.components else held.assignment
