"""Letting go of a cluster: because of a taint, because a binding is ill there, because there is no node for some of it.

Whoever proposes has seen the facts, and is held against the present: the taint is still there and not borne any more; what is ill
is still there by the same decision. Then there are three ways to leave, by the placement. *Directly*: what the cluster has is
let go in the decision that places it elsewhere. *Gracefully*: the cluster keeps its copy, which is counted elsewhere already, until
what replaces it stands, or the time for that has run out; it is a suspect target meanwhile, as a silent one is. *Never*: the same
without an end; it goes when somebody proposes that it is replaced, or asks for a fresh decision.

A NoExecute taint is an order to go: Directly, it is followed even where there is no other place. Everything else has a place to go,
or does not happen: nothing is left with nothing because it was ill, or because a grace was over.

Replicas without a node are taken back one by one, as if the cluster had refused them, only where capacity divides, and only so
many as find a place elsewhere; the cluster gets none of their class before its count shows more than it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.taints import toleration_seconds
from wharfinger.events.decisions import Explanation, Leaving
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.fleet.clusters import SECOND, ClusterState
from wharfinger.stages.fleet.drafts import counted, present, schedule, solved, with_suspects
from wharfinger.stages.fleet.failover import declined, replaced, with_sets
from wharfinger.stages.fleet.moves import place_of
from wharfinger.stages.fleet.places import Verdict, feasible
from wharfinger.stages.fleet.state import BindingState, FleetState

CLUSTER_GRACE_S = 600
"""How long a copy in a tainted cluster is waited for, at most (Karmada's graceful-eviction-timeout)."""

# Proposals


def evict(state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed, at: Micros) -> Draft:
    """What is proposed, decided or declined, by its cause."""
    name, cluster = proposal.cluster, state.clusters.get(proposal.cluster)
    if cluster is None or cluster.facts is None:
        return declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if name not in record.targets:
        return declined(proposal_id, proposal, "NothingToDo", "the binding has nothing there")
    if proposal.assignment and proposal.assignment != _assignment(state, record, name):
        return declined(proposal_id, proposal, "Changed", "what it has there was decided otherwise meanwhile")
    if proposal.cause != "taint" and (no := _held(state, record, name)) is not None:
        return declined(proposal_id, proposal, *no)
    match proposal.cause:
        case "taint":
            return _because_of_a_taint(state, record, proposal_id, proposal, cluster, at)
        case "unhealthy":
            return _because_it_is_ill(state, record, proposal_id, proposal, at)
        case "unschedulable":
            return _because_some_wait(state, record, proposal_id, proposal)
        case "replaced":
            return _because_it_is_replaced(state, record, proposal_id, proposal)


def _held(state: FleetState, record: BindingState, name: str) -> tuple[ProposalRefusal, str] | None:
    """What was said last of a cluster that is silent, or while most of the fleet is, is nothing to go by; nor does a copy go while
    what replaces it lies in a silent cluster."""
    if state.held:
        return "FleetHeld", "over half of the clusters with a lease are silent"
    names = record.targets if name in record.leaving else (name,)
    silent = [one for one in sorted(names) if one in state.silent]
    return ("Held", f"{silent[0]} is silent") if silent else None


def _assignment(state: FleetState, record: BindingState, cluster: str) -> str:
    """The decision that last told the cluster what it has."""
    seq = record.assigned_by.get(cluster)
    return "" if seq is None else str(decision_id(state.stream, seq))


def _because_of_a_taint(
    state: FleetState,
    record: BindingState,
    proposal_id: UUID,
    proposal: EvictionProposed,
    cluster: ClusterState,
    at: Micros,
) -> Draft:
    name = proposal.cluster
    if not cluster.tainted:
        return declined(proposal_id, proposal, "TargetRecovered", "the cluster has no NoExecute taint")
    if not _toleration_ended(record, cluster, at):
        return declined(proposal_id, proposal, "TolerationNotEnded", "the binding still bears the taint")
    why = f"evicted from {name}, whose taint it does not bear any more"
    if record.spec.placement.cluster_purge == "Gracefully":
        if name in record.leaving:
            return declined(proposal_id, proposal, "NothingToDo", "it is leaving already")
        return _left_gracefully(state, record, proposal_id, proposal, why, at + CLUSTER_GRACE_S * SECOND)
    return _left_directly(state, record, proposal_id, proposal, why)


def _because_it_is_ill(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed, at: Micros
) -> Draft:
    name, application = proposal.cluster, record.spec.placement.application
    if application is None:
        return declined(proposal_id, proposal, "NothingToDo", "its policy does not ask for failover when it is ill")
    if name in record.suspect:
        return declined(proposal_id, proposal, "NothingToDo", "what it has there is counted elsewhere already")
    why = f"ill in {name} for longer than it bears"
    if application.purge == "Directly":
        elsewhere = solved(state, record, _without(record, name), without=(name, *record.suspect))
        if elsewhere.reason or not elsewhere.targets:
            return declined(proposal_id, proposal, "Unschedulable", elsewhere.explanation.note or "no other cluster")
        return _left_directly(state, record, proposal_id, proposal, why)
    until = at + application.grace_s * SECOND if application.purge == "Gracefully" else 0
    return _left_gracefully(state, record, proposal_id, proposal, why, until)


def _because_some_wait(state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed) -> Draft:
    name, held = proposal.cluster, record.targets[proposal.cluster]
    count = min(held, proposal.replicas or held)
    if not _by_capacity(record) or count <= 0:
        return declined(
            proposal_id, proposal, "NothingToDo", "its replicas lie where its policy says, with or without room"
        )
    if record.asked or record.refused or name in record.suspect or record.shrunk:
        return declined(proposal_id, proposal, "NothingToDo", "something else is being decided about it")
    for going in dict.fromkeys((count, min(count, _room_elsewhere(state, record, name)))):
        less = _with_less(record, name, going)
        verdict = present(state, less, retry=True) if going else None
        if verdict is not None and not verdict.reason and verdict.targets.get(name, 0) == held - going:
            why = f"{going:,} replicas have found no node in {name}"
            return schedule(less, "FailoverSchedule", why, verdict, record.suspect, proposal_id)
    return declined(proposal_id, proposal, "Unschedulable", f"no other place for {count:,} replicas")


def _because_it_is_replaced(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed
) -> Draft:
    name = proposal.cluster
    if name not in record.leaving:
        return declined(proposal_id, proposal, "NothingToDo", "it is not on its way out there")
    if not record.made_up:
        return declined(proposal_id, proposal, "Changed", "what replaces it is not decided in full")
    return _let_go(record, (name,), f"what replaces {name} stands", proposal_id)


# Three ways to leave


def _left_directly(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed, why: str
) -> Draft:
    """In the decision that places it elsewhere; where the healthy targets are reserved, only when there is another place."""
    name = proposal.cluster
    suspect = tuple(c for c in record.suspect if c != name)
    held = _without(record, name)
    if record.spec.placement.failover == "reserve" and name not in record.suspect:
        verdict = replaced(state, record, held, {name: record.targets[name]}, without=(name, *suspect))
        if verdict.reason:
            return declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
        verdict = with_suspects(record, verdict, suspect)
    else:
        verdict = with_suspects(record, solved(state, record, held, without=(name, *suspect)), suspect)
        if verdict.reason:
            verdict.targets.pop(name, None)
    return schedule(
        record, "FailoverSchedule", why, with_sets(state, record, verdict, (name,)), suspect, proposal_id
    )  # fmt: skip


def _left_gracefully(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed, why: str, until: Micros
) -> Draft:
    """The cluster keeps its copy until what replaces it stands. Nothing happens while there is no place for that."""
    name = proposal.cluster
    suspect = tuple(sorted({*record.suspect, name}))
    held = _without(record, name)
    if record.spec.placement.failover == "reserve" and name not in record.suspect:
        verdict = replaced(state, record, held, {name: record.targets[name]}, without=suspect)
    else:
        verdict = solved(state, record, held, without=suspect)
    if verdict.reason or not verdict.targets:
        note = verdict.explanation.note or "there is no other cluster"
        return declined(proposal_id, proposal, "Unschedulable", note)
    note = f"{name} keeps its copy until what replaces it stands"
    note += ", until somebody says so" if not until else ""
    explanation = msgspec.structs.replace(verdict.explanation, note=note)
    verdict = with_sets(state, record, Verdict(verdict.targets, verdict.affinity, explanation), (name,))
    leaving = (*record.leaving.values(), Leaving(name, until, proposal.cause))
    return schedule(
        record, "FailoverSchedule", why, with_suspects(record, verdict, suspect), suspect, proposal_id, leaving=leaving
    )


def _without(record: BindingState, name: str) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c != name and c not in record.suspect}


