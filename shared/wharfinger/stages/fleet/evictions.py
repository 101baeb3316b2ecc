"""Evictions from a cluster: because of a taint, an unhealthy binding, or unschedulable replicas.
Follows Karmada's graceful eviction.

A proposal is checked against the present state: the taint still exists and is not tolerated, or the
binding is still unhealthy under the same decision. The placement sets how the binding leaves:
- *Directly*: the decision that places it elsewhere also releases it in the old cluster.
- *Gracefully*: the old cluster keeps its copy until the replacement is ready or the grace period
  ends. Meanwhile the cluster is a suspect target, like a silent cluster: its replicas are already
  counted elsewhere.
- *Never*: as Gracefully, but the grace period has no end. The copy is released when a proposal
  reports that the replacement is ready, or on a fresh decision.

With a NoExecute taint and Directly, the binding leaves even where no other cluster can take it. In
all other cases another cluster must take it: no binding loses all replicas because it was unhealthy
or a grace period ended.

Unschedulable replicas are taken back one by one, as after a refusal by the cluster. This happens
only where capacity decides how the replicas are divided, and only for as many replicas as find
another place. The cluster gets no more replicas of their class until its count increases.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.taints import toleration_seconds
from wharfinger.domain.time import SECOND
from wharfinger.events.decisions import Explanation, Leaving
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.incarnations import id_of
from wharfinger.stages.fleet.drafts import counted, present, schedule, solved, with_suspects
from wharfinger.stages.fleet.failover import declined, replaced, with_sets
from wharfinger.stages.fleet.moves import place_of
from wharfinger.stages.fleet.solve import SolveResult, feasible
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.clusters import ClusterState

CLUSTER_GRACE_S = 600
"""How long, in seconds, a copy in a tainted cluster may stay while its replacement is not ready
(Karmada's graceful-eviction-timeout)."""

# Proposals


def evict(
    state: FleetState,
    record: BindingState,
    proposal_id: UUID,
    proposal: EvictionProposed,
    at: Micros,
) -> Draft:
    """Answer a proposal to evict a binding from a cluster. Return the draft (a decision that has no
    seq yet) that evicts, or of a refusal with its reason.

    The proposal is refused in these cases: the cluster is unknown; the binding has no replicas
    there; the replicas there were decided again after the proposal was made. Unless the cause is a
    taint, it is also refused while the cluster, or more than half of the clusters with a lease, are
    silent. Further checks depend on `proposal.cause`: `taint`, `unhealthy`, `unschedulable` or
    `replaced`. `at`: the time of the round.
    """
    name, cluster = proposal.cluster, state.clusters.get(proposal.cluster)
    if cluster is None or cluster.facts is None:
        return declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if name not in record.targets:
        return declined(proposal_id, proposal, "NothingToDo", "the binding has nothing there")
    if proposal.assignment and proposal.assignment != _assignment(state, record, name):
        return declined(
            proposal_id, proposal, "Changed", "what it has there was decided otherwise meanwhile"
        )
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
            return _because_it_is_replaced(record, proposal_id, proposal)


def _held(state: FleetState, record: BindingState, name: str) -> tuple[ProposalRefusal, str] | None:
    """Return why an eviction must wait, as (reason, text). None: it need not wait. It waits while
    most of the fleet is silent or the cluster is silent, because reports from there are outdated. A
    copy that the binding is leaving also stays while any target of the binding is silent."""
    if state.held:
        return "FleetHeld", "over half of the clusters with a lease are silent"
    names = record.targets if name in record.leaving else (name,)
    silent = [one for one in sorted(names) if one in state.silent]
    return ("Held", f"{silent[0]} is silent") if silent else None


def _assignment(state: FleetState, record: BindingState, cluster: str) -> str:
    """Return the id of the decision that last announced the binding's replicas to the cluster.
    Empty: there is none."""
    seq = record.assigned_by.get(cluster)
    return "" if seq is None else str(id_of(state.stream, seq, state.incarnations))


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
        return declined(
            proposal_id, proposal, "TargetRecovered", "the cluster has no NoExecute taint"
        )
    if not _toleration_ended(record, cluster, at):
        return declined(
            proposal_id, proposal, "TolerationNotEnded", "the binding still bears the taint"
        )
    why = f"evicted from {name}, whose taint it does not bear any more"
    if record.spec.placement.cluster_purge == "Gracefully":
        if name in record.leaving:
            return declined(proposal_id, proposal, "NothingToDo", "it is leaving already")
        return _left_gracefully(
            state, record, proposal_id, proposal, why, at + CLUSTER_GRACE_S * SECOND
        )
    return _left_directly(state, record, proposal_id, proposal, why)


def _because_it_is_ill(
    state: FleetState,
    record: BindingState,
    proposal_id: UUID,
    proposal: EvictionProposed,
    at: Micros,
) -> Draft:
    name, application = proposal.cluster, record.spec.placement.application
    if application is None:
        return declined(
            proposal_id,
            proposal,
            "NothingToDo",
            "its policy does not ask for failover when it is ill",
        )
    if name in record.suspect:
        return declined(
            proposal_id, proposal, "NothingToDo", "what it has there is counted elsewhere already"
        )
    why = f"ill in {name} for longer than it bears"
    if application.purge == "Directly":
        elsewhere = solved(state, record, _without(record, name), without=(name, *record.suspect))
        if elsewhere.reason or not elsewhere.targets:
            return declined(
                proposal_id,
                proposal,
                "Unschedulable",
                elsewhere.explanation.note or "no other cluster",
            )
        return _left_directly(state, record, proposal_id, proposal, why)
    until = at + application.grace_s * SECOND if application.purge == "Gracefully" else 0
    return _left_gracefully(state, record, proposal_id, proposal, why, until)


def _because_some_wait(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed
) -> Draft:
    name, held = proposal.cluster, record.targets[proposal.cluster]
    count = min(held, proposal.replicas or held)
    if not _by_capacity(record) or count <= 0:
        return declined(
            proposal_id,
            proposal,
            "NothingToDo",
            "its replicas lie where its policy says, with or without room",
        )
    if record.asked or record.refused or name in record.suspect or record.shrunk:
        return declined(
            proposal_id, proposal, "NothingToDo", "something else is being decided about it"
        )
    for going in dict.fromkeys((count, min(count, _room_elsewhere(state, record, name)))):
        less = _with_less(record, name, going)
        verdict = present(state, less, retry=True) if going else None
        if (
            verdict is not None
            and not verdict.reason
            and verdict.targets.get(name, 0) == held - going
        ):
            why = f"{going:,} replicas have found no node in {name}"
            return schedule(less, "FailoverSchedule", why, verdict, record.suspect, proposal_id)
    return declined(
        proposal_id, proposal, "Unschedulable", f"no other place for {count:,} replicas"
    )


def _because_it_is_replaced(
    record: BindingState, proposal_id: UUID, proposal: EvictionProposed
) -> Draft:
    name = proposal.cluster
    if name not in record.leaving:
        return declined(proposal_id, proposal, "NothingToDo", "it is not on its way out there")
    if not record.fully_assigned:
        return declined(proposal_id, proposal, "Changed", "what replaces it is not decided in full")
    return _let_go(record, (name,), f"what replaces {name} stands", proposal_id)


# Three ways to leave


def _left_directly(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: EvictionProposed, why: str
) -> Draft:
    """Evict a binding from the proposal's cluster directly: one decision releases the replicas in
    this cluster and places the same number elsewhere. `why`: text for the explanation.

    If no other cluster can take the replicas, the result depends on the `failover` setting of the
    placement. With `reserve` (each failed target is replaced by one other cluster), the proposal is
    declined and the replicas stay. With any other setting, or if the cluster was already a suspect
    target, the binding leaves the cluster all the same: the result is a refusal whose targets do
    not include this cluster.
    """
    name = proposal.cluster
    suspect = tuple(c for c in record.suspect if c != name)
    held = _without(record, name)
    if record.spec.placement.failover == "reserve" and name not in record.suspect:
        verdict = replaced(
            state, record, held, {name: record.targets[name]}, without=(name, *suspect)
        )
        if verdict.reason:
            return declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
        verdict = with_suspects(record, verdict, suspect)
    else:
        verdict = with_suspects(
            record, solved(state, record, held, without=(name, *suspect)), suspect
        )
        if verdict.reason:
            verdict.targets.pop(name, None)
    return schedule(
        record,
        "FailoverSchedule",
        why,
        with_sets(state, record, verdict, (name,)),
        suspect,
        proposal_id,
    )


def _left_gracefully(
    state: FleetState,
    record: BindingState,
    proposal_id: UUID,
    proposal: EvictionProposed,
    why: str,
    until: Micros,
) -> Draft:
    """Evict a binding from the proposal's cluster gracefully: place its replicas elsewhere now, and
    keep the replicas in the cluster until the new replicas are ready, or until the time `until`.
    Until then the cluster is a suspect target: it stays a target, but its replicas are not counted
    as replicas that the binding has.

    `why`: text for the explanation. `until`: end of the grace period in microseconds; 0: no end.
    The proposal is declined if no other cluster can take the replicas.
    """
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
    verdict = with_sets(
        state, record, SolveResult(verdict.targets, verdict.affinity, explanation), (name,)
    )
    leaving = (*record.leaving.values(), Leaving(name, until, proposal.cause))
    return schedule(
        record,
        "FailoverSchedule",
        why,
        with_suspects(record, verdict, suspect),
        suspect,
        proposal_id,
        leaving=leaving,
    )


def _without(record: BindingState, name: str) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c != name and c not in record.suspect}


