"""Moving a binding to targets that somebody names: allowed, or why not.

Whoever names them has found them in a replay or in history. They are held against the present with the filters and estimates that
every other decision uses, so a relocation can put a binding only where it could have gone by itself, and, where an objective is
stated, only where that is better than what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.filters import Question, first_refusal
from wharfinger.engine.fleet.keep import broken
from wharfinger.engine.fleet.objective import OBJECTIVES, Objective, Place, price_micro, score
from wharfinger.engine.fleet.select import LOCALITY, constrained
from wharfinger.events.decisions import Explanation, Scored
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.stages.fleet.explain import SHOWN, bounded
from wharfinger.stages.fleet.places import MAX_SHOWN, Verdict, terms_of
from wharfinger.stages.fleet.state import BindingState, FleetState

No = tuple[ProposalRefusal, str]


def relocation(
    state: FleetState, record: BindingState, proposal: RescheduleProposed, held: Mapping[str, int]
) -> Verdict | No:
    """`held`: what the binding holds and counts (silent clusters whose replicas are also counted elsewhere are left out)."""
    wanted = {t.cluster: t.replicas for t in proposal.targets}
    if no := _malformed(record, proposal, wanted):
        return no
    if wanted == record.before:
        return "NothingToDo", "it lies there already"
    found = _affinity(state, record, wanted, held)
    if isinstance(found, tuple):
        return found
    no = breaks_spread(state, record, wanted) or _no_room(state, record, wanted, held)
    if no is not None:
        return no
    note = "to the targets that were proposed"
    if proposal.objective and not proposal.policy:  # by a policy it was compared before, see `rebalancing`
        compared = _compared(state, record, proposal.objective, wanted, held)
        if isinstance(compared, tuple):
            return compared
        note = f"{note}: {compared}"
    return Verdict(wanted, found.name, _explained(state, record, wanted, held, note))


def _malformed(record: BindingState, proposal: RescheduleProposed, wanted: Mapping[str, int]) -> No | None:
    spec, plan = record.spec, record.plan
    if len(wanted) != len(proposal.targets):
        return "ClusterInfeasible", "a target is named twice"
    if plan.problem:
        return "Unschedulable", plan.problem
    if plan.duplicated or not record.counted:
        return "ClusterInfeasible", "it goes wherever it may; no targets can be chosen for it"
    if min(wanted.values()) <= 0:
        return "ReplicasDiffer", "every target needs at least one replica"
    if sum(wanted.values()) != spec.replicas:
        return "ReplicasDiffer", f"{spec.replicas} replicas are asked for, the targets hold {sum(wanted.values())}"
    return None


def _affinity(
    state: FleetState, record: BindingState, wanted: Iterable[str], held: Mapping[str, int]
) -> ClusterAffinity | No:
    """The first affinity term that admits all targets; else why the first term does not."""
    why: No | None = None
    for term in terms_of(record):
        no = _infeasible(state, record, term, wanted, held)
        if no is None:
            return term
        why = why or no
    assert why is not None, "there is always a term"
    return why


def _infeasible(
    state: FleetState, record: BindingState, term: ClusterAffinity, wanted: Iterable[str], held: Mapping[str, int]
) -> No | None:
    evicted = state.evicted(record)
    question = Question(record.spec.placement, term, record.spec.resource.gvk, state.silent, evicted)
    for name in wanted:
        if not state.known(name):
            return "UnknownTarget", f"no such cluster: {name}"
        reason = (
            "ClusterSilent" if name in record.suspect else first_refusal(question, _facts(state, name), name in held)
        )
        if reason is not None:
            return "ClusterInfeasible", f"{name}: {reason}"
    return None


def breaks_spread(state: FleetState, record: BindingState, wanted: Iterable[str]) -> No | None:
    placement = record.spec.placement
    if not constrained(placement):
        return None
    why = broken(placement.spread, [_facts(state, name) for name in wanted], record.spec.replicas)
    return ("SpreadConstraint", why) if why else None


def _no_room(state: FleetState, record: BindingState, wanted: Mapping[str, int], held: Mapping[str, int]) -> No | None:
    """What is added has to fit by the estimates. Replicas of another class than now lie there count as added."""
    same_class = record.applied_class == record.class_key
    for name, n in wanted.items():
        added = n - held.get(name, 0) if same_class else n
        if added > 0 and (fits := state.fits(record, state.clusters[name])) < added:
            return "NoRoom", f"{name}: {added} more replicas, {max(0, fits)} fit"
    return None


def _compared(
    state: FleetState, record: BindingState, objective: str, wanted: Mapping[str, int], held: Mapping[str, int]
) -> str | No:
    known: Objective | None = next((o for o in OBJECTIVES if o == objective), None)
    if known is None:
        return "NotBetter", f"unknown objective {objective[:40]}; there are {', '.join(OBJECTIVES)}"
    resource = resource_of(record.spec.requirements)
    request = record.spec.requirements.requests.get(resource, 0)
    places = {name: place_in(state, name, resource) for name in sorted({*wanted, *held}) if state.known(name)}
    now, then = score(known, held, held, request, places), score(known, held, wanted, request, places)
    if now is None or then is None:
        return (
            "NotBetter",
            f"by {known} it cannot be told: {'a price' if known == 'cost' else 'a capacity'} is not known",
        )
    if then >= now:
        return "NotBetter", f"by {known} it would be {then}, it is {now}"
    return f"{known} {now} -> {then}"


def resource_of(requirements: Requirements) -> str:
    """The one by which the use of clusters is compared."""
    return "cpu" if "cpu" in requirements.requests else min(requirements.requests, default="cpu")


def place_in(state: FleetState, name: str, resource: str) -> Place:
    """Total is what is free and what this stream has there: what others use is no part of it."""
    cluster = state.clusters[name]
    used = 0
    for binding in state.by_cluster.get(name, ()):
        record = state.bindings[binding]
        used += record.targets.get(name, 0) * record.spec.requirements.requests.get(resource, 0)
    free = 0 if cluster.room is None else max(0, cluster.room.left.get(resource, 0))
    return Place(used, used + free if cluster.room is not None else 0, price_micro(_facts(state, name)))


def _facts(state: FleetState, name: str) -> Cluster:
    facts = state.clusters[name].facts
    assert facts is not None, "only known clusters are asked about"
    return facts


def _explained(
    state: FleetState, record: BindingState, wanted: Mapping[str, int], held: Mapping[str, int], note: str
) -> Explanation:
    chosen: list[Scored] = []
    for name in list(wanted)[:SHOWN]:
        cluster = state.clusters[name]
        estimate = min(MAX_SHOWN, state.fits(record, cluster))
        by = state.estimated_by(record, cluster)
        chosen.append(Scored(name, LOCALITY if name in held else 0, estimate, by))
    return bounded(Explanation(len(state.order), len(wanted), chosen=tuple(chosen), note=note))