def _toleration_ended(record: BindingState, cluster: ClusterState, at: Micros) -> bool:
    """Whether one of the cluster's NoExecute taints has been there for longer than the binding bears it."""
    assert cluster.facts is not None
    for taint in cluster.facts.taints:
        if taint.effect != "NoExecute":
            continue
        seconds = toleration_seconds((taint,), record.spec.placement.tolerations)
        since = cluster.tainted_at[f"{taint.key}={taint.value}"]
        if seconds is not None and since + seconds * SECOND <= at:
            return True
    return False


# Replicas without a node


def _by_capacity(record: BindingState) -> bool:
    """Whether what fits says where its replicas go."""
    scheduling = record.spec.placement.replicas
    by_room = scheduling.preference == "Aggregated" or scheduling.dynamic or scheduling.within_capacity
    return record.counted and not record.sets and scheduling.type == "Divided" and by_room


def _with_less(record: BindingState, name: str, going: int) -> BindingState:
    """The binding as if the cluster had given so many replicas back."""
    targets = dict(record.targets)
    targets[name] -= going
    if not targets[name]:
        del targets[name]
    return msgspec.structs.replace(record, targets=targets)


def _room_elsewhere(state: FleetState, record: BindingState, name: str) -> int:
    shut = {name, *record.suspect, *state.evicted(record)}
    fit = feasible(state, record, place_of(record.spec, record.affinity))
    return sum([state.fits(record, state.clusters[other]) for other in fit.names if other not in shut])


# What was waited for


def end_graces(state: FleetState, at: Micros) -> Iterator[Draft]:
    """Copies that have been waited for long enough, of bindings whose replacement is decided in full; in order of name."""
    for name in sorted([name for (name,) in state.graces.ripe(at)]):
        record = state.bindings[name]
        over = tuple(c for c, one in sorted(record.leaving.items()) if one.until_us and one.until_us <= at)
        if over and record.made_up and not record.left_alone:
            yield _let_go(record, over, f"{over[0]} has kept its copy for long enough", record.cause)


def _let_go(record: BindingState, names: tuple[str, ...], why: str, cause: UUID | None) -> Draft:
    """Nothing moves; the copies on their way out are gone."""
    suspect = tuple(c for c in record.suspect if c not in names)
    verdict = Verdict(counted(record), record.affinity, Explanation(note="what replaces it stays where it is"))
    return schedule(record, "FailoverSchedule", why, with_suspects(record, verdict, suspect), suspect, cause)
