"""Checks the relocation of a binding to named targets.

The targets come from a replay or from history. They are checked with the same filters and estimates
as every decision, so a relocation can place a binding only where scheduling could have placed it.
Where the proposal states an objective, the new targets must also be better by it than the present
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.objective import (
    OBJECTIVES,
    Objective,
    ObjectiveCluster,
    price_micro,
    score,
)
from wharfinger.engine.fleet.select import constrained
from wharfinger.engine.fleet.spread_floor import broken
from wharfinger.events.decisions import Explanation
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.rules.clusters.silent import SilentFilter
from wharfinger.stages.fleet.explain import MAX_SHOWN, bounded
from wharfinger.stages.fleet.solve import SolveResult
from wharfinger.stages.fleet.state import BindingState, FleetState

No = tuple[ProposalRefusal, str]


def relocation(
    state: FleetState, record: BindingState, proposal: RescheduleProposed, held: Mapping[str, int]
) -> SolveResult | No:
    """Check a move of the binding to the targets that the proposal names. Return the result with
    these targets if the move is allowed. Otherwise return (reason, text) of the refusal.
    - The targets must differ from the present ones and have exactly the wanted number of replicas.
      A binding that goes to every feasible cluster cannot be moved.
    - One affinity term must admit all new targets, spread constraints must hold, and the added
      replicas must fit.
    - If the proposal names an objective (such as cost) and no policy, the new targets must be
      better by that objective. A move by a policy was compared before (`rebalancing`).
    `held`: cluster -> replicas: the binding's present targets, without clusters that are silent or
    that the binding is leaving."""
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
    if proposal.objective and not proposal.policy:
        # by a policy it was compared before, see `rebalancing`
        compared = _compared(state, record, proposal.objective, wanted, held)
        if isinstance(compared, tuple):
            return compared
        note = f"{note}: {compared}"
    return SolveResult(wanted, found.name, _explained(state, record, wanted, note))


def _malformed(
    record: BindingState, proposal: RescheduleProposed, wanted: Mapping[str, int]
) -> No | None:
    spec, plan = record.spec, record.parsed
    if len(wanted) != len(proposal.targets):
        return "ClusterInfeasible", "a target is named twice"
    if plan.problem:
        return "Unschedulable", plan.problem
    if plan.duplicated or not record.counted:
        return "ClusterInfeasible", "it goes wherever it may; no targets can be chosen for it"
    if min(wanted.values()) <= 0:
        return "ReplicasDiffer", "every target needs at least one replica"
    if sum(wanted.values()) != spec.replicas:
        return (
            "ReplicasDiffer",
            f"{spec.replicas} replicas are asked for, the targets hold {sum(wanted.values())}",
        )
    return None


def _affinity(
    state: FleetState, record: BindingState, wanted: Iterable[str], held: Mapping[str, int]
) -> ClusterAffinity | No:
    """Return the first affinity term of the placement that admits all clusters in `wanted` (the new
    targets). If no term does, return (reason, text): why the first term refuses a cluster.
    `held`: cluster -> replicas that the binding has now. A cluster in `held` is filtered as an
    existing target; filters are less strict for existing targets."""
    why: No | None = None
    for term in record.spec.placement.terms:
        no = _infeasible(state, record, term, wanted, held)
        if no is None:
            return term
        why = why or no
    assert why is not None, "there is always a term"
    return why


def _infeasible(
    state: FleetState,
    record: BindingState,
    term: ClusterAffinity,
    wanted: Iterable[str],
    held: Mapping[str, int],
) -> No | None:
    evicted = state.evicted(record)
    question = ClusterQuery(
        record.spec.placement, term, record.spec.resource.gvk, state.silent, evicted
    )
    for name in wanted:
        if not state.known(name):
            return "UnknownTarget", f"no such cluster: {name}"
        reason = (
            SilentFilter.reason
            if name in record.suspect
            else first_refusal(question, _facts(state, name), name in held)
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


def _no_room(
    state: FleetState, record: BindingState, wanted: Mapping[str, int], held: Mapping[str, int]
) -> No | None:
    """Return a refusal where a target gets more additional replicas than its estimate. If the class
    of the replicas changed, all of them count as additional. `wanted`, `held`: cluster -> replicas
    after and before the move."""
    same_class = record.applied_class == record.class_key
    for name, n in wanted.items():
        added = n - held.get(name, 0) if same_class else n
        if added > 0 and (fits := state.fits(record, state.clusters[name])) < added:
            return "NoRoom", f"{name}: {added} more replicas, {max(0, fits)} fit"
    return None


def _compared(
    state: FleetState,
    record: BindingState,
    objective: str,
    wanted: Mapping[str, int],
    held: Mapping[str, int],
) -> str | No:
    known: Objective | None = next((o for o in OBJECTIVES if o == objective), None)
    if known is None:
        return "NotBetter", f"unknown objective {objective[:40]}; there are {', '.join(OBJECTIVES)}"
    resource = resource_of(record.spec.requirements)
    request = record.spec.requirements.requests.get(resource, 0)
    places = {
        name: place_in(state, name, resource)
        for name in sorted({*wanted, *held})
        if state.known(name)
    }
    now, then = (
        score(known, held, held, request, places),
        score(known, held, wanted, request, places),
    )
    if now is None or then is None:
        return (
            "NotBetter",
            (
                f"by {known} it cannot be told: {'a price' if known == 'cost' else 'a capacity'} "
                "is "
                "not known"
            ),
        )
    if then >= now:
        return "NotBetter", f"by {known} it would be {then}, it is {now}"
    return f"{known} {now} -> {then}"


def resource_of(requirements: Requirements) -> str:
    """Return the resource by which the use of clusters is compared: cpu if the replicas request it,
    otherwise the first requested resource by name; cpu where they request nothing."""
    return "cpu" if "cpu" in requirements.requests else min(requirements.requests, default="cpu")


def place_in(state: FleetState, name: str, resource: str) -> ObjectiveCluster:
    """Return the use, the total and the price of one resource in the cluster `name`. Amounts are in
    the unit of the resource (`domain.resources`).
    - Use: what the replicas of this stream's bindings request in the cluster. What other pods use
      is not included.
    - Total: the use plus the free amount; 0 where the cluster has not reported its capacity.
    - Price: of one core for an hour (also if `resource` is not cpu), in millionths of the unit of
      the cluster's price label; None: not known.
    Example: the bindings request 6 cores, and 4 cores are free: use 6, total 10."""
    cluster = state.clusters[name]
    used = 0
    for binding in state.by_cluster.get(name, ()):
        record = state.bindings[binding]
        used += record.targets.get(name, 0) * record.spec.requirements.requests.get(resource, 0)
    free = 0 if cluster.room is None else max(0, cluster.room.left.get(resource, 0))
    return ObjectiveCluster(
        used, used + free if cluster.room is not None else 0, price_micro(_facts(state, name))
    )


def _facts(state: FleetState, name: str) -> Cluster:
    facts = state.clusters[name].facts
    assert facts is not None, "only known clusters are asked about"
    return facts


def _explained(
    state: FleetState, record: BindingState, wanted: Mapping[str, int], note: str
) -> Explanation:
    best = {
        name: min(MAX_SHOWN, state.fits(record, state.clusters[name])) for name in list(wanted)[:1]
    }
    return bounded(Explanation(len(state.order), len(wanted), note=note, best=best))
