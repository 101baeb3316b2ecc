"""When clusters fall silent, are tainted or go: what is held on to, what is added elsewhere, and what is let go.

Failover adds: the silent cluster keeps its replicas, marked suspect, and as many are placed elsewhere. When it is heard
again the replicas added for it are let go and its own are kept: they ran all the time or are there already, so keeping them
moves the least. What was scaled meanwhile is divided as usual after that. If over half of the fleet is silent, nothing is done:
the fault is more likely ours.

There are two ways to make up for what failed, by the placement's `failover`. `evict`: what is missing is refilled by the binding's
own strategy, so healthy targets may take some of it. `reserve` (the first design of Karmada's scheduler): the healthy targets are
reserved and stay as they are; each failed one is replaced by one other cluster, a candidate that passes the filters and has room,
and which takes over its count, the largest going to the roomiest; are there fewer candidates than failed targets, it is
refused and nothing moves. What then waits is tried again by the binding's own strategy when something changes.

Either way the decision names the four sets: reserved, available, candidates, failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from uuid import UUID

import msgspec

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.events.decisions import (
    ClusterRecovered,
    ClusterSilenced,
    Explanation,
    FailoverHeld,
    FailoverResumed,
    FailoverSets,
    ProposalRefused,
)
from wharfinger.events.proposals import FailoverProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.fleet.clusters import ClusterState
from wharfinger.stages.fleet.drafts import present, schedule, solved, with_suspects
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.places import Verdict, feasible, terms_of
from wharfinger.stages.fleet.state import BindingState, FleetState, Proposal

NAMED = 3
"""Of each set so many clusters are named."""

# Silence


def watch_leases(state: FleetState, at: Micros) -> Iterator[Draft]:
    for (name,) in sorted(state.leases.pop(at)):
        cluster = state.clusters.get(name)
        if cluster is None:
            continue
        lease = cluster.lease_us
        over = lease is not None and cluster.heard_at + lease <= at
        if over and cluster.silent_since is None:
            yield Draft(ClusterSilenced(name, cluster.heard_at), name, "silenced")
        elif not over and cluster.silent_since is not None:
            yield Draft(ClusterRecovered(name), name, "recovered", cluster.heard_by)
        else:
            state.watch(cluster)


def hold_or_resume(state: FleetState) -> Iterator[Draft]:
    silent, clusters = len(state.silent), state.leased
    if 2 * silent > clusters and not state.held:
        yield Draft(FailoverHeld(silent, clusters), state.stream, "held")
    elif 2 * silent <= clusters and state.held:
        yield Draft(FailoverResumed(silent, clusters), state.stream, "resumed")


# Recovered


def settle_recovered(state: FleetState) -> Iterator[Draft]:
    """Bindings some of whose suspect clusters are heard again, or have lost the taint that they were leaving for: clusters and
    bindings in order of name."""
    for name in sorted(state.suspected):
        cluster = state.clusters.get(name)
        if cluster is not None and cluster.silent_since is not None:
            continue
        for binding in sorted(state.suspected.get(name, ())):  # settled for one cluster, perhaps settled for the next
            record = state.bindings[binding]
            if name in record.suspect and not record.left_alone:
                why = f"{name} is heard of again" if cluster is not None else f"{name}, which was silent, is gone"
                yield _settled(state, record, name, cluster, why)
    for name in sorted(state.outgoing):
        cluster = state.clusters.get(name)
        if cluster is not None and (cluster.tainted or cluster.silent_since is not None):
            continue
        for binding in sorted(state.outgoing.get(name, ())):
            record = state.bindings[binding]
            if name in record.suspect and not record.left_alone:
                why = (
                    f"{name} has no such taint any more, and is not left"
                    if cluster
                    else f"{name}, which it was leaving, is gone"
                )
                yield _settled(state, record, name, cluster, why)


def _settled(state: FleetState, record: BindingState, name: str, cluster: ClusterState | None, why: str) -> Draft:
    """The extra replicas go, as many as are too many now; those of the recovered cluster stay."""
    suspect = tuple(c for c in record.suspect if c != name and (c in state.silent or c in record.leaving))
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    excess = len(held) if record.plan.duplicated else sum(held.values()) - record.spec.replicas
    for place, extra in sorted(record.extra.items()):
        if record.spec.components:  # a set is whole or not there
            held.pop(place, None)
            continue
        most = held.get(place, 0)
        give = min(extra, most, max(0, excess))
        if record.plan.duplicated:
            give = most  # a copy is whole or not there
        if give:
            excess -= give
            held[place] = most - give
            if not held[place]:
                del held[place]
    verdict = solved(state, record, held, fresh=record.applied_token != record.spec.reschedule)
    cause = cluster.heard_by if cluster is not None else record.cause
    return schedule(record, "FailoverSchedule", why, with_suspects(record, verdict, suspect), suspect, cause)


# Proposals


def fail_over(state: FleetState, record: BindingState, proposal_id: UUID, proposal: FailoverProposed) -> Draft:
    """The cluster is silent: as many replicas are placed elsewhere."""
    name, cluster = proposal.cluster, state.clusters.get(proposal.cluster)
    if cluster is None or cluster.facts is None:
        return declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if state.held:
        return declined(proposal_id, proposal, "FleetHeld", "over half of the clusters with a lease are silent")
    if cluster.silent_since is None:
        return declined(proposal_id, proposal, "TargetRecovered", "the cluster is heard of")
    if name in record.suspect or not (record.targets.get(name) or (record.spec.components and name in record.targets)):
        return declined(proposal_id, proposal, "NothingToDo", "nothing there that is not placed elsewhere already")
    suspect = tuple(sorted((*record.suspect, name)))
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    if record.spec.placement.failover == "reserve":
        verdict = replaced(state, record, held, {name: record.targets[name]}, without=suspect)
    else:
        verdict = solved(state, record, held, without=suspect)
    if verdict.reason:
        return declined(proposal_id, proposal, "Unschedulable", verdict.explanation.note)
    if verdict.targets == held:
        return declined(proposal_id, proposal, "NothingToDo", "every other cluster has its copy")
    verdict = with_sets(state, record, verdict, (name,))
    return schedule(
        record, "FailoverSchedule", f"{name} is silent", with_suspects(record, verdict, suspect), suspect, proposal_id
    )  # fmt: skip


def declined(proposal_id: UUID, proposal: Proposal, reason: ProposalRefusal, detail: str) -> Draft:
    kind = type(proposal).__name__
    refusal = ProposalRefused(str(proposal_id), kind, proposal.binding, reason, detail)
    return Draft(refusal, proposal.binding, "refused", proposal_id)


# What is gone


def refilled(state: FleetState, record: BindingState, gone: Sequence[str]) -> Verdict:
    """Some targets are being deleted, or are not there any more."""
    if record.spec.placement.failover == "reserve" and record.before and not record.refused and not record.suspect:
        held = {c: n for c, n in record.targets.items() if c not in gone}
        failed = {c: record.before[c] for c in gone if c in record.before}
        verdict = replaced(state, record, held, failed, without=tuple(gone))
        if verdict.reason:  # nothing moves: what is being deleted is still there
            verdict.targets = dict(record.targets)
    else:
        verdict = present(state, record, retry=bool(record.refused) or record.shrunk)
    return with_sets(state, record, verdict, gone)


# Reserved, available, candidates, failed


def replaced(
    state: FleetState,
    record: BindingState,
    reserved: Mapping[str, int],
    failed: Mapping[str, int],
    without: Collection[str],
) -> Verdict:
    """The reserved targets as they are, and each failed one's replicas in a candidate of their own. Refused: fewer candidates than
    failed targets, or none of them has room for what it should take over."""
    affinity = next((t for t in terms_of(record) if t.name == record.affinity), terms_of(record)[0])
    found = _candidates(state, record, {*reserved, *failed, *without, *record.suspect})
    roomy = sorted(found, key=lambda name: (-_fits(state, record, name), name))
    counts = sorted(failed.items(), key=lambda item: (-item[1], item[0]))
    least = 1 if record.spec.components else 0  # of a set one is meant, which has no count
    note = f"{len(failed)} failed, {len(found)} candidates"
    if len(found) < len(failed):
        note = f"{note}: nothing moves"
    elif any(_fits(state, record, name) < max(n, least) for name, (_, n) in zip(roomy, counts, strict=False)):
        note = f"{note}, not all with room for what they would take over: nothing moves"
    else:
        targets = dict(reserved)
        for name, (_, n) in zip(roomy, counts, strict=False):
            targets[name] = n
        return Verdict(targets, affinity.name, Explanation(len(state.order), len(found), note=note))
    held = {**reserved, **{c: n for c, n in failed.items() if c in record.targets}}
    return Verdict(held, record.affinity, Explanation(len(state.order), len(found), note=note), "Unschedulable")


def _fits(state: FleetState, record: BindingState, name: str) -> int:
    return state.fits(record, state.clusters[name])


def with_sets(state: FleetState, record: BindingState, verdict: Verdict, failed: Sequence[str]) -> Verdict:
    """The verdict with the four sets in its explanation."""
    reserved = [c for c in sorted(record.targets) if c not in failed and c not in record.suspect]
    out = {*failed, *record.suspect, *record.targets}
    available = [c.name for c in state.order if c.name not in out and _sound(state, c)]
    candidates = [name for name in _candidates(state, record, out) if name in set(available)]
    failed = sorted(failed)
    sets = FailoverSets(
        tuple(reserved[:NAMED]), tuple(available[:NAMED]), tuple(candidates[:NAMED]), tuple(failed[:NAMED]),
        (len(reserved), len(available), len(candidates), len(failed)),
    )  # fmt: skip
    verdict.explanation = bounded(msgspec.structs.replace(verdict.explanation, failover=sets))
    return verdict


def _sound(state: FleetState, cluster: ClusterState) -> bool:
    """Heard of, staying, and without a taint that keeps anybody off."""
    facts = cluster.facts
    return (
        facts is not None
        and not facts.deleting
        and cluster.name not in state.silent
        and all(taint.effect == "PreferNoSchedule" for taint in facts.taints)
    )


def _candidates(state: FleetState, record: BindingState, out: Collection[str]) -> list[str]:
    """Those that are available and pass the filters of the affinity in force, in order of name."""
    term = next((i for i, t in enumerate(terms_of(record)) if t.name == record.affinity), 0)
    shut = {*out, *state.evicted(record)}
    return [
        name for name in feasible(state, record, term).names if name not in shut and _sound(state, state.clusters[name])
    ]