def _toleration_ended(record: BindingState, cluster: ClusterState, at: Micros) -> bool:
    """Return whether one of the cluster's NoExecute taints has existed for longer than the binding
    tolerates it. `at`: the present time."""
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
    """Return whether the estimates decide where the binding's replicas go: the binding is Divided,
    and its division is Aggregated, dynamically weighted, or limited to capacity."""
    scheduling = record.spec.placement.replicas
    by_room = (
        scheduling.preference == "Aggregated" or scheduling.dynamic or scheduling.within_capacity
    )
    return record.counted and not record.sets and scheduling.type == "Divided" and by_room


def _with_less(record: BindingState, name: str, going: int) -> BindingState:
    """Return a copy of the record in which the cluster has `going` fewer replicas."""
    targets = dict(record.targets)
    targets[name] -= going
    if not targets[name]:
        del targets[name]
    return msgspec.structs.replace(record, targets=targets)


def _room_elsewhere(state: FleetState, record: BindingState, name: str) -> int:
    shut = {name, *record.suspect, *state.evicted(record)}
    fit = feasible(state, record, place_of(record.spec, record.affinity))
    return sum(
        [state.fits(record, state.clusters[other]) for other in fit.names if other not in shut]
    )


# What was waited for


def end_graces(state: FleetState, at: Micros) -> Iterator[Draft]:
    """Release the copies whose grace period has ended by time `at`, for bindings whose replacement
    is fully assigned. Yield the drafts in order of binding name."""
    for name in sorted([name for (name,) in state.waiting.graces.ripe(at)]):
        record = state.bindings[name]
        over = tuple(
            c for c, one in sorted(record.leaving.items()) if one.until_us and one.until_us <= at
        )
        if over and record.fully_assigned and not record.left_alone:
            yield _let_go(
                record, over, f"{over[0]} has kept its copy for long enough", record.cause
            )


def _let_go(record: BindingState, names: tuple[str, ...], why: str, cause: UUID | None) -> Draft:
    """Build the draft of a decision that releases the binding's copies in the clusters `names` and
    changes nothing else."""
    suspect = tuple(c for c in record.suspect if c not in names)
    verdict = SolveResult(
        counted(record), record.affinity, Explanation(note="what replaces it stays where it is")
    )
    return schedule(
        record, "FailoverSchedule", why, with_suspects(record, verdict, suspect), suspect, cause
    )
