"""What is ill in a cluster for longer than its policy bears, and what is on its way out and has been made up for.

Two proposals, both to the fleet stream that owns the binding. *Unhealthy*: let go there; it names the decision by which the binding
has what it has there, so that it is refused when that has changed. *Replaced*: what it has elsewhere stands, so that the copy which
waited for that may go. Nobody tells who is on the way out: the second is made as long as what the first was made for is so, and
refused where no copy waits.

Health that is not known is not illness, and where a cluster is silent nothing is proposed because of what it said last.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding, whole_of
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Assigned, AssignmentsDecided, Placed
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import WorkloadObserved
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState, Share, Sighting, as_id
from wharfinger.stages.descheduler.health import Fares
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
            for binding in dict.fromkeys(whole_of(i.binding) for i in items if isinstance(i, Assigned | Placed)):
                _judge_everywhere(state, binding, sighting.at)
        case _:
            pass


def _careful(spec: Binding) -> bool:
    return spec.placement.application is not None or spec.placement.cluster_purge == "Gracefully"


def _judge_everywhere(state: DeschedulerState, binding: str, at: Micros) -> None:
    """What stands in one cluster may make up for what is on its way out in another."""
    if binding not in state.upkeep.careful:
        return
    for name in state.clusters_of(binding):
        _judge(state, name, state.clusters[name], binding, at)


def _judge(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros) -> None:
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
    """When it has been ill for long enough; None: it is not, or its policy minds not."""
    application = facts.placement.application
    if application is None or fares is None or fares.ill is None:
        state.causes.remove(("unhealthy", name, facts.name))
        return None
    due = fares.ill.at + application.toleration_s * SECOND
    assignment, stay = _assignment(cluster, facts), share.since.by
    reason = f"unhealthy there for {application.toleration_s:,} s"
    proposal = EvictionProposed(share.stream, facts.name, name, reason, "unhealthy", 0, assignment)
    cause = Cause(
        "unhealthy", name, facts.name, proposal, f"{fares.ill.by} {assignment} {stay}", stay, as_id(fares.ill.by),
        priority(facts, share),
    )  # fmt: skip
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
    """Whether a copy there, if it is on its way out, has been made up for."""
    application, key = facts.placement.application, ("replaced", name, facts.name)
    graceful = ill_enough_at is not None and application is not None and application.purge == "Gracefully"
    evicted = ("eviction", name, facts.name)
    tainted = evicted in state.causes.standing and evicted in state.causes.proposed
    tainted = tainted and facts.placement.cluster_purge == "Gracefully"
    if not (graceful or tainted) or not _stands_elsewhere(state, name, facts):
        state.causes.remove(key)
        return
    assignment = _assignment(cluster, facts)
    reason = f"what replaces it stands in {', '.join(c for c in state.clusters_of(facts.name) if c != name)}"[:200]
    proposal = EvictionProposed(share.stream, facts.name, name, reason, "replaced", 0, assignment)
    due = ill_enough_at if graceful and ill_enough_at is not None else at
    cause = Cause("replaced", name, facts.name, proposal, assignment, assignment, None, priority(facts, share))
    state.causes.stand(cause, max(due, at), at)


def _stands_elsewhere(state: DeschedulerState, name: str, facts: Binding) -> bool:
    """Whether all that is wanted is in other clusters, and serves there, or at least is on nodes."""
    others = [c for c in state.clusters_of(facts.name) if c != name]
    if not others or (_divided(facts) and not counted_elsewhere(state, name, facts)):
        return False
    return all(_stands(state, c, facts.name) for c in others)


def counted_elsewhere(state: DeschedulerState, name: str, facts: Binding) -> bool:
    """Whether other clusters have been given all replicas of a divided binding already: what this one has waits to go."""
    others = [state.clusters[c].shares[facts.name] for c in state.clusters_of(facts.name) if c != name]
    return _divided(facts) and sum(share.replicas for share in others) >= facts.replicas


def _divided(facts: Binding) -> bool:
    return facts.placement.replicas.type == "Divided" and facts.replicas > 0 and not facts.components


def _stands(state: DeschedulerState, name: str, binding: str) -> bool:
    cluster = state.clusters[name]
    wanted, fares = cluster.shares[binding].replicas, state.upkeep.known(name, binding)
    if fares is not None and fares.health != "Unknown":
        return fares.health == "Healthy" and fares.ready >= wanted
    held = cluster.book.held.get(binding)
    return held is not None and len(held.placed) >= wanted and not cluster.silenced


def _assignment(cluster: ClusterFacts, facts: Binding) -> str:
    """The decision by which it has what it has there; empty: it has several, one a component, or none was told."""
    held = cluster.book.held.get(facts.name)
    return "" if held is None or facts.components else held.assignment
