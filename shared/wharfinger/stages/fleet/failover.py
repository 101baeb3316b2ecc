"""Failover: what happens to bindings when clusters are silent, tainted or removed.

Failover only adds replicas: the silent cluster keeps its replicas, which are marked as suspect, and
the same number is placed elsewhere. When its heartbeat returns, the added replicas are released and
the original ones are kept, because they kept running; that moves the fewest replicas. If the
binding was scaled meanwhile, its replicas are then divided as usual. If more than half of the fleet
is silent, there is no failover: the fault is more likely in this control plane's own network.

The placement's `failover` sets how missing replicas are replaced. `evict`: by the binding's own
strategy, so healthy targets may take some. `reserve` (the first design of Karmada's scheduler):
healthy targets stay as they are. Each failed target is replaced by one other feasible cluster with
capacity, which takes over its number of replicas; the largest number goes to the largest capacity.
With fewer candidates than failed targets the failover is refused and nothing moves; the binding's
own strategy is tried again when something changes.

In both cases the decision names the four sets: reserved, available, candidates, failed.
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
)
from wharfinger.events.proposals import FailoverProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages import proposal_refusals
from wharfinger.stages.fleet.drafts import present, schedule, solved, with_suspects
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.solve import SolveResult, feasible
from wharfinger.stages.fleet.state import BindingState, FleetState, Proposal
from wharfinger.stages.fleet.state.clusters import ClusterState

NAMED = 3
"""How many clusters of each set a decision names."""

# Silence


def watch_leases(state: FleetState, at: Micros) -> Iterator[Draft]:
    for (name,) in sorted(state.cluster_index.leases.pop(at)):
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
            state.cluster_index.heard(cluster)


def hold_or_resume(state: FleetState) -> Iterator[Draft]:
    silent, clusters = len(state.silent), len(state.cluster_index.leased)
    if 2 * silent > clusters and not state.held:
        yield Draft(FailoverHeld(silent, clusters), state.stream, "held")
    elif 2 * silent <= clusters and state.held:
        yield Draft(FailoverResumed(silent, clusters), state.stream, "resumed")


# Recovered


def settle_recovered(state: FleetState) -> Iterator[Draft]:
    """Yield, for each suspect cluster that is settled, the decisions about its bindings. A suspect
    cluster is a target that is silent or that the binding is leaving. Each decision releases the
    replicas that were placed in other clusters instead and are not needed any more.

    A cluster is settled in three cases: it was silent and its heartbeat returned; the binding was
    leaving it and it has no NoExecute taint any more and is not silent; the cluster was removed
    from the fleet. A binding that is suspended or belongs to another scheduler is skipped. Clusters
    and bindings are in order of name.
    """
    for name in sorted(state.binding_index.suspected):
        cluster = state.clusters.get(name)
        if cluster is not None and cluster.silent_since is not None:
            continue
        for binding in sorted(state.binding_index.suspected.get(name, ())):
            # settled for one cluster, perhaps settled for the next
            record = state.bindings[binding]
            if name in record.suspect and not record.left_alone:
                why = (
                    f"{name} is heard of again"
                    if cluster is not None
                    else f"{name}, which was silent, is gone"
                )
                yield _settled(state, record, name, cluster, why)
    for name in sorted(state.binding_index.outgoing):
        cluster = state.clusters.get(name)
        if cluster is not None and (cluster.tainted or cluster.silent_since is not None):
            continue
        for binding in sorted(state.binding_index.outgoing.get(name, ())):
            record = state.bindings[binding]
            if name in record.suspect and not record.left_alone:
                why = (
                    f"{name} has no such taint any more, and is not left"
                    if cluster
                    else f"{name}, which it was leaving, is gone"
                )
                yield _settled(state, record, name, cluster, why)


def _settled(
    state: FleetState, record: BindingState, name: str, cluster: ClusterState | None, why: str
) -> Draft:
    """Build the decision that makes cluster `name` an ordinary target of the binding again. Before,
    the cluster was a suspect target: it was silent, or the binding moved away from it. The replicas
    in this cluster stay, because they may still run.

    While the cluster was suspect, replicas were placed in other clusters instead. First release
    these replicas, but only as many as the binding has too many. Then divide the replicas as usual.
    Example: the binding wants 4 replicas. 4 run in a; 4 were added in b while a was silent. Now it
    has 8, so the 4 in b are released. A binding with components, or with all its replicas in each
    cluster (duplicated), releases everything in the clusters that were added. `why`: text for the
    explanation. `cluster`: None if the cluster no longer exists.
    """
    suspect = tuple(
        c for c in record.suspect if c != name and (c in state.silent or c in record.leaving)
    )
    held = {c: n for c, n in record.targets.items() if c not in suspect}
    excess = len(held) if record.parsed.duplicated else sum(held.values()) - record.spec.replicas
    for place, extra in sorted(record.extra.items()):
        if record.spec.components:  # a set is whole or not there
            held.pop(place, None)
            continue
        most = held.get(place, 0)
        give = min(extra, most, max(0, excess))
        if record.parsed.duplicated:
            give = most  # a copy is whole or not there
        if give:
            excess -= give
            held[place] = most - give
            if not held[place]:
                del held[place]
    verdict = solved(state, record, held, fresh=record.applied_token != record.spec.reschedule)
    cause = cluster.heard_by if cluster is not None else record.cause
    return schedule(
        record, "FailoverSchedule", why, with_suspects(record, verdict, suspect), suspect, cause
    )


# Proposals


def fail_over(
    state: FleetState, record: BindingState, proposal_id: UUID, proposal: FailoverProposed
) -> Draft:
    """Answer a failover proposal: place the replicas of a silent cluster on other clusters. Return
    the draft (a decision that has no seq yet) of the failover, or of a refusal with its reason.

    The silent cluster stays a target, because its replicas may still run. It is marked as suspect:
    its replicas are not counted as replicas that the binding has. The proposal is declined in these
    cases:

    - The cluster is unknown, or its heartbeat has returned.
    - More than half of the clusters with a lease are silent.
    - The binding has nothing in the cluster that needs a replacement.
    - No other cluster has capacity.
    """
    name, cluster = proposal.cluster, state.clusters.get(proposal.cluster)
    if cluster is None or cluster.facts is None:
        return declined(proposal_id, proposal, "UnknownTarget", "no such cluster")
    if state.held:
        return declined(
            proposal_id, proposal, "FleetHeld", "over half of the clusters with a lease are silent"
        )
    if cluster.silent_since is None:
        return declined(proposal_id, proposal, "TargetRecovered", "the cluster is heard of")
    if name in record.suspect or not (
        record.targets.get(name) or (record.spec.components and name in record.targets)
    ):
        return declined(
            proposal_id,
            proposal,
            "NothingToDo",
            "nothing there that is not placed elsewhere already",
        )
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
        record,
        "FailoverSchedule",
        f"{name} is silent",
        with_suspects(record, verdict, suspect),
        suspect,
        proposal_id,
    )


def declined(proposal_id: UUID, proposal: Proposal, reason: ProposalRefusal, detail: str) -> Draft:
    kind = type(proposal).__name__
    return proposal_refusals.declined(
        str(proposal_id), kind, proposal.binding, reason, detail, proposal_id
    )


# What is gone


def refilled(state: FleetState, record: BindingState, gone: Sequence[str]) -> SolveResult:
    """Replace the targets of a binding in the clusters `gone`, which are being deleted or no longer
    exist. Return the new targets with an explanation.

    If the `failover` setting of the placement is `reserve`, each target in `gone` is replaced by
    one other cluster; if there are not enough clusters for that, nothing moves. With any other
    setting the whole binding is placed again, and the targets that are not in `gone` are kept where
    possible. This is also done with `reserve` if the binding waits for a place, lost replicas, or
    has suspect targets.
    """
    if (
        record.spec.placement.failover == "reserve"
        and record.before
        and not record.refused
        and not record.shrunk  # what another cluster refused has to be placed as well
        and not record.suspect
    ):
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
) -> SolveResult:
    """Replace failed targets as the failover setting `reserve` demands: keep the targets in
    `reserved`, and move all replicas of each failed target to one other cluster. The failed target
    with the most replicas goes to the candidate with the largest capacity, the failed target with
    the second most to the candidate with the second largest capacity, and so on. Equal numbers are
    ordered by cluster name. Example: failed targets with 5 and 2 replicas, candidates with capacity
    9 and 3: the first candidate gets 5, the second gets 2.

    `reserved`, `failed`: cluster -> replicas. `without`: more clusters that must not be candidates.
    A candidate is a healthy cluster that passes the filters and is no target. The result is a
    refusal (Unschedulable) with nothing moved in two cases: there are fewer candidates than failed
    targets, or a candidate has less capacity than it would have to take.
    """
    affinity = next(
        (t for t in record.spec.placement.terms if t.name == record.affinity),
        record.spec.placement.terms[0],
    )
    found = _candidates(state, record, {*reserved, *failed, *without, *record.suspect})
    roomy = sorted(found, key=lambda name: (-_fits(state, record, name), name))
    counts = sorted(failed.items(), key=lambda item: (-item[1], item[0]))
    least = 1 if record.spec.components else 0  # of a set one is meant, which has no count
    note = f"{len(failed)} failed, {len(found)} candidates"
    if len(found) < len(failed):
        note = f"{note}: nothing moves"
    elif any(
        _fits(state, record, name) < max(n, least)
        for name, (_, n) in zip(roomy, counts, strict=False)
    ):
        note = f"{note}, not all with room for what they would take over: nothing moves"
    else:
        targets = dict(reserved)
        for name, (_, n) in zip(roomy, counts, strict=False):
            targets[name] = n
        return SolveResult(
            targets, affinity.name, Explanation(len(state.order), len(found), note=note)
        )
    held = {**reserved, **{c: n for c, n in failed.items() if c in record.targets}}
    return SolveResult(
        held, record.affinity, Explanation(len(state.order), len(found), note=note), "Unschedulable"
    )


def _fits(state: FleetState, record: BindingState, name: str) -> int:
    return state.fits(record, state.clusters[name])


def with_sets(
    state: FleetState, record: BindingState, verdict: SolveResult, failed: Sequence[str]
) -> SolveResult:
    """Add four sets of clusters to the explanation of `verdict`, which is changed in place and
    returned:

    - reserved: targets that are neither failed nor suspect;
    - available: healthy clusters that are neither failed, suspect nor targets;
    - candidates: the available clusters that pass the filters of the affinity term;
    - failed: the clusters `failed`.

    At most 3 (`NAMED`) names of each set are added, and the full size of each set.
    """
    reserved = [c for c in sorted(record.targets) if c not in failed and c not in record.suspect]
    out = {*failed, *record.suspect, *record.targets}
    available = [c.name for c in state.order if c.name not in out and _sound(state, c)]
    candidates = [name for name in _candidates(state, record, out) if name in set(available)]
    failed = sorted(failed)
    sets = FailoverSets(
        tuple(reserved[:NAMED]),
        tuple(available[:NAMED]),
        tuple(candidates[:NAMED]),
        tuple(failed[:NAMED]),
        (len(reserved), len(available), len(candidates), len(failed)),
    )
    verdict.explanation = bounded(msgspec.structs.replace(verdict.explanation, failover=sets))
    return verdict


def _sound(state: FleetState, cluster: ClusterState) -> bool:
    """Return whether the cluster has a heartbeat, is not being deleted, and has no taint except
    PreferNoSchedule."""
    facts = cluster.facts
    return (
        facts is not None
        and not facts.deleting
        and cluster.name not in state.silent
        and all(taint.effect == "PreferNoSchedule" for taint in facts.taints)
    )


def _candidates(state: FleetState, record: BindingState, out: Collection[str]) -> list[str]:
    """Return the clusters outside `out` that pass the filters of the active affinity term and are
    healthy (`_sound`), in order of name."""
    term = next(
        (i for i, t in enumerate(record.spec.placement.terms) if t.name == record.affinity), 0
    )
    shut = {*out, *state.evicted(record)}
    return [
        name
        for name in feasible(state, record, term).names
        if name not in shut and _sound(state, state.clusters[name])
    ]
